package ration

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Bugs that other pools had, as scenarios with the right outcome. Each test says
// what the bug was, and is named after its case.

// A1: an open that failed was not retried for those who had queued behind it, and
// they parked for ever.
func TestPoolCase_A1_FailedOpensAnswerAllWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 100 * time.Millisecond
		p := newTestPool(t, 2, after(d, errTest), nil)
		bs := []*borrow{p.borrow(), p.borrow(), p.borrow()}
		time.Sleep(2 * d)
		for _, b := range bs {
			b.failed(t, "open", errTest)
		}
	})
}

// A3: with three times as many borrowers as places and an open that always
// fails, some were never answered.
func TestPoolCase_A3_EveryoneIsAnsweredThoughOpenAlwaysFails(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 2, func(context.Context) error { return errTest }, &thingOptions{Fair: fair})
		var bs []*borrow
		for range 6 {
			bs = append(bs, p.borrow())
		}
		for _, b := range bs {
			b.failed(t, "open", errTest)
		}
	})
}

// A5: a new resource that the check rejected kept its permit, or was opened and
// rejected in a loop. Here a new one needs no check; one that has been idle and
// is rejected is replaced, once.
func TestPoolCase_A5_ARejectedResourceCostsNoPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Check: func(context.Context, *thing) error { return errTest }})
		for i := range 5 {
			l := p.lease()
			require.EqualValues(t, 2*i+1, p.opens.Load())
			b := p.parked()
			closeAll(t, l)
			closeAll(t, b.got(t))
			require.EqualValues(t, 2*i+2, p.opens.Load())
		}
		p.requireWhole(1)
	})
}

// A7: an open that hung made the whole pool wait for it.
func TestPoolCase_A7_AHungOpenHoldsUpOnlyItself(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		var n atomic.Int32
		p := newTestPool(t, 2, func(context.Context) error {
			if n.Add(1) == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}, &thingOptions{Fair: fair, OpenTimeout: time.Minute})
		p.limit.Store(3) // the hung one is out of the pool's reach
		first := p.parked()
		second := p.borrow()
		l := second.got(t)
		require.Zero(t, second.took)
		time.Sleep(time.Minute)
		first.failed(t, "open", context.DeadlineExceeded)
		closeAll(t, l)
		p.requireWhole(2)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 3, p.opened.Load())
		p.requireDestroyed(3) // what the hung one has brought at last
	})
}

// A9: one goroutine opened for all, so that failures were answered one after the
// other; and a queue of opens wanted long ago was worked off after the recovery.
func TestPoolCase_A9_FailuresAreAnsweredInParallel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var good atomic.Bool
		p := newTestPool(t, 10, func(ctx context.Context) error {
			if good.Load() {
				return nil
			}
			return after(20*time.Millisecond, errTest)(ctx)
		}, nil)
		var bs []*borrow
		for range 50 {
			bs = append(bs, p.borrow())
		}
		time.Sleep(100 * time.Millisecond)
		for _, b := range bs {
			b.failed(t, "open", errTest)
		}
		good.Store(true)
		p.fill(1)
		time.Sleep(time.Hour)
		require.EqualValues(t, 51, p.opens.Load())
	})
}

// A11: an open or a check that failed at once was repeated in a hot loop.
func TestPoolCase_A11_InstantFailuresMakeNoHotLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, func(context.Context) error { return errTest }, &thingOptions{MinIdle: 4})
		for range 10 {
			b := p.borrowFor(time.Minute)
			time.Sleep(time.Second)
			b.failed(t, "open", errTest)
		}
		time.Sleep(10 * time.Minute)
		require.Less(t, p.opens.Load(), int64(400), "4 at a time, twice a minute when it has backed off")
	})
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, &thingOptions{MinIdle: 4, Check: func(context.Context, *thing) error { return errTest }})
		synctest.Wait()
		p.fill(1)
		time.Sleep(time.Hour)
		require.Less(t, p.opens.Load(), int64(20))
	})
}

