package ration

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func requireAllocs(t *testing.T, most float64, f func()) {
	t.Helper()
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	// Something else in the process may allocate meanwhile, so the best of a
	// few counts.
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(500, f))
		if least <= most {
			return
		}
	}
	require.LessOrEqual(t, least, most, "allocations")
}

// bytesPerRun is like testing.AllocsPerRun, for bytes.
func bytesPerRun(runs int, f func()) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(runs)
}

func TestSemaphore_AllocatesNothingWhenNothingWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := canceled()
	nothing := func(context.Context) error { return nil }
	must := func(ok bool) {
		if !ok {
			panic("not what was to be measured")
		}
	}
	type test struct {
		name    string
		prepare func(s *Semaphore)
		f       func(s *Semaphore)
	}
	free := func(*Semaphore) {}
	empty := func(s *Semaphore) { must(s.TryAcquire(4)) }
	closed := func(s *Semaphore) { s.Close() }
	tests := []test{
		{"Acquire and Release", free, func(s *Semaphore) {
			must(s.Acquire(ctx, 2) == nil)
			s.Release(2)
		}},
		{"Acquire and Release, endless context", free, func(s *Semaphore) {
			must(s.Acquire(endless(), 2) == nil)
			s.Release(2)
		}},
		{"TryAcquire and Release", free, func(s *Semaphore) {
			must(s.TryAcquire(2))
			s.Release(2)
		}},
		{"TryAcquireFor and Release", free, func(s *Semaphore) {
			must(s.TryAcquireFor(2, math.MaxInt64))
			s.Release(2)
		}},
		{"TryAcquireUpTo", free, func(s *Semaphore) {
			must(s.TryAcquireUpTo(3) == 3)
			s.Release(3)
		}},
		{"Drain", free, func(s *Semaphore) {
			must(s.Drain() == 4)
			s.Release(4)
		}},
		{"Do", free, func(s *Semaphore) { must(s.Do(ctx, 2, nothing) == nil) }},
		{"zero permits", empty, func(s *Semaphore) { must(s.Acquire(ctx, 0) == nil && s.TryAcquire(0)) }},
		{"failed TryAcquire", empty, func(s *Semaphore) { must(!s.TryAcquire(1)) }},
		{"failed TryAcquireFor, no time", empty, func(s *Semaphore) { must(!s.TryAcquireFor(1, 0)) }},
		{"failed Drain", empty, func(s *Semaphore) { must(s.Drain() == 0) }},
		{"done context", free, func(s *Semaphore) { must(errors.Is(s.Acquire(done, 1), context.Canceled)) }},
		{"too large", free, func(s *Semaphore) { must(errors.Is(s.Acquire(ctx, 5), ErrTooLarge)) }},
		{"too large, TryAcquireFor", free, func(s *Semaphore) { must(!s.TryAcquireFor(5, math.MaxInt64)) }},
		{"closed", closed, func(s *Semaphore) { must(errors.Is(s.Acquire(ctx, 1), ErrClosed)) }},
		{"closed, TryAcquireFor", closed, func(s *Semaphore) { must(!s.TryAcquireFor(1, math.MaxInt64)) }},
		{"resizes", empty, func(s *Semaphore) {
			must(s.Grow(3) == nil && s.Shrink(3) == nil && s.Resize(0) == nil && s.Resize(4) == nil)
			must(s.Shrink(5) == ErrCapacity)
		}},
		{"Stats and gauges", free, func(s *Semaphore) {
			must(s.Stats().Available == 4)
			must(s.Available() == 4 && s.Capacity() == 4 && s.Held() == 0 && s.Waiters() == 0)
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, fair bool) {
				s := newTestSemaphore(t, 4, fair)
				tc.prepare(s)
				requireAllocs(t, 0, func() { tc.f(s) })
			})
		})
	}
}

func TestSemaphore_RefusalByAFullQueueAllocatesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 1, fair, 1)
		require.True(t, s.TryAcquire(1))
		w := startAcquire(t, s, 1)
		for s.Waiters() == 0 {
			runtime.Gosched()
		}
		requireAllocs(t, 0, func() {
			if s.Acquire(endless(), 1) != ErrQueueFull || s.TryAcquireFor(1, math.MaxInt64) {
				panic("not what was to be measured")
			}
		})
		s.Release(1)
		<-w.done
	})
}

// servedWait returns a function that waits once and is served: a helper releases
// the permit as soon as somebody waits for it.
func servedWait(t *testing.T, fair bool) func() {
	s := newTestSemaphore(t, 1, fair)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.True(t, s.TryAcquire(1))
	please := make(chan struct{})
	t.Cleanup(func() { close(please) })
	go func() {
		for range please {
			for s.Waiters() == 0 {
				runtime.Gosched()
			}
			s.Release(1)
		}
	}()
	return func() {
		please <- struct{}{}
		if s.Acquire(ctx, 1) != nil {
			panic("not what was to be measured")
		}
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
func canceledWait(t *testing.T, fair bool, calls int) func() {
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
			for s.Waiters() == 0 {
				runtime.Gosched()
			}
			close(ctx.done)
		}
	}()
	return func() {
		ctx := <-contexts
		please <- ctx
		if s.Acquire(ctx, 1) != context.Canceled {
			panic("not what was to be measured")
		}
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
	for name, wait := range map[string]func(t *testing.T, fair bool) func(){
		"served": servedWait,
		"canceled": func(t *testing.T, fair bool) func() {
			return canceledWait(t, fair, tries*(runs+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, fair bool) {
				f := wait(t, fair)
				least := math.Inf(1)
				for range tries {
					if least = min(least, bytesPerRun(runs, f)); least <= most {
						break
					}
				}
				t.Logf("%.1f bytes", least)
				require.LessOrEqual(t, least, float64(most))
			})
		})
	}
}
