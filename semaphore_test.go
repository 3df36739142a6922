package ration

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSemaphore_StartsFull(t *testing.T) {
	for _, permits := range []int64{0, 1, 10, MaxPermits} {
		s := newTestSemaphore(t, permits, true)
		requirePermits(t, s, permits, permits)
		require.Zero(t, s.Waiters())
		require.Equal(t, SemaphoreStats{Capacity: permits, Available: permits}, s.Stats())
	}
}

func TestSemaphore_NilOptionsAreTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(1, nil)
		defer s.Close()
		require.False(t, s.Fair(), "newcomers may barge")
		require.True(t, s.TryAcquire(1))
		for range 100 {
			park(t, s, 1) // no bound on the queue
		}
	})
}

func TestSemaphore_OptionsAreCopied(t *testing.T) {
	opts := &SemaphoreOptions{Fair: true, MaxWaiters: 3}
	s := NewSemaphore(1, opts)
	opts.Fair = false
	require.True(t, s.Fair())
	require.Equal(t, 3, opts.MaxWaiters, "nor written to")
}

func TestSemaphore_TakesAndGivesBack(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 10, fair)
		require.NoError(t, s.Acquire(briefly(t), 3))
		requirePermits(t, s, 10, 7)
		require.True(t, s.TryAcquire(5))
		requirePermits(t, s, 10, 2)
		require.True(t, s.TryAcquireFor(2, time.Hour))
		requirePermits(t, s, 10, 0)
		s.Release(4) // in other portions than they were taken
		requirePermits(t, s, 10, 4)
		s.Release(6)
		requireIdle(t, s, 10)
	})
}

// S1

func TestSemaphore_TakesAllOrNothing(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.True(t, s.TryAcquire(3))
		require.False(t, s.TryAcquire(3))
		requirePermits(t, s, 5, 2)
		require.False(t, s.TryAcquireFor(3, time.Millisecond))
		requirePermits(t, s, 5, 2)

		whole := park(t, s, 5)
		requirePermits(t, s, 5, 2)
		s.Release(2) // not enough for the waiter: nothing is set aside for it
		requireParked(t, whole)
		requirePermits(t, s, 5, 4)
		s.Release(1)
		requireGranted(t, whole)
		requirePermits(t, s, 5, 0)
	})
}

func TestSemaphore_AnErrorComesWithoutAPermit(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 4, fair, 1)
		require.True(t, s.TryAcquire(3))

		require.Equal(t, context.Canceled, s.Acquire(canceled(), 1))
		require.Equal(t, ErrTooLarge, s.Acquire(briefly(t), 5))
		first, cancel := parkCancelable(t, s, 2)
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 2))
		cancel()
		requireFailed(t, context.Canceled, first)
		last := park(t, s, 2)
		requirePermits(t, s, 4, 1)

		s.Close()
		requireFailed(t, ErrClosed, last)
		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 1))
		requirePermits(t, s, 4, 1)
	})
}

// S2

func TestSemaphore_AGrantIsOwnership(t *testing.T) {
	for _, tc := range []struct {
		name string
		fair bool
		age  time.Duration
	}{
		{"fair", true, 0},
		{"nonfair past the bound", false, 2 * barging},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The releaser does not yield between its release and its
				// try: if the permit were free for a moment, it would get it.
				for range 200 {
					s := newTestSemaphore(t, 1, tc.fair)
					require.True(t, s.TryAcquire(1))
					w := park(t, s, 1)
					time.Sleep(tc.age)
					s.Release(1)
					stolen := s.TryAcquire(1)
					available, held, waiters := s.Available(), s.Held(), s.Waiters()
					require.False(t, stolen, "the permit belongs to the waiter")
					require.Equal(t, [2]int64{0, 1}, [2]int64{available, held}, "available, held")
					require.Zero(t, waiters, "who has been granted waits no more")
					requireGranted(t, w)
				}
			})
		})
	}
}

// S10

func TestSemaphore_ZeroPermitsAreAlwaysToBeHad(t *testing.T) {
	zero := func(t *testing.T, s *Semaphore) {
		t.Helper()
		before := s.Stats()
		c := start(func() error { return s.Acquire(t.Context(), 0) })
		requireGranted(t, c)
		require.Zero(t, c.took)
		require.True(t, s.TryAcquire(0))
		require.True(t, s.TryAcquireFor(0, time.Hour))
		require.Zero(t, s.TryAcquireUpTo(0))
		called := false
		require.NoError(t, s.Do(t.Context(), 0, func(context.Context) error {
			called = true
			return nil
		}))
		require.True(t, called)
		s.Release(0)
		require.Equal(t, before, s.Stats())
	}
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 2, fair, 1)
		zero(t, s)
		require.True(t, s.TryAcquire(2))
		zero(t, s) // nothing free
		park(t, s, 1)
		zero(t, s) // somebody waits, and the queue is full
		endBarging()
		zero(t, s) // the head is past the bound
		require.NoError(t, s.Shrink(1))
		requirePermits(t, s, 1, -1)
		zero(t, s) // in debt
		require.NoError(t, s.Resize(0))
		zero(t, s) // paused
	})
}

