package ration

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Who is served when: fairness, barging, and the one wake rule.

// S3

func TestSemaphore_FairGrantsInArrivalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 3, true)
		require.True(t, s.TryAcquire(3))
		a, b, c, d := park(t, s, 1), park(t, s, 3), park(t, s, 1), park(t, s, 2)
		require.Equal(t, 4, s.Waiters())

		s.Release(1)
		requireGranted(t, a)
		requireParked(t, b, c, d)
		s.Release(2) // a still holds one
		requireParked(t, b, c, d)
		s.Release(1)
		requireGranted(t, b)
		requireParked(t, c, d)
		s.Release(3)
		requireGranted(t, c, d)
		requirePermits(t, s, 3, 0)
	})
}

func TestSemaphore_FairOvertakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 3, true)
		require.True(t, s.TryAcquire(1))
		large := park(t, s, 3)
		require.False(t, s.TryAcquire(1), "two are free, but somebody waits")
		require.False(t, s.TryAcquireFor(1, time.Minute))
		small := park(t, s, 1)
		require.EqualValues(t, 0, s.TryAcquireUpTo(2))
		requirePermits(t, s, 3, 2)
		s.Release(1)
		requireGranted(t, large)
		requireParked(t, small)
		s.Release(3)
		requireGranted(t, small)
	})
}

func TestSemaphore_FairServesTheWaiterBeforeTheReleaser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 1, true)
		require.True(t, s.TryAcquire(1))
		w := park(t, s, 1)
		s.Release(1)
		again := startAcquire(t, s, 1) // by then the permit is not there any more
		requireGranted(t, w)
		requireParked(t, again)
		s.Release(1)
		requireGranted(t, again)
	})
}

func TestSemaphore_LargeRequestIsNotStarved(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		// Eight workers hold one permit each and come back for another as soon
		// as they have released it, out of step with each other. All eight are
		// never free at once, unless the large request makes them wait.
		s := newTestSemaphore(t, 8, fair)
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer stop()
		for i := range 8 {
			workers.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				for s.Acquire(ctx, 1) == nil {
					time.Sleep(800 * time.Microsecond)
					s.Release(1)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		require.NoError(t, s.Acquire(briefly(t), 8))
		limit := 800 * time.Microsecond // the longest hold
		if !fair {
			limit += barging + 100*time.Microsecond
		}
		require.LessOrEqual(t, time.Since(began), limit)
		s.Release(8)
	})
}

// S4

func TestSemaphore_NonFairSmallPassesLargeForAMillisecond(t *testing.T) {
	// No event but the passing of time comes between the tries: the bound is
	// about the arrival of the head, not about the last time anybody looked.
	passes := map[string]func(s *Semaphore) bool{
		"TryAcquire":     func(s *Semaphore) bool { return s.TryAcquire(1) },
		"TryAcquireUpTo": func(s *Semaphore) bool { return s.TryAcquireUpTo(1) == 1 },
		"TryAcquireFor":  func(s *Semaphore) bool { return s.TryAcquireFor(1, 1) },
		"Acquire": func(s *Semaphore) bool {
			ctx, cancel := context.WithTimeout(endless(), 1)
			defer cancel()
			return s.Acquire(ctx, 1) == nil
		},
	}
	for name, pass := range passes {
		for _, tc := range []struct {
			age  time.Duration
			want bool
		}{
			{0, true},
			{barging / 2, true},
			{barging - 1, true},
			{barging + 1, false},
			{2 * barging, false},
			{time.Hour, false},
		} {
			t.Run(name+"/"+tc.age.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newTestSemaphore(t, 4, false)
					require.True(t, s.TryAcquire(3))
					large := park(t, s, 4)
					time.Sleep(tc.age)
					require.Equal(t, tc.want, pass(s))
					if tc.want {
						s.Release(1)
						requireParked(t, large)
						require.Equal(t, 1, s.Waiters(), "the head keeps its place")
					}
					requirePermits(t, s, 4, 1)
					s.Release(3)
					requireGranted(t, large)
				})
			})
		}
	}
}