// A13: a warm-up that failed kept its permits, or put its opens before those of
// borrowers.
func TestPoolCase_A13_AFailedWarmKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad fault
		bad.set(errTest)
		p := newTestPool(t, 4, func(ctx context.Context) error { return after(time.Second, bad.get())(ctx) }, &thingOptions{Fair: true})
		requireAcquireError(t, p.Warm(t.Context(), 4), "open", errTest)
		time.Sleep(time.Second)
		p.requireGauges(gauges{})
		require.EqualValues(t, 4, p.Stats().Available)
		bad.set(nil)
		p.requireWhole(4)

		ls := p.leases(4)
		var order []int
		var bs []*borrow
		for i := range 4 {
			bs = append(bs, p.borrowWith(context.WithValue(t.Context(), caseKey{}, i), 0, AcquireOptions{}))
			synctest.Wait()
		}
		p.Clear()
		warming := start(func() error { return p.Warm(context.Background(), 4) })
		for i, l := range ls {
			closeAll(t, l)
			time.Sleep(time.Second)
			for j, b := range bs {
				if b.ended() && j == len(order) {
					order = append(order, j)
				}
			}
			require.Len(t, order, i+1, "in the order of their arrival")
		}
		requireGranted(t, warming)
		for _, b := range bs {
			closeAll(t, b.got(t))
		}
	})
}

type caseKey struct{}

// A15: filling the pool at the start waited for ever for one resource that died
// meanwhile.
func TestPoolCase_A15_StartDoesNotWaitForADeadResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 3, func(ctx context.Context) error {
			if n.Add(1) == 2 {
				return errTest
			}
			return nil
		}, &thingOptions{MinIdle: 3})
		p.requireGauges(gauges{idle: 2})
		closeAll(t, p.lease())
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 3})
	})
}

// A17: a check that was wrong and always failed made the pool useless without a
// trace.
func TestPoolCase_A17_ACheckThatAlwaysFailsShowsInStats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Check: func(context.Context, *thing) error { return errTest }})
		for range 10 {
			p.fill(1)
		}
		st := p.Stats()
		require.EqualValues(t, 10, st.Opened)
		require.EqualValues(t, 9, st.DestroyedBroken)
	})
}

// B1: the permit was lost when the step after it failed.
func TestPoolCase_B1_AFailureAfterThePermitGivesItBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const capacity = 3
		var bad fault
		bad.set(errTest)
		p := newTestPool(t, capacity, func(ctx context.Context) error { return after(time.Second, bad.get())(ctx) }, nil)
		for range capacity {
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, errTest)
			b := p.borrowFor(time.Millisecond)
			time.Sleep(2 * time.Millisecond)
			b.failed(t, "open", context.DeadlineExceeded)
			time.Sleep(time.Second)
		}
		bad.set(nil)
		p.requireWhole(capacity)
	})
}

// B3: with a context that was done and a resource that was idle, chance decided.
func TestPoolCase_B3_ADoneContextFailsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		p.fill(1)
		for range 100 {
			_, err := p.Acquire(canceled())
			require.ErrorIs(t, err, context.Canceled)
		}
		p.requireWhole(1)
	})
}

// B5: what was handed to a waiter in the moment it timed out was lost.
func TestPoolCase_B5_ATimeoutAmidTheHandOverLosesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		for range rounds(5000) {
			l := p.lease()
			b := p.borrow()
			go b.cancel()
			closeAll(t, l)
			if b.result() == nil {
				closeAll(t, b.lease)
			}
			require.NoError(t, p.Audit())
		}
		l := p.lease()
		require.EqualValues(t, 1, l.Value().id)
		closeAll(t, l)
	})
	bubble(t, func(t *testing.T) { // with the open in the place of the return
		p := newTestPool(t, 1, after(time.Second, nil), nil)
		b := p.borrowFor(time.Second)
		if b.result() == nil {
			closeAll(t, b.lease)
		}
		p.requireWhole(1)
	})
}

