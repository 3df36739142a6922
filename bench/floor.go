package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// What no implementation can be faster than, measured beside them.
func floorCases() []Case {
	return []Case{
		floorCase("two-cas", 1, func(n int) {
			var word atomic.Int64
			for range n {
				word.CompareAndSwap(0, 1)
				word.CompareAndSwap(1, 0)
			}
		}),
		floorCase("mutex", 1, func(n int) { // what most rivals take twice
			var mu sync.Mutex
			for range n {
				mu.Lock()
				mu.Unlock() //lint:ignore SA2001 the price of it is the point
			}
		}),
		floorCase("clock", 1, func(n int) { // the monotonic one, which is all that a limiter needs
			began := time.Now()
			var last time.Duration
			for range n {
				last = time.Since(began)
			}
			clockReading.Store(int64(last))
		}),
		floorCase("goroutine-switch", 2, func(n int) { // from one to the other, n times
			there, back := make(chan struct{}), make(chan struct{})
			var other sync.WaitGroup
			other.Go(func() {
				for range there {
					back <- struct{}{}
				}
			})
			for range (n + 1) / 2 {
				there <- struct{}{}
				<-back
			}
			close(there)
			other.Wait()
		}),
	}
}

var clockReading atomic.Int64 // keeps the compiler from leaving the readings out

func floorCase(op string, workers int, do func(n int)) Case {
	return Case{Kind: "Floor", Op: op, Impl: "go", Workers: workers, Start: func() Run {
		return Run{
			func(n int) time.Duration {
				began := time.Now()
				do(n)
				return time.Since(began)
			},
			func() error { return nil },
		}
	}}
}
