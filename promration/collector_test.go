package promration_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/promration"
)

var update = flag.Bool("update", false, "write testdata anew")

// full returns a registry with one object of each kind, the pool with histograms.
// It has to be called in a bubble. What it returns beside is to be kept.
func full(t testing.TB) (registry *prometheus.Registry, kept []any) {
	c, registry := registered(t, nil)
	pool := newPool(t, 4, &ration.PoolOptions[*number]{Observer: c.Observer("mail")})
	semaphore := ration.NewSemaphore(10, nil)
	bucket := newBucket(t, ration.Per(90, time.Minute), 20)
	require.NoError(t, promration.AddPool(c, "mail", pool))
	require.NoError(t, c.AddSemaphore("uploads", semaphore))
	require.NoError(t, c.AddBucket("partner", bucket))
	return registry, []any{pool, semaphore, bucket}
}

func golden(t *testing.T, name, got string) {
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test -run %s -update writes %s anew", t.Name(), path)
}

func TestCollector_EverySeriesExistsAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, kept := full(t)
		golden(t, "unused.prom", text(t, registry))
		runtime.KeepAlive(kept)
	})
}

func TestCollector_ShowsWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, kept := full(t)
		use(t, kept[0].(*ration.Pool[*number]), kept[1].(*ration.Semaphore), kept[2].(*ration.TokenBucket))
		golden(t, "used.prom", text(t, registry))
		require.NoError(t, kept[0].(*ration.Pool[*number]).Audit())
	})
}

// use makes something happen of almost everything that is counted.
func use(t *testing.T, pool *ration.Pool[*number], semaphore *ration.Semaphore, bucket *ration.TokenBucket) {
	ctx := t.Context()
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()

	var leases []ration.Lease[*number]
	for range 4 {
		l, err := pool.Acquire(ctx)
		require.NoError(t, err)
		leases = append(leases, l)
	}
	_, err := pool.Acquire(soon) // in vain, for 50 ms
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = pool.AcquireWith(ctx, ration.AcquireOptions{Weight: 5})
	require.ErrorIs(t, err, ration.ErrTooLarge)
	time.Sleep(2 * time.Second)
	require.NoError(t, leases[0].Close()) // after 2.05 s
	require.NoError(t, leases[0].Close()) // again
	require.NoError(t, leases[1].Discard())
	require.True(t, pool.Revoke(leases[2].Info().ID))
	l, err := pool.Acquire(ctx) // an idle one
	require.NoError(t, err)
	require.NoError(t, l.Close())

	require.NoError(t, semaphore.Acquire(ctx, 7))
	require.False(t, semaphore.TryAcquireFor(4, time.Second))
	require.False(t, semaphore.TryAcquireFor(10, time.Second/2))
	time.AfterFunc(time.Second/4, func() { semaphore.Release(1) })
	require.True(t, semaphore.TryAcquireFor(4, time.Second))
	for range 5 {
		require.ErrorIs(t, semaphore.Acquire(ctx, 11), ration.ErrTooLarge)
	}
	require.NoError(t, semaphore.Shrink(4))
	soon, cancel = context.WithCancel(ctx)
	go semaphore.Acquire(soon, 6)
	t.Cleanup(synctest.Wait)
	t.Cleanup(cancel)
	require.True(t, bucket.Allow(20)) // at 90 a minute
	synctest.Wait()
}

func TestCollector_LintFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, kept := full(t)
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
		runtime.KeepAlive(kept)
	})
}

func TestCollector_DescribesExactlyWhatItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := promration.New(nil)
		pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p")})
		semaphore, bucket := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
		require.NoError(t, promration.AddPool(c, "p", pool))
		require.NoError(t, c.AddSemaphore("s", semaphore))
		require.NoError(t, c.AddBucket("b", bucket))

		descs, metrics := make(chan *prometheus.Desc, 1000), make(chan prometheus.Metric, 1000)
		c.Describe(descs)
		c.Collect(metrics)
		close(descs)
		close(metrics)
		described, sent := make(map[string]bool), make(map[string]bool)
		for d := range descs {
			require.False(t, described[d.String()], "twice: %v", d)
			described[d.String()] = true
		}
		for m := range metrics {
			sent[m.Desc().String()] = true
		}
		require.Equal(t, described, sent)
		runtime.KeepAlive([]any{pool, semaphore, bucket})
	})
}