// B7: a return offered the resource to ten thousand expired waiters, one by one
// and under the lock, before a live one got it.
func TestPoolCase_B7_AReturnGoesToALiveWaiter(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		const n = 10_000
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		l := p.lease()
		for range n {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				p.Acquire(ctx)
			}()
		}
		synctest.Wait()
		require.Equal(t, n, p.Stats().Waiters)
		live := p.parked()
		time.Sleep(time.Second)
		synctest.Wait()
		closeAll(t, l)
		closeAll(t, live.got(t))
		require.EqualValues(t, n, p.Stats().Canceled)
		require.Zero(t, p.Stats().Waiters)
	})
}

// B9: behind one long waiter, the expired ones stayed in the queue.
func TestPoolCase_B9_ExpiredWaitersLeaveNothingBehind(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		l := p.lease()
		long := p.parked()
		for range 100 {
			for range 100 {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					p.Acquire(ctx)
				}()
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, 1, p.Stats().Waiters)
		}
		closeAll(t, l)
		closeAll(t, long.got(t))
	})
}

// B11: a cancel and a delivery both gave the permit back.
func TestPoolCase_B11_PermitsInUseAreLeasesAndOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, after(time.Second, nil), nil)
		for i := range 20 {
			bs := []*borrow{p.borrowFor(time.Second), p.borrowFor(time.Duration(i) * 50 * time.Millisecond), p.borrow()}
			for range 25 {
				synctest.Wait()
				require.NoError(t, p.Audit())
				time.Sleep(50 * time.Millisecond)
			}
			synctest.Wait()
			require.EqualValues(t, len(p.Leases()), p.Stats().Held)
			for _, b := range bs {
				b.cancel()
				if b.result() == nil {
					closeAll(t, b.lease)
				}
			}
			p.Clear()
		}
		p.requireWhole(4)
	})
}

// C1: a resource that came back between a borrower's look and its queueing woke
// nobody.
func TestPoolCase_C1_AReturnBeforeTheQueueingIsNotMissed(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		ctx := watchdog(t)
		for range rounds(10_000) {
			l := p.lease()
			b := p.borrowWith(ctx, 0, AcquireOptions{})
			closeAll(t, l)
			require.NoError(t, b.result()) // with no other event to wake it
			closeAll(t, b.lease)
			b.cancel()
		}
	})
}

// C3: a waiter was not told that the broken resource it waited for had left room
// for a new one.
func TestPoolCase_C3_ADiscardLetsTheWaiterOpen(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		l := p.lease()
		b := p.parked()
		require.NoError(t, l.Discard())
		l = b.got(t)
		require.EqualValues(t, 2, l.Value().id)
		closeAll(t, l)
	})
}

// C5: waiters were served in any order.
func TestPoolCase_C5_FairWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: true})
		l := p.lease()
		var mu sync.Mutex
		var order []int
		var all []*call
		for i := range 20 {
			all = append(all, start(func() error {
				l, err := p.Acquire(context.Background())
				if err != nil {
					return err
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				return l.Close()
			}))
			synctest.Wait()
		}
		closeAll(t, l)
		requireGranted(t, all...)
		for i, got := range order {
			require.Equal(t, i, got)
		}
	})
}

// C7: a bound on waiters refused those who need not wait. (A bound of 0 is none
// here; the smallest is 1.)
func TestPoolCase_C7_OnlyParkingIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{MaxWaiters: 1})
		ls := p.leases(3)
		b := p.parked()
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrQueueFull)
		closeAll(t, ls...)
		ls = p.leases(2)
		closeAll(t, b.got(t))
		closeAll(t, ls...)
	})
}

