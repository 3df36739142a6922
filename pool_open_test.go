package ration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P5: opens belong to the pool.

func TestPool_ABorrowerThatGivesUpLeavesItsOpenToThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, after(50*time.Millisecond, nil), nil)
		b := p.borrowFor(20 * time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		b.failed(t, "open", context.DeadlineExceeded)
		p.requireGauges(gauges{opening: 1})
		require.Zero(t, p.Stats().Held)

		b = p.borrowFor(20 * time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		b.failed(t, "open", context.DeadlineExceeded)
		b = p.borrowFor(20 * time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		l := b.got(t)
		require.EqualValues(t, 1, l.Value().id)
		require.EqualValues(t, 1, p.opens.Load(), "one open is enough")
		closeAll(t, l)
	})
}

func TestPool_AnOpenWithoutABorrowerBecomesIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, after(50*time.Millisecond, nil), nil)
		b := p.borrowFor(20 * time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		b.failed(t, "open", context.DeadlineExceeded)
		p.requireGauges(gauges{idle: 1})
		l, ok := p.TryAcquire()
		require.True(t, ok)
		closeAll(t, l)
	})
}

func TestPool_ABorrowerWaitingForItsOpenTakesAnEarlierReturn(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		slow := false
		p := newTestPool(t, 2, func(ctx context.Context) error {
			if slow {
				return after(time.Second, nil)(ctx)
			}
			return nil
		}, &thingOptions{Fair: fair})
		first := p.lease()
		slow = true
		b := p.parked()
		p.requireGauges(gauges{leased: 1, opening: 1, waiters: 1})
		time.Sleep(20 * time.Millisecond)
		closeAll(t, first)
		l := b.got(t)
		require.EqualValues(t, 1, l.Value().id)
		require.Equal(t, 20*time.Millisecond, b.took)
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 1, leased: 1})
		closeAll(t, l)
	})
}

func TestPool_AHungOpenDoesNotHoldUpTheNextBorrower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 2, func(ctx context.Context) error {
			if n.Add(1) == 1 {
				return hang(ctx)
			}
			return nil
		}, &thingOptions{OpenTimeout: time.Minute})
		p.limit.Store(3) // an open that has had its time counts no more, though it may take an instant to see that
		b := p.borrowFor(time.Second)
		time.Sleep(time.Second)
		b.failed(t, "open", context.DeadlineExceeded)
		p.limit.Store(3) // the hung one is still on its way back when its place is free
		next := p.borrow()
		l := next.got(t)
		require.Zero(t, next.took)
		waiting := p.parked()
		time.Sleep(time.Minute - time.Second)
		closeAll(t, l, waiting.got(t))
		p.requireWhole(2)
	})
}

func TestPool_AHungCheckDoesNotHoldUpTheNextBorrower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{IdleFIFO: true, OpenTimeout: time.Minute, Check: func(ctx context.Context, r *thing) error {
			if r.id == 1 {
				return hang(ctx)
			}
			return nil
		}})
		p.fill(2)
		b := p.borrowFor(time.Second)
		time.Sleep(time.Second)
		b.failed(t, "check", context.DeadlineExceeded)
		next := p.borrow()
		l := next.got(t)
		require.EqualValues(t, 2, l.Value().id)
		require.Zero(t, next.took)
		closeAll(t, l)
		time.Sleep(time.Minute)
		p.requireDestroyed(1)
	})
}

func TestPool_TheEndOfAnOpenThatWasGivenUpAnswersNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 2, func(ctx context.Context) error {
			if n.Add(1) == 1 {
				return after(2*time.Second, errTest)(ctx)
			}
			return after(2*time.Second, nil)(ctx)
		}, nil)
		b := p.borrowFor(time.Second)
		time.Sleep(time.Second)
		b.failed(t, "open", context.DeadlineExceeded)
		next := p.parked()
		require.Equal(t, 2, p.Stats().Opening)
		time.Sleep(time.Second)
		requireParked(t, next.call)
		p.requireGauges(gauges{opening: 1, waiters: 1})
		time.Sleep(time.Second)
		closeAll(t, next.got(t))
		require.EqualValues(t, 2, p.opens.Load())
	})
}

