package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

func TestBuckets_LimitTheRate(t *testing.T) {
	const perSecond, burst = 1000, 20
	for _, impl := range Buckets() {
		t.Run("impl="+impl.Name, func(t *testing.T) {
			if !impl.Polls {
				t.Skip("it cannot be asked")
			}
			began := time.Now()
			b := impl.New(perSecond, burst)
			granted := 0
			for time.Since(began) < 50*time.Millisecond {
				if b.Allow() {
					granted++
				}
			}
			require.NoError(t, b.Wait(t.Context()))
			granted++
			most := burst + perSecond*time.Since(began).Seconds()
			require.LessOrEqual(t, float64(granted), most+0.001)
			require.GreaterOrEqual(t, granted, burst+30, "on the slowest of machines")
		})
	}
}

// BenchmarkTokenBucketPace is one goroutine that waits for one token after the
// other. The rate that it gets depends on how late its timers are and on the
// burst, which takes up what comes in the meantime.
func BenchmarkTokenBucketPace(b *testing.B) {
	for _, perSecond := range []int{100, 1000, 10_000, 100_000} {
		for _, burst := range slices.Compact([]int{1, max(1, perSecond/1000), max(1, perSecond/500), max(1, perSecond/200)}) {
			for _, impl := range Buckets() {
				b.Run(fmt.Sprintf("op=pace/impl=%s/rate=%d/burst=%d", impl.Name, perSecond, burst), func(b *testing.B) {
					benchmarkPace(b, impl.New(perSecond, burst), perSecond, burst)
				})
			}
		}
	}
}

func benchmarkPace(b *testing.B, bucket Bucket, perSecond, burst int) {
	for range burst {
		bucket.Wait(context.Background())
	}
	for b.Loop() {
		if err := bucket.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds()/float64(perSecond), "%rate")
}

// BenchmarkTimerOvershoot is how late a wait of the given length ends, on an idle
// machine and beside work on every core.
func BenchmarkTimerOvershoot(b *testing.B) {
	for _, busy := range []bool{false, true} {
		for _, d := range []time.Duration{20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond} {
			b.Run(fmt.Sprintf("op=overshoot/impl=ration/wait=%v/busy=%v", d, busy), func(b *testing.B) {
				bucket, err := ration.NewTokenBucket(ration.Every(d), 1)
				require.NoError(b, err)
				if busy {
					defer occupy()()
				}
				bucket.Allow(1)
				var late []time.Duration
				for b.Loop() {
					due := time.Now().Add(bucket.RetryAfter(1))
					if err := bucket.Wait(context.Background(), 1); err != nil {
						b.Fatal(err)
					}
					late = append(late, time.Since(due))
				}
				slices.Sort(late)
				us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
				b.ReportMetric(us(late[len(late)/2]), "p50-us")
				b.ReportMetric(us(late[len(late)*99/100]), "p99-us")
				b.ReportMetric(us(late[len(late)-1]), "max-us")
			})
		}
	}
}

// occupy keeps every core busy until it is stopped.
func occupy() (stop func()) {
	var over atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !over.Load() {
			}
		})
	}
	return func() {
		over.Store(true)
		all.Wait()
	}
}