// C9: a borrower that had to wait for its own open did not take what came back
// before.
func TestPoolCase_C9_AnEarlierReturnIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		takes := []time.Duration{0, 500 * time.Millisecond}
		p := newTestPool(t, 2, func(ctx context.Context) error {
			d := takes[0]
			takes = takes[1:]
			return after(d, nil)(ctx)
		}, &thingOptions{MaxOpening: 1})
		l := p.lease()
		b := p.parked()
		time.Sleep(20 * time.Millisecond)
		closeAll(t, l)
		closeAll(t, b.got(t))
		require.Equal(t, 20*time.Millisecond, b.took)
	})
}

// C11: a sweep took the only idle resources out for a moment, and a borrower
// found the pool exhausted.
func TestPoolCase_C11_ASweepCausesNoExhaustion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxIdleTime: time.Second, MinIdle: 1, MaxWaiters: 1})
		for range 100 {
			p.fill(2)
			time.Sleep(time.Second)
			l, ok := p.TryAcquire()
			if !ok {
				l = p.lease()
			}
			closeAll(t, l)
		}
		require.Zero(t, p.Stats().Refused)
	})
}

// D1: a storm of borrowers on an empty pool opened more than there was room for,
// or more than were wanted.
func TestPoolCase_D1_AColdStartOpensNoMoreThanThereIsRoomFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, after(time.Second, nil), &thingOptions{MinIdle: 2})
		go p.Warm(context.Background(), 4)
		var all []*call
		for range 100 {
			all = append(all, start(func() error {
				l, err := p.Acquire(context.Background())
				if err != nil {
					return err
				}
				return l.Close()
			}))
		}
		p.requireGauges(gauges{opening: 5, waiters: 100})
		time.Sleep(time.Second)
		requireGranted(t, all...)
		require.EqualValues(t, 5, p.opens.Load())
	})
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 10, after(time.Second, nil), nil)
		go p.Warm(context.Background(), 4)
		synctest.Wait()
		bs := []*borrow{p.borrow(), p.borrow(), p.borrow()}
		time.Sleep(time.Second)
		for _, b := range bs {
			closeAll(t, b.got(t))
		}
		require.EqualValues(t, 4, p.opens.Load(), "borrowers and Warm share them")
	})
}

// D3: the place of a destroyed resource was given out twice.
func TestPoolCase_D3_APlaceIsInheritedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, after(time.Second, nil), &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		for range 20 {
			ls := p.leases(2)
			bs := []*borrow{p.parked(), p.parked(), p.parked()}
			d := start(ls[0].Discard)
			time.Sleep(time.Second / 2)
			e := start(ls[1].Discard)
			for _, b := range bs {
				require.NoError(t, b.result())
				go b.lease.Discard()
			}
			require.NoError(t, errors.Join(d.result(), e.result()))
			time.Sleep(5 * time.Second)
		}
		p.requireWhole(2)
	})
}

// D5: a shrink below what is leased hung, or was undone by a resize beside it.
func TestPoolCase_D5_ShrinkingBelowTheLeasedFinishes(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 6, nil, &thingOptions{Fair: fair})
		ls := p.leases(6)
		waiting := p.parked()
		leaving := p.borrowFor(time.Second)
		synctest.Wait()
		for _, resize := range []func(int64) error{p.Shrink, p.Grow, p.Shrink} {
			var all []*call
			for range 4 {
				all = append(all, start(func() error { return resize(1) }))
			}
			for _, c := range all {
				require.NoError(t, c.result())
			}
		}
		require.EqualValues(t, 2, p.Stats().Capacity)
		require.NoError(t, p.Resize(2))
		require.EqualValues(t, -4, p.Stats().Available)
		time.Sleep(time.Second)
		leaving.failed(t, "wait", context.DeadlineExceeded)
		for _, l := range ls[:4] {
			closeAll(t, l)
			requireParked(t, waiting.call)
		}
		closeAll(t, ls[4])
		closeAll(t, waiting.got(t), ls[5])
		p.requireWhole(2)
	})
}

