//go:build unix

package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/ration-go/ration"
)

// Our token bucket beside golang.org/x/time/rate. Compare ratios of rows of one
// run, never times of two.

// A limiter is a token bucket under measurement.
type limiter interface {
	allow() bool
	wait(ctx context.Context) error
}

type limiterRival struct {
	impl string
	new  func(perSecond, burst int64) limiter
}

var limiters = []limiterRival{
	{"ration", newRationLimiter},
	{"xtime", func(perSecond, burst int64) limiter {
		return xtimeLimiter{rate.NewLimiter(rate.Limit(perSecond), int(min(burst, math.MaxInt)))}
	}},
}

type rationLimiter struct{ *ration.TokenBucket }

func newRationLimiter(perSecond, burst int64) limiter {
	b, err := ration.NewTokenBucket(ration.PerSecond(perSecond), burst)
	if err != nil {
		panic(err)
	}
	return rationLimiter{b}
}

func (l rationLimiter) allow() bool                    { return l.Allow(1) }
func (l rationLimiter) wait(ctx context.Context) error { return l.Wait(ctx, 1) }

type xtimeLimiter struct{ *rate.Limiter }

func (l xtimeLimiter) allow() bool                    { return l.Allow() }
func (l xtimeLimiter) wait(ctx context.Context) error { return l.Wait(ctx) }

func TestLimiters_KeepTheBurst(t *testing.T) {
	for _, r := range limiters {
		t.Run("impl="+r.impl, func(t *testing.T) {
			const burst = 5
			l := r.new(1, burst)
			granted := 0
			for range 2 * burst {
				if l.allow() {
					granted++
				}
			}
			require.Equal(t, burst, granted)
			soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.Error(t, l.wait(soon))
		})
	}
}

const (
	plenty  = 1 << 30 // tokens that come in a second, and the burst: no benchmark uses them up
	waiters = 1000
)

func BenchmarkTokenBucket(b *testing.B) {
	for _, op := range []struct {
		name    string
		workers int
		rate    int64 // tokens a second
		burst   int64
	}{
		{"allow", 1, plenty, plenty}, // granted
		{"allow", 64, plenty, plenty},
		{"denied", 1, 1, 1},
		{"denied", 64, 1, 1},
	} {
		for _, r := range limiters {
			b.Run(fmt.Sprintf("op=%s/impl=%s/workers=%d", op.name, r.impl, op.workers), func(b *testing.B) {
				b.ReportAllocs()
				l := r.new(op.rate, op.burst)
				denied := op.name == "denied"
				if denied {
					l.allow()
				}
				var granted int64
				if op.workers == 1 {
					for b.Loop() {
						if l.allow() {
							granted++
						}
					}
				} else {
					granted = allowTogether(b, l, op.workers)
				}
				want := int64(b.N)
				if denied {
					want = 0
				}
				// A token a second comes while the others are denied.
				if extra := granted - want; extra < 0 || extra > 2+int64(b.Elapsed().Seconds()) {
					b.Errorf("granted %d, want %d", granted, want)
				}
			})
		}
	}
	for _, r := range limiters {
		b.Run(fmt.Sprintf("op=wait/impl=%s/workers=%d", r.impl, waiters), func(b *testing.B) {
			b.ReportAllocs()
			waitInQueue(b, r)
		})
	}
}

// allowTogether splits b.N over the workers, which start together, and returns
// how many were granted.
func allowTogether(b *testing.B, l limiter, workers int) int64 {
	begin := make(chan struct{})
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		n := b.N / workers
		if i < b.N%workers {
			n++
		}
		all.Go(func() {
			<-begin
			mine := int64(0)
			for range n {
				if l.allow() {
					mine++
				}
			}
			granted.Add(mine)
		})
	}
	b.ResetTimer()
	close(begin)
	all.Wait()
	b.StopTimer()
	return granted.Load()
}

// waitInQueue has a thousand waiters line up time and again, b.N times in all.
// How long that takes is up to the rate; what a wait costs is the processor's
// time, in cpu-ns/op.
func waitInQueue(b *testing.B, r limiterRival) {
	const perSecond = 200_000
	l := r.new(perSecond, perSecond/100) // 10 ms worth, since timers are late
	for l.allow() {
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var failed atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	before := processorTime(b)
	for i := range waiters {
		n := b.N / waiters
		if i < b.N%waiters {
			n++
		}
		all.Go(func() {
			for range n {
				if l.wait(ctx) != nil {
					failed.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	if failed.Load() > 0 {
		b.Errorf("%d waits failed", failed.Load())
	}
}

// processorTime returns what the process has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