func TestCollector_NamesAreUniqueWithinAKind(t *testing.T) {
	c, registry := registered(t, nil)
	pool, other := newPool(t, 1, nil), newPool(t, 2, nil)
	semaphore, bucket := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)

	require.NoError(t, promration.AddPool(c, "a", pool))
	require.NoError(t, c.AddSemaphore("a", semaphore))
	require.NoError(t, c.AddBucket("a", bucket))

	err := promration.AddPool(c, "a", other)
	require.ErrorIs(t, err, promration.ErrNameTaken)
	require.ErrorContains(t, err, `there is a pool "a" already`)
	require.ErrorIs(t, c.AddSemaphore("a", semaphore), promration.ErrNameTaken)
	require.ErrorIs(t, c.AddBucket("a", bucket), promration.ErrNameTaken)
	require.Equal(t, "1", value(t, registry, `ration_pool_capacity{pool="a"}`))

	require.NoError(t, promration.AddPool(c, "b", pool), "one object may have several names")
	runtime.KeepAlive([]any{pool, other, semaphore, bucket})
}

func TestCollector_RefusesWhatItCannotShow(t *testing.T) {
	c, registry := registered(t, nil)
	pool := newPool(t, 1, nil)
	require.ErrorContains(t, promration.AddPool(c, "", pool), "a pool needs a name")
	require.ErrorContains(t, promration.AddPool(c, "\xff", pool), "not UTF-8")
	require.ErrorContains(t, promration.AddPool(c, "p", (*ration.Pool[int])(nil)), "nil pool")
	require.ErrorContains(t, c.AddSemaphore("s", nil), "nil semaphore")
	require.ErrorContains(t, c.AddBucket("b", nil), "nil bucket")
	require.Empty(t, gather(t, registry))
	require.NoError(t, promration.AddPool(c, "p", pool))

	require.Panics(t, func() { promration.New(&promration.Options{Buckets: []float64{2, 1}}) })
}

func TestCollector_NamesMayHoldAnything(t *testing.T) {
	c, registry := registered(t, nil)
	pool := newPool(t, 3, nil)
	require.NoError(t, promration.AddPool(c, "a \"quoted\"\nname \\ <b>", pool))
	require.Equal(t, "3", value(t, registry, `ration_pool_capacity{pool="a \"quoted\"\nname \\ <b>"}`))
	runtime.KeepAlive(pool)
}

func TestCollector_RemovedObjectsAreGoneAtOnce(t *testing.T) {
	c, registry := registered(t, nil)
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("x")})
	semaphore, bucket := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
	require.NoError(t, promration.AddPool(c, "x", pool))
	require.NoError(t, c.AddSemaphore("x", semaphore))
	require.NoError(t, c.AddBucket("x", bucket))

	require.True(t, c.RemovePool("x"))
	require.False(t, c.RemovePool("x"))
	require.NotContains(t, text(t, registry), "ration_pool")
	require.True(t, c.RemoveSemaphore("x"))
	require.False(t, c.RemoveSemaphore("x"))
	require.NotContains(t, text(t, registry), "ration_semaphore")
	require.True(t, c.RemoveBucket("x"))
	require.False(t, c.RemoveBucket("x"))
	require.Empty(t, gather(t, registry))

	require.NoError(t, promration.AddPool(c, "x", pool), "the name is free again")
	require.Equal(t, "1", value(t, registry, `ration_pool_capacity{pool="x"}`))
	runtime.KeepAlive([]any{pool, semaphore, bucket})
}

