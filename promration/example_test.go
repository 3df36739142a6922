package promration_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/promration"
)

// A service that lends connections and lets Prometheus see it.
func Example() {
	metrics := promration.New(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	pool, err := ration.NewPool(4, dial, &ration.PoolOptions[*Conn]{
		Observer: metrics.Observer("db"),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := promration.AddPool(metrics, "db", pool); err != nil {
		log.Fatal(err)
	}

	lease, err := pool.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("lent", lease.Value())

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "ration_pool_leases") || strings.HasPrefix(line, "ration_pool_wait_seconds_count") {
			fmt.Print(line)
		}
	}
	lease.Close()
	runtime.KeepAlive(pool) // the collector does not keep it
	// Output:
	// lent a connection
	// ration_pool_leases{pool="db"} 1
	// ration_pool_wait_seconds_count{pool="db"} 1
}

// The pool's events go to an observer of one's own as well.
func ExampleCollector_Observer() {
	metrics := promration.New(nil)
	mine := ration.Observer{
		Destroyed: func(e ration.DestroyEvent) { fmt.Println("destroyed:", e.Reason) },
	}
	pool, err := ration.NewPool(4, dial, &ration.PoolOptions[*Conn]{
		Observer: metrics.Observer("db", mine),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := promration.AddPool(metrics, "db", pool); err != nil {
		log.Fatal(err)
	}
	lease, err := pool.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	lease.Discard()
	// Output: destroyed: broken
}

type Conn struct{ _ int }

func (*Conn) String() string { return "a connection" }

func dial(context.Context) (*Conn, error) { return new(Conn), nil }
