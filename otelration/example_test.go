package otelration_test

import (
	"context"
	"fmt"
	"log"
	"runtime"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/otelration"
)

// A pool of database connections, reported as OpenTelemetry wants these.
func Example() {
	reader := sdk.NewManualReader() // in a service, that of an exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))

	metrics, err := otelration.New(provider.Meter("example"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer metrics.Unregister()
	pool, err := ration.NewPool(4, dial, &ration.PoolOptions[*Conn]{
		Observer: metrics.DBObserver("orders"),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := otelration.AddDBPool(metrics, "orders", pool, 0); err != nil {
		log.Fatal(err)
	}
	lease, err := pool.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "db.client.connection.count" {
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				state, _ := p.Attributes.Value("db.client.connection.state")
				fmt.Println(m.Name, state.AsString(), p.Value)
			}
		}
	}
	lease.Close()
	runtime.KeepAlive(pool) // the instruments do not keep it
	// Unordered output:
	// db.client.connection.count idle 0
	// db.client.connection.count used 1
}

type Conn struct{ _ int }

func dial(context.Context) (*Conn, error) { return new(Conn), nil }
