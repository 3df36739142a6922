package ration

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P9

func TestPool_CloseDestroysWhatIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		p.fill(3)
		began := time.Now()
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began), "it waits for the hook, all at once")
		p.requireAllDestroyed()
		require.EqualValues(t, 3, p.Stats().DestroyedClosed)
		require.NoError(t, p.Pool.Close(canceled()), "closed already")
	})
}

func TestPool_CloseFailsWaitersAtOnce(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		slow := false
		p := newTestPool(t, 3, func(ctx context.Context) error {
			if slow {
				return hang(ctx)
			}
			return nil
		}, &thingOptions{Fair: fair})
		ls := p.leases(2)
		slow = true
		opening := p.parked()
		waiting := p.parked()
		warming := start(func() error { return p.Warm(context.Background(), 3) })
		requireParked(t, warming)
		closing := start(func() error { return p.Pool.Close(context.Background()) })
		requireParked(t, closing)
		require.Zero(t, opening.took+waiting.took)
		opening.failed(t, "wait", ErrClosed)
		waiting.failed(t, "wait", ErrClosed)
		require.True(t, warming.ended())
		requireAcquireError(t, warming.err, "wait", ErrClosed)
		require.NoError(t, ls[0].Close())
		requireParked(t, closing)
		require.NoError(t, ls[1].Close())
		requireGranted(t, closing)
		p.requireAllDestroyed()
	})
}

func TestPool_AfterCloseNothingIsLentOrOpened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{MinIdle: 1})
		synctest.Wait()
		require.NoError(t, p.Pool.Close(t.Context()))
		_, err := p.Acquire(t.Context())
		requireAcquireError(t, err, "wait", ErrClosed)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		require.ErrorIs(t, p.Do(t.Context(), nil2), ErrClosed)
		requireAcquireError(t, p.Warm(t.Context(), 2), "wait", ErrClosed)
		require.Equal(t, ErrClosed, p.Grow(1))
		require.Equal(t, ErrClosed, p.Shrink(1))
		require.Equal(t, ErrClosed, p.Resize(1))
		p.Clear()
		require.False(t, p.Revoke(1))
		require.Empty(t, p.Leases())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, p.opens.Load())
		require.EqualValues(t, 3, p.Stats().Capacity)
	})
}

func nil2(context.Context, *thing) error { return nil }

func TestPool_CloseEndsAtItsDeadlineAndNamesTheHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, &thingOptions{Name: "db"})
		a := p.leaseWith(AcquireOptions{Owner: "a"})
		time.Sleep(time.Second)
		b := p.leaseWith(AcquireOptions{Owner: "b"})
		p.fill(1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := p.Pool.Close(ctx)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var ce *CloseError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, "db", ce.Pool)
		require.Zero(t, ce.Busy)
		require.Len(t, ce.Leases, 2)
		require.Equal(t, a.Info(), ce.Leases[0])
		require.Equal(t, b.Info(), ce.Leases[1])
		require.Equal(t, `ration: close "db": context deadline exceeded (2 leases still out, 0 resources busy; `+
			`lease 1 of "a", held 3s; lease 2 of "b", held 2s)`, err.Error())

		// The leases stay good, and what they hold is destroyed when it returns.
		require.NoError(t, a.Err())
		require.EqualValues(t, 1, a.Value().id)
		p.requireDestroyed(3)
		require.NoError(t, a.Close())
		p.requireDestroyed(1, 3)
		again := start(func() error { return p.Pool.Close(context.Background()) })
		requireParked(t, again)
		require.True(t, p.Revoke(b.Info().ID))
		requireGranted(t, again)
		p.requireAllDestroyed()
		require.EqualValues(t, 2, p.Stats().DestroyedClosed)
	})
}

func TestPool_CloseTellsTheBusyFromTheLeased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hanging := func(*thing) error { time.Sleep(time.Minute); return nil }
		p := newTestPool(t, 5, nil, &thingOptions{Close: hanging, Reset: hanging, OpenTimeout: -1})
		ls := p.leases(3)
		discarding, resetting := start(ls[0].Discard), start(ls[1].Close)
		requireParked(t, discarding, resetting)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Pool.Close(ctx)
		var ce *CloseError
		require.ErrorAs(t, err, &ce)
		require.Len(t, ce.Leases, 1)
		require.Equal(t, 2, ce.Busy)
		time.Sleep(2 * time.Minute)
		require.NoError(t, ls[2].Close())
		require.NoError(t, discarding.result())
		require.NoError(t, resetting.result())
	})
}

func TestPool_CloseIsFineTwiceAndConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		l := p.lease()
		var all []*call
		for range 5 {
			all = append(all, start(func() error { return p.Pool.Close(context.Background()) }))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		impatient := start(func() error { return p.Pool.Close(ctx) })
		requireParked(t, all...)
		time.Sleep(time.Second)
		require.ErrorIs(t, impatient.result(), context.DeadlineExceeded)
		requireParked(t, all...)
		closeAll(t, l)
		requireGranted(t, all...)
		require.NoError(t, p.Pool.Close(t.Context()))
	})
}

func TestPool_CloseWaitsForOpensAndDestroysWhatTheyBring(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, func(context.Context) error { time.Sleep(time.Second); return nil }, nil)
		b := p.parked()
		began := time.Now()
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		b.failed(t, "wait", ErrClosed)
		p.requireAllDestroyed()
		require.EqualValues(t, 1, p.opened.Load())
	})
}

func TestPool_CloseEndsTheContextsOfOpenAndCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{Check: func(ctx context.Context, _ *thing) error { return hang(ctx) }})
		p.fill(1)
		b := p.parked()
		began := time.Now()
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Zero(t, time.Since(began))
		b.failed(t, "wait", ErrClosed)

		p = newTestPool(t, 3, hang, nil)
		b = p.parked()
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Zero(t, time.Since(began))
		b.failed(t, "wait", ErrClosed)
	})
}

func TestPool_CloseWaitsForEveryGoroutineOfThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running atomic.Int32
		slowly := func() {
			running.Add(1)
			time.Sleep(time.Second)
			running.Add(-1)
		}
		p := newTestPool(t, 3, nil, &thingOptions{
			MinIdle:  1,
			Observer: Observer{Opened: func(OpenEvent) { slowly() }, Destroyed: func(DestroyEvent) { slowly() }},
		})
		time.Sleep(2 * time.Second)
		l := p.lease()
		require.True(t, p.Revoke(l.Info().ID))
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Zero(t, running.Load())
		p.requireAllDestroyed()
	})
}

func TestPool_CloseWaitsForHooksThatThePoolHasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running atomic.Int32
		slowly := func() {
			running.Add(1)
			time.Sleep(time.Minute)
			running.Add(-1)
		}
		p := newTestPool(t, 3, func(context.Context) error { slowly(); return nil }, &thingOptions{OpenTimeout: time.Second})
		b := p.borrow()
		time.Sleep(time.Second)
		b.failed(t, "open", context.DeadlineExceeded)
		p.requireGauges(gauges{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Pool.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var ce *CloseError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, 1, ce.Busy)
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Zero(t, running.Load())
		p.requireAllDestroyed()
	})
}

func TestPool_CloseStopsTheTimers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad fault
		p := newTestPool(t, 2, func(context.Context) error { return bad.get() }, &thingOptions{MinIdle: 1, MaxLifetime: time.Minute})
		p.fill(2)
		bad.set(errTest)
		l := p.lease()
		require.NoError(t, p.lease().Discard())
		synctest.Wait()
		opens := p.opens.Load()
		closeAll(t, l)
		p.Pool.mu.Lock()
		sweeper, retry := p.upkeep.sweeper, p.upkeep.retry
		p.Pool.mu.Unlock()
		require.NotNil(t, sweeper)
		require.NotNil(t, retry)
		require.NoError(t, p.Pool.Close(t.Context()))
		require.False(t, sweeper.Stop(), "stopped already")
		require.False(t, retry.Stop(), "stopped already")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, opens, p.opens.Load())
	})
}

func TestPool_CloseWithoutHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, err := NewPool(2, func(context.Context) (int, error) { return 1, nil }, nil)
		require.NoError(t, err)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		m, err := p.Acquire(t.Context())
		require.NoError(t, err)
		closeAll(t, m)
		closing := start(func() error { return p.Close(context.Background()) })
		requireParked(t, closing)
		closeAll(t, l)
		requireGranted(t, closing)
		require.NoError(t, p.Audit())
		require.EqualValues(t, 2, p.Stats().DestroyedClosed)
	})
}

func TestPool_ALeaseGivenBackAfterCloseReturnsTheHooksError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{Close: func(*thing) error { return errTest }})
		l := p.lease()
		require.Error(t, p.Pool.Close(canceled()))
		require.Equal(t, errTest, l.Close())
	})
}
