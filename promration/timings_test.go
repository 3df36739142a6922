package promration_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/promration"
)

func TestObserver_PassesEventsOn(t *testing.T) {
	c, registry := registered(t, nil)
	var told []string
	tell := func(who string) ration.Observer {
		return ration.Observer{
			Acquired:  func(e ration.AcquireEvent) { told = append(told, who+" acquired "+e.Outcome) },
			Returned:  func(e ration.ReturnEvent) { told = append(told, who+" returned "+e.How) },
			Opened:    func(ration.OpenEvent) { told = append(told, who+" opened") },
			Destroyed: func(e ration.DestroyEvent) { told = append(told, who+" destroyed "+e.Reason) },
		}
	}
	deaf := ration.Observer{}
	halfDeaf := ration.Observer{Acquired: func(ration.AcquireEvent) { told = append(told, "half") }}
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p", tell("one"), deaf, halfDeaf, tell("two"))})
	require.NoError(t, promration.AddPool(c, "p", pool))

	l, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Discard())

	slices.Sort(told) // of one open or the acquire it is for, either may be told first
	require.Equal(t, []string{
		"half",
		"one acquired opened", "one destroyed broken", "one opened", "one returned discarded",
		"two acquired opened", "two destroyed broken", "two opened", "two returned discarded",
	}, told)
	require.Equal(t, "1", value(t, registry, `ration_pool_wait_seconds_count{pool="p"}`))
	require.Equal(t, "1", value(t, registry, `ration_pool_held_seconds_count{pool="p"}`))
	runtime.KeepAlive(pool)
}

func TestObserver_AsksForNoEventsThatNobodyWants(t *testing.T) {
	o := promration.New(nil).Observer("p", ration.Observer{Opened: func(ration.OpenEvent) {}})
	require.NotNil(t, o.Opened)
	require.Nil(t, o.Destroyed)
	o = promration.New(nil).Observer("p", ration.Observer{Destroyed: func(ration.DestroyEvent) {}})
	require.Nil(t, o.Opened)
	require.NotNil(t, o.Destroyed)
}

func TestObserver_APanicOfTheUsersLosesNothing(t *testing.T) {
	c, registry := registered(t, nil)
	mine := ration.Observer{
		Acquired: func(ration.AcquireEvent) { panic("mine") },
		Returned: func(ration.ReturnEvent) { panic("mine") },
	}
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p", mine)})
	require.NoError(t, promration.AddPool(c, "p", pool))
	require.NoError(t, pool.Do(t.Context(), func(context.Context, *number) error { return nil }))
	require.Equal(t, "1", value(t, registry, `ration_pool_wait_seconds_count{pool="p"}`))
	require.Equal(t, "1", value(t, registry, `ration_pool_held_seconds_count{pool="p"}`))
	require.NoError(t, pool.Audit())
}

func TestObserver_CountsFailedWaitsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, registry := registered(t, nil)
		pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p")})
		require.NoError(t, promration.AddPool(c, "p", pool))
		_, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = pool.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "20", value(t, registry, `ration_pool_wait_seconds_sum{pool="p"}`))
		require.Equal(t, "1", value(t, registry, `ration_pool_wait_seconds_bucket{pool="p",le="1e-06"}`), "the first did not wait")
		require.Equal(t, "1", value(t, registry, `ration_pool_wait_seconds_bucket{pool="p",le="10"}`))
		require.Equal(t, "2", value(t, registry, `ration_pool_wait_seconds_bucket{pool="p",le="30"}`))
		runtime.KeepAlive(pool)
	})
}

func TestObserver_PoolsWithoutOneHaveNoHistograms(t *testing.T) {
	c, registry := registered(t, nil)
	pool := newPool(t, 1, nil)
	require.NoError(t, promration.AddPool(c, "p", pool))
	require.NotContains(t, text(t, registry), "ration_pool_wait_seconds")
	require.NotContains(t, text(t, registry), "ration_pool_held_seconds")
	runtime.KeepAlive(pool)
}

func TestObserver_HistogramsStartAnewWithTheirPool(t *testing.T) {
	c, registry := registered(t, nil)
	func() {
		old := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p")})
		require.NoError(t, promration.AddPool(c, "p", old))
		require.NoError(t, old.Do(t.Context(), func(context.Context, *number) error { return nil }))
	}()
	collected(t, func() bool { return len(gather(t, registry)) == 0 })
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p")})
	require.NoError(t, promration.AddPool(c, "p", pool))
	require.Equal(t, "0", value(t, registry, `ration_pool_held_seconds_count{pool="p"}`))
	runtime.KeepAlive(pool)
}
