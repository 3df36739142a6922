package ration

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S9. Each misuse panics with a message of this package before anything
// changes, so that a program that recovers has an exact semaphore afterwards.

func TestNewSemaphore_RefusesBadArguments(t *testing.T) {
	for _, permits := range []int64{-1, math.MinInt64, MaxPermits + 1, math.MaxInt64} {
		requireMisuse(t, func() { NewSemaphore(permits, nil) })
	}
	for _, bound := range []int{-1, math.MinInt} {
		requireMisuse(t, func() { NewSemaphore(1, &SemaphoreOptions{MaxWaiters: bound}) })
	}
}

// misuses lists every call that panics whatever the state of the semaphore is.
// Those that have a context have ctx, where it is not the context that is wrong.
func misuses(ctx context.Context) map[string]func(s *Semaphore) {
	nothing := func(context.Context) error { return nil }
	var noContext context.Context
	m := map[string]func(s *Semaphore){
		"Acquire without a context":                   func(s *Semaphore) { _ = s.Acquire(noContext, 1) },
		"Acquire of zero without a context":           func(s *Semaphore) { _ = s.Acquire(noContext, 0) },
		"Acquire of too much without a context":       func(s *Semaphore) { _ = s.Acquire(noContext, math.MaxInt64) },
		"Do without a context":                        func(s *Semaphore) { _ = s.Do(noContext, 1, nothing) },
		"Do without a function":                       func(s *Semaphore) { _ = s.Do(ctx, 1, nil) },
		"Do of zero without a function":               func(s *Semaphore) { _ = s.Do(ctx, 0, nil) },
		"Acquire of less than nothing, done ctx":      func(s *Semaphore) { _ = s.Acquire(canceled(), -1) },
		"TryAcquireFor of less than nothing, no time": func(s *Semaphore) { s.TryAcquireFor(-1, 0) },
		"Release of all there can be and one more":    func(s *Semaphore) { s.Release(MaxPermits + 1) },
		"Release of the largest number":               func(s *Semaphore) { s.Release(math.MaxInt64) },
	}
	for name, n := range map[string]int64{"-1": -1, "-MaxPermits": -MaxPermits, "MinInt64": math.MinInt64} {
		m["Acquire "+name] = func(s *Semaphore) { _ = s.Acquire(ctx, n) }
		m["TryAcquire "+name] = func(s *Semaphore) { s.TryAcquire(n) }
		m["TryAcquireFor "+name] = func(s *Semaphore) { s.TryAcquireFor(n, time.Second) }
		m["TryAcquireUpTo "+name] = func(s *Semaphore) { s.TryAcquireUpTo(n) }
		m["Release "+name] = func(s *Semaphore) { s.Release(n) }
		m["Do "+name] = func(s *Semaphore) { _ = s.Do(ctx, n, nothing) }
	}
	return m
}

func TestSemaphore_MisusePanicsAndChangesNothing(t *testing.T) {
	for name := range misuses(endless()) {
		t.Run(name, func(t *testing.T) {
			eachModeInBubble(t, func(t *testing.T, fair bool) {
				misuse := misuses(briefly(t))[name]
				s := newTestSemaphore(t, 4, fair)
				requireUnharmed := func() {
					t.Helper()
					before := s.Stats()
					requireMisuse(t, func() { misuse(s) })
					checkInvariants(t, s) // and no lock is left held
					require.Equal(t, before, s.Stats())
				}
				requireUnharmed()
				require.True(t, s.TryAcquire(3))
				requireUnharmed()
				w := park(t, s, 2)
				requireUnharmed()
				requireParked(t, w)
				require.NoError(t, s.Shrink(2))
				requireUnharmed() // in debt
				require.NoError(t, s.Resize(0))
				requireUnharmed() // paused
				require.NoError(t, s.Grow(4))
				s.Release(1)
				requireGranted(t, w)
				s.Release(4)
				requireIdle(t, s, 4)
				s.Close()
				requireUnharmed()
			})
		})
	}
}

func TestSemaphore_ReleaseOfMoreThanIsHeldChangesNothing(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 4, fair)
		refuses := func(n int64) {
			t.Helper()
			before := s.Stats()
			requireMisuse(t, func() { s.Release(n) })
			require.Equal(t, before, s.Stats())
		}
		refuses(1)
		require.True(t, s.TryAcquire(3))
		refuses(4)
		w := park(t, s, 2)
		refuses(4)
		requireParked(t, w)
		require.NoError(t, s.Shrink(2)) // held: three, of two
		refuses(4)
		s.Release(2)
		refuses(2)
		s.Release(1)
		requireGranted(t, w)
		refuses(3)
		s.Release(2)
		refuses(1)
		requireIdle(t, s, 2)
		require.NoError(t, s.Resize(0))
		refuses(1)
	})
}

func TestSemaphore_ReleaseAfterATimedOutTryPanics(t *testing.T) {
	// The mistake that a bool invites: the answer is not looked at, and what
	// was never taken is given back.
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 2, fair)
		require.True(t, s.TryAcquire(2))
		release := make(chan struct{})
		mistaken := start(func() error {
			s.TryAcquireFor(1, 10*time.Millisecond)
			<-release
			if !misused(func() { s.Release(1) }) {
				t.Error("a permit that nobody held was given back")
			}
			return nil
		})
		time.Sleep(20 * time.Millisecond)
		require.Zero(t, s.Waiters())
		s.Release(2)
		close(release)
		requireGranted(t, mistaken)
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_ReleaseAfterAnyFailedTryPanics(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 0, fair)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.False(t, s.TryAcquireFor(1, time.Millisecond))
		require.Equal(t, context.DeadlineExceeded, s.Acquire(ctx, 1))
		require.False(t, s.TryAcquire(1))
		require.Zero(t, s.Drain())
		requireMisuse(t, func() { s.Release(1) })
		requireIdle(t, s, 0)
		require.NoError(t, s.Grow(1))
		requireIdle(t, s, 1)
	})
}

func TestSemaphore_ReleaseAtTheTopDoesNotOverflow(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, MaxPermits, fair)
		requireMisuse(t, func() { s.Release(1) })
		requireMisuse(t, func() { s.Release(MaxPermits) })
		require.True(t, s.TryAcquire(MaxPermits))
		requireMisuse(t, func() { s.Release(math.MaxInt64) })
		require.False(t, s.TryAcquire(math.MaxInt64))
		require.False(t, s.TryAcquire(1))
		s.Release(MaxPermits)
		requireIdle(t, s, MaxPermits)
	})
}