func TestSemaphore_ZeroPermitsAreRefusedWhenClosedOrDone(t *testing.T) {
	s := newTestSemaphore(t, 1, true)
	require.Equal(t, context.Canceled, s.Acquire(canceled(), 0))
	s.Close()
	require.Equal(t, ErrClosed, s.Acquire(endless(), 0))
	require.False(t, s.TryAcquire(0))
	require.False(t, s.TryAcquireFor(0, time.Hour))
}

// TryAcquireFor

func TestSemaphore_TimedTryWaitsForARelease(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		time.AfterFunc(3*time.Second, func() { s.Release(1) })
		began := time.Now()
		require.True(t, s.TryAcquireFor(1, 5*time.Second))
		require.Equal(t, 3*time.Second, time.Since(began))
		requirePermits(t, s, 1, 0)
	})
}

func TestSemaphore_TimedTryGivesUpInTime(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		began := time.Now()
		require.False(t, s.TryAcquireFor(1, 5*time.Second))
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Zero(t, s.Waiters())
		s.Release(1)
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_TimedTryWithNoTimeIsATry(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			s := newTestSemaphore(t, 1, fair)
			require.True(t, s.TryAcquireFor(1, d))
			began := time.Now()
			require.False(t, s.TryAcquireFor(1, d))
			require.Zero(t, time.Since(began))
			s.Release(1)
			requireIdle(t, s, 1)
		}
	})
}

func TestSemaphore_TimedTryWaitsAlmostForEver(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		c := startTimed(s, 1, math.MaxInt64)
		requireParked(t, c)
		time.Sleep(1000 * time.Hour)
		requireParked(t, c)
		s.Release(1)
		requireGranted(t, c)
	})
}

func TestSemaphore_TimedTryDoesNotWaitForWhatCannotCome(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 2, fair, 1)
		began := time.Now()
		require.False(t, s.TryAcquireFor(3, time.Hour), "too large")
		require.True(t, s.TryAcquire(2))
		w := park(t, s, 1)
		require.False(t, s.TryAcquireFor(1, time.Hour), "the queue is full")
		s.Close()
		requireFailed(t, ErrClosed, w)
		require.False(t, s.TryAcquireFor(1, time.Hour), "closed")
		require.Zero(t, time.Since(began))
	})
}

// TryAcquireUpTo and Drain

func TestSemaphore_TakesWhatIsFreeUpToABound(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 10, fair)
		require.EqualValues(t, 0, s.TryAcquireUpTo(0))
		require.EqualValues(t, 4, s.TryAcquireUpTo(4))
		requirePermits(t, s, 10, 6)
		require.EqualValues(t, 6, s.TryAcquireUpTo(7))
		requirePermits(t, s, 10, 0)
		require.EqualValues(t, 0, s.TryAcquireUpTo(1))
		s.Release(10)
		requireIdle(t, s, 10)
	})
}

func TestSemaphore_DrainTakesAllThatIsFree(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, MaxPermits, fair)
		require.True(t, s.TryAcquire(3))
		require.Equal(t, MaxPermits-3, s.Drain())
		requirePermits(t, s, MaxPermits, 0)
		require.EqualValues(t, 0, s.Drain())
		s.Release(MaxPermits)
		requireIdle(t, s, MaxPermits)
	})
}

func TestSemaphore_TakingWhatIsFreeNeverTouchesDebt(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.EqualValues(t, 3, s.Drain())
		require.NoError(t, s.Shrink(2))
		for available := int64(-2); available <= 0; available++ {
			requirePermits(t, s, 1, available)
			require.EqualValues(t, 0, s.TryAcquireUpTo(5))
			require.EqualValues(t, 0, s.Drain())
			requirePermits(t, s, 1, available)
			s.Release(1)
		}
		require.EqualValues(t, 1, s.Drain())
	})
}

func TestSemaphore_TakingWhatIsFreeOvertakesNobodyInFairMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 4, true)
		require.True(t, s.TryAcquire(2))
		w := park(t, s, 3)
		require.EqualValues(t, 0, s.TryAcquireUpTo(1))
		require.EqualValues(t, 0, s.Drain())
		requirePermits(t, s, 4, 2)
		s.Release(2)
		requireGranted(t, w)
		require.EqualValues(t, 1, s.Drain(), "nobody waits any more")
	})
}

func TestSemaphore_TakingWhatIsFreeMayBargeWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 4, false)
		require.True(t, s.TryAcquire(2))
		w := park(t, s, 3)
		require.EqualValues(t, 2, s.Drain())
		s.Release(2)
		requireParked(t, w)
		endBarging()
		require.EqualValues(t, 0, s.TryAcquireUpTo(1), "the head has waited long enough")
		require.EqualValues(t, 0, s.Drain())
		s.Release(2)
		requireGranted(t, w)
	})
}

// Close

