package ration

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A guarded is a pool of permits and the detector that watches it.
type guarded struct {
	*Pool[struct{}]
	d *Detector
	t *testing.T
}

// newGuarded returns a pool of some capacity, watched with a threshold of 300 ms
// unless opts say otherwise. It is closed when the test ends.
func newGuarded(t *testing.T, capacity int64, opts *DetectorOptions) *guarded {
	t.Helper()
	o := DetectorOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Threshold == 0 {
		o.Threshold, o.Interval = 300*time.Millisecond, 100*time.Millisecond
	}
	d, err := NewDetector(&o)
	require.NoError(t, err)
	p, err := NewPermitPool(capacity, &PoolOptions[struct{}]{Name: "seats", Detector: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Audit())
		for _, l := range p.Leases() {
			require.True(t, p.Revoke(l.ID))
		}
		require.NoError(t, p.Close(context.Background()))
		requireNoMarks(t, p)
	})
	return &guarded{Pool: p, d: d, t: t}
}

// requireNoMarks checks that nothing is left of what detectors noted of leases
// that have ended.
func requireNoMarks[T any](t *testing.T, p *Pool[T]) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Zero(t, p.near, "near")
	require.Zero(t, p.suspects.Load(), "suspects")
	require.Zero(t, p.ownHolds, "leases with a MaxHold")
	for _, w := range p.watches {
		require.Zero(t, w.suspects)
		require.Zero(t, w.near)
	}
	require.Nil(t, p.cursors)
}

func (g *guarded) take(o AcquireOptions) Lease[struct{}] {
	g.t.Helper()
	l, err := g.AcquireWith(g.t.Context(), o)
	require.NoError(g.t, err)
	return l
}

// ids are those of leaks.
func ids(leaks []Leak) []uint64 {
	var got []uint64
	for _, l := range leaks {
		got = append(got, l.ID)
	}
	return got
}

// requireEvents checks which leases are news in a report.
func requireEvents(t *testing.T, r Report, suspects, recovered, proved []uint64) {
	t.Helper()
	require.Equal(t, suspects, ids(r.Suspects), "suspects")
	require.Equal(t, recovered, ids(r.Recovered), "recovered")
	require.Equal(t, proved, ids(r.Proved), "proved")
}

