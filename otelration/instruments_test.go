package otelration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/otelration"
)

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

// common is what is reported of every pool p.
func common(s ration.PoolStats) map[string]string {
	number := func(n any) string { return fmt.Sprint(n) }
	return map[string]string{
		"ration.pool.held{pool=p}":                        number(s.Held),
		"ration.pool.available{pool=p}":                   number(s.Available),
		"ration.pool.opening{pool=p}":                     number(s.Opening),
		"ration.pool.destroying{pool=p}":                  number(s.Destroying),
		"ration.pool.suspects{pool=p}":                    number(s.Suspects),
		"ration.pool.near{pool=p}":                        number(s.Near),
		"ration.pool.longest_wait{pool=p}":                number(s.LongestWait.Seconds()),
		"ration.pool.acquires{outcome=granted,pool=p}":    number(s.Outcomes.Granted),
		"ration.pool.acquires{outcome=opened,pool=p}":     number(s.Outcomes.Opened),
		"ration.pool.acquires{outcome=canceled,pool=p}":   number(s.Outcomes.Canceled),
		"ration.pool.acquires{outcome=timeout,pool=p}":    number(s.Outcomes.Timeout),
		"ration.pool.acquires{outcome=queue_full,pool=p}": number(s.Outcomes.QueueFull),
		"ration.pool.acquires{outcome=too_large,pool=p}":  number(s.Outcomes.TooLarge),
		"ration.pool.acquires{outcome=closed,pool=p}":     number(s.Outcomes.Closed),
		"ration.pool.acquires{outcome=error,pool=p}":      number(s.Outcomes.Error),
		"ration.pool.waits{pool=p}":                       number(s.Waited),
		"ration.pool.waited{pool=p}":                      number(s.WaitTime.Seconds()),
		"ration.pool.opens{outcome=opened,pool=p}":        number(s.Opened),
		"ration.pool.opens{outcome=failed,pool=p}":        number(s.OpenFailed),
		"ration.pool.destroys{pool=p,reason=broken}":      number(s.DestroyedBroken),
		"ration.pool.destroys{pool=p,reason=expired}":     number(s.DestroyedExpired),
		"ration.pool.destroys{pool=p,reason=idle}":        number(s.DestroyedIdle),
		"ration.pool.destroys{pool=p,reason=surplus}":     number(s.DestroyedSurplus),
		"ration.pool.destroys{pool=p,reason=closed}":      number(s.DestroyedClosed),
		"ration.pool.destroys{pool=p,reason=revoked}":     number(s.DestroyedRevoked),
		"ration.pool.leaks{kind=suspect,pool=p}":          number(s.Suspected),
		"ration.pool.leaks{kind=recovered,pool=p}":        number(s.Recovered),
		"ration.pool.leaks{kind=proved,pool=p}":           number(s.Proved),
		"ration.pool.duplicate_closes{pool=p}":            number(s.DuplicateCloses),
		"ration.pool.revokes{pool=p}":                     number(s.Revoked),
	}
}

func TestInstruments_TakeEveryNumberFromItsField(t *testing.T) {
	in, reader := metered(t, nil)
	var pool numbered
	require.NoError(t, otelration.AddPool(in, "p", &pool))
	s := pool.Stats()
	want := common(s)
	want["ration.pool.capacity{pool=p}"] = fmt.Sprint(s.Capacity)
	want["ration.pool.idle{pool=p}"] = fmt.Sprint(s.Idle)
	want["ration.pool.leases{pool=p}"] = fmt.Sprint(s.Leased)
	want["ration.pool.waiters{pool=p}"] = fmt.Sprint(s.Waiters)
	require.Equal(t, want, values(t, reader))
	runtime.KeepAlive(&pool)
}

func TestInstruments_DBPoolsHaveTheNamesOfTheConventions(t *testing.T) {
	in, reader := metered(t, nil)
	var pool numbered
	require.NoError(t, otelration.AddDBPool(in, "p", &pool, 1234))
	s := pool.Stats()
	want := common(s)
	const name = "db.client.connection.pool.name=p"
	want["db.client.connection.count{"+name+",db.client.connection.state=idle}"] = fmt.Sprint(s.Idle)
	want["db.client.connection.count{"+name+",db.client.connection.state=used}"] = fmt.Sprint(s.Leased)
	want["db.client.connection.max{"+name+"}"] = fmt.Sprint(s.Capacity)
	want["db.client.connection.idle.max{"+name+"}"] = fmt.Sprint(s.Capacity)
	want["db.client.connection.idle.min{"+name+"}"] = "1234"
	want["db.client.connection.pending_requests{"+name+"}"] = fmt.Sprint(s.Waiters)
	want["db.client.connection.timeouts{"+name+"}"] = fmt.Sprint(s.Outcomes.Timeout)
	require.Equal(t, want, values(t, reader))
	runtime.KeepAlive(&pool)
}

