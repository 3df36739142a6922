package ration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
)

// Our two modes beside x/sync and a plain channel. Within one op the rows of
// all of them stand next to each other, so that a noisy minute on the machine
// hits them alike; compare ratios of rows of one run, never times of two.

// A rival is an implementation under measurement. All take one permit at a
// time, since a channel can do no more.
type rival struct {
	impl string
	new  func(permits int64) benchmarked
}

type benchmarked interface {
	Acquire(ctx context.Context, n int64) error
	Release(n int64)
}

func rivals() []rival {
	return []rival{
		{"fair", func(permits int64) benchmarked {
			return NewSemaphore(permits, &SemaphoreOptions{Fair: true})
		}},
		{"nonfair", func(permits int64) benchmarked { return NewSemaphore(permits, nil) }},
		{"xsync", func(permits int64) benchmarked { return semaphore.NewWeighted(permits) }},
		{"chan", func(permits int64) benchmarked { return make(channelSemaphore, permits) }},
	}
}

// A channelSemaphore is what one writes by hand: a slot per permit.
type channelSemaphore chan struct{}

func (c channelSemaphore) Acquire(ctx context.Context, _ int64) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channelSemaphore) Release(int64) { <-c }

func BenchmarkSemaphore(b *testing.B) {
	for _, op := range []struct {
		name             string
		workers, permits int
		run              func(b *testing.B, s benchmarked, workers int)
	}{
		{"uncontended", 1, 1, benchmarkAlone},
		{"slack", 2, 8, benchmarkWorkers},
		{"contended", 16, 8, benchmarkYielding},
		{"heavy", 1024, 4, benchmarkYielding},
		{"handoff", 2, 1, benchmarkWorkers},
		{"cancelstorm", 64, 1, benchmarkCancelStorm},
	} {
		for _, r := range rivals() {
			b.Run(fmt.Sprintf("op=%s/impl=%s/workers=%d/permits=%d", op.name, r.impl, op.workers, op.permits), func(b *testing.B) {
				b.ReportAllocs()
				op.run(b, r.new(int64(op.permits)), op.workers)
			})
		}
	}
}

// benchmarkAlone is one goroutine that never waits.
func benchmarkAlone(b *testing.B, s benchmarked, _ int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		if err := s.Acquire(ctx, 1); err != nil {
			b.Fatal(err)
		}
		s.Release(1)
	}
}

// benchmarkWorkers holds a permit for no time at all.
func benchmarkWorkers(b *testing.B, s benchmarked, workers int) {
	splitOver(b, workers, func(ctx context.Context, n int) {
		for range n {
			if s.Acquire(ctx, 1) == nil {
				s.Release(1)
			}
		}
	})
}

// benchmarkYielding lets others run while it holds a permit, as work does that
// waits for something.
func benchmarkYielding(b *testing.B, s benchmarked, workers int) {
	splitOver(b, workers, func(ctx context.Context, n int) {
		for range n {
			if s.Acquire(ctx, 1) == nil {
				runtime.Gosched()
				s.Release(1)
			}
		}
	})
}

// benchmarkCancelStorm measures one worker beside a storm of waiters that give
// up after 10 us and come again: what they cost somebody who does not. An
// operation is one of the worker's.
func benchmarkCancelStorm(b *testing.B, s benchmarked, waiters int) {
	ctx, stop := context.WithCancel(context.Background())
	var storm sync.WaitGroup
	var tried, gaveUp atomic.Int64
	for range waiters {
		storm.Go(func() {
			for ctx.Err() == nil {
				tried.Add(1)
				short, cancel := context.WithTimeout(ctx, 10*time.Microsecond)
				if s.Acquire(short, 1) == nil {
					runtime.Gosched()
					s.Release(1)
				} else {
					gaveUp.Add(1)
				}
				cancel()
			}
		})
	}
	splitOver(b, 1, func(ctx context.Context, n int) {
		for range n {
			if s.Acquire(ctx, 1) == nil {
				runtime.Gosched()
				s.Release(1)
			}
		}
	})
	b.ReportMetric(float64(tried.Load())/float64(b.N), "tries/op")
	b.ReportMetric(float64(gaveUp.Load())/float64(b.N), "timeouts/op")
	stop()
	storm.Wait()
}

// splitOver splits b.N over the workers, which start together.
func splitOver(b *testing.B, workers int, work func(ctx context.Context, n int)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range workers {
		n := b.N / workers
		if i < b.N%workers {
			n++
		}
		all.Go(func() {
			<-begin
			work(ctx, n)
		})
	}
	b.ResetTimer()
	close(begin)
	all.Wait()
	b.StopTimer()
}

// BenchmarkFairness shows the price of fairness and what is had for it: 24
// goroutines share 3 permits, for holds of about 1 ms and about 10 ms. An
// iteration is one grant. It runs for as long as -benchtime says, and Jain's
// index of the grants per goroutine (1: all have had the same, 1/24: one has
// had all) needs some seconds of that to mean anything.
func BenchmarkFairness(b *testing.B) {
	const workers, permits = 24, 3
	for _, r := range rivals() {
		b.Run(fmt.Sprintf("impl=%s/workers=%d/permits=%d", r.impl, workers, permits), func(b *testing.B) {
			s := r.new(permits)
			ctx, stop := context.WithCancel(context.Background())
			type grants struct {
				waits []time.Duration
				_     [104]byte // a cache line or two away from the next
			}
			var perWorker [workers]grants
			granted := make(chan struct{}, workers)
			var all sync.WaitGroup
			for i := range workers {
				holds := rand.New(rand.NewPCG(1, uint64(i))) // the same for every rival
				all.Go(func() {
					for {
						began := time.Now()
						if s.Acquire(ctx, 1) != nil {
							return
						}
						perWorker[i].waits = append(perWorker[i].waits, time.Since(began))
						select {
						case granted <- struct{}{}:
						case <-ctx.Done():
						}
						time.Sleep(holdTime(holds)) // this is the work
						s.Release(1)
					}
				})
			}
			for b.Loop() {
				<-granted
			}
			total := b.Elapsed()
			stop()
			all.Wait()

			var waits []time.Duration
			var counts []float64
			for i := range perWorker {
				waits = append(waits, perWorker[i].waits...)
				counts = append(counts, float64(len(perWorker[i].waits)))
			}
			reportWaits(b, waits)
			b.ReportMetric(jain(counts), "jain")
			b.ReportMetric(milliseconds(total), "total-ms")
		})
	}
}

// holdTime is within a tenth of 1 ms or of 10 ms, at even odds.
func holdTime(r *rand.Rand) time.Duration {
	hold := time.Millisecond
	if r.IntN(2) == 0 {
		hold *= 10
	}
	return hold*9/10 + time.Duration(r.Int64N(int64(hold)/5))
}

func reportWaits(b *testing.B, waits []time.Duration) {
	slices.SortFunc(waits, cmp.Compare[time.Duration])
	var sum time.Duration
	for _, w := range waits {
		sum += w
	}
	quantile := func(num, den int) float64 { return milliseconds(waits[(len(waits)-1)*num/den]) }
	b.ReportMetric(milliseconds(sum)/float64(len(waits)), "mean-ms")
	b.ReportMetric(quantile(1, 2), "p50-ms")
	b.ReportMetric(quantile(99, 100), "p99-ms")
	b.ReportMetric(quantile(1, 1), "max-ms")
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// jain is Jain's index of fairness: the square of the sum over n times the sum
// of the squares.
func jain(counts []float64) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += c
		squares += c * c
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}