// D1, D2, D5: the story the detector has to tell.
func TestDetector_FindsTheLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []Report
		made := func() []Report {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		ctx, stop := context.WithCancel(t.Context())
		g := newGuarded(t, 3, &DetectorOptions{
			Threshold: 300 * time.Millisecond, Interval: 100 * time.Millisecond, StackEvery: 1,
			OnReport: func(r Report) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, r)
			},
		})
		done := make(chan error)
		go func() { done <- g.d.Run(ctx) }()

		batch := []Lease[struct{}]{g.take(AcquireOptions{Owner: "a"}), g.take(AcquireOptions{Owner: "b"}), g.take(AcquireOptions{Owner: "c"})}
		time.Sleep(30 * time.Millisecond)
		closeAll(t, batch...)

		time.Sleep(20 * time.Millisecond) // 50
		leaky := g.take(AcquireOptions{Owner: "leaky"})
		good := []Lease[struct{}]{g.take(AcquireOptions{Owner: "good-1"}), g.take(AcquireOptions{Owner: "good-2"})}

		waiting, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := g.Acquire(waiting) // until 150
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, g.Stats().Waiters)
		require.Len(t, g.Leases(), 3)

		closeAll(t, good...)
		require.EqualValues(t, 2, g.Stats().Available)

		time.Sleep(200*time.Millisecond - time.Nanosecond) // just before 350
		synctest.Wait()
		reports := made()
		require.Len(t, reports, 3, "scans at 100, 200 and 300 ms")
		for _, r := range reports {
			requireEvents(t, r, nil, nil, nil)
		}
		require.Equal(t, 1, reports[2].Pools[0].Near, "at 300 ms it is 250 ms old")

		time.Sleep(50*time.Millisecond + time.Nanosecond) // 400
		synctest.Wait()
		reports = made()
		require.Len(t, reports, 4)
		requireEvents(t, reports[3], []uint64{leaky.id}, nil, nil)
		leak := reports[3].Suspects[0]
		require.Equal(t, "leaky", leak.Owner)
		require.Equal(t, 350*time.Millisecond, leak.Held)
		require.Equal(t, 350*time.Millisecond, leak.Age)
		require.True(t, leak.Suspect)
		require.Contains(t, leak.Frames()[0].Function, "guarded).take")
		require.Equal(t, PoolReport{Pool: "seats", Capacity: 3, Held: 1, Available: 2, Leases: 1, Suspects: 1}, reports[3].Pools[0])

		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		reports = made()
		require.Len(t, reports, 8)
		for _, r := range reports[4:] {
			requireEvents(t, r, nil, nil, nil)
			require.Equal(t, 1, r.Pools[0].Suspects)
		}
		require.Equal(t, DetectorStats{SuspectsTotal: 1, SuspectsNow: 1}, g.d.Stats())

		require.True(t, g.Revoke(leak.ID))
		require.EqualValues(t, 3, g.Stats().Available)
		require.NoError(t, leaky.Close(), "late")
		require.EqualValues(t, 3, g.Stats().Available)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		reports = made()
		require.Len(t, reports, 9)
		requireEvents(t, reports[8], nil, nil, nil)
		require.Equal(t, DetectorStats{SuspectsTotal: 1}, g.d.Stats())

		stop()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestDetector_TellsOfASuspectOnceAndOfItsReturnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 3, nil)
		var held []Lease[struct{}]
		for _, end := range []func(Lease[struct{}]) error{
			Lease[struct{}].Close,
			Lease[struct{}].Discard,
			func(l Lease[struct{}]) error { _, err := l.Detach(); return err },
		} {
			l := g.take(AcquireOptions{Owner: "slow", Weight: 2})
			held = append(held, l)
			time.Sleep(300*time.Millisecond - 1)
			requireEvents(t, g.d.Scan(), nil, nil, nil)
			time.Sleep(time.Nanosecond)
			requireEvents(t, g.d.Scan(), []uint64{l.id}, nil, nil)
			time.Sleep(time.Second)
			require.NoError(t, end(l))
			require.Zero(t, g.d.Stats().SuspectsNow)
			time.Sleep(time.Hour)
			r := g.d.Scan()
			requireEvents(t, r, nil, []uint64{l.id}, nil)
			require.Equal(t, 1300*time.Millisecond, r.Recovered[0].Held, "up to its close")
			require.Equal(t, "slow", r.Recovered[0].Owner)
			require.EqualValues(t, 2, r.Recovered[0].Weight)
			requireEvents(t, g.d.Scan(), nil, nil, nil)
		}
		require.Equal(t, DetectorStats{SuspectsTotal: 3, RecoveredTotal: 3}, g.d.Stats())
		st := g.Stats()
		require.EqualValues(t, [2]uint64{3, 3}, [2]uint64{st.Suspected, st.Recovered})
		closeAll(t, held...)
		requireEvents(t, g.d.Scan(), nil, nil, nil)
	})
}

func TestDetector_AHoldEndsAtItsCloseAndNotAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDetector(&DetectorOptions{Threshold: time.Second})
		require.NoError(t, err)
		p := newTestPool(t, 1, nil, &thingOptions{Detector: d, Reset: func(*thing) error {
			require.Equal(t, DetectorStats{SuspectsTotal: 1, RecoveredTotal: 1}, d.Stats(), "in Reset")
			time.Sleep(10 * time.Second)
			return nil
		}})
		l := p.lease()
		time.Sleep(2 * time.Second)
		require.Len(t, d.Scan().Suspects, 1)
		closeAll(t, l)
		r := d.Scan()
		require.Len(t, r.Recovered, 1)
		require.Equal(t, 2*time.Second, r.Recovered[0].Held)
		require.Equal(t, 2*time.Second, d.Advice(p).Max)
	})
}