func TestCollector_DroppedObjectsVanish(t *testing.T) {
	c, registry := registered(t, nil)
	func() {
		pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("x")})
		l, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		semaphore, bucket := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
		require.NoError(t, promration.AddPool(c, "x", pool))
		require.NoError(t, c.AddSemaphore("x", semaphore))
		require.NoError(t, c.AddBucket("x", bucket))
		require.Equal(t, "1", value(t, registry, `ration_pool_held_seconds_count{pool="x"}`))
		runtime.GC()
		require.Equal(t, "1", value(t, registry, `ration_semaphore_capacity{semaphore="x"}`), "held by the program")
		runtime.KeepAlive([]any{pool, semaphore, bucket})
	}()
	collected(t, func() bool { return len(gather(t, registry)) == 0 })
}

func TestCollector_DroppedObjectsFreeTheirNames(t *testing.T) {
	c, registry := registered(t, nil)
	func() {
		require.NoError(t, promration.AddPool(c, "x", newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("x")})))
	}()
	pool := newPool(t, 2, nil)
	collected(t, func() bool { return promration.AddPool(c, "x", pool) == nil }) // no scrape in between
	require.Equal(t, "2", value(t, registry, `ration_pool_capacity{pool="x"}`))
	require.ErrorIs(t, promration.AddPool(c, "x", pool), promration.ErrNameTaken)
	runtime.KeepAlive(pool)
}

// numbered has the Stats of a pool of which every number is another.
type numbered struct{ _ int }

func (*numbered) Stats() (s ration.PoolStats) {
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			n++
			switch f := v.Field(i); {
			case f.Kind() == reflect.Struct:
				fill(f)
			case f.Type() == reflect.TypeFor[time.Duration]():
				f.SetInt(int64(n) * int64(time.Second))
			case f.CanInt():
				f.SetInt(int64(n))
			default:
				f.SetUint(uint64(n))
			}
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	return s
}

func TestCollector_TakesEveryNumberFromItsField(t *testing.T) {
	c, registry := registered(t, nil)
	var pool numbered
	require.NoError(t, promration.AddPool(c, "p", &pool))
	s := pool.Stats()
	number := func(n any) string { return fmt.Sprint(n) }
	want := map[string]string{
		`ration_pool_capacity{pool="p"}`:                            number(s.Capacity),
		`ration_pool_held{pool="p"}`:                                number(s.Held),
		`ration_pool_available{pool="p"}`:                           number(s.Available),
		`ration_pool_idle{pool="p"}`:                                number(s.Idle),
		`ration_pool_leases{pool="p"}`:                              number(s.Leased),
		`ration_pool_opening{pool="p"}`:                             number(s.Opening),
		`ration_pool_destroying{pool="p"}`:                          number(s.Destroying),
		`ration_pool_waiters{pool="p"}`:                             number(s.Waiters),
		`ration_pool_suspects{pool="p"}`:                            number(s.Suspects),
		`ration_pool_near{pool="p"}`:                                number(s.Near),
		`ration_pool_longest_wait_seconds{pool="p"}`:                number(s.LongestWait.Seconds()),
		`ration_pool_acquires_total{outcome="granted",pool="p"}`:    number(s.Outcomes.Granted),
		`ration_pool_acquires_total{outcome="opened",pool="p"}`:     number(s.Outcomes.Opened),
		`ration_pool_acquires_total{outcome="canceled",pool="p"}`:   number(s.Outcomes.Canceled),
		`ration_pool_acquires_total{outcome="timeout",pool="p"}`:    number(s.Outcomes.Timeout),
		`ration_pool_acquires_total{outcome="queue_full",pool="p"}`: number(s.Outcomes.QueueFull),
		`ration_pool_acquires_total{outcome="too_large",pool="p"}`:  number(s.Outcomes.TooLarge),
		`ration_pool_acquires_total{outcome="closed",pool="p"}`:     number(s.Outcomes.Closed),
		`ration_pool_acquires_total{outcome="error",pool="p"}`:      number(s.Outcomes.Error),
		`ration_pool_waits_total{pool="p"}`:                         number(s.Waited),
		`ration_pool_waited_seconds_total{pool="p"}`:                number(s.WaitTime.Seconds()),
		`ration_pool_opens_total{outcome="opened",pool="p"}`:        number(s.Opened),
		`ration_pool_opens_total{outcome="failed",pool="p"}`:        number(s.OpenFailed),
		`ration_pool_destroys_total{pool="p",reason="broken"}`:      number(s.DestroyedBroken),
		`ration_pool_destroys_total{pool="p",reason="expired"}`:     number(s.DestroyedExpired),
		`ration_pool_destroys_total{pool="p",reason="idle"}`:        number(s.DestroyedIdle),
		`ration_pool_destroys_total{pool="p",reason="surplus"}`:     number(s.DestroyedSurplus),
		`ration_pool_destroys_total{pool="p",reason="closed"}`:      number(s.DestroyedClosed),
		`ration_pool_destroys_total{pool="p",reason="revoked"}`:     number(s.DestroyedRevoked),
		`ration_pool_leaks_total{kind="suspect",pool="p"}`:          number(s.Suspected),
		`ration_pool_leaks_total{kind="recovered",pool="p"}`:        number(s.Recovered),
		`ration_pool_leaks_total{kind="proved",pool="p"}`:           number(s.Proved),
		`ration_pool_duplicate_closes_total{pool="p"}`:              number(s.DuplicateCloses),
		`ration_pool_revokes_total{pool="p"}`:                       number(s.Revoked),
	}
	got := make(map[string]string)
	for line := range strings.Lines(text(t, registry)) {
		if !strings.HasPrefix(line, "#") {
			series, v, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[series] = v
		}
	}
	runtime.KeepAlive(&pool)
	require.Equal(t, want, got)
}