func TestSemaphore_CloseFailsWaitersAndLaterAcquires(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(2))
		a, b, timed := park(t, s, 2), park(t, s, 3), startTimed(s, 2, time.Hour)
		requireParked(t, timed)
		s.Close()
		requireFailed(t, ErrClosed, a, b)
		requireFailed(t, errTimedTry, timed)
		require.Zero(t, a.took+b.took+timed.took)
		require.Zero(t, s.Waiters())

		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 1), "though one is free")
		require.False(t, s.TryAcquire(1))
		require.False(t, s.TryAcquireFor(1, time.Hour))
		require.EqualValues(t, 0, s.TryAcquireUpTo(1))
		require.EqualValues(t, 0, s.Drain())
		require.Equal(t, ErrClosed, s.Do(briefly(t), 1, func(context.Context) error {
			t.Error("called without a permit")
			return nil
		}))
		requirePermits(t, s, 3, 1)
	})
}

func TestSemaphore_ReleaseStillCountsAfterClose(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(2))
		s.Close()
		s.Release(1)
		requirePermits(t, s, 3, 2)
		s.Release(1)
		requirePermits(t, s, 3, 3)
		requireMisuse(t, func() { s.Release(1) })
		requirePermits(t, s, 3, 3)
		require.False(t, s.TryAcquire(1))
	})
}

func TestSemaphore_CloseTwiceIsCloseOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		s.Close()
		s.Close()
		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 1))
		requirePermits(t, s, 1, 1)
	})
}

func TestSemaphore_ResizingAfterCloseCounts(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(2))
		s.Close()
		require.NoError(t, s.Grow(2))
		requirePermits(t, s, 5, 3)
		require.NoError(t, s.Shrink(4))
		requirePermits(t, s, 1, -1)
		require.NoError(t, s.Resize(7))
		requirePermits(t, s, 7, 5)
		require.Equal(t, ErrCapacity, s.Shrink(8))
		requirePermits(t, s, 7, 5)
		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 1))
	})
}

func TestSemaphore_CloseWhilePausedFailsWaiters(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 0, fair)
		a, b := park(t, s, 1), park(t, s, math.MaxInt64)
		s.Close()
		requireFailed(t, ErrClosed, a, b)
	})
}

// S12

func TestSemaphore_HasNoGoroutineOfItsOwn(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		synctest.Wait()
		before := runtime.NumGoroutine()
		var waiters []*call
		for i := range 50 {
			if i%2 == 0 {
				waiters = append(waiters, startAcquire(t, s, 1))
				continue
			}
			waiters = append(waiters, startTimed(s, 1, time.Hour))
		}
		requireParked(t, waiters...)
		require.LessOrEqual(t, runtime.NumGoroutine(), before+50, "the callers and nobody else; goroutines of earlier tests may end meanwhile")
		s.Close()
		for _, w := range waiters {
			require.True(t, w.ended())
		}
	})
}

// A probingContext is user code that the semaphore calls: each of its methods
// uses the semaphore that is just asking it.
type probingContext struct {
	context.Context
	s *Semaphore
}

func (c probingContext) probe() {
	c.s.Stats()
	c.s.Waiters()
	if c.s.TryAcquire(1) {
		c.s.Release(1)
	}
	_ = c.s.Grow(0)
}

func (c probingContext) Done() <-chan struct{} { c.probe(); return c.Context.Done() }
func (c probingContext) Err() error            { c.probe(); return c.Context.Err() }

func (c probingContext) Deadline() (time.Time, bool) {
	c.probe()
	return c.Context.Deadline()
}

func (c probingContext) Value(key any) any { c.probe(); return c.Context.Value(key) }

func TestSemaphore_AsksTheContextWithNoLockHeld(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		// Outside a bubble, where a goroutine stuck at a mutex would hang the
		// test instead of failing it.
		// Nor is it closed at the end, for the same reason.
		s := NewSemaphore(1, &SemaphoreOptions{Fair: fair})
		finishes := func(what string, f func()) {
			t.Helper()
			done := make(chan struct{})
			go func() { defer close(done); f() }()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				require.Fail(t, "the context was called under the lock", what)
			}
		}
		ctx := probingContext{endless(), s}
		finishes("free", func() { _ = s.Acquire(ctx, 1) })
		finishes("waiting", func() {
			go func() { awaitWaiters(s, 1); s.Release(1) }()
			_ = s.Acquire(ctx, 1)
		})
		finishes("cancelled", func() {
			ctx, cancel := context.WithCancel(endless())
			go func() { awaitWaiters(s, 1); cancel() }()
			_ = s.Acquire(probingContext{ctx, s}, 1)
		})
		finishes("racing", func() {
			ctx, cancel := context.WithCancel(endless())
			var err atomic.Value
			done := make(chan struct{})
			go func() {
				defer close(done)
				if e := s.Acquire(probingContext{ctx, s}, 1); e != nil {
					err.Store(e)
				}
			}()
			awaitWaiters(s, 1)
			cancel()
			s.Release(1)
			<-done
			if err.Load() == nil {
				s.Release(1)
			}
		})
		requireIdle(t, s, 1)
	})
}