func TestPool_AHungOpenOfWarmHoldsUpOnlyOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 3, func(ctx context.Context) error {
			switch n.Add(1) {
			case 2:
				return after(10*time.Second, errTest)(ctx)
			case 3:
				return after(20*time.Second, nil)(ctx)
			}
			return nil
		}, nil)
		l := p.lease()
		warming := start(func() error { return p.Warm(context.Background(), 2) })
		requireParked(t, warming)
		b := p.borrowFor(time.Second)
		time.Sleep(time.Second)
		b.failed(t, "open", context.DeadlineExceeded)
		b = p.parked()
		require.EqualValues(t, 3, p.opens.Load(), "it has its own")
		time.Sleep(9 * time.Second) // the one that hung has failed just now
		requireParked(t, b.call)
		require.True(t, warming.ended())
		closeAll(t, l)
		require.NoError(t, p.Audit())
		closeAll(t, b.got(t))
		require.NoError(t, p.Audit())
		time.Sleep(time.Minute)
		p.requireGauges(gauges{idle: 2})
	})
}

func TestPool_OneFailedOpenAnswersOneBorrower(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		const borrowers, parallel, takes = 50, 10, 20 * time.Millisecond
		p := newTestPool(t, parallel, after(takes, errTest), &thingOptions{Fair: fair})
		var bs []*borrow
		for range borrowers {
			bs = append(bs, p.borrow())
		}
		for i := range borrowers / parallel {
			time.Sleep(takes)
			synctest.Wait()
			answered := 0
			for _, b := range bs {
				if b.ended() {
					answered++
				}
			}
			require.Equal(t, parallel*(i+1), answered)
		}
		for _, b := range bs {
			b.failed(t, "open", errTest)
		}
		require.EqualValues(t, borrowers, p.opens.Load())
		require.EqualValues(t, borrowers, p.Stats().OpenFailed)
		p.requireGauges(gauges{})
		time.Sleep(time.Hour)
		require.EqualValues(t, borrowers, p.opens.Load(), "nobody asks any more")
	})
}

func TestPool_MaxOpeningBoundsParallelOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 10, after(time.Second, nil), &thingOptions{MaxOpening: 2, MinIdle: 3})
		var bs []*borrow
		for range 6 {
			bs = append(bs, p.borrow())
		}
		go p.Warm(context.Background(), 10)
		for range 5 {
			p.requireOpening(2)
			time.Sleep(time.Second)
		}
		p.requireOpening(0)
		p.requireGauges(gauges{idle: 4, leased: 6})
		for _, b := range bs {
			closeAll(t, b.got(t))
		}
	})
}

func (p *testPool) requireOpening(n int) {
	p.t.Helper()
	synctest.Wait()
	require.Equal(p.t, n, p.Stats().Opening)
	require.NoError(p.t, p.Audit())
}

func TestPool_MaxOpeningAnswersEveryFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 50, after(10*time.Millisecond, errTest), &thingOptions{MaxOpening: 5})
		var bs []*borrow
		for range 50 {
			bs = append(bs, p.borrow())
		}
		time.Sleep(100 * time.Millisecond)
		for _, b := range bs {
			b.failed(t, "open", errTest)
		}
		require.EqualValues(t, 50, p.opens.Load())
	})
}

func TestPool_OpenHasTheBorrowersValuesButNotItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var values []any
		p := newTestPool(t, 2, func(ctx context.Context) error {
			values = append(values, ctx.Value(key{}))
			d, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, 30*time.Second, time.Until(d))
			time.Sleep(time.Second)
			return ctx.Err()
		}, nil)
		b := p.borrowWith(context.WithValue(t.Context(), key{}, "b"), time.Millisecond, AcquireOptions{})
		time.Sleep(time.Second)
		b.failed(t, "open", context.DeadlineExceeded)
		p.requireGauges(gauges{idle: 1})
		require.Equal(t, []any{"b"}, values)
	})
}

func TestPool_OpenHasTheBorrowersValuesAlsoAfterACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var values []any
		p := newTestPool(t, 1, func(ctx context.Context) error {
			values = append(values, ctx.Value(key{}))
			return nil
		}, &thingOptions{Check: func(ctx context.Context, _ *thing) error { return errTest }})
		for _, v := range []any{"a", "b", "c"} {
			l, err := p.Acquire(context.WithValue(t.Context(), key{}, v))
			require.NoError(t, err)
			closeAll(t, l)
		}
		require.Equal(t, []any{"a", "b", "c"}, values)
	})
}

func TestPool_EveryBorrowersOpenHasItsOwnValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		values := make(map[any]int)
		p := newTestPool(t, 5, func(ctx context.Context) error {
			p := ctx.Value(key{})
			values[p]++
			return after(time.Second, nil)(ctx)
		}, &thingOptions{MaxOpening: 1})
		for i := range 5 {
			p.borrowWith(context.WithValue(t.Context(), key{}, i), 0, AcquireOptions{})
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, map[any]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, values)
		for _, l := range p.Leases() {
			p.Revoke(l.ID)
		}
	})
}

