package ration

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Audit is what most tests of the pool rely on. This one breaks each law and
// sees it named.
func TestPool_AuditNamesEachBrokenLaw(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(p *Pool[int])
		want    string
	}{
		"a circle":                  {func(p *Pool[int]) { p.out.tail.next = p.out.head }, "is in the table twice"},
		"an order":                  {func(p *Pool[int]) { p.out.head.state.Store(loanState(99, lent)) }, "is out of order"},
		"a lease too many counted":  {func(p *Pool[int]) { p.out.len++ }, "2 leases in the table, 3 counted"},
		"idle and on loan":          {func(p *Pool[int]) { p.idle.head = p.out.head }, "idle twice, or idle and on loan"},
		"on loan and idle":          {func(p *Pool[int]) { p.idle.head.state.Store(loanState(99, lent)) }, "an idle resource is on loan"},
		"an idle too many counted":  {func(p *Pool[int]) { p.idle.len++ }, "1 idle resources, 2 counted"},
		"a negative count":          {func(p *Pool[int]) { p.destroying = -1 }, "negative count"},
		"a permit of nobody":        {func(p *Pool[int]) { p.permits.TryAcquire(1) }, "4 permits held, but 3 by leases"},
		"a permit too few":          {func(p *Pool[int]) { p.permits.Release(1) }, "2 permits held, but 3 by leases"},
		"a weight":                  {func(p *Pool[int]) { p.out.head.weight++ }, "leases weigh 4, 3 counted"},
		"more than the capacity":    {func(p *Pool[int]) { p.opening = 10 }, "exceed the capacity 5"},
		"a need without a permit":   {func(p *Pool[int]) { p.needers.len = 1 }, "1 borrowers need a resource without a permit"},
		"given up more than opened": {func(p *Pool[int]) { p.abandoned = -1 }, "-1 opens and checks given up"},
		"idle in a closed pool":     {func(p *Pool[int]) { p.closed = true }, "1 resources idle in a closed pool"},
	} {
		t.Run(name, func(t *testing.T) {
			next := 0
			p, err := NewPool(5, func(context.Context) (int, error) { next++; return next, nil }, &PoolOptions[int]{Name: "db"})
			require.NoError(t, err)
			leases := make([]Lease[int], 3)
			for i := range leases {
				leases[i], err = p.AcquireWith(t.Context(), AcquireOptions{Weight: 1 + int64(i%2)})
				require.NoError(t, err)
			}
			require.NoError(t, leases[2].Close()) // idle from now on
			require.NoError(t, p.Audit())
			tc.breakIt(p)
			err = p.Audit()
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, `ration: audit "db": `)
		})
	}
}

// A permit of a discarded lease is back at once, its place only when Close has
// returned: whoever comes in between waits for that, also where nothing is opened.
func TestNewPermitPool_WaitsForThePlaceOfWhatIsBeingDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPermitPool(1, &PoolOptions[struct{}]{Close: func(struct{}) error {
			time.Sleep(time.Second)
			return nil
		}})
		require.NoError(t, err)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		began := time.Now()
		go l.Discard()
		synctest.Wait()
		require.EqualValues(t, 1, p.Stats().Available)
		l, err = p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, p.Audit())
		require.NoError(t, l.Close())
		require.NoError(t, p.Close(t.Context()))
	})
}

// What comes after its open has been given up is dropped, if there is no Close.
func TestPool_ALateResourceWithoutCloseIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens atomic.Int64
		p, err := NewPool(1, func(context.Context) (int, error) {
			if opens.Add(1) == 1 {
				time.Sleep(time.Minute) // whatever its context says
				return 1, nil
			}
			return 2, nil
		}, &PoolOptions[int]{OpenTimeout: time.Second})
		require.NoError(t, err)
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, l.Value())
		time.Sleep(time.Hour)
		require.Equal(t, 1, p.Stats().Total)
		require.NoError(t, p.Audit())
		require.NoError(t, l.Close())
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestPool_AnErrorDoesNotSayTwiceWhoseItIs(t *testing.T) {
	p, err := NewPermitPool(1, &PoolOptions[struct{}]{Name: "db"})
	require.NoError(t, err)
	_, err = p.AcquireWith(t.Context(), AcquireOptions{Weight: 2})
	require.ErrorIs(t, err, ErrTooLarge)
	require.Regexp(t, `^ration: acquire "db": \w+: `+ErrTooLarge.Error()[len("ration: "):]+` after `, err.Error())
	require.NoError(t, p.Close(t.Context()))
}
