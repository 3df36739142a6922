package ration

import (
	"context"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// D3. Garbage is collected in real time, so nothing here is in a bubble.

// drop acquires a lease and forgets it. It has a frame of its own, so that
// nothing of the lease stays behind.
//
//go:noinline
func drop(g *guarded, owner string) { g.take(AcquireOptions{Owner: owner}) }

func TestDetector_ProvesADroppedLease(t *testing.T) {
	var log strings.Builder
	g := newGuarded(t, 2, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	kept := g.take(AcquireOptions{Owner: "kept"})
	copies := []Lease[struct{}]{kept}
	kept = Lease[struct{}]{}
	drop(g, "dropped")

	// Two collections are enough; then the cleanup has to get its turn.
	runtime.GC()
	runtime.GC()
	var r Report
	requireEventually(t, func() bool { r = g.d.Scan(); return len(r.Proved) > 0 })
	requireEvents(t, r, nil, nil, []uint64{2})
	require.Equal(t, "dropped", r.Proved[0].Owner)
	require.True(t, r.Proved[0].Proved)
	require.Equal(t, DetectorStats{ProvedTotal: 1}, g.d.Stats())
	require.EqualValues(t, 1, g.Stats().Proved)
	require.True(t, g.Leases()[1].Proved)
	require.False(t, g.Leases()[0].Proved)
	require.Zero(t, g.Stats().Available, "it only tells")
	runtime.GC()
	requireEvents(t, g.d.Scan(), nil, nil, nil)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), `level=ERROR msg="ration: leak proved"`)
	require.Contains(t, log.String(), "lease.owner=dropped")
	closeAll(t, copies...)
	_ = kept
}

// requireEventually waits for what other goroutines are about to do, giving them
// the processor.
func requireEventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "it does not happen")
	}
}

// K15: with Reclaim, what was dropped is to be had again after the collection.
func TestDetectorCase_K15_DroppedHandlesAreReclaimed(t *testing.T) {
	for _, reclaim := range []bool{false, true} {
		g := newGuarded(t, 4, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1, Reclaim: reclaim})
		for range 4 {
			drop(g, "dropped")
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			l, err := g.Acquire(ctx)
			if err == nil {
				err = l.Close()
			}
			got <- err
		}()
		requireAfterGC(t, func() bool { g.d.Scan(); return g.d.Stats().ProvedTotal == 4 })
		if !reclaim {
			require.Zero(t, g.Stats().Available)
			require.Len(t, g.Leases(), 4)
			cancel()
			var failed *AcquireError
			require.ErrorAs(t, <-got, &failed)
			require.Equal(t, "dropped", failed.Holders[0].Owner)
			require.True(t, failed.Holders[0].Proved, "and says so")
			continue
		}
		require.NoError(t, <-got)
		require.EqualValues(t, 4, g.Stats().Revoked)
		require.EqualValues(t, 4, g.Stats().Available)
		cancel()
	}
}

// D5: age is no proof, whatever Reclaim says.
func TestDetector_ReclaimNeedsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		for _, every := range []int{0, 1} {
			g := newGuarded(t, 1, &DetectorOptions{ProveEvery: every, Reclaim: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			l := g.take(AcquireOptions{})
			time.Sleep(time.Hour)
			require.Len(t, g.d.Scan().Suspects, 1)
			require.NoError(t, l.Err())
			closeAll(t, l)
		}
		require.Equal(t, 1, strings.Count(log.String(), "Reclaim does nothing without ProveEvery"))
	})
}

// K17: the late close of a reclaimed lease does nothing.
func TestDetectorCase_K17_LateCloseOfAReclaimedLease(t *testing.T) {
	g := newGuarded(t, 1, nil)
	l := g.take(AcquireOptions{})
	require.True(t, g.Revoke(l.id))
	next := g.take(AcquireOptions{})
	require.ErrorIs(t, l.Err(), ErrLeaseRevoked)
	closeAll(t, l)
	require.Zero(t, g.Stats().Available)
	require.NoError(t, next.Err())
	closeAll(t, next)
	require.EqualValues(t, 1, g.Stats().Available)
}

// There is never a false proof: not while leases are being closed, nor while
// Reset is at it, nor while Do runs.
func TestDetector_NoFalseProof(t *testing.T) {
	d, err := NewDetector(&DetectorOptions{Threshold: time.Hour, ProveEvery: 1, Reclaim: true})
	require.NoError(t, err)
	p, err := NewPool(8, func(context.Context) (*int, error) { return new(int), nil }, &PoolOptions[*int]{
		Detector: d,
		Reset: func(v *int) error {
			for range *v % 50 {
				runtime.Gosched()
			}
			return nil
		},
	})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for ctx.Err() == nil {
			runtime.GC()
			d.Scan()
		}
	})
	var left atomic.Int64
	left.Store(int64(rounds(100_000)))
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			for left.Add(-1) >= 0 {
				if i == 0 {
					if err := p.Do(ctx, func(_ context.Context, v *int) error { *v++; return nil }); err != nil {
						t.Error(err)
					}
					continue
				}
				l, err := p.Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				*l.Value()++
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	cancel()
	collecting.Wait()
	runtime.GC()
	d.Scan()
	require.Equal(t, DetectorStats{}, d.Stats())
	st := p.Stats()
	require.Zero(t, st.Revoked)
	require.Zero(t, st.DuplicateCloses)
	require.NoError(t, p.Audit())
	require.NoError(t, p.Close(t.Context()))
	requireNoMarks(t, p)
}

