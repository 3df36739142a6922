package promration_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/promration"
)

// What a loan of an idle resource pays for the histograms.
func BenchmarkLoan(b *testing.B) {
	c := promration.New(nil)
	for _, observer := range []struct {
		name string
		ration.Observer
	}{
		{"none", ration.Observer{}},
		{"empty", ration.Observer{Acquired: func(ration.AcquireEvent) {}, Returned: func(ration.ReturnEvent) {}}},
		{"promration", c.Observer("p")},
	} {
		b.Run("observer="+observer.name, func(b *testing.B) {
			pool := newPool(b, 1, &ration.PoolOptions[*number]{Observer: observer.Observer})
			b.ReportAllocs()
			for b.Loop() {
				l, err := pool.Acquire(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
}

// crowded returns a pool with so many open leases and one idle resource.
func crowded(b *testing.B, o ration.Observer, leases int) *ration.Pool[*number] {
	pool := newPool(b, int64(leases)+1, &ration.PoolOptions[*number]{Observer: o})
	for range leases {
		_, err := pool.Acquire(b.Context())
		require.NoError(b, err)
	}
	return pool
}

// What a scrape takes, all of it, up to the text that goes over the line.
func BenchmarkScrape(b *testing.B) {
	for _, leases := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			c, registry := registered(b, nil)
			pool := crowded(b, c.Observer("p"), leases)
			require.NoError(b, promration.AddPool(c, "p", pool))
			for b.Loop() {
				scrape(b, registry)
			}
			runtime.KeepAlive(pool)
		})
	}
}

// How long a scrape holds the pool's lock, at most: what Stats takes.
func BenchmarkStats(b *testing.B) {
	for _, leases := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			pool := crowded(b, ration.Observer{}, leases)
			for b.Loop() {
				pool.Stats()
			}
		})
	}
}

// The longest that a borrower of a pool with 10,000 open leases waits for an
// idle resource while scrapes go on without a pause: of this pool or, for what the
// machine, its scheduler and the garbage of the scrapes do to anybody, of another.
// What this pool's has in excess of the other's is due to the lock.
func BenchmarkAcquireBesideScrapes(b *testing.B) {
	for _, of := range []string{"another", "this"} {
		b.Run("scraped="+of, func(b *testing.B) {
			c, registry := registered(b, nil)
			pools := map[string]*ration.Pool[*number]{
				"this":    crowded(b, c.Observer("this"), 10_000),
				"another": crowded(b, c.Observer("another"), 10_000),
			}
			require.NoError(b, promration.AddPool(c, of, pools[of]))

			var stop atomic.Bool
			took := make(chan []time.Duration)
			go func() {
				var all []time.Duration
				for len(all) == 0 || !stop.Load() {
					start := time.Now()
					l, err := pools["this"].Acquire(context.Background())
					d := time.Since(start)
					if err != nil {
						break
					}
					all = append(all, d)
					l.Close()
				}
				took <- all
			}()
			for b.Loop() {
				scrape(b, registry)
			}
			stop.Store(true)
			all := <-took
			runtime.KeepAlive(pools)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds()), "p99-ns/acquire")
			b.ReportMetric(float64(all[len(all)*9999/10000].Nanoseconds()), "p99.99-ns/acquire")
			b.ReportMetric(float64(all[len(all)-1].Nanoseconds()), "max-ns/acquire")
			late, _ := slices.BinarySearch(all, time.Millisecond)
			b.ReportMetric(float64(len(all)-late), "over-1ms")
			b.ReportMetric(float64(len(all)), "acquires")
		})
	}
}

func scrape(b *testing.B, g prometheus.Gatherer) {
	families, err := g.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(io.Discard, f); err != nil {
			b.Fatal(err)
		}
	}
}