// D7: what was being destroyed did not count, and with a slow destroy there were
// five times as many connections as allowed.
func TestPoolCase_D7_WhatIsBeingDestroyedCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		for range 20 {
			p.fill(4)
			p.Clear()
			b := p.borrow()
			time.Sleep(100 * time.Millisecond)
			if b.result() == nil {
				go b.lease.Discard()
			}
		}
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, p.peak.Load(), int64(4))
	})
}

// D9: a destroy that failed was counted wrongly, and led to more opens.
func TestPoolCase_D9_AFailedDestroyIsADestroy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Close: func(*thing) error { return errTest }})
		for i := range 10 {
			l := p.lease()
			require.Equal(t, errTest, l.Discard())
			require.EqualValues(t, i+1, p.opens.Load())
		}
		time.Sleep(time.Hour)
		require.EqualValues(t, 10, p.opens.Load())
		require.EqualValues(t, 10, p.Stats().DestroyedBroken)
	})
}

// E1: an open that closed its pool deadlocked. Here it waits for itself, until
// its context ends, and nothing stays locked.
func TestPoolCase_E1_OpenMayCloseThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p *testPool
		p = newTestPool(t, 1, func(context.Context) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return p.Pool.Close(ctx)
		}, nil)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
	})
}

// E3: Close waited for ever for an open that failed.
func TestPoolCase_E3_CloseEndsWhenTheLastOpenFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, func(context.Context) error { time.Sleep(time.Second); return errTest }, nil)
		b := p.parked()
		queued := p.parked()
		began := time.Now()
		require.NoError(t, p.Pool.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		b.failed(t, "wait", ErrClosed)
		queued.failed(t, "wait", ErrClosed)
	})
}

// E5: a Close beside a return and an open in the background left one alive, or
// destroyed it twice.
func TestPoolCase_E5_CloseBesideReturnsAndOpens(t *testing.T) {
	for range rounds(500) {
		p := newTestPool(t, 4, nil, &thingOptions{MinIdle: 2})
		p.leaveOpen = true
		ls := p.leases(2)
		var all sync.WaitGroup
		all.Go(func() { closeAll(t, ls[0]) })
		all.Go(func() { ls[1].Discard() })
		all.Go(func() { p.Warm(watchdog(t), 4) })
		require.NoError(t, p.Pool.Close(watchdog(t)))
		all.Wait()
		p.requireAllDestroyed()
	}
}

// E7: Close hung with hooks that hang; and what was above the capacity was
// passed from waiter to waiter instead of being destroyed.
func TestPoolCase_E7_CloseIsBoundedThoughHooksHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var hung atomic.Bool
		wait := func() error {
			if hung.Load() {
				time.Sleep(time.Hour)
			}
			return nil
		}
		p := newTestPool(t, 3, func(context.Context) error { return wait() }, &thingOptions{
			Close: func(*thing) error { return wait() }, OpenTimeout: -1,
		})
		p.fill(2)
		hung.Store(true)
		p.Clear()
		b := p.parked()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, p.Pool.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		b.failed(t, "wait", ErrClosed)
		time.Sleep(2 * time.Hour)
	})
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, nil)
		ls := p.leases(3)
		b := p.parked()
		require.NoError(t, p.Shrink(2))
		closeAll(t, ls[0], ls[1])
		p.requireDestroyed(1, 2)
		requireParked(t, b.call)
		closeAll(t, ls[2])
		closeAll(t, b.got(t))
	})
}

// E9: goroutines of the pool outlived Close. The bubble fails if any is left.
func TestPoolCase_E9_NoGoroutineOutlivesClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, after(time.Second, nil), &thingOptions{
			MinIdle: 2, MaxIdleTime: time.Second, MaxLifetime: time.Minute,
			Check: func(context.Context, *thing) error { time.Sleep(time.Second); return nil },
		})
		p.fill(3)
		borrowAndClose := func() {
			b := p.borrow()
			go func() {
				if b.result() == nil {
					b.lease.Close()
				}
			}()
		}
		borrowAndClose()
		time.Sleep(time.Second / 2)
		p.Clear()
		borrowAndClose()
		require.NoError(t, p.Pool.Close(t.Context()))
		synctest.Wait() // for the borrowers it refused
	})
}