func TestSemaphore_NonFairBoundCountsFromArrivalNotFromBecomingHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 4, false)
		require.True(t, s.TryAcquire(3))
		first, cancel := parkCancelable(t, s, 4)
		time.Sleep(barging / 2)
		second := park(t, s, 2)
		third := park(t, s, 3)
		time.Sleep(barging / 4)
		cancel()
		requireFailed(t, context.Canceled, first)
		require.True(t, s.TryAcquire(1), "the second has waited a quarter of the bound")
		s.Release(1)
		time.Sleep(barging)
		require.False(t, s.TryAcquire(1), "now it is past it")
		s.Release(1)
		requireGranted(t, second)
		s.Release(1)
		require.False(t, s.TryAcquire(1), "the third came with the second: past the bound since it leads")
		requirePermits(t, s, 4, 1)
		s.Release(2)
		requireGranted(t, third)
	})
}

func TestSemaphore_NonFairBargesAgainWhenTheStarvingAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 4, false)
		require.True(t, s.TryAcquire(3))
		old := park(t, s, 4)
		endBarging()
		require.False(t, s.TryAcquire(1))
		young := park(t, s, 4)
		s.Release(3)
		requireGranted(t, old)
		s.Release(1)
		require.True(t, s.TryAcquire(1), "the new head has only just come")
		require.False(t, s.TryAcquire(1))
		s.Release(1)
		requireParked(t, young)
		s.Release(3)
		requireGranted(t, young)
	})
}

func TestSemaphore_NonFairBargesAgainWhenTheStarvingGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 4, false)
		require.True(t, s.TryAcquire(3))
		old, cancel := parkCancelable(t, s, 4)
		endBarging()
		young := park(t, s, 3)
		require.False(t, s.TryAcquire(1))
		cancel()
		requireFailed(t, context.Canceled, old)
		require.True(t, s.TryAcquire(1))
		s.Release(1)
		requireParked(t, young)
	})
}

func TestSemaphore_NonFairServesWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 3, false)
		require.True(t, s.TryAcquire(3))
		a, b, c := park(t, s, 2), park(t, s, 1), park(t, s, 2)
		s.Release(1)
		requireParked(t, a, b, c) // one is free, but a is first, and nobody comes to barge
		s.Release(1)
		requireGranted(t, a)
		requireParked(t, b, c)
		s.Release(1)
		requireGranted(t, b)
		requireParked(t, c)
		s.Release(2)
		requireGranted(t, c)
	})
}

func TestSemaphore_NonFairLoserOfARaceKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 1, false)
		lost := 0
		for range rounds(2000) {
			require.True(t, s.TryAcquire(1))
			first, second := park(t, s, 1), park(t, s, 1)
			s.Release(1) // invites first
			if s.TryAcquire(1) {
				lost++ // before it came
				requireParked(t, first, second)
				require.Equal(t, 2, s.Waiters())
				s.Release(1)
			}
			requireGranted(t, first)
			requireParked(t, second)
			s.Release(1)
			requireGranted(t, second)
			s.Release(1)
		}
		t.Logf("the invited lost %d times", lost)
		require.Positive(t, lost, "newcomers never win: then it is not this that was tested")
	})
}

func TestSemaphore_NonFairTailIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A holder that wants the permit again at once barges past the waiter
		// each time, but only as long as S4 lets it.
		s := newTestSemaphore(t, 1, false)
		const hold = 100 * time.Microsecond
		require.True(t, s.TryAcquire(1))
		w := park(t, s, 1)
		c := start(func() error {
			for range 1000 {
				time.Sleep(hold)
				s.Release(1)
				if err := s.Acquire(t.Context(), 1); err != nil {
					return err
				}
			}
			return nil
		})
		w.wait(t)
		require.NoError(t, w.err)
		require.LessOrEqual(t, w.took, barging+hold)
		s.Release(1)
		c.wait(t)
		require.NoError(t, c.err)
	})
}

// S5

func TestSemaphore_ReleaseWakesAllWhoFit(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 6, fair)
		require.True(t, s.TryAcquire(6))
		a, b, c, d := park(t, s, 1), park(t, s, 2), park(t, s, 3), park(t, s, 1)
		s.Release(5)
		requireGranted(t, a, b)
		requireParked(t, c, d) // the last would fit, but comes after one that does not
		requirePermits(t, s, 6, 2)
		s.Release(1)
		requireGranted(t, c)
		requireParked(t, d)
	})
}

