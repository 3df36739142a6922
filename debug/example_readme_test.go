package debug_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// The code block of README.md; TestDocs_ReadmeCodeRuns compares them.

func Example() {
	pool, err := ration.NewPermitPool(4, nil)
	if err != nil {
		log.Fatal(err)
	}
	uploads := ration.NewSemaphore(8, nil)
	mux := http.NewServeMux()
	mount(mux, pool, uploads)

	request := httptest.NewRequest("GET", "http://localhost/debug/ration", nil)
	request.RemoteAddr = "127.0.0.1:54321"
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, request)
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	fmt.Println(strings.Contains(answer.Body.String(), "uploads"))
	// Output:
	// 200 text/html; charset=utf-8
	// true
}

func mount(mux *http.ServeMux, pool *ration.Pool[struct{}], uploads *ration.Semaphore) {
	page := debug.New(nil) // for requests from this machine, unless told otherwise
	page.Add("mail", debug.Pool(pool, nil))
	page.Add("uploads", debug.Semaphore(uploads))
	mux.Handle("/debug/ration", page)
}
