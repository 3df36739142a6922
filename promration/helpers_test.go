package promration_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/promration"
)

// registered returns a collector in a registry that accepts only what is
// described and consistent.
func registered(t testing.TB, opts *promration.Options) (*promration.Collector, *prometheus.Registry) {
	c := promration.New(opts)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	return c, registry
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

func gather(t testing.TB, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	families, err := g.Gather()
	require.NoError(t, err)
	byName := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// text is what Prometheus would get.
func text(t testing.TB, g prometheus.Gatherer) string {
	families, err := g.Gather()
	require.NoError(t, err)
	var out strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&out, f)
		require.NoError(t, err)
	}
	return out.String()
}

// value returns the value of a series such as `ration_pool_idle{pool="p"}`.
func value(t testing.TB, g prometheus.Gatherer, series string) string {
	for line := range strings.Lines(text(t, g)) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return "none"
}

// collected runs the garbage collector until gone says that what it waits for
// is gone.
func collected(t testing.TB, gone func() bool) {
	for range 100 {
		runtime.GC()
		if gone() {
			return
		}
		time.Sleep(time.Millisecond) // real time: cleanups run on a goroutine of the runtime's
	}
	t.Fatal("not collected")
}
