package ration

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S7: more than there is

func TestSemaphore_TooLargeFailsAtOnce(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		for _, n := range []int64{4, MaxPermits, MaxPermits + 1, math.MaxInt64} {
			c := startAcquire(t, s, n)
			requireFailed(t, ErrTooLarge, c)
			require.Zero(t, c.took)
			require.False(t, s.TryAcquire(n))
		}
		requirePermits(t, s, 3, 3)
		require.True(t, s.TryAcquire(3))
		requireFailed(t, ErrTooLarge, startAcquire(t, s, 4)) // nor does it queue
	})
}

func TestSemaphore_ShrinkBelowAWaitersRequestFailsIt(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.True(t, s.TryAcquire(5))
		small := park(t, s, 1)
		large, larger := park(t, s, 4), park(t, s, 5) // behind the head: all are looked at
		three := park(t, s, 3)
		require.NoError(t, s.Shrink(1))
		requireFailed(t, ErrTooLarge, larger)
		requireParked(t, small, large, three)
		require.NoError(t, s.Resize(3))
		requireFailed(t, ErrTooLarge, large)
		requireParked(t, small, three)
		require.Equal(t, 2, s.Waiters())
		require.EqualValues(t, 4, s.Stats().WaitingPermits)
		s.Release(5)
		requireGranted(t, small)
		requireParked(t, three)
		s.Release(1)
		requireGranted(t, three)
	})
}

func TestSemaphore_PauseKeepsEverybodyWaiting(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(3))
		before := park(t, s, 2)
		require.NoError(t, s.Resize(0))
		requirePermits(t, s, 0, -3)
		during, huge := park(t, s, 1), park(t, s, math.MaxInt64)
		require.False(t, s.TryAcquire(1))
		require.False(t, s.TryAcquireFor(1, time.Second))
		s.Release(3)
		requirePermits(t, s, 0, 0)
		requireParked(t, before, during, huge)

		require.NoError(t, s.Grow(3))
		requireFailed(t, ErrTooLarge, huge)
		requireGranted(t, before, during)
		requirePermits(t, s, 3, 0)
	})
}

func TestSemaphore_PauseMayBeTheBeginning(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 0, fair)
		a, b := park(t, s, 1), park(t, s, 2)
		require.NoError(t, s.Grow(2))
		requireGranted(t, a)
		requireParked(t, b)
		s.Release(1)
		requireGranted(t, b)
	})
}

func TestSemaphore_PauseThatEndsTooLowFailsTheWaiter(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 10, fair)
		require.True(t, s.TryAcquire(10))
		large := park(t, s, 6)
		small := park(t, s, 5)
		require.NoError(t, s.Shrink(10))
		requireParked(t, large, small)
		time.Sleep(time.Hour)
		requireParked(t, large, small)
		require.NoError(t, s.Resize(5)) // in debt still, but it will be five
		requireFailed(t, ErrTooLarge, large)
		requireParked(t, small)
		s.Release(10)
		requireGranted(t, small)
	})
}

func TestSemaphore_PausedWaiterCanGiveUp(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 0, fair)
		a, cancel := parkCancelable(t, s, 1)
		b := park(t, s, 1)
		cancel()
		requireFailed(t, context.Canceled, a)
		requireParked(t, b)
		require.NoError(t, s.Grow(1))
		requireGranted(t, b)
	})
}

// S8: debt

func TestSemaphore_ShrinkWhileHeldGoesIntoDebt(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(3))
		require.NoError(t, s.Shrink(1))
		requirePermits(t, s, 2, -1)
		require.False(t, s.TryAcquire(1))
		s.Release(1)
		requirePermits(t, s, 2, 0)
		require.False(t, s.TryAcquire(1))
		s.Release(1)
		requirePermits(t, s, 2, 1)
		require.True(t, s.TryAcquire(1))
		s.Release(2)
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_ShrinkTakesFreePermitsFirst(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.True(t, s.TryAcquire(2))
		require.NoError(t, s.Shrink(3))
		requirePermits(t, s, 2, 0)
		s.Release(2)
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_DebtIsRepaidBeforeAnyWaiter(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		require.True(t, s.TryAcquire(4))
		w := park(t, s, 1)
		require.NoError(t, s.Shrink(3))
		for available := int64(-3); available < 0; available++ {
			requirePermits(t, s, 1, available)
			s.Release(1)
			requireParked(t, w)
		}
		requirePermits(t, s, 1, 0)
		s.Release(1)
		requireGranted(t, w)
		requirePermits(t, s, 1, 0)
	})
}