func TestPool_TheOpenersOwnErrorsAreNotTakenForThePools(t *testing.T) {
	for _, cause := range []error{ErrClosed, ErrQueueFull, ErrTooLarge, context.DeadlineExceeded, context.Canceled} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events []AcquireEvent
				p := newTestPool(t, 1, func(context.Context) error { return cause }, &thingOptions{
					Observer: Observer{Acquired: func(e AcquireEvent) { events = append(events, e) }},
				})
				_, err := p.Acquire(t.Context())
				requireAcquireError(t, err, "open", cause)
				require.Len(t, events, 1)
				require.Equal(t, "error", events[0].Outcome)
				require.Equal(t, cause, events[0].Err)
				st := p.Stats()
				require.Zero(t, st.Canceled)
				require.Zero(t, st.Refused)
				if cause == ErrClosed {
					requireAcquireError(t, p.Warm(t.Context(), 1), "open", cause)
				}
			})
		})
	}
}

// Check

func TestPool_CheckRunsOnlyOnWhatHasBeenIdleForCheckAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		checks := 0
		p := newTestPool(t, 1, nil, &thingOptions{CheckAfter: time.Minute, Check: func(context.Context, *thing) error {
			checks++
			return nil
		}})
		p.fill(1)
		require.Zero(t, checks, "a new one needs none")
		time.Sleep(time.Minute - 1)
		p.fill(1)
		require.Zero(t, checks)
		time.Sleep(time.Minute)
		p.fill(1)
		require.Equal(t, 1, checks)
		p.fill(1)
		require.Equal(t, 1, checks)
		require.EqualValues(t, 1, p.opens.Load())
	})
}

func TestPool_CheckRunsAtEveryLoanByDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		checks := 0
		p := newTestPool(t, 1, nil, &thingOptions{Check: func(context.Context, *thing) error { checks++; return nil }})
		for range 5 {
			p.fill(1)
		}
		require.Equal(t, 4, checks)
	})
}

func TestPool_WhatIsBeingCheckedCountsAsLeased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Check: func(context.Context, *thing) error {
			time.Sleep(time.Second)
			return nil
		}})
		p.fill(1)
		b := p.parked()
		p.requireGauges(gauges{leased: 1, waiters: 1})
		require.EqualValues(t, 1, p.Stats().Held)
		require.Empty(t, p.Leases())
		time.Sleep(time.Second)
		closeAll(t, b.got(t))
	})
}

func TestPool_AFailedCheckIsFollowedByAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 4, nil, &thingOptions{Check: func(_ context.Context, r *thing) error {
			if r.id > 1 {
				return errTest
			}
			return nil
		}})
		p.fill(4)
		l := p.lease()
		require.EqualValues(t, 1, l.Value().id, "the last, and the only good one")
		p.requireDestroyed(2, 3, 4)
		require.EqualValues(t, 3, p.Stats().DestroyedBroken)
		closeAll(t, l)
	})
}

func TestPool_ABorrowerThatGivesUpLeavesItsCheckToThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Check: func(context.Context, *thing) error { time.Sleep(time.Second); return nil }})
		p.fill(1)
		b := p.borrowFor(time.Millisecond)
		time.Sleep(time.Millisecond)
		b.failed(t, "check", context.DeadlineExceeded)
		p.requireGauges(gauges{leased: 1})
		time.Sleep(time.Second)
		p.requireGauges(gauges{idle: 1})
		p.requireDestroyed()
	})
}

// Warm

func TestPool_WarmOpensUntilSoManyExist(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 5, after(time.Second, nil), nil)
		l := p.lease()
		began := time.Now()
		require.NoError(t, p.Warm(t.Context(), 4))
		require.Equal(t, time.Second, time.Since(began), "in parallel")
		p.requireGauges(gauges{idle: 3, leased: 1})
		require.EqualValues(t, 1, p.Stats().Held, "warming takes no permits")
		require.NoError(t, p.Warm(t.Context(), 4))
		require.NoError(t, p.Warm(t.Context(), 0))
		require.EqualValues(t, 4, p.opens.Load())
		closeAll(t, l)
	})
}

