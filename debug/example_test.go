package debug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"time"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// ask asks a page as a program on the same machine does.
func ask(page http.Handler, query string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "http://localhost/debug/ration"+query, nil)
	request.RemoteAddr = "127.0.0.1:54321"
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, request)
	return answer
}

func ExamplePage() {
	uploads := ration.NewSemaphore(8, nil)
	page := debug.New(nil)
	page.Add("uploads", debug.Semaphore(uploads))
	uploads.TryAcquire(3)

	var seen struct {
		Semaphores []struct {
			Name           string
			Held, Capacity int
		}
	}
	if err := json.Unmarshal(ask(page, "?format=json").Body.Bytes(), &seen); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Semaphores)
	runtime.KeepAlive(uploads) // the page does not keep it
	// Output: [{uploads 3 8}]
}

// Sampling goes on although nobody looks.
func ExamplePage_Run() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	page := debug.New(nil)
	fmt.Println(page.Run(ctx)) // usually in a goroutine of its own
	// Output: context deadline exceeded
}

func ExampleOptions() {
	page := debug.New(&debug.Options{
		Authorize: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Email") == "admin@example.com" },
		Revoke:    true, // with a button beside each lease
	})
	fmt.Println(ask(page, "").Code)
	// Output: 403
}

func ExampleSource() {
	bucket, err := ration.NewTokenBucket(ration.PerSecond(10), 10)
	if err != nil {
		log.Fatal(err)
	}
	page := debug.New(nil)
	for name, source := range map[string]debug.Source{
		"uploads": debug.Semaphore(ration.NewSemaphore(8, nil)),
		"api":     debug.Bucket(bucket),
	} {
		defer page.Add(name, source)() // until it returns, or nobody else has it
	}
	fmt.Println(ask(page, "").Code)
	// Output: 200
}

func ExampleWaits() {
	waits := new(debug.Waits)
	pool, err := ration.NewPermitPool(8, &ration.PoolOptions[struct{}]{
		Observer: ration.Observer{Acquired: waits.Acquired},
	})
	if err != nil {
		log.Fatal(err)
	}
	page := debug.New(nil)
	page.Add("seats", debug.Pool(pool, waits))
	if _, err := pool.Acquire(context.Background()); err != nil {
		log.Fatal(err)
	}

	var seen struct {
		Pools []struct {
			WaitPercentiles struct{ Acquires int } `json:"wait_percentiles"`
		}
	}
	if err := json.Unmarshal(ask(page, "?format=json").Body.Bytes(), &seen); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Pools[0].WaitPercentiles.Acquires)
	runtime.KeepAlive(pool)
	// Output: 1
}

// A Lender need not be a pool itself: this one shows no owners.
func ExampleLender() {
	pool, err := ration.NewPermitPool(8, nil)
	if err != nil {
		log.Fatal(err)
	}
	page := debug.New(nil)
	discreet := &discreet{pool}
	page.Add("seats", debug.Pool(discreet, nil))
	if _, err := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "alice"}); err != nil {
		log.Fatal(err)
	}

	var seen struct {
		Pools []struct{ Leases []struct{ Owner string } }
	}
	if err := json.Unmarshal(ask(page, "?format=json").Body.Bytes(), &seen); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Pools[0].Leases)
	runtime.KeepAlive(discreet)
	// Output: [{somebody}]
}

type discreet struct{ debug.Lender }

func (d *discreet) Leases() []ration.LeaseInfo {
	leases := d.Lender.Leases()
	for i := range leases {
		leases[i].Owner = "somebody"
	}
	return leases
}
