package ration

import (
	"container/list"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// What a program that takes a weighted semaphore for granted relies on, run
// over this package and over others: what only we promise shows by who has to
// skip it.

// A weighted semaphore has the three methods that they all share.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

type implementation struct {
	name string
	new  func(permits int64) weighted
	// What it does not promise: the names of the checks to skip, and why.
	without map[string]string
}

func implementations() []implementation {
	return []implementation{
		{
			name: "fair",
			new: func(permits int64) weighted {
				return NewSemaphore(permits, &SemaphoreOptions{Fair: true})
			},
		},
		{
			name: "nonfair",
			new:  func(permits int64) weighted { return NewSemaphore(permits, nil) },
			without: map[string]string{
				"NewcomersOvertakeNobody": "they may, for a millisecond",
			},
		},
		{
			name: "mutex",
			new:  func(permits int64) weighted { return &mutexSemaphore{size: permits} },
			without: map[string]string{
				"TooLargeFailsAtOnce": "waits until its context ends",
			},
		},
		{
			name: "xsync",
			new:  func(permits int64) weighted { return semaphore.NewWeighted(permits) },
			without: map[string]string{
				"TooLargeFailsAtOnce":            "waits until its context ends",
				"NothingIsHadWhileOthersWait":    "zero permits queue like any other number",
				"RecoveredOverReleaseIsHarmless": "the count is changed before the panic",
			},
		},
	}
}

// A mutexSemaphore is the obvious way to write one: a lock around a count and a
// list, and nothing clever.
type mutexSemaphore struct {
	mu         sync.Mutex
	size, used int64
	queue      list.List // of *mutexWaiter
}

type mutexWaiter struct {
	n     int64
	ready chan struct{}
}

func (m *mutexSemaphore) takeLocked(n int64) bool {
	if n > 0 && (m.queue.Len() > 0 || n > m.size-m.used) {
		return false
	}
	m.used += n
	return true
}

func (m *mutexSemaphore) serveLocked() {
	for e := m.queue.Front(); e != nil; e = m.queue.Front() {
		w := e.Value.(*mutexWaiter)
		if w.n > m.size-m.used {
			return
		}
		m.used += w.n
		m.queue.Remove(e)
		close(w.ready)
	}
}

func (m *mutexSemaphore) Acquire(ctx context.Context, n int64) error {
	if n < 0 {
		panic("negative")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if n > m.size {
		m.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if m.takeLocked(n) {
		m.mu.Unlock()
		return nil
	}
	w := &mutexWaiter{n, make(chan struct{})}
	e := m.queue.PushBack(w)
	m.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	err := ctx.Err()
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-w.ready:
		m.used -= n
	default:
		m.queue.Remove(e)
	}
	m.serveLocked()
	return err
}

func (m *mutexSemaphore) TryAcquire(n int64) bool {
	if n < 0 {
		panic("negative")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takeLocked(n)
}

func (m *mutexSemaphore) Release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 0 || n > m.used {
		panic("released what is not held")
	}
	m.used -= n
	m.serveLocked()
}

func TestConformance(t *testing.T) {
	checks := slices.Sorted(maps.Keys(conformance))
	for _, impl := range implementations() {
		t.Run(impl.name, func(t *testing.T) {
			for name := range impl.without {
				require.Contains(t, conformance, name, "a check of that name is to be skipped")
			}
			for _, name := range checks {
				t.Run(name, func(t *testing.T) {
					if why, ok := impl.without[name]; ok {
						t.Skip("not promised: " + why)
					}
					synctest.Test(t, func(t *testing.T) {
						conformance[name](t, impl.new)
					})
				})
			}
		})
	}
}

// conformance holds the checks by name. Each runs in a bubble.
var conformance = map[string]func(t *testing.T, newWeighted func(int64) weighted){
	"CountsPermits": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(3)
		require.NoError(t, s.Acquire(t.Context(), 1))
		require.True(t, s.TryAcquire(2))
		require.False(t, s.TryAcquire(1))
		require.True(t, s.TryAcquire(0))
		s.Release(1)
		require.False(t, s.TryAcquire(2))
		require.True(t, s.TryAcquire(1))
		s.Release(3)
		require.True(t, s.TryAcquire(3))
	},

	"TimesOutWhenThereIsNothing": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(2)
		acquire := func(n int64) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			return s.Acquire(ctx, n)
		}
		require.NoError(t, acquire(1))
		require.NoError(t, acquire(1))
		began := time.Now()
		require.Equal(t, context.DeadlineExceeded, acquire(1))
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		s.Release(2)
		require.NoError(t, acquire(2), "the failed one has left nothing behind")
		require.Equal(t, context.DeadlineExceeded, acquire(2))
	},

	"AcquireWaitsForARelease": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		require.True(t, s.TryAcquire(1))
		c := start(func() error { return s.Acquire(t.Context(), 1) })
		requireParked(t, c)
		time.Sleep(time.Minute)
		requireParked(t, c)
		s.Release(1)
		requireGranted(t, c)
	},

	"EndlessContextWaitsToo": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		require.True(t, s.TryAcquire(1))
		c := start(func() error { return s.Acquire(context.Background(), 1) })
		requireParked(t, c)
		s.Release(1)
		requireGranted(t, c)
	},

	"WaitersAreServedInOrder": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		require.True(t, s.TryAcquire(1))
		var waiters []*call
		for range 10 {
			c := start(func() error { return s.Acquire(t.Context(), 1) })
			requireParked(t, c)
			waiters = append(waiters, c)
		}
		for i := range waiters {
			s.Release(1)
			requireGranted(t, waiters[i])
			requireParked(t, waiters[i+1:]...)
		}
	},

	"NewcomersOvertakeNobody": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(2)
		require.True(t, s.TryAcquire(1))
		large := start(func() error { return s.Acquire(t.Context(), 2) })
		requireParked(t, large)
		require.False(t, s.TryAcquire(1))
		small := start(func() error { return s.Acquire(t.Context(), 1) })
		requireParked(t, small)
		s.Release(1)
		requireGranted(t, large)
		requireParked(t, small)
		s.Release(2)
		requireGranted(t, small)
	},

	"LargeIsNotStarved": func(t *testing.T, newWeighted func(int64) weighted) {
		const n = 5
		s := newWeighted(n)
		ctx, stop := context.WithCancel(t.Context())
		var holders sync.WaitGroup
		defer holders.Wait()
		defer stop()
		for i := range n {
			holders.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for s.Acquire(ctx, 1) == nil {
					time.Sleep(n * time.Millisecond) // they never pause all at once
					s.Release(1)
				}
			})
		}
		time.Sleep(10 * n * time.Millisecond)
		require.NoError(t, s.Acquire(briefly(t), n))
		s.Release(n)
	},

	"CancelOfALargeHeadFreesTheWay": func(t *testing.T, newWeighted func(int64) weighted) {
		const n = 10
		s := newWeighted(n)
		require.True(t, s.TryAcquire(1))
		ctx, cancel := context.WithCancel(t.Context())
		head := start(func() error { return s.Acquire(ctx, n) })
		requireParked(t, head)
		endBarging()
		next := start(func() error { return s.Acquire(t.Context(), 1) })
		requireParked(t, next)
		cancel()
		requireFailed(t, context.Canceled, head)
		requireGranted(t, next)
		require.True(t, s.TryAcquire(n-2))
		require.False(t, s.TryAcquire(1))
	},

	"CancelOfAnyoneMovesNobodyElse": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(2)
		require.True(t, s.TryAcquire(2))
		var waiters []*call
		var cancels []context.CancelFunc
		for range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := start(func() error { return s.Acquire(ctx, 1) })
			requireParked(t, c)
			waiters, cancels = append(waiters, c), append(cancels, cancel)
		}
		cancels[1]()
		requireFailed(t, context.Canceled, waiters[1])
		cancels[3]()
		requireFailed(t, context.Canceled, waiters[3])
		requireParked(t, waiters[0], waiters[2])
		s.Release(1)
		requireGranted(t, waiters[0])
		requireParked(t, waiters[2])
		s.Release(1)
		requireGranted(t, waiters[2])
	},

	"DoneContextFailsThoughPermitsAreFree": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		for range 100 {
			require.Equal(t, context.Canceled, s.Acquire(canceled(), 1))
		}
		require.True(t, s.TryAcquire(1), "and nothing was taken")
	},

	"CancelBeforeTheGrantWins": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		for range 100 {
			require.True(t, s.TryAcquire(1))
			ctx, cancel := context.WithCancel(t.Context())
			c := start(func() error { return s.Acquire(ctx, 1) })
			requireParked(t, c)
			cancel()
			s.Release(1)
			requireFailed(t, context.Canceled, c)
			require.True(t, s.TryAcquire(1))
			s.Release(1)
		}
	},

	"TooLargeBlocksNobodyElse": func(t *testing.T, newWeighted func(int64) weighted) {
		const n = 2
		s := newWeighted(n)
		ctx, cancel := context.WithCancel(t.Context())
		impossible := start(func() error { return s.Acquire(ctx, n+1) })
		synctest.Wait()
		possible := start(func() error { return s.Acquire(t.Context(), n) })
		requireGranted(t, possible)
		s.Release(n)
		require.True(t, s.TryAcquire(1))
		cancel()
		require.True(t, impossible.ended())
		require.Error(t, impossible.err)
	},

	"TooLargeFailsAtOnce": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(2)
		c := start(func() error { return s.Acquire(t.Context(), 3) })
		require.True(t, c.ended())
		require.Error(t, c.err)
	},

	"NothingIsHadWhileOthersWait": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		require.True(t, s.TryAcquire(1))
		w := start(func() error { return s.Acquire(t.Context(), 1) })
		requireParked(t, w)
		zero := start(func() error { return s.Acquire(t.Context(), 0) })
		requireGranted(t, zero)
	},

	"OverReleasePanics": func(t *testing.T, newWeighted func(int64) weighted) {
		require.Panics(t, func() { newWeighted(1).Release(1) })
		s := newWeighted(5)
		require.True(t, s.TryAcquire(2))
		require.Panics(t, func() { s.Release(3) })
	},

	"NegativeNumbersPanic": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		for _, n := range []int64{-1, math.MinInt64} {
			require.Panics(t, func() { _ = s.Acquire(t.Context(), n) })
			require.Panics(t, func() { s.TryAcquire(n) })
			require.Panics(t, func() { s.Release(n) })
		}
		require.True(t, s.TryAcquire(1))
		require.False(t, s.TryAcquire(1))
	},

	"RecoveredOverReleaseIsHarmless": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(1)
		require.Panics(t, func() { s.Release(1) })
		require.True(t, s.TryAcquire(1))
		require.False(t, s.TryAcquire(1))
		c := start(func() error { return s.Acquire(t.Context(), 1) })
		requireParked(t, c)
		require.Panics(t, func() { s.Release(2) })
		requireParked(t, c)
		s.Release(1)
		requireGranted(t, c)
	},

	"AnyAmountCanBeAskedFor": func(t *testing.T, newWeighted func(int64) weighted) {
		s := newWeighted(10)
		require.True(t, s.TryAcquire(1))
		for _, n := range []int64{10, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
			require.False(t, s.TryAcquire(n))
		}
		require.True(t, s.TryAcquire(9))
	},

	"ManyGoroutinesKeepTheCount": func(t *testing.T, newWeighted func(int64) weighted) {
		const size, workers, each = 10, 20, 200
		s := newWeighted(size)
		var mu sync.Mutex
		var used, most int64
		var all sync.WaitGroup
		for i := range workers {
			all.Go(func() {
				n := int64(i%size + 1)
				for range each {
					if s.Acquire(t.Context(), n) != nil {
						t.Error("an endless wait has failed")
						return
					}
					mu.Lock()
					used += n
					most = max(most, used)
					mu.Unlock()
					time.Sleep(time.Microsecond)
					mu.Lock()
					used -= n
					mu.Unlock()
					s.Release(n)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, most, int64(size))
		require.True(t, s.TryAcquire(size))
	},
}
