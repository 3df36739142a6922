package ration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewPool_NamesTheBadOption(t *testing.T) {
	open := func(context.Context) (int, error) { return 0, nil }
	tests := []struct {
		field string
		opts  PoolOptions[int]
	}{
		{"CheckAfter", PoolOptions[int]{CheckAfter: -1}},
		{"MaxWaiters", PoolOptions[int]{MaxWaiters: -1}},
		{"MinIdle", PoolOptions[int]{MinIdle: -1}},
		{"MinIdle", PoolOptions[int]{MinIdle: 4}},
		{"MaxIdleTime", PoolOptions[int]{MaxIdleTime: -1}},
		{"MaxLifetime", PoolOptions[int]{MaxLifetime: -1}},
		{"MaxUses", PoolOptions[int]{MaxUses: -1}},
		{"MaxOpening", PoolOptions[int]{MaxOpening: -1}},
	}
	for _, test := range tests {
		p, err := NewPool(3, open, &test.opts)
		require.Nil(t, p)
		require.ErrorContains(t, err, test.field)
		require.True(t, strings.HasPrefix(err.Error(), "ration: "), "%v", err)
	}
}

func TestNewPool_RefusesABadCapacity(t *testing.T) {
	open := func(context.Context) (int, error) { return 0, nil }
	for _, capacity := range []int64{-1, MaxPermits + 1} {
		_, err := NewPool(capacity, open, nil)
		require.ErrorIs(t, err, ErrCapacity)
		_, err = NewPermitPool(capacity, nil)
		require.ErrorIs(t, err, ErrCapacity)
	}
	p, err := NewPool(MaxPermits, open, nil)
	require.NoError(t, err)
	require.NoError(t, p.Close(endless()))
}

func TestNewPool_RefusesNilOpen(t *testing.T) {
	_, err := NewPool[int](1, nil, nil)
	require.EqualError(t, err, "ration: NewPool: nil open function")
}

func TestNewPool_CopiesItsOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := &PoolOptions[int]{Name: "before", MaxUses: 0}
		p, err := NewPool(1, func(context.Context) (int, error) { return 7, nil }, opts)
		require.NoError(t, err)
		opts.Name, opts.MaxUses = "after", 1
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, "before", l.Info().Pool)
		require.NoError(t, l.Close())
		require.Equal(t, 1, p.Stats().Idle)
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(endless()))
	})
}

func TestPool_MisusePanicsBeforeAnythingChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		l := p.lease()
		before := p.Stats()
		nothing := func(context.Context, *thing) error { return nil }
		var none context.Context
		for want, misuse := range map[string]func(){
			"ration: Pool.Acquire: nil context":                  func() { p.Acquire(none) },
			"ration: Pool.AcquireWith: negative weight -1":       func() { p.AcquireWith(t.Context(), AcquireOptions{Weight: -1}) },
			"ration: Pool.Do: nil function":                      func() { p.Do(t.Context(), nil) },
			"ration: Pool.Warm: nil context":                     func() { p.Warm(none, 1) },
			"ration: Pool.Warm: negative number of resources -1": func() { p.Warm(t.Context(), -1) },
			"ration: Pool.Close: nil context":                    func() { p.Pool.Close(none) },
		} {
			require.Equal(t, want, panicOf(misuse))
			require.Equal(t, before, p.Stats())
			require.NoError(t, p.Audit())
		}
		require.NotNil(t, panicOf(func() { p.Do(none, nothing) }))
		require.Equal(t, before, p.Stats())
		closeAll(t, l)
		p.requireWhole(2)
	})
}

// P1

func TestPool_LeasesAreDistinct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 8, nil, nil)
		for range 3 {
			p.requireWhole(8)
		}
		require.EqualValues(t, 8, p.opens.Load())
	})
}

func TestPool_EqualValuesAreStillDistinct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, err := NewPool(2, func(context.Context) (string, error) { return "same", nil }, nil)
		require.NoError(t, err)
		a, err := p.Acquire(t.Context())
		require.NoError(t, err)
		b, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, a.Info().ID, b.Info().ID)
		require.NoError(t, a.Close())
		require.NoError(t, b.Err())
		require.NoError(t, b.Close())
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(endless()))
	})
}

