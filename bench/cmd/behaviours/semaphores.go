package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/crlib/fifo"
	marusama "github.com/marusama/semaphore/v2"
	xsync "golang.org/x/sync/semaphore"

	"github.com/ration-go/ration"
)

// A semaphore is one under check. Those that can do more say so by the
// interfaces below.
type semaphore interface {
	acquire(ctx context.Context, n int) error
	tryAcquire() bool
	release(n int)
}

type (
	weighted interface{ weighs() }
	resizer  interface{ resize(n int) }
	closer   interface{ close() }
)

func newSemaphore(impl string, permits int) semaphore {
	switch impl {
	case "ration":
		return rationSemaphore{ration.NewSemaphore(int64(permits), nil)}
	case "ration, fair":
		return rationSemaphore{ration.NewSemaphore(int64(permits), &ration.SemaphoreOptions{Fair: true})}
	case "x/sync":
		return xsyncSemaphore{xsync.NewWeighted(int64(permits))}
	case "channel":
		return make(chanSemaphore, permits)
	case "crlib fifo":
		return fifoSemaphore{fifo.NewSemaphore(int64(permits))}
	case "marusama":
		return marusamaSemaphore{marusama.New(permits)}
	default:
		panic("no semaphore " + impl)
	}
}

var semaphoreKind = kind{
	name: "semaphore", title: "Semaphores",
	impls: []string{"ration", "ration, fair", "x/sync", "channel", "crlib fifo", "marusama"},
	rows: []row{
		{"over-release", "a release too many does not raise the limit",
			"Of 3 permits, 2 are taken and 3 given back, a panic is recovered from; then exactly 3 can be taken.", onSemaphores(overRelease)},
		{"done-context", "a context that is done takes nothing, though permits are free",
			"100 times, of 3 free permits.", onSemaphores(doneContext)},
		{"cancelled-head", "whoever waits behind one that gives up is served",
			"1 of 2 permits is free; one waits for 2, another behind it for 1; the first gives up.", onSemaphores(cancelledHead)},
		{"starvation", "a large request is not starved by small ones",
			"Two goroutines in turn hold one of 2 permits all the time; a third wants both.", onSemaphores(starvation)},
		{"too-large", "a request larger than the capacity fails at once",
			"4 of 3 permits, with a context that lasts longer.", onSemaphores(tooLarge)},
		{"shrink", "a limit lowered below what is in use holds",
			"3 of 3 permits are out, the limit becomes 1: nothing can be taken until all 3 are back, and then 1.", onSemaphores(shrink)},
		{"close", "closing sends those away who wait",
			"1 of 1 permit is out and stays out, one waits.", onSemaphores(closeWaiters)},
		{"bubbles", "it can be used in two synctest bubbles",
			"One waits in a bubble and is served, then another in another bubble.", onSemaphores(semaphoreBubbles)},
	},
}

type semaphoreMaker func(permits int) semaphore

// onSemaphores makes a check of an implementation.
func onSemaphores(check func(semaphoreMaker) outcome) func(impl string) outcome {
	return func(impl string) outcome {
		return check(func(permits int) semaphore { return newSemaphore(impl, permits) })
	}
}

// free is how many permits can be taken.
func free(s semaphore) (n int) {
	for n < 100 && s.tryAcquire() {
		n++
	}
	return n
}

func overRelease(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(3)
	s.acquire(timeout(never), 1)
	s.acquire(timeout(never), 1)
	for range 2 {
		s.release(1)
	}
	if !within(later, func() { s.release(1) }) {
		return no("the release hangs")
	}
	if n := free(s); n != 3 {
		return no("there are %d of 3", n)
	}
	return yes
}

func doneContext(makeSemaphore semaphoreMaker) outcome {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 {
		s := makeSemaphore(3)
		err := s.acquire(ctx, 1)
		if n := free(s); err == nil || n != 3 {
			return no("takes one")
		}
	}
	return yes
}

func cancelledHead(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(2)
	if _, ok := s.(weighted); !ok {
		return nothing
	}
	s.acquire(timeout(never), 1)
	head, giveUp := context.WithCancel(context.Background())
	go s.acquire(head, 2)
	time.Sleep(soon)
	time.AfterFunc(soon, giveUp)
	if s.acquire(timeout(never), 1) != nil {
		return no("waits on")
	}
	return yes
}

