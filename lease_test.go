package ration

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLease_ZeroIsOneThatHasEnded(t *testing.T) {
	var l Lease[int]
	require.Equal(t, ErrLeaseClosed, l.Err())
	require.Equal(t, ErrLeaseClosed, panicOf(func() { l.Value() }))
	require.NoError(t, l.Close())
	require.NoError(t, l.Discard())
	_, err := l.Detach()
	require.Equal(t, ErrLeaseClosed, err)
	l.Touch()
	require.Zero(t, l.Info())
}

func TestLease_CloseGivesTheResourceBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, nil)
		l := p.lease()
		duplicate := l
		require.NoError(t, l.Err())
		require.NoError(t, l.Close())
		for i := range 3 {
			require.NoError(t, l.Close())
			require.NoError(t, duplicate.Close())
			require.NoError(t, l.Discard())
			p.requireGauges(gauges{idle: 1})
			require.EqualValues(t, 3*(i+1), p.Stats().DuplicateCloses)
		}
		p.requireDestroyed()
		p.requireWhole(2)
	})
}

func TestLease_AStaleCopyCannotTouchTheNextBorrower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		a := p.leaseWith(AcquireOptions{Owner: "a"})
		r, id := a.Value(), a.Info().ID
		closeAll(t, a)
		b := p.leaseWith(AcquireOptions{Owner: "b"})
		require.Same(t, r, b.Value())
		time.Sleep(time.Second)
		want := b.Info()

		require.NoError(t, a.Close())
		require.Equal(t, ErrLeaseClosed, panicOf(func() { a.Value() }))
		require.NoError(t, a.Discard())
		_, err := a.Detach()
		require.Equal(t, ErrLeaseClosed, err)
		a.Touch()
		require.Equal(t, ErrLeaseClosed, a.Err())
		require.Equal(t, LeaseInfo{ID: id}, a.Info(), "what is left of it")
		require.False(t, p.Revoke(id))

		require.NoError(t, b.Err())
		require.Equal(t, want, b.Info())
		require.Same(t, r, b.Value())
		require.EqualValues(t, 3, p.Stats().DuplicateCloses, "Close, Discard, Detach")
		p.requireGauges(gauges{leased: 1})
		p.requireDestroyed()
		closeAll(t, b)
		p.requireWhole(1)
	})
}

func TestLease_DiscardDestroysAndFreesThePermitFirst(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 2, nil, &thingOptions{Fair: fair, Close: func(*thing) error {
			time.Sleep(time.Second)
			return errTest
		}})
		ls := p.leases(2)
		b := p.parked()
		discard := start(ls[0].Discard)
		requireParked(t, discard)
		st := p.Stats()
		require.EqualValues(t, 2, st.Held, "the waiter has the permit already")
		p.requireGauges(gauges{leased: 1, destroying: 1, waiters: 1})
		requireParked(t, b.call)
		time.Sleep(time.Second)
		require.True(t, discard.ended())
		require.Equal(t, errTest, discard.err, "the error of the Close hook")
		l := b.got(t)
		require.EqualValues(t, 3, l.Value().id)
		p.requireDestroyed(1)
		require.EqualValues(t, 1, p.Stats().DestroyedBroken)
		closeAll(t, l, ls[1])
	})
}

func TestLease_ADiscardedPermitIsFreeWhileTheResourceGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		l := p.lease()
		discard := start(l.Discard)
		requireParked(t, discard)
		require.EqualValues(t, 1, p.Stats().Available)
		b := p.borrowFor(500 * time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		b.failed(t, "wait", errDeadline) // for the place, not for the permit
		require.EqualValues(t, 1, p.opens.Load())
		time.Sleep(time.Second)
		require.True(t, discard.ended())
		p.requireWhole(1)
	})
}

func TestLease_DetachLeavesTheResourceToTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		l := p.lease()
		b := p.parked()
		r := p.detach(l)
		require.EqualValues(t, 1, r.id)
		next := b.got(t)
		require.EqualValues(t, 2, next.Value().id, "the pool opened another")
		require.Equal(t, ErrLeaseClosed, l.Err())
		require.Equal(t, ErrLeaseClosed, panicOf(func() { l.Value() }))
		require.NoError(t, l.Close())
		_, err := l.Detach()
		require.Equal(t, ErrLeaseClosed, err)
		require.EqualValues(t, 2, p.Stats().DuplicateCloses)
		closeAll(t, next)
		p.requireWhole(1)
	})
}

func TestLease_TouchRestartsTheAge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{Name: "db"})
		acquired := time.Now()
		l := p.leaseWith(AcquireOptions{Owner: "me", Weight: 2})
		time.Sleep(time.Minute)
		info := l.Info()
		require.Equal(t, time.Minute, info.Age)
		require.True(t, info.AcquiredAt.Equal(acquired))
		require.Equal(t, "db", info.Pool)
		require.Equal(t, "me", info.Owner)
		require.EqualValues(t, 2, info.Weight)
		require.Nil(t, info.Stack)
		require.Empty(t, info.Frames())

		duplicate := l
		duplicate.Touch()
		time.Sleep(time.Second)
		info = l.Info()
		require.Equal(t, time.Second, info.Age)
		require.True(t, info.AcquiredAt.Equal(acquired))
		require.Equal(t, []LeaseInfo{info}, p.Leases())
		closeAll(t, l)
		l.Touch()
		require.Zero(t, p.Stats().DuplicateCloses, "a late Touch says nothing about the program")
	})
}

