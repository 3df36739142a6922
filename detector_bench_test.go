package ration

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What watching costs a loan. The rows stand next to each other to be compared.
func BenchmarkDetector(b *testing.B) {
	watched := func(opts DetectorOptions) *Detector {
		d, err := NewDetector(&opts)
		require.NoError(b, err)
		return d
	}
	for _, tc := range []struct {
		watch    string
		detector *Detector
	}{
		{"none", nil},
		{"ages", watched(DetectorOptions{})},
		{"stacks-100", watched(DetectorOptions{StackEvery: 100})},
		{"stacks-1", watched(DetectorOptions{StackEvery: 1})},
		{"proofs-100", watched(DetectorOptions{ProveEvery: 100})},
		{"proofs-1", watched(DetectorOptions{ProveEvery: 1})},
	} {
		b.Run("op=loan/watch="+tc.watch, func(b *testing.B) {
			p := benchPool(b, 8, tc.detector)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				l, err := p.Acquire(ctx)
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
	for _, tc := range []struct {
		leases string
		age    time.Duration // of 10,000 leases
	}{
		{"young", 0},
		{"suspect", time.Hour},
	} {
		b.Run("op=scan/leases="+tc.leases, func(b *testing.B) {
			d := watched(DetectorOptions{})
			p := benchPool(b, 10_000, d)
			for range 10_000 {
				_, err := p.Acquire(context.Background())
				require.NoError(b, err)
			}
			p.clock.start = p.clock.start.Add(-tc.age)
			suspects := len(d.Scan().Suspects)
			require.Equal(b, tc.age > 0, suspects > 0)
			for b.Loop() {
				if len(d.Scan().Suspects) > 0 {
					b.Fatal("reported again")
				}
			}
			runtime.KeepAlive(p) // the detector does not
		})
	}
}

// How long a borrower is held up by somebody who looks through 10,000 open leases
// every 2 ms. The longest waits are to be compared: there is always something else
// on a machine that makes some.
func BenchmarkDetectorBeside(b *testing.B) {
	d, err := NewDetector(nil)
	require.NoError(b, err)
	for _, tc := range []struct {
		beside string
		look   func(p *Pool[struct{}])
	}{
		{"nothing", func(*Pool[struct{}]) {}},
		{"scans", func(*Pool[struct{}]) { d.Scan() }},
		{"tables", func(p *Pool[struct{}]) { p.Leases() }},
		{"stats", func(p *Pool[struct{}]) { p.Stats() }},
	} {
		b.Run("beside="+tc.beside, func(b *testing.B) {
			p := benchPool(b, MaxPermits, d)
			ctx := context.Background()
			for range 10_000 {
				_, err := p.Acquire(ctx)
				require.NoError(b, err)
			}
			p.clock.start = p.clock.start.Add(-time.Hour)
			d.Scan()
			looking, stop := context.WithCancel(ctx)
			var done sync.WaitGroup
			done.Go(func() {
				again := time.NewTicker(2 * time.Millisecond)
				defer again.Stop()
				for looking.Err() == nil {
					tc.look(p)
					<-again.C
				}
			})
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				l, err := p.Acquire(ctx)
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			stop()
			done.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[b.N/2]), "p50-ns")
			b.ReportMetric(float64(took[b.N*999/1000]), "p99.9-ns")
			b.ReportMetric(float64(took[b.N-1]), "max-ns")
		})
	}
}

func benchPool(b *testing.B, capacity int64, d *Detector) *Pool[struct{}] {
	p, err := NewPermitPool(capacity, &PoolOptions[struct{}]{Detector: d})
	require.NoError(b, err)
	return p
}