func starvation(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(2)
	if _, ok := s.(weighted); !ok {
		return nothing
	}
	s.acquire(timeout(never), 1)
	relay := make(chan struct{}, 1)
	relay <- struct{}{}
	for range 2 { // one takes its permit before the other's is given back
		go func() {
			for range relay {
				err := s.acquire(timeout(later), 1)
				s.release(1)
				if err != nil { // the large one has the right of way
					return
				}
				relay <- struct{}{}
			}
		}()
	}
	time.Sleep(soon)
	err := s.acquire(timeout(never), 2)
	if err != nil {
		return no("waits for ever")
	}
	return yes
}

func tooLarge(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(3)
	if _, ok := s.(weighted); !ok {
		return nothing
	}
	err := s.acquire(timeout(later), 4)
	switch {
	case err == nil:
		return no("gets it")
	case errors.Is(err, context.DeadlineExceeded):
		return no("waits for its context")
	}
	return yes
}

func shrink(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(3)
	r, ok := s.(resizer)
	if !ok {
		return nothing
	}
	for range 3 {
		s.acquire(timeout(never), 1)
	}
	if !within(later, func() { r.resize(1) }) {
		return no("hangs")
	}
	for back := range 3 {
		if n := free(s); n != 0 {
			return no("lends %d with %d out", n, 3-back)
		}
		if err := recovered(func() { s.release(1) }); err != nil {
			return no("the release panics")
		}
	}
	if n := free(s); n != 1 {
		return no("there are %d of 1", n)
	}
	return yes
}

func closeWaiters(makeSemaphore semaphoreMaker) outcome {
	s := makeSemaphore(1)
	c, ok := s.(closer)
	if !ok {
		return nothing
	}
	s.acquire(timeout(never), 1)
	time.AfterFunc(soon, c.close)
	if err := s.acquire(timeout(never), 1); err == nil || errors.Is(err, context.DeadlineExceeded) {
		return no("they wait on")
	}
	return yes
}

func semaphoreBubbles(makeSemaphore semaphoreMaker) outcome {
	return inTwoBubbles(func(t *testing.T) {
		s := makeSemaphore(1)
		s.acquire(t.Context(), 1)
		time.AfterFunc(time.Second, func() { s.release(1) })
		if err := s.acquire(t.Context(), 1); err != nil {
			t.Error(err)
		}
		s.release(1)
	})
}

type rationSemaphore struct{ s *ration.Semaphore }

func (r rationSemaphore) acquire(ctx context.Context, n int) error { return r.s.Acquire(ctx, int64(n)) }
func (r rationSemaphore) tryAcquire() bool                         { return r.s.TryAcquire(1) }
func (r rationSemaphore) release(n int)                            { r.s.Release(int64(n)) }
func (r rationSemaphore) resize(n int)                             { r.s.Resize(int64(n)) }
func (r rationSemaphore) close()                                   { r.s.Close() }
func (rationSemaphore) weighs()                                    {}

type xsyncSemaphore struct{ s *xsync.Weighted }

func (x xsyncSemaphore) acquire(ctx context.Context, n int) error { return x.s.Acquire(ctx, int64(n)) }
func (x xsyncSemaphore) tryAcquire() bool                         { return x.s.TryAcquire(1) }
func (x xsyncSemaphore) release(n int)                            { x.s.Release(int64(n)) }
func (xsyncSemaphore) weighs()                                    {}

// A chanSemaphore takes one permit at a time.
type chanSemaphore chan struct{}

func (c chanSemaphore) acquire(ctx context.Context, _ int) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c chanSemaphore) tryAcquire() bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c chanSemaphore) release(int) { <-c }

type fifoSemaphore struct{ s *fifo.Semaphore }

func (f fifoSemaphore) acquire(ctx context.Context, n int) error { return f.s.Acquire(ctx, int64(n)) }
func (f fifoSemaphore) tryAcquire() bool                         { return f.s.TryAcquire(1) }
func (f fifoSemaphore) release(n int)                            { f.s.Release(int64(n)) }
func (f fifoSemaphore) resize(n int)                             { f.s.UpdateCapacity(int64(n)) }
func (fifoSemaphore) weighs()                                    {}

type marusamaSemaphore struct{ s marusama.Semaphore }

func (m marusamaSemaphore) acquire(ctx context.Context, n int) error { return m.s.Acquire(ctx, n) }
func (m marusamaSemaphore) tryAcquire() bool                         { return m.s.TryAcquire(1) }
func (m marusamaSemaphore) release(n int)                            { m.s.Release(n) }
func (m marusamaSemaphore) resize(n int)                             { m.s.SetLimit(n) }
func (marusamaSemaphore) weighs()                                    {}