func TestInstruments_DBNamesHaveTheUnitsAndKindsOfTheConventions(t *testing.T) {
	in, reader := metered(t, nil)
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: in.DBObserver("p")})
	require.NoError(t, otelration.AddDBPool(in, "p", pool, 0))
	require.NoError(t, pool.Do(t.Context(), func(context.Context, *number) error { return nil }))

	got := make(map[string]string)
	for name, m := range read(t, reader) {
		if !strings.HasPrefix(name, "db.") {
			continue
		}
		require.NotEmpty(t, m.Description)
		kind := "histogram"
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			kind = map[bool]string{true: "counter", false: "updowncounter"}[sum.IsMonotonic]
		}
		got[name] = kind + " " + m.Unit
	}
	require.Equal(t, map[string]string{
		"db.client.connection.count":            "updowncounter {connection}",
		"db.client.connection.idle.max":         "updowncounter {connection}",
		"db.client.connection.idle.min":         "updowncounter {connection}",
		"db.client.connection.max":              "updowncounter {connection}",
		"db.client.connection.pending_requests": "updowncounter {request}",
		"db.client.connection.timeouts":         "counter {timeout}",
		"db.client.connection.create_time":      "histogram s",
		"db.client.connection.wait_time":        "histogram s",
		"db.client.connection.use_time":         "histogram s",
	}, got)
	runtime.KeepAlive(pool)
}

func TestInstruments_ReportSemaphoresAndBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reader := metered(t, nil)
		s, b := ration.NewSemaphore(10, nil), newBucket(t, ration.Per(90, time.Minute), 20)
		require.NoError(t, in.AddSemaphore("s", s))
		require.NoError(t, in.AddBucket("b", b))

		require.NoError(t, s.Acquire(t.Context(), 7))
		require.False(t, s.TryAcquireFor(4, time.Second))
		require.False(t, s.TryAcquireFor(10, time.Second/2))
		time.AfterFunc(time.Second/4, func() { s.Release(1) })
		require.True(t, s.TryAcquireFor(4, time.Second))
		for range 5 {
			require.ErrorIs(t, s.Acquire(t.Context(), 11), ration.ErrTooLarge)
		}
		require.NoError(t, s.Shrink(4))
		ctx, cancel := context.WithCancel(t.Context())
		go s.Acquire(ctx, 6)
		synctest.Wait()
		require.True(t, b.Allow(18))
		require.Equal(t, map[string]string{
			"ration.semaphore.capacity{semaphore=s}":        "6",
			"ration.semaphore.held{semaphore=s}":            "10",
			"ration.semaphore.available{semaphore=s}":       "-4",
			"ration.semaphore.waiters{semaphore=s}":         "1",
			"ration.semaphore.waiting_permits{semaphore=s}": "6",
			"ration.semaphore.longest_wait{semaphore=s}":    "1",
			"ration.semaphore.waits{semaphore=s}":           "3",
			"ration.semaphore.canceled_waits{semaphore=s}":  "2",
			"ration.semaphore.waited{semaphore=s}":          "1.75",
			"ration.semaphore.refusals{semaphore=s}":        "5",
			"ration.bucket.tokens{bucket=b}":                "2",
			"ration.bucket.burst{bucket=b}":                 "20",
			"ration.bucket.rate{bucket=b}":                  "1.5",
		}, values(t, reader))
		cancel()
		runtime.KeepAlive([]any{s, b})
	})
}

// families returns the lines that say the names and types of metrics.
func families(text string) []string {
	var types []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# TYPE ration_") {
			types = append(types, strings.TrimSpace(line))
		}
	}
	return types
}

func TestInstruments_PrometheusSpellsThemLikePromration(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	in, err := otelration.New(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), nil)
	require.NoError(t, err)
	pool := newPool(t, 4, &ration.PoolOptions[*number]{Observer: in.Observer("mail")})
	s, b := ration.NewSemaphore(10, nil), newBucket(t, ration.Per(90, time.Minute), 20)
	require.NoError(t, otelration.AddPool(in, "mail", pool))
	require.NoError(t, in.AddSemaphore("uploads", s))
	require.NoError(t, in.AddBucket("partner", b))
	require.NoError(t, pool.Do(t.Context(), func(context.Context, *number) error { return nil })) // histograms begin with an event

	text, err := format(registry)
	require.NoError(t, err)
	golden, err := os.ReadFile("../promration/testdata/unused.prom")
	require.NoError(t, err)
	want := families(string(golden))
	require.Greater(t, len(want), 30)
	got := families(text)
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)

	// The same series too, but for the labels that the exporter adds.
	series := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			name, _, _ := strings.Cut(line, "} ")
			name, labels, _ := strings.Cut(name, "{")
			if !strings.HasPrefix(name, "ration_") {
				continue
			}
			kept := slices.DeleteFunc(strings.Split(labels, ","), func(l string) bool { return strings.HasPrefix(l, "otel_") })
			slices.Sort(kept)
			all = append(all, name+"{"+strings.Join(kept, ",")+"}")
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, series(string(golden)), series(text))

	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	runtime.KeepAlive([]any{pool, s, b})
}