// requireDuplicate checks that open may not return v twice, and that the
// refusal costs nothing.
func requireDuplicate[T any](t *testing.T, v, other T) {
	bubble(t, func(t *testing.T) {
		var destroyed int
		next := v
		p, err := NewPool(2, func(context.Context) (T, error) { return next, nil },
			&PoolOptions[T]{Close: func(T) error { destroyed++; return nil }})
		require.NoError(t, err)
		a, err := p.Acquire(t.Context())
		require.NoError(t, err)
		_, err = p.Acquire(t.Context())
		requireAcquireError(t, err, "open", ErrDuplicate)
		require.NoError(t, p.Audit())
		require.Zero(t, destroyed, "the first borrower still has it")
		st := p.Stats()
		require.EqualValues(t, 1, st.OpenFailed)
		require.EqualValues(t, 1, st.Available)
		require.Equal(t, 1, st.Total)

		next = other
		b, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.Discard())
		require.NoError(t, b.Discard())
		next = v // gone from the pool, so it may come again
		a, err = p.Acquire(t.Context())
		require.NoError(t, err)
		_, err = a.Detach()
		require.NoError(t, err)
		a, err = p.Acquire(t.Context())
		require.NoError(t, err)
		closeAll(t, a)
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(endless()))
	})
}

func TestPool_DuplicateReferencesAreRefused(t *testing.T) {
	t.Run("pointer", func(t *testing.T) { requireDuplicate(t, new(int), new(int)) })
	t.Run("channel", func(t *testing.T) { requireDuplicate(t, make(chan int), make(chan int)) })
	t.Run("map", func(t *testing.T) { requireDuplicate(t, map[int]int{}, map[int]int{}) })
	t.Run("in an interface", func(t *testing.T) {
		requireDuplicate[error](t, &CloseError{}, &CloseError{})
	})
}

func TestPool_WhatHasNoIdentityMayRepeat(t *testing.T) {
	requireRepeats(t, "pointers to nothing", new(struct{}))
	requireRepeats(t, "nil pointers", (*int)(nil))
	requireRepeats(t, "nil maps", map[int]int(nil))
	requireRepeats[error](t, "nil interfaces", nil)
	requireRepeats(t, "numbers", 7)
	requireRepeats(t, "slices", []int{1})
	requireRepeats(t, "structs", struct{ p *int }{new(int)})
}

func requireRepeats[T any](t *testing.T, name string, v T) {
	t.Run(name, func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p, err := NewPool(2, func(context.Context) (T, error) { return v, nil }, nil)
			require.NoError(t, err)
			a, err := p.Acquire(t.Context())
			require.NoError(t, err)
			b, err := p.Acquire(t.Context())
			require.NoError(t, err)
			require.Equal(t, v, a.Value())
			closeAll(t, a, b)
			require.NoError(t, p.Audit())
			require.NoError(t, p.Close(endless()))
		})
	})
}

// P2, P8

func TestPool_ATimedOutAcquireLeavesNoTrace(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair, Name: "db"})
		l := p.leaseWith(AcquireOptions{Owner: "first"})
		time.Sleep(time.Second)
		b := p.borrowFor(3 * time.Second)
		requireParked(t, b.call)
		require.Equal(t, 1, p.Stats().Waiters)
		time.Sleep(3 * time.Second)
		err := b.failed(t, "wait", context.DeadlineExceeded)
		require.Equal(t, "db", err.Pool)
		require.Equal(t, 3*time.Second, err.Waited)
		require.EqualValues(t, 1, err.Stats.Held)
		require.EqualValues(t, 1, err.Stats.Capacity)
		require.Len(t, err.Holders, 1)
		require.Equal(t, "first", err.Holders[0].Owner)
		require.Equal(t, 4*time.Second, err.Holders[0].Age)
		require.Equal(t, `ration: acquire "db": wait: context deadline exceeded after 3s (1 of 1 permits held, 0 waiting; lease 1 of "first", held 4s)`, err.Error())

		require.Len(t, p.Leases(), 1)
		st := p.Stats()
		// The first waited too, for its open, if only for an instant.
		require.EqualValues(t, [4]uint64{1, 2, 1, 0}, [4]uint64{st.Acquired, st.Waited, st.Canceled, st.Refused})
		require.Equal(t, 3*time.Second, st.WaitTime)
		require.Equal(t, 3*time.Second, st.LongestWait)
		closeAll(t, l)
		p.requireWhole(1)
	})
}

func TestPool_ADoneContextTakesNothingThatIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		p.fill(1)
		for range 10 {
			_, err := p.Acquire(canceled())
			requireAcquireError(t, err, "wait", context.Canceled)
		}
		p.requireGauges(gauges{idle: 1})
		require.EqualValues(t, 1, p.Stats().Acquired)
	})
}

func TestPool_ADoneContextWinsOverEverythingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		_, err := p.AcquireWith(canceled(), AcquireOptions{Weight: 2})
		requireAcquireError(t, err, "wait", context.Canceled)
		require.NoError(t, p.Pool.Close(endless()))
		_, err = p.Acquire(canceled())
		requireAcquireError(t, err, "wait", context.Canceled)
	})
}

func TestPool_RefusalsAreAcquireErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxWaiters: 1})
		_, err := p.AcquireWith(t.Context(), AcquireOptions{Weight: 3})
		requireAcquireError(t, err, "wait", ErrTooLarge)

		ls := p.leases(2)
		b := p.parked()
		_, err = p.Acquire(t.Context())
		e := requireAcquireError(t, err, "wait", ErrQueueFull)
		require.Len(t, e.Holders, 2)
		require.Equal(t, 1, e.Stats.Waiters)
		require.EqualValues(t, 2, p.Stats().Refused)

		b.cancel()
		b.failed(t, "wait", context.Canceled)
		closeAll(t, ls...)
		require.NoError(t, p.Pool.Close(endless()))
		_, err = p.Acquire(t.Context())
		requireAcquireError(t, err, "wait", ErrClosed)
		require.EqualValues(t, 3, p.Stats().Refused)
	})
}

func TestPool_AcquireErrorNamesOnlyAFewHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 20, nil, nil)
		ls := p.leases(20)
		b := p.borrowFor(time.Second)
		time.Sleep(time.Second)
		err := b.failed(t, "wait", context.DeadlineExceeded)
		require.Less(t, len(err.Holders), 20)
		for i, h := range err.Holders {
			require.EqualValues(t, i+1, h.ID, "the oldest ones, in order")
		}
		closeAll(t, ls...)
	})
}

func TestPool_AShrinkBelowARequestFailsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, nil)
		l := p.lease()
		b := p.borrowWith(t.Context(), 0, AcquireOptions{Weight: 3})
		requireParked(t, b.call)
		require.NoError(t, p.Shrink(1))
		b.failed(t, "wait", ErrTooLarge)
		closeAll(t, l)
		p.requireWhole(2)
	})
}

// Waiting

func TestPool_AWaiterGetsWhatComesBack(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		l := p.lease()
		r := l.Value()
		b := p.parked()
		time.Sleep(time.Second)
		closeAll(t, l)
		got := b.got(t)
		require.Same(t, r, got.Value())
		require.Equal(t, time.Second, b.took)
		require.EqualValues(t, 2, p.Stats().Waited, "the first waited for its open")
		require.Equal(t, time.Second, p.Stats().WaitTime)
		closeAll(t, got)
	})
}

func TestPool_FairServesInOrderOfArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{Fair: true})
		ls := p.leases(2)
		var waiters []*borrow
		for range 20 {
			waiters = append(waiters, p.parked())
		}
		_, ok := p.TryAcquire()
		require.False(t, ok)
		closeAll(t, ls...)
		for i, b := range waiters {
			l := b.got(t)
			if i+2 < len(waiters) {
				requireParked(t, waiters[i+2].call)
				_, ok := p.TryAcquire()
				require.False(t, ok, "nobody overtakes a waiter")
			}
			closeAll(t, l)
		}
	})
}