func TestSemaphore_ReleasesBackToBackWakeAsMany(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		const n = 20
		s := newTestSemaphore(t, n, fair)
		require.True(t, s.TryAcquire(n))
		var waiters []*call
		for range n {
			waiters = append(waiters, park(t, s, 1))
		}
		for range n {
			s.Release(1) // nobody gets a chance to run in between
		}
		requireGranted(t, waiters...)
		requirePermits(t, s, n, 0)
	})
}

func TestSemaphore_GrowWakesExactlyThoseWhoFit(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 2, fair)
		require.True(t, s.TryAcquire(2))
		a, b, c, d := park(t, s, 1), park(t, s, 2), park(t, s, 2), park(t, s, 1)
		require.NoError(t, s.Grow(4))
		requireGranted(t, a, b)
		requireParked(t, c, d)
		requirePermits(t, s, 6, 1)
		require.NoError(t, s.Grow(0))
		requireParked(t, c, d)
		require.NoError(t, s.Resize(7))
		requireGranted(t, c)
		requireParked(t, d)
		requirePermits(t, s, 7, 0)
	})
}

func TestSemaphore_CancelOfTheHeadWakesThoseBehind(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		require.True(t, s.TryAcquire(2))
		large, cancel := parkCancelable(t, s, 4)
		endBarging()
		a, b, c := park(t, s, 1), park(t, s, 1), park(t, s, 1)
		cancel()
		requireFailed(t, context.Canceled, large)
		requireGranted(t, a, b)
		requireParked(t, c)
		requirePermits(t, s, 4, 0)
	})
}

func TestSemaphore_TimeoutOfTheHeadWakesThoseBehind(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		require.True(t, s.TryAcquire(2))
		large := startTimed(s, 4, time.Second)
		requireParked(t, large)
		endBarging()
		a, b, c := park(t, s, 1), park(t, s, 1), park(t, s, 1)
		time.Sleep(time.Second)
		requireFailed(t, errTimedTry, large)
		requireGranted(t, a, b)
		requireParked(t, c)
		require.Equal(t, time.Second-2*barging, a.took)
	})
}

func TestSemaphore_TooLargeHeadMakesWayForThoseBehind(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.True(t, s.TryAcquire(2))
		large := park(t, s, 5)
		endBarging()
		a, b := park(t, s, 2), park(t, s, 1)
		require.NoError(t, s.Shrink(1)) // two are free of four
		requireFailed(t, ErrTooLarge, large)
		requireGranted(t, a)
		requireParked(t, b)
		requirePermits(t, s, 4, 0)
	})
}

func TestSemaphore_CancelInTheMiddleMovesNobodyElse(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(3))
		a := park(t, s, 1)
		b, cancelB := parkCancelable(t, s, 1)
		c := park(t, s, 1)
		d, cancelD := parkCancelable(t, s, 1)
		cancelB()
		requireFailed(t, context.Canceled, b)
		requireParked(t, a, c, d)
		require.Equal(t, 3, s.Waiters())
		cancelD() // the tail
		requireFailed(t, context.Canceled, d)
		e := park(t, s, 1)
		s.Release(1)
		requireGranted(t, a)
		requireParked(t, c, e)
		s.Release(1)
		requireGranted(t, c)
		requireParked(t, e)
		s.Release(1)
		requireGranted(t, e)
	})
}

func TestSemaphore_AbandonedInvitationGoesToTheNext(t *testing.T) {
	// The head is woken for a permit and cancelled before it runs. Whatever it
	// does, the one behind it must not be left asleep beside a free permit.
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for range rounds(500) {
			s := newTestSemaphore(t, 1, fair)
			require.True(t, s.TryAcquire(1))
			head, cancel := parkCancelable(t, s, 1)
			next := park(t, s, 1)
			s.Release(1)
			cancel()
			require.True(t, head.ended())
			if head.err == nil {
				requireParked(t, next)
				s.Release(1)
			} else {
				require.Equal(t, context.Canceled, head.err)
			}
			requireGranted(t, next)
			s.Release(1)
			requireIdle(t, s, 1)
		}
	})
}