func TestLease_IDsGrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 3, nil, nil)
		var last uint64
		for range 5 {
			ls := p.leases(3)
			for _, l := range ls {
				require.Greater(t, l.Info().ID, last)
				last = l.Info().ID
			}
			closeAll(t, ls...)
		}
	})
}

func TestLease_EndsRaceForOneWinner(t *testing.T) {
	p := newTestPool(t, 1, nil, nil)
	const each = 2
	for range rounds(2000) {
		l := p.lease()
		id := l.Info().ID
		var detached, revoked atomic.Int32
		var all sync.WaitGroup
		begin := make(chan struct{})
		before := p.Stats()
		for range each {
			all.Go(func() { <-begin; l.Close() })
			all.Go(func() { <-begin; l.Discard() })
			all.Go(func() {
				<-begin
				if r, err := l.Detach(); err == nil {
					detached.Add(1)
					p.takesAway(r)
				} else if err != ErrLeaseClosed && err != ErrLeaseRevoked {
					t.Error(err)
				}
			})
			all.Go(func() {
				<-begin
				if p.Revoke(id) {
					revoked.Add(1)
				}
			})
		}
		close(begin)
		all.Wait()
		require.LessOrEqual(t, detached.Load()+revoked.Load(), int32(1))
		st := p.Stats()
		require.EqualValues(t, 1, st.Available)
		want := uint64(3*each - 1)
		if revoked.Load() == 1 {
			want++
		}
		require.Equal(t, want, st.DuplicateCloses-before.DuplicateCloses)
		require.NoError(t, p.Audit())
	}
	p.limit.Store(0) // what is detached by a racer is booked a moment late
}

// P10

func TestLease_RevokeTakesItBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Close: func(*thing) error { time.Sleep(time.Second); return nil }})
		l := p.lease()
		id := l.Info().ID
		require.False(t, p.Revoke(id+1))
		require.False(t, p.Revoke(0))
		require.True(t, p.Revoke(id))
		require.EqualValues(t, 1, p.Stats().Available, "the permit is back at once")
		require.Empty(t, p.Leases())
		p.requireGauges(gauges{destroying: 1})

		require.Equal(t, ErrLeaseRevoked, l.Err())
		require.Equal(t, ErrLeaseRevoked, panicOf(func() { l.Value() }))
		require.NoError(t, l.Close())
		require.NoError(t, l.Discard())
		_, err := l.Detach()
		require.Equal(t, ErrLeaseRevoked, err)
		l.Touch()
		require.Equal(t, LeaseInfo{ID: id}, l.Info())
		require.False(t, p.Revoke(id))

		next := p.lease()
		require.EqualValues(t, 2, next.Value().id, "never lent again")
		p.requireDestroyed(1)
		st := p.Stats()
		require.EqualValues(t, 1, st.Revoked)
		require.EqualValues(t, 1, st.DestroyedRevoked)
		closeAll(t, next)
	})
}

func TestLease_RevokeServesAWaiter(t *testing.T) {
	eachModeInBubble(t, func(t *testing.T, fair bool) {
		p := newTestPool(t, 1, nil, &thingOptions{Fair: fair})
		l := p.lease()
		b := p.parked()
		require.True(t, p.Revoke(l.Info().ID))
		closeAll(t, b.got(t))
		p.requireWhole(1)
	})
}

// Reset

func TestLease_ResetRunsBeforeTheNextBorrower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		resets := 0
		p := newTestPool(t, 1, nil, &thingOptions{Reset: func(r *thing) error {
			defer r.use()()
			time.Sleep(time.Second)
			resets++
			return nil
		}})
		l := p.lease()
		b := p.parked()
		closing := start(l.Close)
		p.requireGauges(gauges{leased: 1, waiters: 1})
		require.Equal(t, ErrLeaseClosed, l.Err())
		require.Empty(t, p.Leases())
		require.EqualValues(t, 1, p.Stats().Held, "until it is reset")
		requireParked(t, b.call)
		time.Sleep(time.Second)
		next := b.got(t)
		require.EqualValues(t, 1, next.Value().id)
		require.True(t, closing.ended())
		require.Equal(t, 1, resets)
		require.NoError(t, start(next.Close).result())
	})
}

func TestLease_AFailedResetDestroys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Reset: func(*thing) error { return errTest }})
		l := p.lease()
		b := p.parked()
		require.ErrorIs(t, l.Close(), errTest)
		next := b.got(t)
		require.EqualValues(t, 2, next.Value().id)
		p.requireDestroyed(1)
		require.EqualValues(t, 1, p.Stats().DestroyedBroken)
		require.NoError(t, next.Discard(), "what is discarded is not reset")
	})
}

func TestLeaseInfo_LogsAsAGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		p := newTestPool(t, 2, nil, &thingOptions{Name: "db"})
		l := p.leaseWith(AcquireOptions{Owner: "me", Weight: 2})
		time.Sleep(time.Second)
		logger.Info("x", "lease", l.Info())
		for _, want := range []string{"lease.pool=db", "lease.owner=me", "lease.id=1", "lease.weight=2", "lease.age=1s", "lease.acquired_at="} {
			require.Contains(t, log.String(), want)
		}
		closeAll(t, l)
		synctest.Wait()
	})
}