func TestDetector_WhatHasEndedIsNotProved(t *testing.T) {
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1})
	drop(g, "dropped")
	requireAfterGC(t, func() bool { // the cleanup has run, and nobody has scanned
		lost := g.sampling.Load().lost
		lost.mu.Lock()
		defer lost.mu.Unlock()
		return len(lost.samples) == 1
	})
	require.True(t, g.Revoke(1))
	requireEvents(t, g.d.Scan(), nil, nil, nil)
	require.Zero(t, g.d.Stats())
}

// K09: nobody needs to acquire anything for a leak to be found.
func TestDetectorCase_K09_ALeakIsFoundWithoutTraffic(t *testing.T) {
	found := make(chan Report, 1)
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, Interval: leastInterval, ProveEvery: 1, OnReport: func(r Report) {
		if len(r.Proved) > 0 {
			found <- r
		}
	}})
	drop(g, "dropped")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.d.Run(ctx) }()
	runtime.GC()
	select {
	case r := <-found:
		require.Equal(t, []uint64{1}, ids(r.Proved))
	case <-time.After(10 * time.Second):
		t.Error("not found")
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// K27: a cleanup that holds its own object never runs. The runtime checks that
// when it is asked to, in a process of its own.
func TestDetectorCase_K27_TheRuntimeFindsNothingWrongWithTheCleanups(t *testing.T) {
	const name = "TestDetector_ProvesADroppedLease"
	cmd := exec.Command(os.Args[0], "-test.run", "^"+name+"$", "-test.v", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), "GODEBUG=checkfinalizers=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+name)
	require.NotContains(t, string(out), "checkfinalizers: found")
}

// K07: 1 in 128 is a chance, for the first lease as for any other.
func TestDetectorCase_K07_SamplingIsByChance(t *testing.T) {
	for _, opts := range []DetectorOptions{{StackEvery: 8}, {ProveEvery: 8}} {
		first, all := 0, 0
		for range 200 {
			g := newGuarded(t, 20, &opts)
			for i := range 10 {
				l := g.take(AcquireOptions{})
				if l.slot.sample != nil {
					all++
					if i == 0 {
						first++
					}
				}
				closeAll(t, l)
			}
		}
		require.InDelta(t, 200/8, first, 25, "%+v", opts) // 5 standard deviations
		require.InDelta(t, 2000/8, all, 75, "%+v", opts)
	}
}

func TestDetector_StacksAreRecordedWhereTheyAreNeeded(t *testing.T) {
	const never = math.MaxInt32
	synctest.Test(t, func(t *testing.T) {
		stacks := func(g *guarded) (recorded []bool) {
			for _, l := range g.Leases() {
				recorded = append(recorded, l.Stack != nil)
			}
			return recorded
		}
		g := newGuarded(t, 3, &DetectorOptions{StackEvery: never})
		leases := []Lease[struct{}]{g.take(AcquireOptions{}), g.take(AcquireOptions{}), g.take(AcquireOptions{})}
		require.Equal(t, []bool{false, false, true}, stacks(g), "one has emptied the pool")
		closeAll(t, leases[1:]...)
		time.Sleep(300 * time.Millisecond)
		g.d.Scan()
		leases = append(leases, g.take(AcquireOptions{}))
		require.Equal(t, []bool{false, true}, stacks(g), "it has a suspect")
		closeAll(t, leases...)

		g = newGuarded(t, 1, nil)
		l := g.take(AcquireOptions{})
		require.Equal(t, []bool{false}, stacks(g), "0 is never")
		closeAll(t, l)
	})
}

// A stack begins with the call into this package, by whichever way.
func TestLeaseInfo_FramesBeginAtTheBorrower(t *testing.T) {
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, StackEvery: 1})
	first := func() string {
		leases := g.Leases()
		require.Len(t, leases, 1)
		return leases[0].Frames()[0].Function
	}
	const here = "ration.TestLeaseInfo_FramesBeginAtTheBorrower"
	l, err := g.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(first(), here), first())
	require.Contains(t, l.Info().Frames()[1].Function, "testing.tRunner")
	closeAll(t, l)
	require.Nil(t, l.Info().Frames())
	l, err = g.AcquireWith(t.Context(), AcquireOptions{Owner: "me"})
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(first(), here), first())
	closeAll(t, l)
	l, ok := g.TryAcquire()
	require.True(t, ok)
	require.True(t, strings.HasSuffix(first(), here), first())
	closeAll(t, l)
	require.NoError(t, g.Do(t.Context(), func(context.Context, struct{}) error {
		require.True(t, strings.HasSuffix(first(), here), first())
		return nil
	}))
}

// Leases that are closed in order leave nothing for a scan, should there be none.
func TestDetector_CleanupsOfEndedLeasesLeaveNothing(t *testing.T) {
	g := newGuarded(t, 1, &DetectorOptions{Threshold: time.Hour, ProveEvery: 1})
	for range 1_000 {
		closeAll(t, g.take(AcquireOptions{}))
	}
	drop(g, "dropped")
	lost := g.sampling.Load().lost
	left := func() int {
		lost.mu.Lock()
		defer lost.mu.Unlock()
		return len(lost.samples)
	}
	requireAfterGC(t, func() bool { return left() > 0 })
	runtime.GC()
	require.Equal(t, 1, left())
}
