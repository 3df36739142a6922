package ration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P11

func TestPool_GrowWakesWaiters(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		p.limit.Store(3)
		l := p.lease()
		bs := []*borrow{p.parked(), p.parked(), p.parked()}
		require.NoError(t, p.Grow(2))
		closeAll(t, l, bs[0].got(t), bs[1].got(t))
		closeAll(t, bs[2].got(t))
		p.requireWhole(3)
	})
}

func TestPool_ShrinkDestroysIdleOnesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, nil)
		ls := p.leases(4)
		closeAll(t, ls[0], ls[1])
		require.NoError(t, p.Shrink(1))
		p.requireDestroyed(1)
		p.requireGauges(gauges{idle: 1, leased: 2})
		require.NoError(t, p.Shrink(2))
		p.requireDestroyed(1, 2)
		p.requireGauges(gauges{leased: 2})
		require.EqualValues(t, -1, p.Stats().Available)
		closeAll(t, ls[2])
		p.requireDestroyed(1, 2, 3)
		require.EqualValues(t, 3, p.Stats().DestroyedSurplus)
		closeAll(t, ls[3])
		p.requireDestroyed(1, 2, 3)
		p.requireWhole(1)
	})
}

func TestPool_ADestroyingResourceCountsUntilItIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		p.fill(2)
		require.NoError(t, p.Shrink(2))
		require.NoError(t, p.Grow(2))
		p.requireGauges(gauges{destroying: 2})
		b := p.borrow()
		time.Sleep(time.Second / 2)
		requireParked(t, b.call)
		require.EqualValues(t, 2, p.opens.Load())
		time.Sleep(time.Second / 2)
		closeAll(t, b.got(t))
	})
}

func TestPool_ShrinkGoesIntoDebt(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 3, nil, &thingOptions{Fair: fair})
		ls := p.leases(3)
		require.NoError(t, p.Shrink(1))
		require.EqualValues(t, -1, p.Stats().Available)
		b := p.parked()
		closeAll(t, ls[0])
		requireParked(t, b.call)
		require.EqualValues(t, 0, p.Stats().Available)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		closeAll(t, ls[1])
		l := b.got(t)
		closeAll(t, l, ls[2])
		p.requireWhole(2)
	})
}

func TestPool_CapacityZeroIsAPause(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 2, nil, &thingOptions{Fair: fair, MinIdle: 1})
		synctest.Wait()
		require.NoError(t, p.Resize(0))
		p.requireGauges(gauges{})
		b := p.parked()
		time.Sleep(time.Hour)
		requireParked(t, b.call)
		require.EqualValues(t, 1, p.opens.Load())
		require.NoError(t, p.Resize(1))
		closeAll(t, b.got(t))
		require.NoError(t, p.Resize(2))
	})
}

func TestPool_APauseKeepsTheBorrowerWhoseOpenIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, after(time.Second, nil), nil)
		b := p.parked()
		require.NoError(t, p.Resize(0))
		time.Sleep(time.Second)
		requireParked(t, b.call)
		p.requireGauges(gauges{waiters: 1})
		p.requireDestroyed(1)
		require.NoError(t, p.Resize(1))
		time.Sleep(time.Second)
		closeAll(t, b.got(t))
		p.requireWhole(1)
	})
}

func TestPool_ShrinkWhileOpening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, after(time.Second, nil), nil)
		bs := []*borrow{p.borrow(), p.borrow(), p.borrow(), p.borrow()}
		synctest.Wait()
		require.NoError(t, p.Resize(1))
		p.requireGauges(gauges{opening: 4, waiters: 4})
		require.EqualValues(t, -3, p.Stats().Available)
		for range bs {
			time.Sleep(2 * time.Second)
			require.NoError(t, p.Audit())
			ls := p.Leases()
			require.Len(t, ls, 1)
			require.True(t, p.Revoke(ls[0].ID))
		}
		synctest.Wait()
		for _, b := range bs {
			require.True(t, b.ended())
			require.NoError(t, b.err)
		}
		time.Sleep(time.Second)
		p.requireWhole(1)
	})
}

func TestPool_BadResizesChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		l := p.lease()
		before := p.Stats()
		for _, err := range []error{
			p.Grow(-1), p.Grow(MaxPermits - 1), p.Grow(1<<63 - 1), p.Shrink(-1), p.Shrink(3), p.Shrink(-1 << 63),
			p.Resize(-1), p.Resize(MaxPermits + 1),
		} {
			require.Equal(t, ErrCapacity, err)
		}
		require.Equal(t, before, p.Stats())
		closeAll(t, l)
		p.requireWhole(2)
	})
}

func TestPool_ResizesRaceWithEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 8, after(time.Millisecond, nil), &thingOptions{MinIdle: 2})
		p.limit.Store(20) // a shrink takes effect as what is out returns, and a grow may come before
		done := make(chan struct{})
		for range 20 {
			go func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					p.Do(context.Background(), func(context.Context, *thing) error { time.Sleep(time.Millisecond); return nil })
				}
			}()
		}
		for i := range 200 {
			require.NoError(t, p.Resize(int64(i*7%10)))
			time.Sleep(time.Millisecond)
			require.NoError(t, p.Audit())
		}
		require.NoError(t, p.Resize(5))
		close(done)
		time.Sleep(time.Second)
		p.requireWhole(5)
	})
}

// Clear

func TestPool_ClearDestroysTheIdleNowAndTheLeasedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, nil)
		ls := p.leases(3)
		closeAll(t, ls[2])
		p.Clear()
		p.requireDestroyed(3)
		require.NoError(t, ls[0].Err())
		require.EqualValues(t, 1, ls[0].Value().id)
		next := p.lease()
		closeAll(t, ls[0])
		p.requireDestroyed(1, 3)
		closeAll(t, next)
		p.requireDestroyed(1, 3)
		p.Clear()
		p.requireDestroyed(1, 3, 4)
		closeAll(t, ls[1])
		require.EqualValues(t, 4, p.Stats().DestroyedExpired)
		p.requireWhole(3)
	})
}

func TestPool_WhatWasBeingOpenedAtAClearIsDestroyed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, after(time.Second, nil), nil)
		b := p.parked()
		p.Clear()
		time.Sleep(time.Second)
		p.requireDestroyed(1)
		requireParked(t, b.call)
		time.Sleep(time.Second)
		l := b.got(t)
		require.EqualValues(t, 2, l.Value().id)
		closeAll(t, l)
	})
}

func TestPool_WhatWasBeingCheckedOrResetAtAClearIsDestroyed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{
			Check:      func(context.Context, *thing) error { time.Sleep(time.Second); return nil },
			CheckAfter: time.Second,
			Reset:      func(*thing) error { time.Sleep(time.Second); return nil },
		})
		l := p.lease()
		closing := start(l.Close)
		requireParked(t, closing)
		p.Clear()
		require.NoError(t, closing.result())
		p.requireDestroyed(1)

		l = p.lease()
		require.NoError(t, l.Close())
		time.Sleep(time.Second)
		b := p.parked()
		p.Clear()
		time.Sleep(time.Second)
		p.requireDestroyed(1, 2)
		l = b.got(t)
		require.EqualValues(t, 3, l.Value().id)
		require.NoError(t, l.Close())
	})
}

func TestPool_ClearRefillsMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, &thingOptions{MinIdle: 2})
		synctest.Wait()
		p.Clear()
		p.requireDestroyed(1, 2)
		p.requireGauges(gauges{idle: 2})
	})
}
