package leasepprof_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/leasepprof"
)

func ExampleHandler() {
	pool, err := ration.NewPermitPool(4, &ration.PoolOptions[struct{}]{Name: "mail"})
	if err != nil {
		log.Fatal(err)
	}
	profile := leasepprof.NewHandler(nil)
	leasepprof.Add(profile, pool)
	http.Handle("/debug/leases", profile)

	// go tool pprof -top http://localhost:8080/debug/leases asks like this:
	request := httptest.NewRequest("GET", "http://localhost:8080/debug/leases", nil)
	request.RemoteAddr = "127.0.0.1:54321"
	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, request)
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	runtime.KeepAlive(pool) // the handler does not keep it
	// Output: 200 application/octet-stream
}

func ExampleOptions() {
	profile := leasepprof.NewHandler(&leasepprof.Options{
		Authorize: func(r *http.Request) bool {
			_, password, _ := r.BasicAuth()
			return password == "secret" // compare in constant time, and not with this
		},
	})
	answer := httptest.NewRecorder()
	profile.ServeHTTP(answer, httptest.NewRequest("GET", "/debug/leases", nil))
	fmt.Println(answer.Code)
	// Output: 403
}

// Any pool is a Lender.
func ExampleLender() {
	connections, err := ration.NewPermitPool(4, nil)
	if err != nil {
		log.Fatal(err)
	}
	seats, err := ration.NewPermitPool(10, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := seats.Acquire(context.Background()); err != nil {
		log.Fatal(err)
	}
	open := 0
	for _, lender := range []leasepprof.Lender{connections, seats} {
		open += len(lender.Leases())
	}
	fmt.Println(open)

	var profile bytes.Buffer
	fmt.Println(leasepprof.Write(&profile, connections, seats))
	// Output:
	// 1
	// <nil>
}