// format returns what Prometheus would get.
func format(g prometheus.Gatherer) (string, error) {
	families, err := g.Gather()
	var out strings.Builder
	for _, f := range families {
		_, err2 := expfmt.MetricFamilyToText(&out, f)
		err = errors.Join(err, err2)
	}
	return out.String(), err
}

func TestInstruments_NamesAreUniqueWithinAKind(t *testing.T) {
	in, reader := metered(t, nil)
	pool, other := newPool(t, 1, nil), newPool(t, 2, nil)
	s, b := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
	require.NoError(t, otelration.AddPool(in, "a", pool))
	require.NoError(t, in.AddSemaphore("a", s))
	require.NoError(t, in.AddBucket("a", b))
	err := otelration.AddPool(in, "a", other)
	require.ErrorIs(t, err, otelration.ErrNameTaken)
	require.ErrorContains(t, err, `there is a pool "a" already`)
	require.ErrorIs(t, otelration.AddDBPool(in, "a", other, 0), otelration.ErrNameTaken)
	require.ErrorIs(t, in.AddSemaphore("a", s), otelration.ErrNameTaken)
	require.ErrorIs(t, in.AddBucket("a", b), otelration.ErrNameTaken)
	require.Equal(t, "1", values(t, reader)["ration.pool.capacity{pool=a}"])
	runtime.KeepAlive([]any{pool, other, s, b})
}

func TestInstruments_RefuseWhatTheyCannotReport(t *testing.T) {
	in, reader := metered(t, nil)
	pool := newPool(t, 1, nil)
	require.ErrorContains(t, otelration.AddPool(in, "", pool), "a pool needs a name")
	require.ErrorContains(t, otelration.AddPool(in, "p", (*ration.Pool[int])(nil)), "nil pool")
	require.ErrorContains(t, otelration.AddDBPool(in, "p", (*ration.Pool[int])(nil), 0), "nil pool")
	require.ErrorContains(t, in.AddSemaphore("s", nil), "nil semaphore")
	require.ErrorContains(t, in.AddBucket("b", nil), "nil bucket")
	require.Empty(t, values(t, reader))
	_, err := otelration.New(nil, nil)
	require.ErrorContains(t, err, "nil meter")
}

func TestInstruments_RemovedObjectsAreGoneAtOnce(t *testing.T) {
	in, reader := metered(t, nil)
	pool, s, b := newPool(t, 1, nil), ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
	require.NoError(t, otelration.AddPool(in, "x", pool))
	require.NoError(t, in.AddSemaphore("x", s))
	require.NoError(t, in.AddBucket("x", b))
	require.Len(t, read(t, reader), 32)
	require.True(t, in.RemovePool("x"))
	require.False(t, in.RemovePool("x"))
	require.Len(t, read(t, reader), 13)
	require.True(t, in.RemoveSemaphore("x"))
	require.False(t, in.RemoveSemaphore("x"))
	require.Len(t, read(t, reader), 3)
	require.True(t, in.RemoveBucket("x"))
	require.False(t, in.RemoveBucket("x"))
	require.Empty(t, read(t, reader))
	require.NoError(t, otelration.AddPool(in, "x", pool), "the name is free again")
	runtime.KeepAlive([]any{pool, s, b})
}

func TestInstruments_DroppedObjectsVanishAndFreeTheirNames(t *testing.T) {
	in, reader := metered(t, nil)
	func() {
		pool, db := newPool(t, 1, &ration.PoolOptions[*number]{Observer: in.Observer("x")}), newPool(t, 1, nil)
		s, b := ration.NewSemaphore(1, nil), newBucket(t, ration.PerSecond(1), 1)
		require.NoError(t, otelration.AddPool(in, "x", pool))
		require.NoError(t, otelration.AddDBPool(in, "y", db, 0))
		require.NoError(t, in.AddSemaphore("x", s))
		require.NoError(t, in.AddBucket("x", b))
		runtime.GC()
		require.Equal(t, "1", values(t, reader)["ration.semaphore.capacity{semaphore=x}"], "held by the program")
		runtime.KeepAlive([]any{pool, db, s, b})
	}()
	pool := newPool(t, 2, nil)
	collected(t, func() bool { return otelration.AddPool(in, "x", pool) == nil }) // no collection in between
	require.True(t, in.RemovePool("x"))
	collected(t, func() bool { return len(read(t, reader)) == 0 })
	runtime.KeepAlive(pool)
}

