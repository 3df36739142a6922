package ration

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A compiler that inlines Close sees that nothing but the end itself could need
// the token. It has to be kept until then, or whoever works long between his last
// look at the lease and its end is robbed of it. Close is too large to be inlined
// here; with a profile of the program it is not.
func TestDetector_TheTokenLivesUntilTheEndOfTheLease(t *testing.T) {
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1, Reclaim: true})
	l, err := g.Acquire(t.Context())
	require.NoError(t, err)
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond) // for cleanups, which nobody can wait for
		g.d.Scan()
	}
	require.True(t, l.end(returned), "it was revoked")
	require.NoError(t, g.takeBack(l.slot))
	require.Zero(t, g.d.Stats().ProvedTotal)
}

// What has its lease closed by a finalizer gives it back late, but does.
func TestDetector_ALeaseThatAFinalizerClosesIsNotProved(t *testing.T) {
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1, Reclaim: true})
	closed := make(chan error, 1)
	func() {
		type owner struct{ lease Lease[struct{}] }
		o := &owner{lease: g.take(AcquireOptions{})}
		runtime.SetFinalizer(o, func(o *owner) {
			runtime.GC()
			g.d.Scan()
			closed <- o.lease.Close()
		})
	}()
	requireAfterGC(t, func() bool { g.d.Scan(); return len(closed) == 1 })
	require.NoError(t, <-closed)
	runtime.GC()
	g.d.Scan()
	require.Zero(t, g.d.Stats().ProvedTotal)
	require.Zero(t, g.Stats().DuplicateCloses)
}

// A lease that is just ending, whose end has not got the pool's lock yet, is as
// good as any for a detector that goes: the next has its bit.
func TestDetector_LeavesNoMarkOnALeaseThatIsJustEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPermitPool(2, nil)
		require.NoError(t, err)
		watch := func() (d *Detector, stop func()) {
			d, err := NewDetector(&DetectorOptions{Threshold: time.Second})
			require.NoError(t, err)
			return d, d.Watch(p)
		}
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		d, stop := watch()
		time.Sleep(time.Second)
		require.Len(t, d.Scan().Suspects, 1)
		require.True(t, l.end(returned))
		stop()
		require.Zero(t, d.Stats().SuspectsNow)

		next, stop := watch()
		defer stop()
		require.NoError(t, p.takeBack(l.slot))
		require.Empty(t, next.Scan().Recovered)
		require.Zero(t, next.Stats())
		require.EqualValues(t, 1, p.Stats().Recovered)
		requireNoMarks(t, p)
		require.NoError(t, p.Close(t.Context()))
	})
}

// What was counted and has not been reported when a watch ends is dropped, and
// counted so.
func TestDetector_WhatIsUnreportedWhenItStopsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPermitPool(2, nil)
		require.NoError(t, err)
		d, err := NewDetector(&DetectorOptions{Threshold: time.Second})
		require.NoError(t, err)
		stop := d.Watch(p)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		d.Scan()
		closeAll(t, l)
		stop()
		require.Equal(t, DetectorStats{SuspectsTotal: 1, RecoveredTotal: 1, Dropped: 1}, d.Stats())
		require.NoError(t, p.Close(t.Context()))
	})
}

// A pool counts a suspect once, however many detectors come and go.
func TestPool_CountsASuspectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPermitPool(2, nil)
		require.NoError(t, err)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		for range 3 {
			d, err := NewDetector(&DetectorOptions{Threshold: time.Second})
			require.NoError(t, err)
			stop := d.Watch(p)
			require.Len(t, d.Scan().Suspects, 1)
			stop()
		}
		closeAll(t, l)
		st := p.Stats()
		require.EqualValues(t, 1, st.Suspected)
		require.EqualValues(t, 1, st.Recovered)
		require.NoError(t, p.Close(t.Context()))
	})
}

// A struct with a pool in it is Watchable too.
func TestDetector_WatchesAPoolThatIsEmbedded(t *testing.T) {
	type database struct{ *Pool[struct{}] }
	p, err := NewPermitPool(1, nil)
	require.NoError(t, err)
	d, err := NewDetector(nil)
	require.NoError(t, err)
	stop := d.Watch(database{p})
	d.Watch(&database{p})
	require.Len(t, d.Scan().Pools, 1)
	require.Zero(t, d.Advice(database{p}).Samples)
	stop()
	for _, none := range []Watchable{nil, (*Pool[int])(nil), database{}, &database{}, (*database)(nil)} {
		require.PanicsWithValue(t, "ration: Detector.Watch: nil pool", func() { d.Watch(none) })
		require.PanicsWithValue(t, "ration: Detector.Advice: nil pool", func() { d.Advice(none) })
	}
	require.NoError(t, p.Close(context.Background()))
}