// A wrapped pool has the Stats method too.
type wrapped struct {
	ration.Pool[*number]
	calls int
}

func (w *wrapped) Stats() ration.PoolStats {
	w.calls++
	return ration.PoolStats{Capacity: 7}
}

func TestCollector_ShowsAnythingWithTheStatsOfAPool_AskingOncePerScrape(t *testing.T) {
	c, registry := registered(t, nil)
	var w wrapped
	require.NoError(t, promration.AddPool(c, "w", &w))
	require.Equal(t, "7", value(t, registry, `ration_pool_capacity{pool="w"}`))
	require.Equal(t, 1, w.calls)
	gather(t, registry)
	require.Equal(t, 2, w.calls) // and w is kept until here
}

func TestCollector_ConstLabelsAreOnEverything(t *testing.T) {
	c, registry := registered(t, &promration.Options{ConstLabels: prometheus.Labels{"team": "mail"}, Buckets: []float64{1, 2}})
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: c.Observer("p")})
	semaphore, bucket := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
	require.NoError(t, promration.AddPool(c, "p", pool))
	require.NoError(t, c.AddSemaphore("s", semaphore))
	require.NoError(t, c.AddBucket("b", bucket))
	for line := range strings.Lines(text(t, registry)) {
		if !strings.HasPrefix(line, "#") {
			require.Contains(t, line, `team="mail"`)
		}
	}
	require.Contains(t, text(t, registry), `ration_pool_held_seconds_bucket{pool="p",team="mail",le="2"} 0`)
	runtime.KeepAlive([]any{pool, semaphore, bucket})
}

func TestCollector_RatesArePerSecond(t *testing.T) {
	c, registry := registered(t, nil)
	for _, rate := range []struct {
		rate ration.Rate
		want string
	}{
		{ration.Rate{}, "0"},
		{ration.PerSecond(1), "1"},
		{ration.PerSecond(999_983), "999983"},
		{ration.Per(90, time.Minute), "1.5"},
		{ration.Per(1<<62, time.Second), "4.611686018427388e+18"},
		{ration.Every(time.Hour), "0.0002777777777777778"},
		{ration.Every(1500 * time.Microsecond), "666.6666666666666"},
		{ration.Per(7, 1), "7e+09"},
	} {
		b := newBucket(t, rate.rate, 1)
		require.NoError(t, c.AddBucket("b", b))
		require.Equal(t, rate.want, value(t, registry, `ration_bucket_rate_per_second{bucket="b"}`), "%v", rate.rate)
		runtime.KeepAlive(b)
		require.True(t, c.RemoveBucket("b"))
	}
}