func TestSemaphore_OneReleaseRepaysDebtAndServesWaiters(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 6, fair)
		require.True(t, s.TryAcquire(6))
		a, b, c := park(t, s, 1), park(t, s, 2), park(t, s, 1)
		require.NoError(t, s.Shrink(2))
		s.Release(5)
		requireGranted(t, a, b)
		requireParked(t, c)
		requirePermits(t, s, 4, 0)
	})
}

func TestSemaphore_GrowRepaysDebtFirst(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		require.True(t, s.TryAcquire(4))
		w := park(t, s, 1)
		require.NoError(t, s.Shrink(2))
		require.NoError(t, s.Grow(1))
		requirePermits(t, s, 3, -1)
		requireParked(t, w)
		require.NoError(t, s.Grow(1))
		requirePermits(t, s, 4, 0)
		requireParked(t, w)
		require.NoError(t, s.Grow(1))
		requireGranted(t, w)
		requirePermits(t, s, 5, 0)
	})
}

func TestSemaphore_ResizeIsAbsolute(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		require.True(t, s.TryAcquire(3))
		for _, capacity := range []int64{10, 2, 2, 0, 3, MaxPermits, 4} {
			require.NoError(t, s.Resize(capacity))
			requirePermits(t, s, capacity, capacity-3)
		}
		s.Release(3)
		requireIdle(t, s, 4)
	})
}

func TestSemaphore_ResizeOutOfRangeChangesNothing(t *testing.T) {
	for _, tc := range []struct {
		name     string
		capacity int64
		resize   func(s *Semaphore) error
	}{
		{"Grow(-1)", 5, func(s *Semaphore) error { return s.Grow(-1) }},
		{"Grow(MinInt64)", 5, func(s *Semaphore) error { return s.Grow(math.MinInt64) }},
		{"Grow by one too many", 5, func(s *Semaphore) error { return s.Grow(MaxPermits - 4) }},
		{"Grow(MaxPermits)", 5, func(s *Semaphore) error { return s.Grow(MaxPermits) }},
		{"Grow(MaxInt64)", 5, func(s *Semaphore) error { return s.Grow(math.MaxInt64) }},
		{"Grow(MaxInt64) from nothing", 0, func(s *Semaphore) error { return s.Grow(math.MaxInt64) }},
		{"Grow(1) at the top", MaxPermits, func(s *Semaphore) error { return s.Grow(1) }},
		{"Shrink(-1)", 5, func(s *Semaphore) error { return s.Shrink(-1) }},
		{"Shrink(MinInt64)", 5, func(s *Semaphore) error { return s.Shrink(math.MinInt64) }},
		{"Shrink by one too many", 5, func(s *Semaphore) error { return s.Shrink(6) }},
		{"Shrink(MaxInt64)", 5, func(s *Semaphore) error { return s.Shrink(math.MaxInt64) }},
		{"Shrink(1) of nothing", 0, func(s *Semaphore) error { return s.Shrink(1) }},
		{"Resize(-1)", 5, func(s *Semaphore) error { return s.Resize(-1) }},
		{"Resize(MinInt64)", 5, func(s *Semaphore) error { return s.Resize(math.MinInt64) }},
		{"Resize(MaxPermits+1)", 5, func(s *Semaphore) error { return s.Resize(MaxPermits + 1) }},
		{"Resize(MaxInt64)", 5, func(s *Semaphore) error { return s.Resize(math.MaxInt64) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachModeInBubble(t, func(t *testing.T, fair bool) {
				s := newTestSemaphore(t, tc.capacity, fair)
				require.True(t, s.TryAcquire(tc.capacity))
				before := s.Stats()
				require.Equal(t, ErrCapacity, tc.resize(s))
				require.Equal(t, before, s.Stats())

				s.Release(tc.capacity)
				requireIdle(t, s, tc.capacity)
			})
		})
	}
}

func TestSemaphore_ReachesTheLargestCapacity(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 5, fair)
		require.NoError(t, s.Grow(MaxPermits-5))
		requireIdle(t, s, MaxPermits)
		require.True(t, s.TryAcquire(MaxPermits))
		require.NoError(t, s.Shrink(MaxPermits))
		requirePermits(t, s, 0, -MaxPermits) // the deepest debt
		require.NoError(t, s.Resize(MaxPermits))
		requirePermits(t, s, MaxPermits, 0)
		s.Release(MaxPermits)
		requireIdle(t, s, MaxPermits)
	})
}
