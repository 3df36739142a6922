package otelration_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/otelration"
)

// metered returns instruments of a meter, and what reads the meter.
func metered(t testing.TB, opts *otelration.Options) (*otelration.Instruments, *sdk.ManualReader) {
	reader := sdk.NewManualReader()
	in, err := otelration.New(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), opts)
	require.NoError(t, err)
	return in, reader
}

// A number is not of size zero, so that no two are at one address.
type number struct{ _ int }

func open(context.Context) (*number, error) { return new(number), nil }

func newPool(t testing.TB, capacity int64, opts *ration.PoolOptions[*number]) *ration.Pool[*number] {
	p, err := ration.NewPool(capacity, open, opts)
	require.NoError(t, err)
	return p
}

func newBucket(t testing.TB, r ration.Rate, burst int64) *ration.TokenBucket {
	b, err := ration.NewTokenBucket(r, burst)
	require.NoError(t, err)
	return b
}

func read(t testing.TB, r *sdk.ManualReader) map[string]metricdata.Metrics {
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &all))
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// values returns all series, such as `ration.pool.idle{pool=p}`, and their
// values. The value of a histogram is its count and sum.
func values(t testing.TB, r *sdk.ManualReader) map[string]string {
	got := make(map[string]string)
	for name, m := range read(t, r) {
		add := func(set attribute.Set, v any) {
			got[fmt.Sprintf("%s{%s}", name, set.Encoded(attribute.DefaultEncoder()))] = fmt.Sprint(v)
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, fmt.Sprintf("%d, %v", p.Count, p.Sum))
			}
		default:
			t.Fatalf("%s is a %T", name, data)
		}
	}
	return got
}

// collected runs the garbage collector until gone says that what it waits for
// is gone.
func collected(t testing.TB, gone func() bool) {
	for range 100 {
		runtime.GC()
		if gone() {
			return
		}
		time.Sleep(time.Millisecond) // real time, for the runtime
	}
	t.Fatal("not collected")
}