// E11: a pool that failed to start half-way kept what it had opened. Here New
// does not wait for the first opens, so it cannot fail half-way; Close takes
// what there is.
func TestPoolCase_E11_AHalfFilledPoolIsDestroyedWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 4, func(context.Context) error {
			if n.Add(1) > 2 {
				panic("half-way")
			}
			return nil
		}, &thingOptions{MinIdle: 4})
		synctest.Wait()
		require.NoError(t, p.Pool.Close(t.Context()))
		p.requireAllDestroyed()
		require.EqualValues(t, 2, p.opened.Load())
	})
}

// F1: the second Close of a lease panicked or broke the counters.
func TestPoolCase_F1_ClosingTwiceIsClosingOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		l := p.lease()
		closeAll(t, l, l, l)
		require.EqualValues(t, 2, p.Stats().Available)
		require.EqualValues(t, 2, p.Stats().DuplicateCloses)
		p.requireWhole(2)
	})
}

// F3: a Close and a Discard of one lease both won.
func TestPoolCase_F3_OneOfCloseAndDiscardWins(t *testing.T) {
	p := newTestPool(t, 1, nil, nil)
	for range rounds(5000) {
		l := p.lease()
		d := start(l.Discard)
		closeAll(t, l)
		require.NoError(t, d.result())
		require.EqualValues(t, 1, p.Stats().Available)
		require.NoError(t, p.Audit())
	}
	st := p.Stats()
	require.EqualValues(t, rounds(5000), st.DuplicateCloses)
	require.EqualValues(t, st.Opened, st.DestroyedBroken+uint64(st.Idle))
}

// F5: a resource was given back to another pool than it came from. A lease knows
// its pool.
func TestPoolCase_F5_ALeaseReturnsToItsOwnPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, q := newTestPool(t, 1, nil, nil), newTestPool(t, 1, nil, nil)
		l, m := p.lease(), q.lease()
		l, m = m, l
		closeAll(t, l)
		require.Equal(t, 1, p.Stats().Leased)
		require.Equal(t, 1, q.Stats().Idle)
		require.False(t, q.Revoke(m.Info().ID), "ids are of one pool")
		closeAll(t, m)
	})
}

// F7: a clock set back made ages negative. Ages are by the monotonic clock.
func TestPoolCase_F7_AgesAreNeverNegative(t *testing.T) {
	p := newTestPool(t, 1, nil, nil)
	require.Contains(t, p.clock.start.String(), "m=", "a monotonic reading")
	l := p.lease()
	for range 100 {
		require.GreaterOrEqual(t, l.Info().Age, time.Duration(0))
		l.Touch()
	}
	closeAll(t, l)
}

// F9: resources were told apart by equality, and equal ones were taken for one.
func TestPoolCase_F9_EqualResourcesAreTwo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type mutable struct{ n int }
		p, err := NewPool(2, func(context.Context) (mutable, error) { return mutable{1}, nil }, nil)
		require.NoError(t, err)
		a, err := p.Acquire(t.Context())
		require.NoError(t, err)
		b, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, a.Value(), b.Value())
		require.NoError(t, a.Discard())
		require.NoError(t, b.Err())
		require.Equal(t, 1, p.Stats().Total)
		closeAll(t, b)
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(endless()))
	})
}