func TestPool_WarmFailsWithAnAcquireError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad fault
		bad.set(errTest)
		p := newTestPool(t, 3, func(ctx context.Context) error { return after(time.Second, bad.get())(ctx) }, nil)
		requireAcquireError(t, p.Warm(t.Context(), 4), "wait", ErrTooLarge)
		requireAcquireError(t, p.Warm(canceled(), 3), "wait", context.Canceled)
		require.Zero(t, p.opens.Load())
		requireAcquireError(t, p.Warm(t.Context(), 3), "open", errTest)
		p.requireWithin(time.Second, gauges{})

		bad.set(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		requireAcquireError(t, p.Warm(ctx, 3), "open", context.DeadlineExceeded)
		p.requireWithin(time.Second, gauges{idle: 3})

		warming := start(func() error { p.Clear(); return p.Warm(context.Background(), 3) })
		requireParked(t, warming)
		require.NoError(t, p.Shrink(1))
		require.True(t, warming.ended())
		requireAcquireError(t, warming.err, "wait", ErrTooLarge)
		require.NoError(t, p.Pool.Close(endless()))
		requireAcquireError(t, p.Warm(t.Context(), 1), "wait", ErrClosed)
	})
}

// requireWithin lets d pass first.
func (p *testPool) requireWithin(d time.Duration, want gauges) {
	p.t.Helper()
	time.Sleep(d)
	p.requireGauges(want)
}

func TestPool_WarmAndBorrowersShareTheOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 10, after(time.Second, nil), nil)
		warming := start(func() error { return p.Warm(context.Background(), 3) })
		bs := []*borrow{p.borrow(), p.borrow()}
		time.Sleep(time.Second)
		requireGranted(t, warming)
		closeAll(t, bs[0].got(t), bs[1].got(t))
		require.EqualValues(t, 3, p.opens.Load())
	})
}

// A replacement in the background

func TestPool_ABrokenResourceIsReplacedUpToMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad fault
		p := newTestPool(t, 3, func(ctx context.Context) error { return bad.get() }, &thingOptions{MinIdle: 1})
		synctest.Wait()
		ls := p.leases(3)
		bad.set(errTest)
		require.NoError(t, ls[0].Discard())
		synctest.Wait()
		require.EqualValues(t, 3, p.opened.Load())

		// Borrowers of what is healthy notice nothing.
		for range 100 {
			closeAll(t, ls[1])
			l, ok := p.TryAcquire()
			require.True(t, ok)
			ls[1] = l
		}
		closeAll(t, ls[1:]...)
		ls = p.leases(2)
		time.Sleep(10 * time.Minute)
		failures := p.Stats().OpenFailed
		require.Greater(t, failures, uint64(10), "it does not give up")
		require.Less(t, failures, uint64(100), "it backs off")
		bad.set(nil)
		time.Sleep(31 * time.Second)
		p.requireGauges(gauges{idle: 1, leased: 2})
		closeAll(t, ls...)
	})
}

func TestPool_BackoffGrowsByTheRound(t *testing.T) {
	// All the opens for MinIdle that fail together are one failure.
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 20, after(time.Millisecond, errTest), &thingOptions{MinIdle: 20})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 20, p.opens.Load())
		time.Sleep(100*time.Millisecond + time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 40, p.opens.Load())
		time.Sleep(200*time.Millisecond + time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 60, p.opens.Load())
	})
}

func TestPool_BackoffIsJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		delays := make(map[time.Duration]bool)
		for range 10 {
			var last time.Time
			var n atomic.Int32
			p := newTestPool(t, 1, func(context.Context) error {
				if n.Add(1) == 2 {
					delays[time.Since(last)] = true
				}
				last = time.Now()
				return errTest
			}, &thingOptions{MinIdle: 1})
			time.Sleep(time.Second)
			require.NoError(t, p.Pool.Close(endless()))
		}
		require.Greater(t, len(delays), 5)
	})
}

func TestPool_FailingBackgroundOpensDoNotFailABorrower(t *testing.T) {
	// The borrower has its own try, even if one for MinIdle was under way when
	// it came.
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 1, func(ctx context.Context) error {
			if n.Add(1) == 1 {
				return after(time.Second, errTest)(ctx)
			}
			return nil
		}, &thingOptions{MinIdle: 1})
		b := p.parked()
		time.Sleep(time.Second)
		closeAll(t, b.got(t))
	})
}

func TestPool_ABorrowersOpenDoesNotWaitForTheBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, func(context.Context) error { return errTest }, &thingOptions{MinIdle: 1})
		time.Sleep(5 * time.Minute)
		for range 3 {
			b := p.borrow()
			time.Sleep(time.Second)
			b.failed(t, "open", errTest)
			require.LessOrEqual(t, b.took, time.Second)
		}
	})
}

func TestPool_OpenMayFailOnceAndWorkThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 1, func(context.Context) error {
			if n.Add(1)%2 == 1 {
				return errors.New("odd")
			}
			return nil
		}, nil)
		_, err := p.Acquire(t.Context())
		require.ErrorContains(t, err, `open: odd`)
		p.requireWhole(1)
	})
}
