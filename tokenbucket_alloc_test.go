package ration

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestTokenBucket_AllocatesNothingWhenNothingWaits(t *testing.T) {
	ctx := briefly(t)
	soon, cancel := context.WithTimeout(endless(), time.Minute)
	defer cancel()
	done := canceled()
	for _, tc := range []struct {
		name  string
		rate  Rate
		empty bool
		f     func(a, b *TokenBucket) bool
	}{
		{"Allow, granted", PerSecond(1), false, func(a, _ *TokenBucket) bool { return a.Allow(1) }},
		{"Allow, denied", Every(time.Hour), true, func(a, _ *TokenBucket) bool { return !a.Allow(1) }},
		{"Allow, too large", PerSecond(1), false, func(a, _ *TokenBucket) bool { return !a.Allow(1 << 41) }},
		{"Allow and others", PerSecond(1), false, func(a, _ *TokenBucket) bool { return a.Allow(1) && a.Tokens() > 0 }},
		{"Wait", PerSecond(1), false, func(a, _ *TokenBucket) bool { return a.Wait(ctx, 1) == nil }},
		{"Wait, done context", PerSecond(1), false, func(a, _ *TokenBucket) bool { return a.Wait(done, 1) == context.Canceled }},
		{"Wait, too large", PerSecond(1), false, func(a, _ *TokenBucket) bool { return a.Wait(ctx, 1<<41) == ErrTooLarge }},
		{"Wait, deadline too near", Every(time.Hour), true, func(a, _ *TokenBucket) bool { return a.Wait(soon, 1) != nil }},
		{"RetryAfter", Every(time.Hour), true, func(a, _ *TokenBucket) bool { return a.RetryAfter(1) > 0 }},
		{"AllowAll, granted", PerSecond(1), false, func(a, b *TokenBucket) bool { return AllowAll(1, a, b) }},
		{"AllowAll, denied", Every(time.Hour), true, func(a, b *TokenBucket) bool { return !AllowAll(1, b, a, b) }},
		{"Return", PerSecond(1), true, func(a, _ *TokenBucket) bool { a.Return(1); return a.Allow(1) }},
		{"setters", PerSecond(1), false, func(a, _ *TokenBucket) bool {
			return a.SetRate(Per(7, time.Minute)) == nil && a.SetRate(PerSecond(1)) == nil && a.SetBurst(a.Burst()) == nil
		}},
		{"refused Reserve", Rate{}, true, func(a, _ *TokenBucket) bool { return !a.Reserve(1).OK() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := newTestBucket(t, tc.rate, 1<<40), newTestBucket(t, tc.rate, 1<<40)
			if tc.empty {
				require.True(t, AllowAll(1<<40, a, b))
			}
			requireAllocs(t, 0, func() bool { return tc.f(a, b) })
		})
	}
}

// What has to be remembered of it need not outlive whoever made it.
func TestTokenBucket_AReservationAllocatesNothing(t *testing.T) {
	for name, burst := range map[string]int64{"that is cancelled": 1 << 40, "in debt": 10} {
		t.Run(name, func(t *testing.T) {
			b := newDrainedBucket(t, PerSecond(1), burst)
			requireAllocs(t, 0, func() bool {
				r := b.Reserve(1)
				ok := r.OK() && r.Delay() > 0
				r.Cancel()
				return ok
			})
		})
	}
}

// queuedWaits returns how many allocations and bytes each of n waits costs that
// are all in one queue.
func queuedWaits(t *testing.T, n int) (allocs, bytes float64) {
	b := newDrainedBucket(t, Every(time.Hour), 1<<40)
	begin := make(chan struct{})
	ctx, cancel := context.WithCancel(endless()) // with a deadline it would fail at once
	defer cancel()
	var ready, all sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		ready.Add(1)
		all.Go(func() {
			ready.Done()
			<-begin
			failed[i] = b.Wait(ctx, 1)
		})
	}
	waiting := func(n int) {
		yieldUntil(func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.queue.len == n
		})
	}
	ready.Wait()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	close(begin)
	waiting(n)
	b.Return(int64(n))
	all.Wait()
	runtime.ReadMemStats(&after)
	for _, err := range failed {
		require.NoError(t, err)
	}
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

func TestTokenBucket_AWaitInAQueueOfAThousandAllocatesOnce(t *testing.T) {
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	const n = 1000
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties the pools of nodes, and of what the runtime needs to park
	allocs, bytes := math.Inf(1), math.Inf(1)
	for range 20 { // the nodes come from a pool that has to fill first, and the runtime has its own
		a, by := queuedWaits(t, n)
		allocs, bytes = min(allocs, a), min(bytes, by)
		if allocs <= 1.02 && bytes <= 128 {
			break
		}
	}
	t.Logf("%.3f allocations, %.1f bytes", allocs, bytes)
	require.LessOrEqual(t, allocs, 1.02, "the timer and the watcher of the test are shared by all")
	require.LessOrEqual(t, bytes, 128.0)
}

func TestTokenBucket_IsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(TokenBucket{}), uintptr(320))
	require.LessOrEqual(t, unsafe.Sizeof(Reservation{}), unsafe.Sizeof(uintptr(0)))
}

func TestTokenBucket_CancelingAWaitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	const waiters = 1000
	synctest.Test(t, func(t *testing.T) {
		least := uint64(1 << 62)
		for range 3 {
			b := newDrainedBucket(t, Every(time.Hour), 1)
			ctx, cancel := context.WithCancel(t.Context())
			calls := make([]*call, waiters)
			for i := range calls {
				calls[i] = start(func() error { return b.Wait(ctx, 1) })
			}
			synctest.Wait()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cancel()
			for _, c := range calls {
				<-c.done
			}
			runtime.ReadMemStats(&after)
			requireFailed(t, context.Canceled, calls...)
			least = min(least, after.Mallocs-before.Mallocs)
		}
		require.LessOrEqual(t, least, uint64(waiters/10), "allocations of %d cancellations", waiters)
	})
}
