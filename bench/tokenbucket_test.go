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
	"golang.org/x/time/rate"

	"github.com/ration-go/ration"
)

// Our token bucket beside golang.org/x/time/rate. Within one op the rows of both
// stand next to each other, so that a noisy minute on the machine hits them
// alike; compare ratios of rows of one run, never times of two.

// A limiter is a token bucket under measurement.
type limiter interface {
	allow() bool
	wait(ctx context.Context) error
}

var limiters = []struct {
	impl string
	new  func(perSecond, burst int) limiter // full at first
}{
	{"ration", newRationLimiter},
	{"xtime", newXTimeLimiter},
}

type rationLimiter struct{ *ration.TokenBucket }

func newRationLimiter(perSecond, burst int) limiter {
	b, err := ration.NewTokenBucket(ration.PerSecond(int64(perSecond)), int64(burst))
	if err != nil {
		panic(err)
	}
	return rationLimiter{b}
}

func (l rationLimiter) allow() bool                    { return l.Allow(1) }
func (l rationLimiter) wait(ctx context.Context) error { return l.Wait(ctx, 1) }

type xtimeLimiter struct{ *rate.Limiter }

func newXTimeLimiter(perSecond, burst int) limiter {
	return xtimeLimiter{rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (l xtimeLimiter) allow() bool                    { return l.Allow() }
func (l xtimeLimiter) wait(ctx context.Context) error { return l.Wait(ctx) }

func TestLimiters_LimitTheRate(t *testing.T) {
	const perSecond, burst = 1000, 20
	for _, l := range limiters {
		t.Run("impl="+l.impl, func(t *testing.T) {
			began := time.Now()
			b := l.new(perSecond, burst)
			granted := 0
			for time.Since(began) < 50*time.Millisecond {
				if b.allow() {
					granted++
				}
			}
			require.NoError(t, b.wait(t.Context()))
			granted++
			most := burst + perSecond*time.Since(began).Seconds()
			require.LessOrEqual(t, float64(granted), most+0.001)
			require.GreaterOrEqual(t, granted, burst+30, "on the slowest of machines")
		})
	}
}

const (
	plenty = 999_999_937 // a second: more than anybody can take, and not a round number
	hardly = 1           // a second: nothing comes while it is measured

	queued         = 1000 // goroutines that wait at once
	queuePerSecond = 200_000
	queueBurst     = queuePerSecond / 500 // what comes in 2 ms, which timers are late by
)

func BenchmarkTokenBucket(b *testing.B) {
	for _, workers := range []int{1, 64} {
		for _, l := range limiters {
			b.Run(fmt.Sprintf("op=allow/impl=%s/workers=%d", l.impl, workers), func(b *testing.B) {
				benchmarkAllow(b, l.new(plenty, 1_000_000), workers, true)
			})
		}
	}
	for _, workers := range []int{1, 64} {
		for _, l := range limiters {
			b.Run(fmt.Sprintf("op=denied/impl=%s/workers=%d", l.impl, workers), func(b *testing.B) {
				bucket := l.new(hardly, 1)
				bucket.allow()
				benchmarkAllow(b, bucket, workers, false)
			})
		}
	}
	for _, l := range limiters {
		b.Run(fmt.Sprintf("op=wait/impl=%s/workers=%d", l.impl, queued), func(b *testing.B) {
			benchmarkQueue(b, l.new(queuePerSecond, queueBurst))
		})
	}
}

// benchmarkAllow asks for tokens that are there, or are not.
func benchmarkAllow(b *testing.B, l limiter, workers int, there bool) {
	b.ReportAllocs()
	if workers == 1 {
		wrong := 0
		for b.Loop() {
			if l.allow() != there {
				wrong++
			}
		}
		requireRight(b, wrong, there)
		return
	}
	var wrong atomic.Int64
	share(b, workers, func(n int) {
		mine := 0
		for range n {
			if l.allow() != there {
				mine++
			}
		}
		wrong.Add(int64(mine))
	})
	requireRight(b, int(wrong.Load()), there)
}

// requireRight allows for the token that comes each second.
func requireRight(b *testing.B, wrong int, there bool) {
	if there && wrong > 0 || float64(wrong) > 1+hardly*b.Elapsed().Seconds()*2 {
		b.Errorf("%d of %d answers were not what was to be measured", wrong, b.N)
	}
}

// benchmarkQueue keeps a queue filled, at a rate that both can keep: 5,000 ns/op
// is that rate exactly, and cpu-ns/op is what a wait costs. %rate is less than 100
// if timers are late by more than the burst makes up for, and cannot be more
// unless tokens are made out of nothing.
func benchmarkQueue(b *testing.B, l limiter) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for l.allow() {
	}
	var failed atomic.Int64
	before := cpuTime()
	share(b, queued, func(n int) {
		for range n {
			if l.wait(ctx) != nil {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds()/queuePerSecond, "%rate")
	if failed.Load() > 0 {
		b.Errorf("%d waits failed", failed.Load())
	}
}

// share splits b.N over the workers, which start together.
func share(b *testing.B, workers int, work func(n int)) {
	begin := make(chan struct{})
	var ready, all sync.WaitGroup
	for i := range workers {
		n := b.N / workers
		if i < b.N%workers {
			n++
		}
		ready.Add(1)
		all.Go(func() {
			ready.Done()
			<-begin
			work(n)
		})
	}
	ready.Wait()
	b.ResetTimer()
	close(begin)
	all.Wait()
	b.StopTimer()
}

// BenchmarkTokenBucketPace is one goroutine that waits for one token after the
// other. The rate that it gets depends on how late its timers are and on the
// burst, which takes up what comes in the meantime.
func BenchmarkTokenBucketPace(b *testing.B) {
	for _, perSecond := range []int{100, 1000, 10_000, 100_000} {
		for _, burst := range slices.Compact([]int{1, max(1, perSecond/1000), max(1, perSecond/500), max(1, perSecond/200)}) {
			for _, l := range limiters {
				b.Run(fmt.Sprintf("op=pace/impl=%s/rate=%d/burst=%d", l.impl, perSecond, burst), func(b *testing.B) {
					benchmarkPace(b, l.new(perSecond, burst), perSecond)
				})
			}
		}
	}
}

func benchmarkPace(b *testing.B, l limiter, perSecond int) {
	for l.allow() {
	}
	for b.Loop() {
		if err := l.wait(context.Background()); err != nil {
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
