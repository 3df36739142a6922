package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ration-go/ration/bench"
)

// How long one waits, and how evenly, when there is always somebody running who
// could barge in: goroutines that come back at once, permits that are held for
// two microseconds of work.

const (
	waitPermits = 4
	waitHold    = 2 * time.Microsecond
	waitTime    = 60 * time.Millisecond
	waitWindow  = 10 * time.Millisecond // in which the grants of all are compared
)

var (
	waitWorkers = []int{8, 16, 64, 256}
	cdfWorkers  = 16 // whose waits are drawn

	crowds = []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024} // throughput against goroutines
)

// The parts of all acquires whose waits are written down.
var quantiles = []float64{
	0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
	0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 0.9995, 0.9999, 1,
}

func quantileUnit(q float64) string { return fmt.Sprintf("q%g-ns", q) }

func waitSteps() (steps []step) {
	impls := bench.Semaphores()
	for _, workers := range waitWorkers {
		for _, i := range rand.Perm(len(impls)) {
			name := fmt.Sprintf("Waits/impl=%s/workers=%d/permits=%d", impls[i].Name, workers, waitPermits)
			steps = append(steps, step{name, func(w io.Writer) error {
				measureWaits(w, name, impls[i].New(waitPermits), workers)
				return nil
			}})
		}
	}
	return steps
}

// A waiting is what one goroutine has waited.
type waiting struct {
	waits  []time.Duration
	grants []int // in each window
	_      [80]byte
}

func measureWaits(w io.Writer, name string, s bench.Semaphore, workers int) {
	runtime.GC()
	ctx, stop := context.WithCancel(context.Background())
	all := make([]waiting, workers)
	windows := int(waitTime / waitWindow)
	var running sync.WaitGroup
	began := time.Now()
	for i := range all {
		all[i].grants = make([]int, windows)
		running.Go(func() { all[i].run(ctx, s, began) })
	}
	time.Sleep(waitTime)
	took := time.Since(began)
	stop()
	running.Wait()

	var waits []time.Duration
	for i := range all {
		waits = append(waits, all[i].waits...)
	}
	slices.Sort(waits)
	fmt.Fprintf(w, "Benchmark%s \t%d\t%.4g ns/op\t%.4g jain", name, len(waits), float64(took)/float64(len(waits)), evenness(all, windows))
	for _, q := range quantiles {
		if workers == cdfWorkers || q == 0.99 || q == 1 {
			fmt.Fprintf(w, "\t%d %s", waits[int(q*float64(len(waits)-1))], quantileUnit(q))
		}
	}
	fmt.Fprintln(w)
}

func (g *waiting) run(ctx context.Context, s bench.Semaphore, began time.Time) {
	for ctx.Err() == nil {
		came := time.Now()
		if s.Acquire(ctx) != nil {
			return
		}
		granted := time.Now()
		g.waits = append(g.waits, granted.Sub(came))
		if i := int(granted.Sub(began) / waitWindow); i < len(g.grants) {
			g.grants[i]++
		}
		for time.Since(granted) < waitHold { // this is the work
		}
		runtime.Gosched()
		s.Release()
	}
}

// evenness is the median over the windows of Jain's index of the grants: 1 if
// all have had the same, 1/n if one of n has had everything. The first and the
// last window are left out, in which not all were there.
func evenness(all []waiting, windows int) float64 {
	var indexes []float64
	for w := 1; w < windows-1; w++ {
		var sum, squares float64
		for i := range all {
			n := float64(all[i].grants[w])
			sum += n
			squares += n * n
		}
		if squares > 0 {
			indexes = append(indexes, sum*sum/(float64(len(all))*squares))
		}
	}
	slices.Sort(indexes)
	if len(indexes) == 0 {
		return 0
	}
	return indexes[len(indexes)/2]
}