func TestCollector_ScrapesMayMeetEverythingElse(t *testing.T) {
	c, registry := registered(t, nil)
	pool := newPool(t, 4, &ration.PoolOptions[*number]{Observer: c.Observer("steady")})
	require.NoError(t, promration.AddPool(c, "steady", pool))
	var borrowers, others sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		borrowers.Go(func() {
			for range 500 {
				l, err := pool.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				l.Close()
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
					return
				}
			}
		})
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p, err := ration.NewPool(1, open, &ration.PoolOptions[*number]{Observer: c.Observer("passing")})
				if err != nil {
					t.Error(err)
					return
				}
				promration.AddPool(c, "passing", p) // the other may be there
				c.AddSemaphore("passing", ration.NewSemaphore(1, nil))
				c.RemovePool("passing")
				c.RemoveSemaphore("passing")
			}
		})
	}
	borrowers.Wait()
	close(stop)
	others.Wait()
	require.Equal(t, "2000", value(t, registry, `ration_pool_held_seconds_count{pool="steady"}`))
	require.Equal(t, "2000", value(t, registry, `ration_pool_wait_seconds_count{pool="steady"}`))
	require.NoError(t, pool.Audit())
}

func TestCollector_ShowsWhatADetectorFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, registry := registered(t, nil)
		detector, err := ration.NewDetector(&ration.DetectorOptions{Threshold: time.Second, ProveEvery: 1})
		require.NoError(t, err)
		pool := newPool(t, 5, &ration.PoolOptions[*number]{Detector: detector})
		require.NoError(t, promration.AddPool(c, "p", pool))
		shows := func(suspects, near, suspect, recovered string) {
			t.Helper()
			detector.Scan()
			require.Equal(t, suspects, value(t, registry, `ration_pool_suspects{pool="p"}`))
			require.Equal(t, near, value(t, registry, `ration_pool_near{pool="p"}`))
			require.Equal(t, suspect, value(t, registry, `ration_pool_leaks_total{kind="suspect",pool="p"}`))
			require.Equal(t, recovered, value(t, registry, `ration_pool_leaks_total{kind="recovered",pool="p"}`))
			require.Equal(t, "0", value(t, registry, `ration_pool_leaks_total{kind="proved",pool="p"}`))
		}
		var leases []ration.Lease[*number]
		for range 3 {
			l, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, l)
			shows("0", "0", "0", "0")
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(700 * time.Millisecond)
		shows("0", "2", "0", "0") // at 850, 800 and 750 ms
		time.Sleep(200 * time.Millisecond)
		shows("2", "1", "2", "0")
		require.NoError(t, leases[0].Close())
		shows("1", "1", "2", "1")
		leases[1].Touch()
		require.NoError(t, leases[2].Close())
		shows("0", "0", "2", "1") // the other suspect has said that it is at work, not come back
		require.NoError(t, leases[1].Close())
		shows("0", "0", "2", "2")
		runtime.KeepAlive(leases)
		runtime.KeepAlive(pool)
	})
}

func TestCollector_ShowsLeaksThatAreProved(t *testing.T) {
	c, registry := registered(t, nil)
	detector, err := ration.NewDetector(&ration.DetectorOptions{ProveEvery: 1})
	require.NoError(t, err)
	pool := newPool(t, 5, &ration.PoolOptions[*number]{Detector: detector})
	require.NoError(t, promration.AddPool(c, "p", pool))
	func() {
		_, err := pool.Acquire(t.Context()) // and forgotten
		require.NoError(t, err)
	}()
	collected(t, func() bool {
		detector.Scan()
		return value(t, registry, `ration_pool_leaks_total{kind="proved",pool="p"}`) == "1"
	})
	require.Equal(t, "1", value(t, registry, `ration_pool_leases{pool="p"}`), "it is still out")
	runtime.KeepAlive(pool)
}
