package ration

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S11. The data is plain, so the race detector fails these tests if nothing
// orders the write before the release with the read after the acquire.

func TestSemaphore_FastPathOrdersReleaseBeforeAcquire(t *testing.T) {
	takes := map[string]func(s *Semaphore) bool{
		"TryAcquire":     func(s *Semaphore) bool { return s.TryAcquire(1) },
		"TryAcquireUpTo": func(s *Semaphore) bool { return s.TryAcquireUpTo(1) == 1 },
		"Drain":          func(s *Semaphore) bool { return s.Drain() == 1 },
		"TryAcquireFor":  func(s *Semaphore) bool { return s.TryAcquireFor(1, 0) },
		"Acquire": func(s *Semaphore) bool {
			runtime.Gosched() // so that it does not always come too early for the fast path
			return s.Acquire(endless(), 1) == nil
		},
	}
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, fair bool) {
				for range 200 {
					s := NewSemaphore(1, &SemaphoreOptions{Fair: fair})
					require.True(t, s.TryAcquire(1))
					var data int
					c := start(func() error {
						for !take(s) {
							runtime.Gosched()
						}
						data++
						return nil
					})
					data = 41
					s.Release(1)
					c.wait(t)
					require.Equal(t, 42, data)
				}
			})
		})
	}
}

func TestSemaphore_SlowPathOrdersReleaseBeforeAcquire(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		for range 100 {
			s := newTestSemaphore(t, 1, fair)
			require.True(t, s.TryAcquire(1))
			var data int
			c := park(t, s, 1)
			d := start(func() error {
				<-c.done
				data++
				s.Release(1)
				return nil
			})
			timed := startTimed(s, 1, time.Hour)
			e := start(func() error {
				<-timed.done
				data++
				return nil
			})
			requireParked(t, c, timed)
			data = 40
			s.Release(1)
			<-e.done // from here to c, and from d to timed, the semaphore alone orders them
			require.Equal(t, 42, data)
			requireGranted(t, c, d, timed)
		}
	})
}

func TestSemaphore_EveryReleaseThatWasNeededIsOrdered(t *testing.T) {
	// An acquire of n is let through by all the releases that made it
	// possible, and by those that repaid the debt before it.
	eachMode(t, func(t *testing.T, fair bool) {
		for range 200 {
			const n = 4
			s := NewSemaphore(n+1, &SemaphoreOptions{Fair: fair})
			require.True(t, s.TryAcquire(n+1))
			require.NoError(t, s.Shrink(1))
			var data [n + 1]int
			var calls []*call
			for i := range data {
				calls = append(calls, start(func() error {
					data[i] = i + 1
					s.Release(1)
					return nil
				}))
			}
			require.NoError(t, s.Acquire(watchdog(t), n))
			require.Equal(t, [n + 1]int{1, 2, 3, 4, 5}, data)
			for _, c := range calls {
				c.wait(t)
			}
		}
	})
}

func TestSemaphore_GivesMutualExclusion(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		var data int
		var calls []*call
		ctx := watchdog(t)
		each := rounds(20_000)
		for range 8 {
			calls = append(calls, start(func() error {
				for range each {
					if err := s.Acquire(ctx, 1); err != nil {
						return err
					}
					data++
					s.Release(1)
				}
				return nil
			}))
		}
		for _, c := range calls {
			c.wait(t)
			require.NoError(t, c.err)
		}
		require.Equal(t, 8*each, data)
		requireIdle(t, s, 1)
	})
}