func TestInstruments_UnregisterEndsAllReports(t *testing.T) {
	in, reader := metered(t, nil)
	told := 0
	mine := ration.Observer{Returned: func(ration.ReturnEvent) { told++ }}
	pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: in.Observer("p", mine)})
	require.NoError(t, otelration.AddPool(in, "p", pool))
	loan := func() {
		require.NoError(t, pool.Do(t.Context(), func(context.Context, *number) error { return nil }))
	}
	loan()
	before := values(t, reader)
	require.Contains(t, before, "ration.pool.idle{pool=p}")
	require.NoError(t, in.Unregister())
	require.NoError(t, in.Unregister())
	loan()
	after := values(t, reader)
	require.Equal(t, 2, told)
	require.Len(t, after, 2)
	for _, histogram := range []string{"ration.pool.wait_seconds{pool=p}", "ration.pool.held_seconds{pool=p}"} {
		require.Equal(t, before[histogram], after[histogram], "the SDK keeps what it has")
	}
	runtime.KeepAlive(pool)
}

// refusing is a meter that makes no counters.
type refusing struct{ noop.Meter }

func (refusing) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return noop.Int64ObservableCounter{}, errors.New("no counters")
}

func TestNew_FailsIfTheMeterRefuses(t *testing.T) {
	_, err := otelration.New(refusing{}, nil)
	require.ErrorContains(t, err, "no counters")
	in, err := otelration.New(noop.Meter{}, nil)
	require.NoError(t, err)
	require.NoError(t, in.Unregister())
}

func TestInstruments_BucketsAreTheUsers(t *testing.T) {
	for _, c := range []struct {
		opts *otelration.Options
		want int
	}{{nil, 17}, {&otelration.Options{}, 17}, {&otelration.Options{Buckets: []float64{1, 2}}, 2}} {
		in, reader := metered(t, c.opts)
		pool := newPool(t, 1, &ration.PoolOptions[*number]{Observer: in.Observer("p", in.DBObserver("p"))})
		require.NoError(t, pool.Do(t.Context(), func(context.Context, *number) error { return nil }))
		got := read(t, reader)
		require.Len(t, got, 5)
		for name, m := range got {
			require.Len(t, m.Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds, c.want, name)
		}
	}
}

func TestInstruments_CollectionsMayMeetEverythingElse(t *testing.T) {
	in, reader := metered(t, nil)
	pool := newPool(t, 4, &ration.PoolOptions[*number]{Observer: in.Observer("steady")})
	require.NoError(t, otelration.AddPool(in, "steady", pool))
	var borrowers, others sync.WaitGroup
	stop := make(chan struct{})
	until := func(fn func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					fn()
				}
			}
		})
	}
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
		until(func() {
			if err := reader.Collect(context.Background(), new(metricdata.ResourceMetrics)); err != nil {
				t.Error(err)
			}
		})
		until(func() {
			s := ration.NewSemaphore(1, nil)
			in.AddSemaphore("passing", s) // the other may be there
			in.RemoveSemaphore("passing")
		})
	}
	borrowers.Wait()
	close(stop)
	others.Wait()
	require.True(t, strings.HasPrefix(values(t, reader)["ration.pool.held_seconds{pool=steady}"], "2000, "))
	require.NoError(t, in.Unregister())
	require.NoError(t, pool.Audit())
}

func TestInstruments_ReportWhatADetectorFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reader := metered(t, nil)
		detector, err := ration.NewDetector(&ration.DetectorOptions{Threshold: time.Second})
		require.NoError(t, err)
		pool, db := newPool(t, 5, &ration.PoolOptions[*number]{Detector: detector}), newPool(t, 5, &ration.PoolOptions[*number]{Detector: detector})
		require.NoError(t, otelration.AddPool(in, "p", pool))
		require.NoError(t, otelration.AddDBPool(in, "db", db, 0))
		for _, p := range []*ration.Pool[*number]{pool, db} {
			old, err := p.Acquire(t.Context())
			require.NoError(t, err)
			lost, err := p.Acquire(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
			detector.Scan()
			require.NoError(t, old.Close())
			defer runtime.KeepAlive(lost)
		}
		got := values(t, reader)
		for _, p := range []string{"p", "db"} {
			require.Equal(t, "1", got["ration.pool.suspects{pool="+p+"}"])
			require.Equal(t, "0", got["ration.pool.near{pool="+p+"}"])
			require.Equal(t, "2", got["ration.pool.leaks{kind=suspect,pool="+p+"}"])
			require.Equal(t, "1", got["ration.pool.leaks{kind=recovered,pool="+p+"}"])
			require.Equal(t, "0", got["ration.pool.leaks{kind=proved,pool="+p+"}"])
		}
		runtime.KeepAlive([]any{pool, db})
	})
}
