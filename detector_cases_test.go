package ration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Bugs that leak detectors really had, as scenarios. K07, K09, K15, K17 and K27
// are in detector_sample_test.go, where the garbage collector is.

// K01 (HikariCP#465): what the pool does for itself, opening and checking, is no
// lease, and a lease that was closed in time is no suspect.
func TestDetectorCase_K01_ThePoolsOwnUseIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDetector(&DetectorOptions{Threshold: 100 * time.Millisecond, Interval: leastInterval})
		require.NoError(t, err)
		p := newTestPool(t, 3, func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil }, &thingOptions{
			Detector: d, MinIdle: 2, MaxIdleTime: 300 * time.Millisecond,
			Check: func(context.Context, *thing) error { time.Sleep(200 * time.Millisecond); return nil },
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		require.NoError(t, p.Warm(t.Context(), 3))
		l := p.lease() // after a check
		time.Sleep(50 * time.Millisecond)
		closeAll(t, l)
		time.Sleep(time.Second)
		stop()
		running.Wait()
		require.Equal(t, DetectorStats{}, d.Stats())
	})
}

// K03 (HikariCP#653): a lease that stays a suspect for ten scans is one suspect.
func TestDetectorCase_K03_OneSuspectIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 2, nil)
		l := g.take(AcquireOptions{})
		time.Sleep(300 * time.Millisecond)
		for range 10 {
			g.d.Scan()
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, DetectorStats{SuspectsTotal: 1, SuspectsNow: 1}, g.d.Stats())
		closeAll(t, l)
	})
}

// K05 (HikariCP#1364): a threshold that makes no sense is an error, and one above
// the lifetime of the resources works all the same: they do not end while lent.
func TestDetectorCase_K05_NoThresholdIsSilentlyNone(t *testing.T) {
	_, err := NewDetector(&DetectorOptions{Threshold: leastThreshold - 1})
	require.ErrorContains(t, err, "Threshold")
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDetector(&DetectorOptions{Threshold: time.Hour})
		require.NoError(t, err)
		p := newTestPool(t, 1, nil, &thingOptions{Detector: d, MaxLifetime: time.Minute})
		l := p.lease()
		time.Sleep(time.Hour)
		require.Equal(t, []uint64{l.id}, ids(d.Scan().Suspects))
		closeAll(t, l)
	})
}

// K11 (netty#15622): those that hold theirs for as long as the program runs say
// so, and the check at the end of a test finds the others.
func TestDetectorCase_K11_LongHoldersAreExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 3, nil)
		g.take(AcquireOptions{Owner: "for ever", MaxHold: -1})
		g.take(AcquireOptions{Owner: t.Name()})
		time.Sleep(time.Minute)
		suspects := g.d.Scan().Suspects
		require.Len(t, suspects, 1)
		require.Equal(t, t.Name(), suspects[0].Owner)
	})
}

// K13 (druid#5390): the age is that of the loan, not of the resource.
func TestDetectorCase_K13_AgeIsSinceTheLoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDetector(&DetectorOptions{Threshold: time.Minute})
		require.NoError(t, err)
		p := newTestPool(t, 1, nil, &thingOptions{Detector: d})
		closeAll(t, p.lease())
		time.Sleep(time.Hour)
		l := p.lease()
		time.Sleep(2 * time.Second)
		requireEvents(t, d.Scan(), nil, nil, nil)
		require.Equal(t, 2*time.Second, p.Leases()[0].Age)
		closeAll(t, l)
	})
}

// K19 (failsafe#393): waiters that gave up leave nothing behind, also to a
// detector.
func TestDetectorCase_K19_WaitersThatGaveUpHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 8, nil)
		l := g.take(AcquireOptions{Weight: 8})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var waiting sync.WaitGroup
		for range 8 {
			waiting.Go(func() {
				_, err := g.Acquire(ctx)
				if err == nil {
					t.Error("granted")
				}
			})
		}
		synctest.Wait()
		require.Equal(t, 8, g.d.Scan().Pools[0].Waiters)
		waiting.Wait()
		closeAll(t, l)
		require.Equal(t, PoolReport{Pool: "seats", Capacity: 8, Available: 8}, g.d.Scan().Pools[0])
		closeAll(t, g.take(AcquireOptions{Weight: 8}))
	})
}

// K21 (beats#16397): an end too many frees nothing, is counted, and is no
// bypass.
func TestDetectorCase_K21_AnEndTooManyIsCounted(t *testing.T) {
	g := newGuarded(t, 2, nil)
	l := g.take(AcquireOptions{Weight: 2})
	closeAll(t, l, l, l)
	require.EqualValues(t, 2, g.Stats().DuplicateCloses)
	require.Equal(t, PoolReport{Pool: "seats", Capacity: 2, Available: 2}, g.d.Scan().Pools[0])
}

// K23 (goleak#16): each detector speaks of its own pools.
func TestDetectorCase_K23_EachDetectorSpeaksOfItsOwnPools(t *testing.T) {
	for _, leaks := range []bool{true, false} {
		t.Run(fmt.Sprintf("leaks=%t", leaks), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGuarded(t, 1, nil)
				l := g.take(AcquireOptions{})
				if !leaks {
					closeAll(t, l)
				}
				time.Sleep(time.Second)
				require.Equal(t, leaks, len(g.d.Scan().Suspects) == 1)
			})
		})
	}
}

// K25 (go-deadlock#15): a hundred thousand goroutines are not queued up by the
// detector, and it does not report itself.
func TestDetectorCase_K25_ManyGoroutinesUnderWatch(t *testing.T) {
	g := newGuarded(t, 100, &DetectorOptions{Threshold: time.Hour, StackEvery: 100, ProveEvery: 100})
	ctx := watchdog(t)
	var working sync.WaitGroup
	for range rounds(100_000) {
		working.Go(func() {
			l, err := g.Acquire(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			l.Close()
		})
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	scans := 0
	for finished := false; !finished; scans++ {
		g.d.Scan()
		select {
		case <-done:
			finished = true
		default:
		}
	}
	require.Positive(t, scans)
	require.Equal(t, DetectorStats{}, g.d.Stats())
	require.EqualValues(t, rounds(100_000), g.Stats().Acquired)
}