// TryAcquire

func TestPool_TryAcquireTakesOnlyWhatIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		_, ok := p.TryAcquire()
		require.False(t, ok, "it never opens")
		require.EqualValues(t, 0, p.opens.Load())
		p.requireGauges(gauges{})

		p.fill(1)
		l, ok := p.TryAcquire()
		require.True(t, ok)
		require.EqualValues(t, 1, l.Value().id)
		_, ok = p.TryAcquire()
		require.False(t, ok)
		require.EqualValues(t, 1, p.Stats().Held)
		closeAll(t, l)

		require.NoError(t, p.Pool.Close(endless()))
		_, ok = p.TryAcquire()
		require.False(t, ok)
	})
}

func TestPool_TryAcquirePassesOverWhatNeedsACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		checks := 0
		p := newTestPool(t, 2, nil, &thingOptions{
			IdleFIFO: true, CheckAfter: time.Minute,
			Check: func(context.Context, *thing) error { checks++; return nil },
		})
		ls := p.leases(2)
		closeAll(t, ls[0])
		time.Sleep(time.Minute)
		closeAll(t, ls[1])
		l, ok := p.TryAcquire()
		require.True(t, ok)
		require.EqualValues(t, 2, l.Value().id, "the first needs a check")
		_, ok = p.TryAcquire()
		require.False(t, ok)
		require.Zero(t, checks)
		closeAll(t, l)
	})
}

func TestPool_TryAcquireLendsNothingExpired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{MaxLifetime: time.Minute, MaxIdleTime: time.Second})
		p.fill(2)
		time.Sleep(time.Second)
		_, ok := p.TryAcquire()
		require.False(t, ok)
	})
}

// Order of idle resources

func TestPool_LendsTheLastReturnedByDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, nil)
		p.fill(3)
		ls := p.leases(3)
		for i, want := range []int64{3, 2, 1} {
			require.Equal(t, want, ls[i].Value().id)
		}
		closeAll(t, ls...)
	})
}

func TestPool_IdleFIFOLendsTheLongestIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, &thingOptions{IdleFIFO: true})
		p.fill(3)
		ls := p.leases(3)
		for i, want := range []int64{1, 2, 3} {
			require.Equal(t, want, ls[i].Value().id)
		}
		closeAll(t, ls...)
	})
}

// Weights

func TestPool_AWeightHoldsThatManyPermits(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 5, nil, &thingOptions{Fair: fair})
		heavy := p.leaseWith(AcquireOptions{Weight: 3})
		require.EqualValues(t, 3, heavy.Info().Weight)
		light := p.lease()
		require.EqualValues(t, 1, light.Info().Weight, "0 means 1")
		require.EqualValues(t, 4, p.Stats().Held)
		require.Equal(t, 2, p.Stats().Total)

		b := p.borrowWith(t.Context(), 0, AcquireOptions{Weight: 2})
		requireParked(t, b.call)
		require.NoError(t, p.Audit())
		closeAll(t, light)
		l := b.got(t)
		require.EqualValues(t, 5, p.Stats().Held)
		closeAll(t, heavy, l)
		require.Zero(t, p.Stats().Held)
		p.requireWhole(5)
	})
}

func TestPool_EnormousWeightsAreOnlyTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		const enormous = 1<<63 - 1
		_, err := p.AcquireWith(t.Context(), AcquireOptions{Weight: enormous})
		requireAcquireError(t, err, "wait", ErrTooLarge)
		require.NoError(t, p.Resize(0))
		var bs []*borrow
		for range 5 {
			b := p.borrowWith(t.Context(), 0, AcquireOptions{Weight: enormous})
			requireParked(t, b.call)
			require.NoError(t, p.Audit())
			bs = append(bs, b)
		}
		require.NoError(t, p.Resize(2))
		for _, b := range bs {
			b.failed(t, "wait", ErrTooLarge)
		}
		p.requireWhole(2)
	})
}

// Nested borrowing

