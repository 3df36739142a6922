module github.com/ration-go/ration/bench

go 1.26.0

replace github.com/ration-go/ration => ../

require (
	github.com/jackc/puddle/v2 v2.2.3
	github.com/ration-go/ration v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	golang.org/x/time v0.16.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.25.0 // indirect
)
