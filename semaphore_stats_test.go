package ration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireCounters checks the counters of the slow path.
func requireCounters(t *testing.T, s *Semaphore, waited, canceled, refused uint64) {
	t.Helper()
	synctest.Wait()
	st := s.Stats()
	require.Equal(t, [3]uint64{waited, canceled, refused},
		[3]uint64{st.Waited, st.Canceled, st.Refused}, "waited, canceled, refused")
}

func requireWaitTimes(t *testing.T, s *Semaphore, total, longest time.Duration) {
	t.Helper()
	synctest.Wait()
	st := s.Stats()
	require.Equal(t, total, st.WaitTime, "time waited")
	require.Equal(t, longest, st.LongestWait, "longest wait")
}

func TestSemaphore_FastPathCountsNothing(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		for range 10 {
			require.NoError(t, s.Acquire(briefly(t), 1))
			require.True(t, s.TryAcquire(1))
			require.True(t, s.TryAcquireFor(1, time.Second))
			require.Zero(t, s.Drain())
			s.Release(3)
		}
		require.Equal(t, SemaphoreStats{Capacity: 3, Available: 3}, s.Stats())
	})
}

func TestSemaphore_FailedTryCountsNothing(t *testing.T) {
	// A try that says no has told its caller all there is to tell; it is not a
	// failure of anything.
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(3))
		require.False(t, s.TryAcquire(1))
		require.False(t, s.TryAcquire(4))
		require.False(t, s.TryAcquireFor(1, 0))
		require.Zero(t, s.Drain())
		s.Close()
		require.False(t, s.TryAcquire(1))
		requireCounters(t, s, 0, 0, 0)
		requireWaitTimes(t, s, 0, 0)
	})
}

func TestSemaphore_WaitsAreCountedWhenTheyEnd(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		require.True(t, s.TryAcquire(1))
		served := park(t, s, 1)
		time.Sleep(3 * time.Second)
		requireCounters(t, s, 0, 0, 0)
		requireWaitTimes(t, s, 0, 0)
		s.Release(1)
		requireGranted(t, served)
		requireCounters(t, s, 1, 0, 0)
		requireWaitTimes(t, s, 3*time.Second, 3*time.Second)

		_, cancel := parkCancelable(t, s, 1)
		time.Sleep(5 * time.Second)
		cancel()
		requireCounters(t, s, 2, 1, 0)
		requireWaitTimes(t, s, 8*time.Second, 5*time.Second)

		require.False(t, s.TryAcquireFor(1, 2*time.Second))
		requireCounters(t, s, 3, 2, 0)
		requireWaitTimes(t, s, 10*time.Second, 5*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, s.Acquire(ctx, 1))
		requireCounters(t, s, 4, 3, 0)
		requireWaitTimes(t, s, 17*time.Second, 7*time.Second)

		park(t, s, 1)
		time.Sleep(11 * time.Second)
		s.Close()
		requireCounters(t, s, 5, 3, 1)
		requireWaitTimes(t, s, 28*time.Second, 11*time.Second)
	})
}

func TestSemaphore_WaitEndedByAResizeIsRefused(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		require.True(t, s.TryAcquire(3))
		w := park(t, s, 3)
		time.Sleep(time.Second)
		require.NoError(t, s.Shrink(1))
		requireFailed(t, ErrTooLarge, w)
		requireCounters(t, s, 1, 0, 1)
		requireWaitTimes(t, s, time.Second, time.Second)
	})
}

func TestSemaphore_RefusalsAtOnceAreNoWaits(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 3, fair, 1)
		require.True(t, s.TryAcquire(3))
		park(t, s, 1)
		require.Equal(t, ErrQueueFull, s.Acquire(briefly(t), 1))
		requireCounters(t, s, 0, 0, 1)
		require.Equal(t, ErrTooLarge, s.Acquire(briefly(t), 4))
		requireCounters(t, s, 0, 0, 2)
		require.False(t, s.TryAcquireFor(4, time.Second))
		require.False(t, s.TryAcquireFor(1, time.Second))
		requireCounters(t, s, 0, 0, 4)
		s.Close()
		requireCounters(t, s, 1, 0, 5) // the parked one
		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 1))
		require.Equal(t, ErrClosed, s.Acquire(briefly(t), 0))
		requireCounters(t, s, 1, 0, 7)
		requireWaitTimes(t, s, 0, 0)
	})
}

func TestSemaphore_DoneContextOnEntryIsNoWait(t *testing.T) {
	s := newTestSemaphore(t, 1, true)
	require.Equal(t, context.Canceled, s.Acquire(canceled(), 1))
	require.Equal(t, SemaphoreStats{Capacity: 1, Available: 1}, s.Stats(),
		"Canceled counts queued waits")
}

func TestSemaphore_StatsAreOneInstant(t *testing.T) {
	// While permits move, the capacity changes and waiters come and go, each
	// snapshot must be consistent in itself.
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		ctx, stop := context.WithCancel(watchdog(t))
		var workers []*call
		for i := range 4 {
			workers = append(workers, start(func() error {
				n := int64(i%2 + 1)
				for s.Acquire(ctx, n) == nil {
					s.Release(n)
				}
				return nil
			}))
		}
		workers = append(workers, start(func() error {
			for ctx.Err() == nil {
				if err := s.Grow(2); err != nil {
					return err
				}
				if err := s.Shrink(2); err != nil {
					return err
				}
			}
			return nil
		}))
		for range rounds(20_000) {
			st := s.Stats()
			if st.Available+st.Held != st.Capacity || st.Held < 0 || st.Held > 6 ||
				st.Capacity != 4 && st.Capacity != 6 ||
				st.WaitingPermits < int64(st.Waiters) || st.WaitingPermits > 2*int64(st.Waiters) {
				stop()
				require.Failf(t, "inconsistent", "%+v", st)
			}
		}
		stop()
		for _, w := range workers {
			w.wait(t)
			require.NoError(t, w.err)
		}
		requireIdle(t, s, 4)
	})
}
