package otelration_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/otelration"
)

// borrow has one acquire that opens within 3 s and holds for 5 s, one that waits
// for these 5 s and more, one that gives up after 2 s, and one whose open fails.
func borrow(t *testing.T, o ration.Observer) {
	fail := errors.New("no such host")
	opens := 0
	pool, err := ration.NewPool(1, func(context.Context) (*number, error) {
		time.Sleep(3 * time.Second)
		if opens++; opens > 1 {
			return nil, fail
		}
		return new(number), nil
	}, &ration.PoolOptions[*number]{Observer: o})
	require.NoError(t, err)
	l, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = pool.Acquire(soon)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.AfterFunc(3*time.Second, func() { l.Close() })
	second, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Discard())
	_, err = pool.Acquire(t.Context())
	require.ErrorIs(t, err, fail)
	runtime.KeepAlive(pool)
}

func TestObserver_RecordsEveryWaitAndEveryHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reader := metered(t, nil)
		borrow(t, in.Observer("p"))
		require.Equal(t, map[string]string{
			"ration.pool.wait_seconds{pool=p}": "4, 11", // 3 + 2 + 3 + 3
			"ration.pool.held_seconds{pool=p}": "2, 5",
		}, values(t, reader))
	})
}

func TestDBObserver_RecordsWhatTheConventionsMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reader := metered(t, nil)
		borrow(t, in.DBObserver("p"))
		require.Equal(t, map[string]string{
			"db.client.connection.create_time{db.client.connection.pool.name=p}": "1, 3", // not the one that failed
			"db.client.connection.wait_time{db.client.connection.pool.name=p}":   "2, 6", // nor who got nothing
			"db.client.connection.use_time{db.client.connection.pool.name=p}":    "2, 5",
		}, values(t, reader))
	})
}

func TestObserver_PassesEventsOn(t *testing.T) {
	in, reader := metered(t, nil)
	var told []string
	tell := func(who string) ration.Observer {
		return ration.Observer{
			Acquired:  func(e ration.AcquireEvent) { told = append(told, who+" acquired "+e.Outcome) },
			Returned:  func(e ration.ReturnEvent) { told = append(told, who+" returned "+e.How) },
			Opened:    func(ration.OpenEvent) { told = append(told, who+" opened") },
			Destroyed: func(e ration.DestroyEvent) { told = append(told, who+" destroyed "+e.Reason) },
		}
	}
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: in.Observer("p", tell("one"), ration.Observer{}, tell("two"))})
	l, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Discard())
	slices.Sort(told) // of one open or the acquire it is for, either may be told first
	require.Equal(t, []string{
		"one acquired opened", "one destroyed broken", "one opened", "one returned discarded",
		"two acquired opened", "two destroyed broken", "two opened", "two returned discarded",
	}, told)
	require.Len(t, values(t, reader), 2)
}

func TestObserver_AsksForNoEventsThatNobodyWants(t *testing.T) {
	in, _ := metered(t, nil)
	o := in.Observer("p", ration.Observer{Opened: func(ration.OpenEvent) {}})
	require.NotNil(t, o.Opened)
	require.Nil(t, o.Destroyed)
	require.Nil(t, in.Observer("p").Opened)
	require.NotNil(t, in.DBObserver("p").Opened)
}

// What a loan of an idle resource pays for the histograms of the SDK.
func BenchmarkLoan(b *testing.B) {
	in, _ := metered(b, nil)
	for _, observer := range []struct {
		name string
		ration.Observer
	}{
		{"none", ration.Observer{}},
		{"empty", ration.Observer{Acquired: func(ration.AcquireEvent) {}, Returned: func(ration.ReturnEvent) {}}},
		{"otelration", in.Observer("p")},
	} {
		b.Run("observer="+observer.name, func(b *testing.B) {
			pool := newPool(b, 1, &ration.PoolOptions[*number]{Observer: observer.Observer})
			b.ReportAllocs()
			for b.Loop() {
				l, err := pool.Acquire(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
}

// What a collection takes of a pool with 10,000 open leases, beside what the SDK
// itself does.
func BenchmarkCollect(b *testing.B) {
	in, reader := metered(b, nil)
	pool := newPool(b, 10_000, &ration.PoolOptions[*number]{Observer: in.Observer("p")})
	for range 10_000 {
		_, err := pool.Acquire(b.Context())
		require.NoError(b, err)
	}
	require.NoError(b, otelration.AddPool(in, "p", pool))
	for b.Loop() {
		read(b, reader)
	}
	runtime.KeepAlive(pool)
}