func TestPool_NestedBorrowersEndAtTheirDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 4
		p := newTestPool(t, n, nil, nil)
		var inner []*borrow
		var outer []Lease[*thing]
		for i := range n {
			outer = append(outer, p.leaseWith(AcquireOptions{Owner: string(rune('a' + i))}))
		}
		for range n {
			inner = append(inner, p.borrowFor(time.Second))
		}
		time.Sleep(time.Second)
		for _, b := range inner {
			err := b.failed(t, "wait", context.DeadlineExceeded)
			require.Len(t, err.Holders, n)
			for i, h := range err.Holders {
				require.Equal(t, string(rune('a'+i)), h.Owner)
			}
		}
		closeAll(t, outer...)

		// As one lease of weight 2 it cannot lock up.
		var all []*call
		for range n {
			all = append(all, start(func() error {
				l, err := p.AcquireWith(t.Context(), AcquireOptions{Weight: 2})
				if err == nil {
					time.Sleep(time.Second)
					err = l.Close()
				}
				return err
			}))
		}
		time.Sleep(2 * time.Second)
		requireGranted(t, all...)
		p.requireWhole(n)
	})
}

func TestPool_ThePoolSizeRuleHolds(t *testing.T) {
	// T x (C-1) + 1 is enough for T borrowers that take C each, one by one.
	bubble(t, func(t *testing.T) {
		const borrowers, each = 5, 3
		p := newTestPool(t, borrowers*(each-1)+1, nil, nil)
		var all []*call
		for range borrowers {
			all = append(all, start(func() error {
				var ls []Lease[*thing]
				for range each {
					l, err := p.Acquire(t.Context())
					if err != nil {
						return err
					}
					ls = append(ls, l)
					time.Sleep(time.Second)
				}
				for _, l := range ls {
					l.Close()
				}
				return nil
			}))
		}
		time.Sleep(time.Minute)
		requireGranted(t, all...)
	})
}

// Do

func TestPool_DoReturnsWhatItsFunctionReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "v")
		require.NoError(t, p.Do(ctx, func(c context.Context, r *thing) error {
			require.Equal(t, ctx, c)
			require.EqualValues(t, 1, r.id)
			require.Equal(t, 1, p.Stats().Leased)
			return nil
		}))
		require.Equal(t, errTest, p.Do(ctx, func(context.Context, *thing) error { return errTest }), "a business error")
		p.requireGauges(gauges{idle: 1})
		p.requireDestroyed()
	})
}

func TestPool_DoDoesNotRunWithoutALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		err := p.Do(canceled(), func(context.Context, *thing) error {
			t.Error("must not run")
			return nil
		})
		requireAcquireError(t, err, "wait", context.Canceled)
	})
}

func TestPool_DoDestroysWhatIsBroken(t *testing.T) {
	own := errors.New("own")
	tests := map[string]struct {
		fn   func(context.Context, *thing) error
		want any // what it panics with
	}{
		"marked":             {fn: func(context.Context, *thing) error { return Broken(errTest) }},
		"marked and wrapped": {fn: func(context.Context, *thing) error { return errors.Join(own, Broken(errTest)) }},
		"by the option":      {fn: func(context.Context, *thing) error { return own }},
		"panic":              {fn: func(context.Context, *thing) error { panic("boo") }, want: "boo"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newTestPool(t, 1, nil, &thingOptions{Broken: func(err error) bool { return errors.Is(err, own) }})
				require.Equal(t, test.want, panicOf(func() {
					require.Error(t, p.Do(t.Context(), test.fn))
				}))
				p.requireDestroyed(1)
				require.EqualValues(t, 1, p.Stats().DestroyedBroken)
				p.requireWhole(1)
			})
		})
	}
}

func TestPool_DoSurvivesGoexit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		goexits(func() { p.Do(t.Context(), func(context.Context, *thing) error { goexit(); return nil }) })
		p.requireDestroyed(1)
		p.requireWhole(1)
	})
}

