module github.com/ration-go/ration

go 1.26
