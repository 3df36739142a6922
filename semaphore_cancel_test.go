package ration

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// S6: who gives up, and what is said to whom when several things are wrong.

func TestSemaphore_DoneContextFailsAtOnceThoughPermitsAreFree(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 2, fair)
		expired, cancel := context.WithDeadline(endless(), time.Unix(0, 0))
		defer cancel()
		for range 100 { // not a coin that two ready channels toss
			require.Equal(t, context.Canceled, s.Acquire(canceled(), 1))
			require.Equal(t, context.DeadlineExceeded, s.Acquire(expired, 1))
			requirePermits(t, s, 2, 2)
		}
		require.Zero(t, s.Stats().Waited, "nobody has queued")
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_CanceledWaiterLeavesAtOnce(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		w, cancel := parkCancelable(t, s, 1)
		cancel()
		requireFailed(t, context.Canceled, w)
		require.Zero(t, w.took)
		require.Zero(t, s.Waiters())
		s.Release(1)
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_DeadlineEndsTheWait(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		w := start(func() error { return s.Acquire(ctx, 1) })
		requireParked(t, w)
		time.Sleep(3*time.Second - 1)
		requireParked(t, w)
		time.Sleep(time.Nanosecond)
		requireFailed(t, context.DeadlineExceeded, w)
		require.Equal(t, 3*time.Second, w.took)
		s.Release(1)
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_CauseStaysInTheContext(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 0, fair)
		ctx, cancel := context.WithCancelCause(t.Context())
		w := start(func() error { return s.Acquire(ctx, 1) })
		requireParked(t, w)
		cancel(errors.New("the reason"))
		requireFailed(t, context.Canceled, w) // ctx.Err(), not context.Cause
		require.Equal(t, context.Canceled, s.Acquire(ctx, 1))
	})
}

func TestSemaphore_CancelBeforeTheGrantWins(t *testing.T) {
	// The context is done, and then a permit comes before the waiter has had a
	// chance to see either. It was done before the grant, so it wins.
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for range rounds(500) {
			s := newTestSemaphore(t, 1, fair)
			require.True(t, s.TryAcquire(1))
			w, cancel := parkCancelable(t, s, 1)
			cancel()
			s.Release(1)
			requireFailed(t, context.Canceled, w)
			requireIdle(t, s, 1)
		}
	})
}

func TestSemaphore_CancelBeforeTheGrantWinsOverAWaiterJustArriving(t *testing.T) {
	// The same while the waiter is in the queue but not yet asleep: when it
	// looks, it finds both, and must not toss a coin. Both sides spin to meet
	// within the few nanoseconds that matter.
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		root := watchdog(t)
		type round struct {
			ctx  context.Context
			err  error
			over atomic.Bool
		}
		var current atomic.Pointer[round]
		waiter := start(func() error {
			var last *round
			for root.Err() == nil {
				r := current.Load()
				if r == last {
					runtime.Gosched()
					continue
				}
				if r.ctx == nil {
					return nil
				}
				r.err = s.Acquire(r.ctx, 1)
				r.over.Store(true)
				last = r
			}
			return root.Err()
		})
		for range rounds(5000) {
			require.True(t, s.TryAcquire(1))
			ctx, cancel := context.WithCancel(root)
			r := &round{ctx: ctx}
			current.Store(r)
			for i := 0; s.Waiters() == 0 && root.Err() == nil; i++ {
				if i > 1000 {
					runtime.Gosched() // for machines with one processor
				}
			}
			cancel()
			s.Release(1)
			for !r.over.Load() && root.Err() == nil {
				runtime.Gosched()
			}
			if !r.over.Load() || r.err != context.Canceled {
				require.Failf(t, "must be cancelled", "over %v, error %v", r.over.Load(), r.err)
			}
		}
		current.Store(new(round))
		waiter.wait(t)
		require.NoError(t, waiter.err)
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_CancelAfterTheGrantLosesNoPermit(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for range rounds(500) {
			s := newTestSemaphore(t, 1, fair)
			require.True(t, s.TryAcquire(1))
			w, cancel := parkCancelable(t, s, 1)
			s.Release(1)
			cancel()
			require.True(t, w.ended())
			if w.err == nil {
				requirePermits(t, s, 1, 0)
				s.Release(1)
			} else {
				require.Equal(t, context.Canceled, w.err)
			}
			requireIdle(t, s, 1)
		}
	})
}

func TestSemaphore_ManyGiveUpAtOnce(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		stays := park(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []*call
		for range 1000 {
			waiters = append(waiters, start(func() error { return s.Acquire(ctx, 1) }))
		}
		requireParked(t, waiters...)
		last := park(t, s, 1)
		require.Equal(t, 1002, s.Waiters())
		cancel()
		requireFailed(t, context.Canceled, waiters...)
		require.Equal(t, 2, s.Waiters())
		s.Release(1)
		requireGranted(t, stays)
		requireParked(t, last)
		s.Release(1)
		requireGranted(t, last)
	})
}

