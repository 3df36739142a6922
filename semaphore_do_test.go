package ration

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSemaphore_DoHoldsWhileTheFunctionRuns(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		failure := errors.New("failure")
		for _, want := range []error{nil, failure} {
			got := s.Do(t.Context(), 2, func(context.Context) error {
				requirePermits(t, s, 3, 1)
				return want
			})
			require.Equal(t, want, got, "as it is, with nothing wrapped around")
			requireIdle(t, s, 3)
		}
	})
}

func TestSemaphore_DoPassesTheContextOn(t *testing.T) {
	s := newTestSemaphore(t, 1, false)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	require.NoError(t, s.Do(ctx, 1, func(ctx context.Context) error {
		require.Equal(t, "value", ctx.Value(key{}))
		require.NoError(t, ctx.Err())
		cancel()
		require.Equal(t, context.Canceled, ctx.Err())
		return nil
	}), "the function decides what a cancelled context means to it")
	requireIdle(t, s, 1)
}

func TestSemaphore_DoReleasesOnPanic(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		value := errors.New("the panic's own value")
		require.PanicsWithValue(t, value, func() {
			_ = s.Do(t.Context(), 2, func(context.Context) error { panic(value) })
		})
		requireIdle(t, s, 3)
	})
}

func TestSemaphore_DoReleasesOnGoexit(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 3, fair)
		c := start(func() error {
			return s.Do(endless(), 2, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		})
		c.wait(t)
		requireIdle(t, s, 3)
	})
}

func TestSemaphore_DoWithoutAPermitDoesNothing(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newBoundedSemaphore(t, 1, fair, 1)
		require.True(t, s.TryAcquire(1))
		never := func(context.Context) error {
			t.Error("called without a permit")
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := start(func() error { return s.Do(ctx, 1, never) })
		requireParked(t, w)
		require.Equal(t, ErrQueueFull, s.Do(briefly(t), 1, never))
		require.Equal(t, ErrTooLarge, s.Do(briefly(t), 2, never))
		require.Equal(t, context.Canceled, s.Do(canceled(), 1, never))
		cancel()
		requireFailed(t, context.Canceled, w)
		requirePermits(t, s, 1, 0) // the other holder's is still held
		s.Close()
		require.Equal(t, ErrClosed, s.Do(briefly(t), 1, never))
		s.Release(1)
		requirePermits(t, s, 1, 1)
	})
}

func TestSemaphore_DoServesWaitersWhenItEnds(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 1, fair)
		var w *call
		require.Panics(t, func() {
			_ = s.Do(t.Context(), 1, func(context.Context) error {
				w = park(t, s, 1)
				panic("no luck")
			})
		})
		requireGranted(t, w)
	})
}

func TestSemaphore_DoWaitsItsTurn(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		s := newTestSemaphore(t, 2, fair)
		running, most := 0, 0
		var calls []*call
		for range 20 {
			calls = append(calls, start(func() error {
				return s.Do(t.Context(), 2, func(context.Context) error {
					running++ // not atomic: exclusive, and the race detector looks on
					most = max(most, running)
					runtime.Gosched()
					running--
					return nil
				})
			}))
		}
		requireGranted(t, calls...)
		require.Equal(t, 1, most)
		requireIdle(t, s, 2)
	})
}

func TestSemaphore_DoOfWhatTheFunctionGaveBackAlreadyIsMisuse(t *testing.T) {
	s := newTestSemaphore(t, 2, true)
	requireMisuse(t, func() {
		_ = s.Do(t.Context(), 2, func(context.Context) error {
			s.Release(1)
			return nil
		})
	})
	requirePermits(t, s, 2, 1) // exact: one of the two was never given back
}