func TestPool_APanicInDoReachesTheCallerThroughTheHooks(t *testing.T) {
	// The hooks run while the panic is on its way, and recover their own only.
	bubble(t, func(t *testing.T) {
		told := 0
		p := newTestPool(t, 1, nil, &thingOptions{
			Close: func(*thing) error { panic("in Close") },
			Observer: Observer{
				Returned:  func(ReturnEvent) { told++; panic("in Returned") },
				Destroyed: func(DestroyEvent) { told++; panic("in Destroyed") },
			},
		})
		require.Equal(t, "boo", panicOf(func() {
			p.Do(t.Context(), func(context.Context, *thing) error { panic("boo") })
		}))
		require.Equal(t, 2, told)
		p.requireDestroyed(1)
	})
}

func TestBroken_KeepsTheError(t *testing.T) {
	require.NoError(t, Broken(nil))
	err := Broken(errTest)
	require.ErrorIs(t, err, errTest)
	require.Equal(t, errTest.Error(), err.Error())
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		require.ErrorIs(t, p.Do(t.Context(), func(context.Context, *thing) error { return err }), errTest)
	})
}

func TestPool_DoOfARevokedLeaseSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		for _, own := range []error{nil, errTest} {
			err := p.Do(t.Context(), func(context.Context, *thing) error {
				require.True(t, p.Revoke(p.Leases()[0].ID))
				return own
			})
			require.ErrorIs(t, err, ErrLeaseRevoked)
			if own != nil {
				require.ErrorIs(t, err, own)
			}
		}
		p.requireDestroyed(1, 2)
		require.Zero(t, p.Stats().DuplicateCloses)
		p.requireWhole(1)
	})
}

// Permit pools

func TestNewPermitPool_LicenceSeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const seats = 20
		p, err := NewPermitPool(seats, &PoolOptions[struct{}]{Name: "cad"})
		require.NoError(t, err)
		var ls []Lease[struct{}]
		for i := range seats {
			l, err := p.AcquireWith(t.Context(), AcquireOptions{Owner: "user " + string(rune('a'+i))})
			require.NoError(t, err)
			require.Equal(t, struct{}{}, l.Value())
			ls = append(ls, l)
			time.Sleep(time.Second)
		}
		_, ok := p.TryAcquire()
		require.False(t, ok)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Acquire(ctx)
		requireAcquireError(t, err, "wait", context.DeadlineExceeded)

		infos := p.Leases()
		require.Len(t, infos, seats)
		for i, info := range infos {
			require.Equal(t, ls[i].Info(), info)
			require.Equal(t, "user "+string(rune('a'+i)), info.Owner)
		}

		const evicted = 7
		require.True(t, p.Revoke(infos[evicted].ID))
		require.False(t, p.Revoke(infos[evicted].ID))
		require.Len(t, p.Leases(), seats-1)
		require.Equal(t, ErrLeaseRevoked, ls[evicted].Err())
		require.Equal(t, ErrLeaseRevoked, panicOf(func() { ls[evicted].Value() }))
		synctest.Wait()
		seat, ok := p.TryAcquire()
		require.True(t, ok, "the seat is free at once")
		before := p.Stats()
		require.NoError(t, ls[evicted].Close())
		after := p.Stats()
		after.DuplicateCloses = before.DuplicateCloses
		require.Equal(t, before, after, "the late Close changes nothing")
		require.NoError(t, seat.Err())

		closeAll(t, ls...)
		closeAll(t, seat)
		require.NoError(t, p.Audit())
		require.EqualValues(t, seats, p.Stats().Available)
		require.NoError(t, p.Close(endless()))
	})
}

func TestNewPermitPool_TakesHooksAndWeights(t *testing.T) {
	bubble(t, func(t *testing.T) {
		resets := 0
		p, err := NewPermitPool(4, &PoolOptions[struct{}]{MinIdle: 2, MaxUses: 2, Reset: func(struct{}) error { resets++; return nil }})
		require.NoError(t, err)
		for range 10 {
			l, err := p.AcquireWith(t.Context(), AcquireOptions{Weight: 4})
			require.NoError(t, err)
			_, ok := p.TryAcquire()
			require.False(t, ok)
			closeAll(t, l)
		}
		require.Equal(t, 10, resets)
		require.NoError(t, p.Warm(t.Context(), 4))
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(endless()))
	})
}
