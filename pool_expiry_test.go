package ration

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P7

func TestPool_MinIdleIsFilledFromNewOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, after(time.Second, nil), &thingOptions{MinIdle: 3})
		p.requireGauges(gauges{opening: 3})
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 3})
		ls := p.leases(2)
		p.requireGauges(gauges{idle: 1, leased: 2, opening: 2})
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 3, leased: 2})
		more := p.leases(2)
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 1, leased: 4}) // as far as the capacity allows
		closeAll(t, append(ls, more...)...)
		p.requireGauges(gauges{idle: 5})
	})
}

func TestPool_MaxIdleTimeSparesMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, nil, &thingOptions{MinIdle: 2, MaxIdleTime: time.Minute})
		p.fill(5)
		time.Sleep(time.Minute - 1)
		p.requireGauges(gauges{idle: 5})
		time.Sleep(time.Nanosecond)
		p.requireGauges(gauges{idle: 2})
		require.EqualValues(t, 3, p.Stats().DestroyedIdle)
		time.Sleep(time.Hour)
		p.requireGauges(gauges{idle: 2})
		require.EqualValues(t, 5, p.opens.Load())
	})
}

func TestPool_MaxIdleTimeIsCountedFromTheLastReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxIdleTime: time.Minute})
		p.fill(2)
		for range 10 {
			time.Sleep(time.Minute - 1)
			p.fill(1) // always the same one
		}
		p.requireGauges(gauges{idle: 1})
		p.requireDestroyed(1)
		time.Sleep(time.Minute)
		p.requireDestroyed(1, 2)
	})
}

func TestPool_MaxLifetimeDestroysTheIdleAndSparesTheLeased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxLifetime: time.Minute})
		ls := p.leases(2)
		closeAll(t, ls[1])
		time.Sleep(time.Minute)
		p.requireDestroyed(2)
		require.NoError(t, ls[0].Err())
		require.EqualValues(t, 1, ls[0].Value().id)
		closeAll(t, ls[0])
		p.requireDestroyed(1, 2)
		require.EqualValues(t, 2, p.Stats().DestroyedExpired)
	})
}

func TestPool_MaxLifetimeHoldsForAResourceThatIsNeverIdleForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{MaxLifetime: time.Minute})
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			l := p.lease()
			require.LessOrEqual(t, time.Since(l.Value().born), time.Minute)
			time.Sleep(100 * time.Millisecond)
			closeAll(t, l)
		}
		require.GreaterOrEqual(t, p.opens.Load(), int64(10))
		require.LessOrEqual(t, p.opens.Load(), int64(12))
	})
}

func TestPool_LifetimesAreSpreadOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n, life = 100, 100 * time.Second
		var ages []time.Duration
		p := newTestPool(t, n, nil, &thingOptions{MaxLifetime: life, Close: func(r *thing) error {
			ages = append(ages, time.Since(r.born))
			return nil
		}})
		p.fill(n)
		time.Sleep(life)
		synctest.Wait()
		require.Len(t, ages, n)
		require.GreaterOrEqual(t, slices.Min(ages), life*9/10)
		require.LessOrEqual(t, slices.Max(ages), life)
		require.Less(t, slices.Min(ages), life*92/100, "spread over the whole tenth")
		require.Greater(t, slices.Max(ages), life*98/100)
		slices.Sort(ages)
		require.Greater(t, len(slices.Compact(ages)), n/2)
	})
}

func TestPool_MaxUsesBoundsTheLoans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{MaxUses: 3})
		for i := range 9 {
			l := p.lease()
			require.EqualValues(t, 1+i/3, l.Value().id)
			closeAll(t, l)
		}
		p.requireDestroyed(1, 2, 3)
		require.EqualValues(t, 3, p.Stats().DestroyedExpired)
		p.requireGauges(gauges{})
	})
}

func TestPool_MaxUsesServesAWaiterWithANewOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{MaxUses: 1})
		l := p.lease()
		b := p.parked()
		closeAll(t, l)
		l = b.got(t)
		require.EqualValues(t, 2, l.Value().id)
		closeAll(t, l)
	})
}

func TestPool_ExpiryNeverUndercutsMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, after(time.Second, nil), &thingOptions{MinIdle: 2, MaxLifetime: time.Minute})
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 2})
		for range 600 {
			time.Sleep(time.Second)
			synctest.Wait()
			require.GreaterOrEqual(t, p.Stats().Idle, 2)
			require.NoError(t, p.Audit())
		}
		require.GreaterOrEqual(t, p.opens.Load(), int64(20), "replaced all the same")
		// What waits for its replacement is not lent.
		for range 60 {
			time.Sleep(time.Second)
			l := p.lease()
			require.LessOrEqual(t, time.Since(l.Value().born), time.Minute)
			closeAll(t, l)
		}
	})
}

func TestPool_ExpiredOnesGoWhenThereIsNoRoomForAReplacement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MinIdle: 2, MaxLifetime: time.Minute})
		time.Sleep(time.Hour)
		p.requireGauges(gauges{idle: 2})
		require.GreaterOrEqual(t, p.opens.Load(), int64(2*59))
		l := p.lease()
		require.LessOrEqual(t, time.Since(l.Value().born), time.Minute)
		closeAll(t, l)
	})
}

func TestPool_ExpiredOnesGoAlsoIfReplacementsFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad fault
		p := newTestPool(t, 4, func(context.Context) error { return bad.get() }, &thingOptions{MinIdle: 2, MaxLifetime: time.Minute})
		synctest.Wait()
		bad.set(errTest)
		time.Sleep(2 * time.Minute)
		_, ok := p.TryAcquire()
		require.False(t, ok, "they have expired")
		_, err := p.Acquire(t.Context())
		requireAcquireError(t, err, "open", errTest)
		bad.set(nil)
		time.Sleep(31 * time.Second)
		p.requireGauges(gauges{idle: 2})
		require.EqualValues(t, 4, p.opened.Load())
	})
}

func TestPool_WithNothingToDoThereIsNoGoroutineAndOneTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 10, nil, &thingOptions{MaxIdleTime: time.Minute, MaxLifetime: time.Hour})
		p.fill(10)
		synctest.Wait()
		p.Pool.mu.Lock()
		first := p.upkeep.sweeper
		p.Pool.mu.Unlock()
		require.NotNil(t, first)
		time.Sleep(time.Second)
		p.fill(10)
		p.Pool.mu.Lock()
		require.Same(t, first, p.upkeep.sweeper, "one timer, armed for the first that will have to go")
		p.Pool.mu.Unlock()
		time.Sleep(time.Minute)
		p.requireGauges(gauges{})
		p.Pool.mu.Lock()
		require.Nil(t, p.upkeep.sweeper, "nothing idle, nothing to wait for")
		p.Pool.mu.Unlock()
	})
}

func TestPool_ExpiryIsEnforcedAtAcquire(t *testing.T) {
	// Also where the sweep has not come round yet.
	for name, opts := range map[string]*thingOptions{
		"lifetime": {MaxLifetime: time.Minute},
		"idle":     {MaxIdleTime: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newTestPool(t, 2, nil, opts)
				p.fill(2)
				p.Pool.mu.Lock()
				p.upkeep.sweeper.Stop()
				p.Pool.mu.Unlock()
				time.Sleep(time.Minute)
				p.requireGauges(gauges{idle: 2})
				l := p.lease()
				require.EqualValues(t, 3, l.Value().id)
				p.requireDestroyed(1, 2)
				closeAll(t, l)
			})
		})
	}
}