// D1: whoever works long is not accused, if he says so.
func TestDetector_LongWorkIsNotAccused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 4, nil)
		exempt := g.take(AcquireOptions{Owner: "exempt", MaxHold: -1})
		patient := g.take(AcquireOptions{Owner: "patient", MaxHold: time.Hour})
		touching := g.take(AcquireOptions{Owner: "touching"})
		hasty := g.take(AcquireOptions{Owner: "hasty", MaxHold: 100 * time.Millisecond})
		require.Zero(t, g.Stats().Available)

		time.Sleep(80 * time.Millisecond)
		r := g.d.Scan()
		requireEvents(t, r, nil, nil, nil)
		require.Equal(t, 1, r.Pools[0].Near)
		time.Sleep(20 * time.Millisecond)
		requireEvents(t, g.d.Scan(), []uint64{hasty.id}, nil, nil)
		touching.Touch()
		for range 100 {
			time.Sleep(299 * time.Millisecond)
			r := g.d.Scan()
			requireEvents(t, r, nil, nil, nil)
			require.False(t, r.Pools[0].Lost)
			touching.Touch()
		}
		time.Sleep(time.Hour)
		touching.Touch()
		requireEvents(t, g.d.Scan(), []uint64{patient.id}, nil, nil)
		time.Sleep(300 * time.Millisecond)
		requireEvents(t, g.d.Scan(), []uint64{touching.id}, nil, nil)
		closeAll(t, exempt, patient, touching, hasty)
		requireEvents(t, g.d.Scan(), nil, []uint64{patient.id, touching.id, hasty.id}, nil)
	})
}

func TestDetector_ATouchedSuspectIsNoneAnyMoreAndNotReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 1, nil)
		l := g.take(AcquireOptions{})
		time.Sleep(300 * time.Millisecond)
		requireEvents(t, g.d.Scan(), []uint64{l.id}, nil, nil)
		require.True(t, g.Leases()[0].Suspect)
		l.Touch()
		require.False(t, g.Leases()[0].Suspect)
		require.Equal(t, DetectorStats{SuspectsTotal: 1}, g.d.Stats())
		time.Sleep(300 * time.Millisecond)
		requireEvents(t, g.d.Scan(), nil, nil, nil)
		require.Equal(t, DetectorStats{SuspectsTotal: 1, SuspectsNow: 1}, g.d.Stats())
		closeAll(t, l)
		r := g.d.Scan()
		requireEvents(t, r, nil, []uint64{l.id}, nil)
		require.Equal(t, 600*time.Millisecond, r.Recovered[0].Held)
		require.Equal(t, DetectorStats{SuspectsTotal: 1, RecoveredTotal: 1}, g.d.Stats())
	})
}

func TestDetector_CountsThoseNearTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 2, &DetectorOptions{Threshold: time.Second, Near: 0.5})
		l := g.take(AcquireOptions{})
		counts := func() [4]int {
			r := g.d.Scan().Pools[0]
			st, ds := g.Stats(), g.d.Stats()
			require.Equal(t, [2]int{r.Near, r.Suspects}, [2]int{ds.NearNow, ds.SuspectsNow})
			return [4]int{r.Near, r.Suspects, st.Near, st.Suspects}
		}
		time.Sleep(500*time.Millisecond - 1)
		require.Equal(t, [4]int{}, counts())
		time.Sleep(time.Nanosecond)
		require.Equal(t, [4]int{1, 0, 1, 0}, counts())
		require.True(t, g.Leases()[0].Near)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, [4]int{0, 1, 0, 1}, counts())
		closeAll(t, l)
		require.Equal(t, [4]int{}, counts())
	})
}

