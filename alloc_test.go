package ration

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireAllocs counts the allocations of f, which says whether it did what was
// to be measured.
func requireAllocs(t *testing.T, most float64, f func() bool) {
	t.Helper()
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	// Something else in the process may allocate meanwhile, so the best of a
	// few counts.
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(500, func() {
			if !f() {
				t.Fatal("not what was to be measured")
			}
		}))
		if least <= most {
			return
		}
	}
	require.LessOrEqual(t, least, most, "allocations")
}

// bytesPerRun is like testing.AllocsPerRun, for bytes.
func bytesPerRun(t *testing.T, runs int, f func() bool) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	require.True(t, f(), "not what was to be measured")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		if !f() {
			t.Fatal("not what was to be measured")
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(runs)
}

func TestSemaphore_AllocatesNothingWhenNothingWaits(t *testing.T) {
	ctx := briefly(t)
	done := canceled()
	nothing := func(context.Context) error { return nil }
	free := func(*Semaphore) {}
	empty := func(s *Semaphore) { s.Drain() }
	closed := func(s *Semaphore) { s.Close() }
	for _, tc := range []struct {
		name    string
		prepare func(s *Semaphore)
		f       func(s *Semaphore) bool
	}{
		{"Acquire and Release", free, func(s *Semaphore) bool {
			err := s.Acquire(ctx, 2)
			s.Release(2)
			return err == nil
		}},
		{"Acquire and Release, endless context", free, func(s *Semaphore) bool {
			err := s.Acquire(endless(), 2)
			s.Release(2)
			return err == nil
		}},
		{"TryAcquire and Release", free, func(s *Semaphore) bool {
			ok := s.TryAcquire(2)
			s.Release(2)
			return ok
		}},
		{"TryAcquireFor and Release", free, func(s *Semaphore) bool {
			ok := s.TryAcquireFor(2, math.MaxInt64)
			s.Release(2)
			return ok
		}},
		{"TryAcquireUpTo", free, func(s *Semaphore) bool {
			n := s.TryAcquireUpTo(3)
			s.Release(n)
			return n == 3
		}},
		{"Drain", free, func(s *Semaphore) bool {
			n := s.Drain()
			s.Release(n)
			return n == 4
		}},
		{"Do", free, func(s *Semaphore) bool { return s.Do(ctx, 2, nothing) == nil }},
		{"zero permits", empty, func(s *Semaphore) bool { return s.Acquire(ctx, 0) == nil && s.TryAcquire(0) }},
		{"failed TryAcquire", empty, func(s *Semaphore) bool { return !s.TryAcquire(1) }},
		{"failed TryAcquireFor, no time", empty, func(s *Semaphore) bool { return !s.TryAcquireFor(1, 0) }},
		{"failed Drain", empty, func(s *Semaphore) bool { return s.Drain() == 0 }},
		{"done context", free, func(s *Semaphore) bool { return s.Acquire(done, 1) == context.Canceled }},
		{"too large", free, func(s *Semaphore) bool { return s.Acquire(ctx, 5) == ErrTooLarge }},
		{"too large, TryAcquireFor", free, func(s *Semaphore) bool { return !s.TryAcquireFor(5, time.Millisecond) }},
		{"closed", closed, func(s *Semaphore) bool { return s.Acquire(ctx, 1) == ErrClosed }},
		{"closed, TryAcquireFor", closed, func(s *Semaphore) bool { return !s.TryAcquireFor(1, time.Millisecond) }},
		{"resizes", empty, func(s *Semaphore) bool {
			return s.Grow(3) == nil && s.Shrink(3) == nil && s.Resize(0) == nil && s.Resize(4) == nil &&
				s.Shrink(5) == ErrCapacity
		}},
		{"Stats and gauges", free, func(s *Semaphore) bool {
			return s.Stats().Available == 4 &&
				s.Available() == 4 && s.Capacity() == 4 && s.Held() == 0 && s.Waiters() == 0
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, fair bool) {
				s := newTestSemaphore(t, 4, fair)
				tc.prepare(s)
				requireAllocs(t, 0, func() bool { return tc.f(s) })
			})
		})
	}
}

func TestSemaphore_RefusalByAFullQueueAllocatesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 1, fair, 1)
		require.True(t, s.TryAcquire(1))
		w := startAcquire(t, s, 1)
		awaitWaiters(s, 1)
		ctx := briefly(t)
		requireAllocs(t, 0, func() bool {
			return s.Acquire(ctx, 1) == ErrQueueFull && !s.TryAcquireFor(1, time.Millisecond)
		})
		s.Release(1)
		w.wait(t)
	})
}

// servedWait returns a function that waits once and is served: a helper releases
// the permit as soon as somebody waits for it.
func servedWait(t *testing.T, fair bool) func() bool {
	s := newTestSemaphore(t, 1, fair)
	ctx := watchdog(t)
	require.True(t, s.TryAcquire(1))
	please := make(chan struct{})
	t.Cleanup(func() { close(please) })
	go func() {
		for range please {
			awaitWaiters(s, 1)
			s.Release(1)
		}
	}()
	return func() bool {
		please <- struct{}{}
		return s.Acquire(ctx, 1) == nil
	}
}

// A switchedContext is a context that costs nothing to cancel, so that what is
// counted is only what the wait itself costs. A pool of them is made beforehand.
type switchedContext struct {
	context.Context
	done chan struct{}
}

func (c *switchedContext) Done() <-chan struct{} { return c.done }

func (c *switchedContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// canceledWait returns a function that waits once and is cancelled, good for so
// many calls.
func canceledWait(t *testing.T, fair bool, calls int) func() bool {
	s := newTestSemaphore(t, 1, fair)
	require.True(t, s.TryAcquire(1))
	contexts := make(chan *switchedContext, calls)
	for range calls {
		contexts <- &switchedContext{context.Background(), make(chan struct{})}
	}
	please := make(chan *switchedContext)
	t.Cleanup(func() { close(please) })
	go func() {
		for ctx := range please {
			awaitWaiters(s, 1)
			close(ctx.done)
		}
	}()
	return func() bool {
		ctx := <-contexts
		please <- ctx
		return s.Acquire(ctx, 1) == context.Canceled
	}
}

func TestSemaphore_AQueuedWaitAllocatesOnce(t *testing.T) {
	t.Run("served", func(t *testing.T) {
		eachMode(t, func(t *testing.T, fair bool) {
			requireAllocs(t, 1, servedWait(t, fair))
		})
	})
	t.Run("canceled", func(t *testing.T) {
		eachMode(t, func(t *testing.T, fair bool) {
			requireAllocs(t, 1, canceledWait(t, fair, 5*501))
		})
	})
}

func TestSemaphore_AQueuedWaitIsSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	const runs, tries, most = 1000, 5, 128
	for name, wait := range map[string]func(t *testing.T, fair bool) func() bool{
		"served": servedWait,
		"canceled": func(t *testing.T, fair bool) func() bool {
			return canceledWait(t, fair, tries*(runs+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, fair bool) {
				f := wait(t, fair)
				least := math.Inf(1)
				for range tries {
					if least = min(least, bytesPerRun(t, runs, f)); least <= most {
						break
					}
				}
				t.Logf("%.1f bytes", least)
				require.LessOrEqual(t, least, float64(most))
			})
		})
	}
}