func TestSemaphore_CanceledWaitLeavesNothingBehind(t *testing.T) {
	// The context of a wait that was given up must be collectable while the
	// queue lives on; so must whatever it carries.
	s := newTestSemaphore(t, 0, true)
	first := startAcquire(t, s, 1)
	awaitWaiters(s, 1)
	collected := make(chan struct{})
	func() {
		carried := new([1 << 10]byte)
		runtime.AddCleanup(carried, func(done chan struct{}) { close(done) }, collected)
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(endless(), key{}, carried))
		second := start(func() error { return s.Acquire(ctx, 1) })
		awaitWaiters(s, 2)
		cancel()
		second.wait(t)
		require.Equal(t, context.Canceled, second.err)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond)
	s.Close()
	first.wait(t)
}

func TestSemaphore_ErrorPrecedence(t *testing.T) {
	ctx, closed, tooLarge, queueFull := context.Canceled, ErrClosed, ErrTooLarge, ErrQueueFull
	for _, tc := range []struct {
		name                            string
		done, closed, large, full, held bool
		want                            error
	}{
		{"nothing wrong", false, false, false, false, false, nil},
		{"all of it", true, true, true, false, false, ctx},
		{"done and closed", true, true, false, false, false, ctx},
		{"done and too large", true, false, true, false, false, ctx},
		{"done and queue full", true, false, false, true, true, ctx},
		{"done, too large and queue full", true, false, true, true, true, ctx},
		{"closed and too large", false, true, true, false, false, closed},
		{"closed", false, true, false, false, true, closed},
		{"too large and queue full", false, false, true, true, true, tooLarge},
		{"too large", false, false, true, false, false, tooLarge},
		{"queue full", false, false, false, true, true, queueFull},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachModeInBubble(t, func(t *testing.T, fair bool) {
				s := newBoundedSemaphore(t, 2, fair, 1)
				if tc.held {
					require.True(t, s.TryAcquire(2))
				}
				if tc.full {
					park(t, s, 1)
				}
				if tc.closed {
					s.Close()
				}
				ctx, n := t.Context(), int64(1)
				if tc.done {
					ctx = canceled()
				}
				if tc.large {
					n = 3
				}
				before := s.Stats()
				c := start(func() error { return s.Acquire(ctx, n) })
				require.True(t, c.ended())
				require.Equal(t, tc.want, c.err)
				if tc.want != nil {
					after := s.Stats()
					after.Refused = before.Refused // S6 and the test of the counters
					require.Equal(t, before, after)
				}
			})
		})
	}
}

func TestSemaphore_CancelAndReleaseRace(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		root := watchdog(t)
		for range rounds(5000) {
			require.True(t, s.TryAcquire(3))
			ctx, cancel := context.WithCancel(root)
			var all sync.WaitGroup
			var mine, other error
			all.Go(func() {
				if mine = s.Acquire(ctx, 2); mine == nil {
					s.Release(2)
				}
			})
			all.Go(func() {
				if other = s.Acquire(root, 1); other == nil {
					s.Release(1)
				}
			})
			all.Go(cancel)
			all.Go(func() { s.Release(2) })
			all.Go(func() { s.Release(1) })
			all.Wait()
			require.NoError(t, other)
			if mine != nil {
				require.Equal(t, context.Canceled, mine)
			}
			if s.Available() != 3 || s.Waiters() != 0 {
				requireIdle(t, s, 3)
			}
		}
	})
}

func TestSemaphore_GrantAndDeadlineInTheSameInstant(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		for range rounds(2000) {
			require.True(t, s.TryAcquire(1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w := start(func() error { return s.Acquire(ctx, 1) })
			time.Sleep(time.Second)
			s.Release(1)
			require.True(t, w.ended())
			if w.err == nil {
				s.Release(1)
			}
			cancel()
			requirePermits(t, s, 1, 1)
			require.Zero(t, s.Waiters())
		}
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_PausedQueueTakesRequestsOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 0, true)
		var cancels []context.CancelFunc
		for range 4 {
			_, cancel := parkCancelable(t, s, math.MaxInt64)
			cancels = append(cancels, cancel)
		}
		park(t, s, 5)
		require.Equal(t, int64(math.MaxInt64), s.Stats().WaitingPermits, "as many as fit the number")
		for _, cancel := range cancels {
			cancel()
		}
		synctest.Wait()
		require.EqualValues(t, 5, s.Stats().WaitingPermits, "and exact again after that")
	})
}