// D1: the second clue.
func TestDetector_PermitsThatNobodyMovesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := newGuarded(t, 3, &DetectorOptions{Threshold: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		scans := func(n int) PoolReport {
			var r PoolReport
			for i := range n {
				time.Sleep(100 * time.Millisecond)
				r = g.d.Scan().Pools[0]
				if i < n-1 {
					require.False(t, r.Lost, "scan %d of %d", i+1, n)
				}
			}
			return r
		}
		require.False(t, scans(12).Lost, "nothing is held")
		forgotten := g.take(AcquireOptions{})
		require.True(t, scans(10).Lost)
		require.Equal(t, 1, strings.Count(log.String(), "permits lost"))
		require.True(t, g.d.Scan().Pools[0].Lost)
		require.Equal(t, 1, strings.Count(log.String(), "permits lost"), "said once")

		l := g.take(AcquireOptions{}) // somebody borrows
		require.False(t, scans(9).Lost)
		closeAll(t, l) // and returns
		require.False(t, scans(9).Lost)
		forgotten.Touch() // and works
		require.True(t, scans(10).Lost)
		require.Equal(t, 2, strings.Count(log.String(), "permits lost"))
		closeAll(t, forgotten)
		require.False(t, scans(12).Lost)
		require.Zero(t, g.d.Stats().SuspectsTotal)

		g.take(AcquireOptions{MaxHold: -1})
		require.False(t, scans(12).Lost, "exempt")
	})
}

func TestDetector_ABorrowerWhoseOpenHangsHasLostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDetector(nil)
		require.NoError(t, err)
		p := newTestPool(t, 1, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, &thingOptions{Detector: d})
		b := p.borrow()
		for range 20 {
			synctest.Wait()
			r := d.Scan().Pools[0]
			require.Equal(t, PoolReport{Capacity: 1, Held: 1, Waiters: 1}, r)
		}
		b.cancel()
		b.failed(t, "open", context.Canceled)
	})
}

func TestDetector_PermitsHeldByNoLeaseAreBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := newGuarded(t, 3, &DetectorOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l := g.take(AcquireOptions{Weight: 2})
		require.False(t, g.d.Scan().Pools[0].Bypassed)
		require.True(t, g.permits.TryAcquire(1)) // nobody outside this package can
		require.True(t, g.d.Scan().Pools[0].Bypassed)
		require.True(t, g.d.Scan().Pools[0].Bypassed)
		require.Equal(t, 1, strings.Count(log.String(), "permits bypassed"))
		g.permits.Release(1)
		require.False(t, g.d.Scan().Pools[0].Bypassed)
		g.permits.Release(1)
		require.True(t, g.d.Scan().Pools[0].Bypassed, "fewer held than lent")
		require.True(t, g.permits.TryAcquire(1))
		closeAll(t, l)
	})
}

func TestDetector_LogsEachEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := newGuarded(t, 2, &DetectorOptions{ProveEvery: 1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Value.Kind() == slog.KindTime {
					return slog.Attr{}
				}
				return a
			},
		}))})
		l := g.take(AcquireOptions{Owner: "slow"})
		time.Sleep(time.Second)
		for range 3 {
			g.d.Scan()
		}
		closeAll(t, l)
		for range 3 {
			g.d.Scan()
		}
		require.Equal(t, `level=WARN msg="ration: leak suspected" lease.pool=seats lease.id=1 lease.owner=slow lease.weight=1 lease.age=1s held=1s
level=INFO msg="ration: suspect recovered" lease.pool=seats lease.id=1 lease.owner=slow lease.weight=1 lease.age=1s held=1s
`, log.String())
	})
}

func TestNewDetector_RefusesNonsense(t *testing.T) {
	for _, tc := range []struct {
		field string
		opts  DetectorOptions
	}{
		{"Threshold", DetectorOptions{Threshold: -1}},
		{"Threshold", DetectorOptions{Threshold: leastThreshold - 1}},
		{"Interval", DetectorOptions{Interval: -time.Hour}},
		{"Interval", DetectorOptions{Interval: leastInterval - 1}},
		{"Near", DetectorOptions{Near: -0.5}},
		{"Near", DetectorOptions{Near: 1.1}},
		{"Near", DetectorOptions{Near: math.NaN()}},
		{"StackEvery", DetectorOptions{StackEvery: -1}},
		{"ProveEvery", DetectorOptions{ProveEvery: -1}},
	} {
		d, err := NewDetector(&tc.opts)
		require.Nil(t, d)
		require.ErrorContains(t, err, "ration: DetectorOptions."+tc.field+" ")
	}
}