func TestSemaphore_LostInvitationIsRepeated(t *testing.T) {
	// A newcomer takes the permit that the head was invited to. When it comes
	// back, the head must be invited again.
	synctest.Test(t, func(t *testing.T) {
		s := newTestSemaphore(t, 2, false)
		for range rounds(500) {
			require.True(t, s.TryAcquire(2))
			head := park(t, s, 2)
			s.Release(2)
			if s.TryAcquire(1) {
				requireParked(t, head)
				requirePermits(t, s, 2, 1)
				s.Release(1)
			}
			requireGranted(t, head)
			s.Release(2)
		}
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_ShrinkTakesAnInvitationBack(t *testing.T) {
	// The head is woken for the last permit; before it runs, the permit is
	// gone by a shrink. It must neither get it nor forget to wait.
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for range rounds(500) {
			s := newTestSemaphore(t, 2, fair)
			require.True(t, s.TryAcquire(2))
			head := park(t, s, 1)
			s.Release(1)
			require.NoError(t, s.Shrink(1))
			if head.ended() {
				requireGranted(t, head)
				requirePermits(t, s, 1, -1)
				s.Release(1)
			}
			requirePermits(t, s, 1, 0)
			s.Release(1)
			requireGranted(t, head)
			s.Release(1 - s.Available())
			requireIdle(t, s, 1)
		}
	})
}

func TestSemaphore_WaitersCount(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.True(t, s.TryAcquire(5))
		_, cancel := parkCancelable(t, s, 2)
		park(t, s, 3)
		require.Equal(t, 2, s.Waiters())
		require.EqualValues(t, 5, s.Stats().WaitingPermits)
		cancel()
		synctest.Wait()
		require.Equal(t, 1, s.Waiters())
		require.EqualValues(t, 3, s.Stats().WaitingPermits)
		s.Release(3)
		synctest.Wait()
		require.Zero(t, s.Waiters())
		require.Zero(t, s.Stats().WaitingPermits)
	})
}

// MaxWaiters

func TestSemaphore_FullQueueRefusesAtOnce(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 1, fair, 2)
		require.True(t, s.TryAcquire(1))
		a, b := park(t, s, 1), park(t, s, 1)
		c := startAcquire(t, s, 1)
		requireFailed(t, ErrQueueFull, c)
		require.Zero(t, c.took)
		require.Equal(t, 2, s.Waiters())
		s.Release(1)
		requireGranted(t, a)
		requireParked(t, b)
		s.Release(1)
		requireGranted(t, b)
	})
}

func TestSemaphore_PlaceInTheQueueIsFreedByEveryEndOfAWait(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 3, fair, 1)
		require.True(t, s.TryAcquire(3))
		full := func() {
			t.Helper()
			require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 3))
			require.False(t, s.TryAcquireFor(3, time.Hour))
		}

		canceled, cancel := parkCancelable(t, s, 1)
		full()
		cancel()
		requireFailed(t, context.Canceled, canceled)

		timedOut := startTimed(s, 1, time.Second)
		requireParked(t, timedOut)
		full()
		time.Sleep(time.Second)
		requireFailed(t, errTimedTry, timedOut)

		granted := park(t, s, 1)
		full()
		s.Release(1)
		requireGranted(t, granted)

		tooLarge := park(t, s, 3)
		full()
		require.NoError(t, s.Shrink(1))
		requireFailed(t, ErrTooLarge, tooLarge)

		last := park(t, s, 1)
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 1))
		require.NoError(t, s.Resize(5))
		requireGranted(t, last)
	})
}

func TestSemaphore_FullQueueDoesNotRefuseWhatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoundedSemaphore(t, 4, false, 1)
		require.True(t, s.TryAcquire(2))
		large := park(t, s, 4)
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 3))
		require.NoError(t, s.Acquire(briefly(t), 1), "fits, and may pass")
		require.True(t, s.TryAcquire(1))
		s.Release(2)
		endBarging()
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 1), "fits, but may not pass any more")
		s.Release(2)
		requireGranted(t, large)
	})
}

func TestSemaphore_FullQueueOfAFairSemaphoreLetsNobodyPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoundedSemaphore(t, 4, true, 1)
		require.True(t, s.TryAcquire(2))
		park(t, s, 4)
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 1))
		require.NoError(t, s.Acquire(briefly(t), 0))
	})
}