// G1: the jitter was drawn at every look, so that the first look after the base
// time expired everything.
func TestPoolCase_G1_JitterIsDrawnOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		p := newTestPool(t, n, nil, &thingOptions{MaxLifetime: 100 * time.Second})
		p.fill(n)
		time.Sleep(90 * time.Second)
		left := n
		for range 10 {
			for range 50 { // many looks
				if l, ok := p.TryAcquire(); ok {
					closeAll(t, l)
				}
			}
			synctest.Wait()
			now := p.Stats().Idle
			require.Less(t, left-now, n/3, "not all at once")
			left = now
			time.Sleep(time.Second)
		}
		p.requireGauges(gauges{})
	})
}

// G3: in a busy pool nothing was ever idle when the sweep came, and nothing
// expired.
func TestPoolCase_G3_ABusyResourceExpiresToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{MaxLifetime: time.Minute})
		l := p.lease()
		for range 30 {
			b := p.parked()
			time.Sleep(10 * time.Second)
			closeAll(t, l)
			l = b.got(t)
			require.Less(t, time.Since(l.Value().born), time.Minute, "at the time it is lent")
		}
		closeAll(t, l)
		require.GreaterOrEqual(t, p.Stats().DestroyedExpired, uint64(4))
	})
}

// G5: what was cleared or had expired while it was leased was destroyed under
// its holder, or made idle again.
func TestPoolCase_G5_NothingIsTakenFromItsHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxLifetime: time.Minute})
		ls := p.leases(2)
		p.Clear()
		time.Sleep(time.Hour)
		p.requireDestroyed()
		require.NoError(t, ls[0].Err())
		closeAll(t, ls...)
		p.requireDestroyed(1, 2)
		p.requireGauges(gauges{})
	})
}

// G7: a pool that lends in turn keeps all its resources from becoming idle for
// long, however little there is to do.
func TestPoolCase_G7_LIFOLetsTheRestGo(t *testing.T) {
	for name, test := range map[string]struct {
		fifo bool
		left int
	}{"LIFO": {false, 1}, "FIFO": {true, 10}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newTestPool(t, 10, nil, &thingOptions{IdleFIFO: test.fifo, MaxIdleTime: 30 * time.Second})
				p.fill(10)
				for range 120 {
					time.Sleep(time.Second)
					p.fill(1)
				}
				p.requireGauges(gauges{idle: test.left})
			})
		})
	}
}

// G9: a panic in the sweep ended the sweeper.
func TestPoolCase_G9_TheSweepSurvivesAPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxIdleTime: time.Second, Close: func(*thing) error { panic("boo") }})
		for i := range int64(5) {
			p.fill(2)
			time.Sleep(time.Second)
			p.requireGauges(gauges{})
			require.Equal(t, 2*(i+1), p.closes.Load())
		}
	})
}

// G11: after a check had removed the dead ones, the pool was not filled again.
func TestPoolCase_G11_WhatACheckRemovesIsReplacedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, nil, &thingOptions{MinIdle: 3, Check: func(_ context.Context, r *thing) error {
			if r.id <= 3 {
				return errTest
			}
			return nil
		}})
		synctest.Wait()
		l := p.lease()
		p.requireGauges(gauges{idle: 3, leased: 1})
		closeAll(t, l)
	})
}

// G13: a stale resource was lent after a clear, or a waiter was not told of the
// room it made.
func TestPoolCase_G13_AStaleGenerationIsNotLent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		ls := p.leases(2)
		b := p.parked()
		p.Clear()
		requireParked(t, b.call)
		closeAll(t, ls[0])
		l := b.got(t)
		require.EqualValues(t, 3, l.Value().id)
		p.requireDestroyed(1)
		closeAll(t, l)
		p.Clear()
		l = p.lease()
		require.EqualValues(t, 4, l.Value().id)
		closeAll(t, l, ls[1])
		p.requireDestroyed(1, 2, 3)
	})
}