func TestNewDetector_Defaults(t *testing.T) {
	for _, tc := range []struct{ threshold, interval, wantThreshold, wantInterval time.Duration }{
		{0, 0, time.Minute, 10 * time.Second},
		{6 * time.Hour, 0, 6 * time.Hour, 10 * time.Second},
		{300 * time.Millisecond, 0, 300 * time.Millisecond, 50 * time.Millisecond},
		{leastThreshold, leastInterval, 100 * time.Millisecond, 10 * time.Millisecond},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		d, err := NewDetector(&DetectorOptions{Threshold: tc.threshold, Interval: tc.interval})
		require.NoError(t, err)
		require.Equal(t, tc.wantThreshold, d.opts.Threshold)
		require.Equal(t, tc.wantInterval, d.opts.Interval)
		require.Positive(t, d.near)
		require.LessOrEqual(t, d.near, d.opts.Threshold)
	}
	d, err := NewDetector(nil)
	require.NoError(t, err)
	require.Equal(t, 48*time.Second, d.near)
	require.Empty(t, d.Scan().Pools, "nothing is watched")
}

func TestDetector_MisusePanics(t *testing.T) {
	d, err := NewDetector(nil)
	require.NoError(t, err)
	var none *Pool[int]
	require.PanicsWithValue(t, "ration: Detector.Watch: nil pool", func() { d.Watch(nil) })
	require.PanicsWithValue(t, "ration: Detector.Watch: nil pool", func() { d.Watch(none) })
	require.PanicsWithValue(t, "ration: Detector.Advice: nil pool", func() { d.Advice(none) })
	require.PanicsWithValue(t, "ration: Detector.Run: nil context", func() { d.Run(nil) }) //lint:ignore SA1012 that is the misuse

	p, err := NewPermitPool(1, nil)
	require.NoError(t, err)
	for range 32 {
		d, err := NewDetector(nil)
		require.NoError(t, err)
		d.Watch(p)
	}
	require.Panics(t, func() { d.Watch(p) })
	require.NoError(t, p.Audit())
	require.NoError(t, p.Close(t.Context()))
}

func TestDetector_StopEndsAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 2, nil)
		again, more := g.d.Watch(g.Pool), g.d.Watch(g)
		l := g.take(AcquireOptions{})
		time.Sleep(time.Second)
		r := g.d.Scan()
		requireEvents(t, r, []uint64{l.id}, nil, nil)
		require.Len(t, r.Pools, 1, "watched once, however often it was asked for")

		other, err := NewDetector(&DetectorOptions{Threshold: 2 * time.Second})
		require.NoError(t, err)
		stop := other.Watch(g)
		requireEvents(t, other.Scan(), nil, nil, nil)
		time.Sleep(time.Second)
		requireEvents(t, other.Scan(), []uint64{l.id}, nil, nil)
		requireEvents(t, g.d.Scan(), nil, nil, nil)
		require.EqualValues(t, 1, g.Stats().Suspected, "by whomever")
		stop()
		stop()
		require.Empty(t, other.Scan().Pools)
		require.Zero(t, other.Stats().SuspectsNow)
		require.Equal(t, 1, g.Stats().Suspects)

		stop = other.Watch(g) // begins anew
		requireEvents(t, other.Scan(), []uint64{l.id}, nil, nil)
		stop()

		again()
		again()
		require.Len(t, g.d.Scan().Pools, 1)
		more()
		require.Len(t, g.d.Scan().Pools, 1, "the pool's own option still stands")
		closeAll(t, l)
	})
}

