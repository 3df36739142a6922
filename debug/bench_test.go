package debug

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// BenchmarkPage_BesideBorrowers is what somebody who looks costs those who
// borrow: a loan from a pool with 10,000 open leases, while the page is fetched
// every 10 ms.
func BenchmarkPage_BesideBorrowers(b *testing.B) {
	for _, row := range []struct {
		format string // none: nobody looks
		of     string
	}{{"none", "this"}, {"html", "another"}, {"html", "this"}, {"json", "this"}, {"pprof", "this"}} {
		b.Run("format="+row.format+"/of="+row.of, func(b *testing.B) {
			pool, shown := busyPool(b), busyPool(b)
			if row.of == "this" {
				shown = pool
			}
			page := New(nil)
			page.Add("mail", Pool(shown, nil))
			looking, stop := context.WithCancel(context.Background())
			var done sync.WaitGroup
			fetched := 0
			done.Go(func() {
				again := time.NewTicker(10 * time.Millisecond)
				defer again.Stop()
				for looking.Err() == nil && row.format != "none" {
					serve(page, request("GET", "/?format="+row.format, nil))
					fetched++
					<-again.C
				}
			})
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				lease, err := pool.Acquire(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				lease.Close()
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			stop()
			done.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[b.N/2]), "p50-ns")
			b.ReportMetric(float64(took[b.N*999/1000]), "p99.9-ns")
			b.ReportMetric(float64(took[b.N-1]), "max-ns")
			b.ReportMetric(float64(fetched), "pages")
			runtime.KeepAlive(shown)
		})
	}
}

// busyPool is a pool with 10,000 open leases and room for more.
func busyPool(b *testing.B) *ration.Pool[struct{}] {
	pool, err := ration.NewPermitPool(ration.MaxPermits, nil)
	require.NoError(b, err)
	for range 10_000 {
		_, err := pool.AcquireWith(b.Context(), ration.AcquireOptions{Owner: "somebody"})
		require.NoError(b, err)
	}
	return pool
}