// H1: an open that panicked cost a place for ever.
func TestPoolCase_H1_APanicInOpenCostsNoPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var good atomic.Bool
		p := newTestPool(t, 2, func(context.Context) error {
			if !good.Load() {
				panic("boo")
			}
			return nil
		}, nil)
		for range 5 {
			_, err := p.Acquire(t.Context())
			require.ErrorContains(t, err, "open panicked: boo")
		}
		good.Store(true)
		p.requireWhole(2)
	})
}

// H3: the panic for a nil context came with the lock held.
func TestPoolCase_H3_ANilContextPanicsWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		var none context.Context
		require.NotNil(t, panicOf(func() { p.Acquire(none) }))
		p.requireWhole(1)
	})
}

// H5: statistics asked for from a hook, or from one that ran during New,
// deadlocked.
func TestPoolCase_H5_HooksMayAskForStats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var pool atomic.Pointer[Pool[int]]
		var asked atomic.Int32
		ask := func() {
			if p := pool.Load(); p != nil {
				p.Stats()
				p.Leases()
				p.Audit()
				asked.Add(1)
			}
		}
		p, err := NewPool(2, func(context.Context) (int, error) { ask(); return 1, nil }, &PoolOptions[int]{
			MinIdle:  1,
			Close:    func(int) error { ask(); return nil },
			Check:    func(context.Context, int) error { ask(); return nil },
			Reset:    func(int) error { ask(); return nil },
			Observer: Observer{Acquired: func(AcquireEvent) { ask() }, Returned: func(ReturnEvent) { ask() }, Opened: func(OpenEvent) { ask() }, Destroyed: func(DestroyEvent) { ask() }},
			Logger:   slog.New(badHandler{told: new(atomic.Int32), misbehave: ask}),
		})
		require.NoError(t, err)
		pool.Store(p)
		synctest.Wait()
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		synctest.Wait()
		require.Greater(t, asked.Load(), int32(5))
		require.NoError(t, p.Audit())
	})
}

// I1: while one open was slow, nobody got what was idle.
func TestPoolCase_I1_ASlowOpenDelaysNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slow atomic.Bool
		p := newTestPool(t, 3, func(ctx context.Context) error {
			if slow.Load() {
				return after(time.Second, nil)(ctx)
			}
			return nil
		}, nil)
		ls := p.leases(2)
		slow.Store(true)
		b := p.parked()
		closeAll(t, ls[0]) // taken by b
		closeAll(t, b.got(t))
		for range 10 {
			c := p.borrow()
			closeAll(t, c.got(t))
			require.Zero(t, c.took)
		}
		closeAll(t, ls[1])
	})
}

// I3: a check that hung on one resource stopped the pool.
func TestPoolCase_I3_AHungCheckDelaysNobodyElse(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 3, nil, &thingOptions{Fair: fair, OpenTimeout: time.Minute, IdleFIFO: true, Check: func(ctx context.Context, r *thing) error {
			if r.id == 1 {
				return hang(ctx)
			}
			return nil
		}})
		p.fill(3)
		hung := p.parked()
		began := time.Now()
		for range 10 {
			ls := p.leases(2)
			closeAll(t, ls[0])
			closeAll(t, hung.got(t), ls[1]) // it takes the first that comes back
			require.Zero(t, time.Since(began))
			if hung.lease.Err() != nil {
				break
			}
		}
		for range 10 {
			closeAll(t, p.leases(2)...)
			require.Zero(t, time.Since(began))
		}
		time.Sleep(time.Minute)
		p.requireDestroyed(1)
		p.requireWhole(3)
	})
}

// I5: returns by many at the time of the sweep deadlocked.
func TestPoolCase_I5_ReturnsAndSweepsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 50
		p := newTestPool(t, n, nil, &thingOptions{MaxIdleTime: time.Second, MaxLifetime: 2 * time.Second})
		for range 20 {
			ls := p.leases(n)
			time.Sleep(time.Second)
			var all sync.WaitGroup
			for _, l := range ls {
				all.Go(func() { l.Close() })
			}
			all.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			require.NoError(t, p.Audit())
		}
	})
}