func TestDetector_KeepsNoPoolAlive(t *testing.T) {
	d, err := NewDetector(&DetectorOptions{ProveEvery: 1, StackEvery: 1})
	require.NoError(t, err)
	gone := make(chan struct{})
	func() {
		// A resource that knows its lease, so that the table leads to the token.
		type conn struct{ lease Lease[*conn] }
		p, err := NewPool(1, func(context.Context) (*conn, error) { return new(conn), nil }, &PoolOptions[*conn]{Detector: d})
		require.NoError(t, err)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		l.Value().lease = l
		require.Len(t, d.Scan().Pools, 1)
		runtime.AddCleanup(p, func(gone chan struct{}) { close(gone) }, gone)
	}()
	requireAfterGC(t, func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	require.Empty(t, d.Scan().Pools)
	require.Empty(t, d.watches)
}

// requireAfterGC collects garbage until done.
func requireAfterGC(t *testing.T, done func() bool) {
	t.Helper()
	for range 100 {
		runtime.GC()
		for range 1_000 {
			if done() {
				return
			}
			runtime.Gosched()
		}
	}
	t.Fatal("it should have been garbage")
}

func TestDetector_AClosedPoolIsReportedUntilItsLeasesAreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 1, nil)
		l := g.take(AcquireOptions{})
		require.Error(t, g.Close(canceled()))
		time.Sleep(time.Second)
		requireEvents(t, g.d.Scan(), []uint64{l.id}, nil, nil)
		closeAll(t, l)
		requireEvents(t, g.d.Scan(), nil, []uint64{l.id}, nil)
		require.Empty(t, g.d.Scan().Pools)
	})
}

func TestDetector_OnReportMayDoAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *guarded
		reports := 0
		g = newGuarded(t, 1, &DetectorOptions{OnReport: func(r Report) {
			if reports++; reports == 1 {
				require.Equal(t, ids(r.Suspects), []uint64{1})
				requireEvents(t, g.d.Scan(), nil, nil, nil)
				require.True(t, g.Revoke(r.Suspects[0].ID))
				g.d.Watch(g)()
				g.d.Stats()
				panic(errors.New("ignored"))
			}
		}})
		g.take(AcquireOptions{})
		time.Sleep(time.Minute)
		requireEvents(t, g.d.Scan(), []uint64{1}, nil, nil)
		require.Equal(t, 2, reports)
		require.EqualValues(t, 1, g.Stats().Available)
	})
}

func TestDetector_MemoryIsBounded(t *testing.T) {
	n := mostLeaks + 1_000
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, MaxPermits, nil)
		leases := make([]Lease[struct{}], n)
		for i := range leases {
			leases[i] = g.take(AcquireOptions{})
		}
		time.Sleep(time.Second)
		r := g.d.Scan()
		require.Len(t, r.Suspects, mostLeaks)
		require.Equal(t, n, r.Pools[0].Suspects)
		require.Equal(t, DetectorStats{SuspectsTotal: uint64(n), SuspectsNow: n, Dropped: 1_000}, g.d.Stats())
		requireEvents(t, g.d.Scan(), nil, nil, nil)
		closeAll(t, leases...)
		r = g.d.Scan()
		require.Len(t, r.Recovered, mostLeaks)
		require.Equal(t, DetectorStats{SuspectsTotal: uint64(n), RecoveredTotal: uint64(n), Dropped: 2_000}, g.d.Stats())
	})
}

// A walk lets others in between its strides, who may end the lease it would
// visit next.
func TestPool_AWalkThroughTheTableBearsWithItsChanges(t *testing.T) {
	p, err := NewPermitPool(MaxPermits, nil)
	require.NoError(t, err)
	var leases []Lease[struct{}]
	for range 3 * walkStride {
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		leases = append(leases, l)
	}
	visited := 0
	p.walk(func(s *slot[struct{}]) bool {
		visited++
		if visited%walkStride == 0 {
			p.mu.Unlock()
			for _, l := range leases[visited : visited+2] { // the next two
				l.Close()
			}
			if visited == walkStride {
				require.Len(t, p.Leases(), 3*walkStride-2, "a walk within a walk")
			}
			_, err := p.Acquire(t.Context())
			require.NoError(t, err)
			p.mu.Lock()
		}
		return visited < 2*walkStride
	})
	require.Equal(t, 2*walkStride, visited)
	require.Nil(t, p.cursors)
	require.Len(t, p.Leases(), 3*walkStride-4+2)
	require.NoError(t, p.Audit())

	visited = 0
	p.walk(func(*slot[struct{}]) bool {
		visited++
		p.mu.Unlock()
		_, err := p.Acquire(t.Context()) // always one more
		require.NoError(t, err)
		p.mu.Lock()
		return true
	})
	require.Equal(t, 3*walkStride-2, visited, "leases made meanwhile are not visited")
}
