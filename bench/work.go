package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A taker is a semaphore or a pool under measurement. Every implementation
// writes its turn out, so that the harness adds one call through an interface to
// each alike.
type taker interface {
	// Turn takes, if so told lets others run in between, and gives back.
	Turn(ctx context.Context, yield bool) error
}

// An op is a kind of work at a taker.
type op struct {
	name          string
	workers, size int
	yield         bool // others run in between, as beside work that waits for something
}

// turns makes the n turns of a run at a taker.
func (o op) turns(t taker, failed *atomic.Int64) func(n int) time.Duration {
	return func(n int) time.Duration {
		ctx, cancel := context.WithCancel(context.Background()) // one that can end, as in a server
		defer cancel()
		return share(n, o.workers, func(n int) {
			for range n {
				if t.Turn(ctx, o.yield) != nil {
					failed.Add(1)
				}
			}
		})
	}
}

// share splits n over the workers, which start together, and tells how long all
// of it took.
func share(n, workers int, work func(n int)) time.Duration {
	if workers == 1 {
		began := time.Now()
		work(n)
		return time.Since(began)
	}
	begin := make(chan struct{})
	var ready, all sync.WaitGroup
	for i := range workers {
		mine := n / workers
		if i < n%workers {
			mine++
		}
		ready.Add(1)
		all.Go(func() {
			ready.Done()
			<-begin
			work(mine)
		})
	}
	ready.Wait()
	began := time.Now()
	close(begin)
	all.Wait()
	return time.Since(began)
}

func none(failed *atomic.Int64) error {
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d turns failed", n)
	}
	return nil
}
