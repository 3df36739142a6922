package bench

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/cockroachdb/crlib/fifo"
	"github.com/marusama/semaphore/v2"
	xsync "golang.org/x/sync/semaphore"

	"github.com/ration-go/ration"
)

// A Semaphore is a semaphore under measurement. It takes one permit at a time,
// since a channel can do no more.
type Semaphore interface {
	Acquire(ctx context.Context) error
	Release()
	taker
}

// A SemaphoreImpl is an implementation of a semaphore.
type SemaphoreImpl struct {
	Name string
	New  func(permits int) Semaphore
}

// Semaphores are our two modes and their rivals.
func Semaphores() []SemaphoreImpl {
	return []SemaphoreImpl{
		{"nonfair", func(permits int) Semaphore { return rationSemaphore{ration.NewSemaphore(int64(permits), nil)} }},
		{"fair", func(permits int) Semaphore {
			return rationSemaphore{ration.NewSemaphore(int64(permits), &ration.SemaphoreOptions{Fair: true})}
		}},
		{"xsync", func(permits int) Semaphore { return xsyncSemaphore{xsync.NewWeighted(int64(permits))} }},
		{"chan", func(permits int) Semaphore { return make(chanSemaphore, permits) }},
		{"fifo", func(permits int) Semaphore { return fifoSemaphore{fifo.NewSemaphore(int64(permits))} }},
		{"marusama", func(permits int) Semaphore { return marusamaSemaphore{semaphore.New(permits)} }},
	}
}

func semaphoreCases() (cases []Case) {
	for _, o := range []op{
		{"uncontended", 1, 1, false},
		{"slack", 2, 8, false},
		{"handoff", 2, 1, false},
		{"contended", 16, 8, true},
		{"heavy", 1024, 4, true},
	} {
		for _, impl := range Semaphores() {
			cases = append(cases, semaphoreCase(o, impl))
		}
	}
	return cases
}

// Crowd is the contended case with another number of goroutines.
func Crowd(impl SemaphoreImpl, workers int) Case {
	return semaphoreCase(op{"crowd", workers, 8, true}, impl)
}

func semaphoreCase(o op, impl SemaphoreImpl) Case {
	return Case{
		Kind: "Semaphore", Op: o.name, Impl: impl.Name, Workers: o.workers, Of: "permits", Size: o.size,
		Start: func() Run {
			var failed atomic.Int64
			return Run{o.turns(impl.New(o.size), &failed), func() error { return none(&failed) }}
		},
	}
}

type rationSemaphore struct{ *ration.Semaphore }

func (s rationSemaphore) Acquire(ctx context.Context) error { return s.Semaphore.Acquire(ctx, 1) }
func (s rationSemaphore) Release()                          { s.Semaphore.Release(1) }

func (s rationSemaphore) Turn(ctx context.Context, yield bool) error {
	if err := s.Semaphore.Acquire(ctx, 1); err != nil {
		return err
	}
	if yield {
		runtime.Gosched()
	}
	s.Semaphore.Release(1)
	return nil
}

type xsyncSemaphore struct{ *xsync.Weighted }

func (s xsyncSemaphore) Acquire(ctx context.Context) error { return s.Weighted.Acquire(ctx, 1) }
func (s xsyncSemaphore) Release()                          { s.Weighted.Release(1) }

func (s xsyncSemaphore) Turn(ctx context.Context, yield bool) error {
	if err := s.Weighted.Acquire(ctx, 1); err != nil {
		return err
	}
	if yield {
		runtime.Gosched()
	}
	s.Weighted.Release(1)
	return nil
}

// A chanSemaphore is what one writes by hand: a slot per permit.
type chanSemaphore chan struct{}

func (c chanSemaphore) Acquire(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c chanSemaphore) Release() { <-c }

func (c chanSemaphore) Turn(ctx context.Context, yield bool) error {
	select {
	case c <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if yield {
		runtime.Gosched()
	}
	<-c
	return nil
}

// A fifoSemaphore is CockroachDB's.
type fifoSemaphore struct{ *fifo.Semaphore }

func (s fifoSemaphore) Acquire(ctx context.Context) error { return s.Semaphore.Acquire(ctx, 1) }
func (s fifoSemaphore) Release()                          { s.Semaphore.Release(1) }

func (s fifoSemaphore) Turn(ctx context.Context, yield bool) error {
	if err := s.Semaphore.Acquire(ctx, 1); err != nil {
		return err
	}
	if yield {
		runtime.Gosched()
	}
	s.Semaphore.Release(1)
	return nil
}

type marusamaSemaphore struct{ semaphore.Semaphore }

func (s marusamaSemaphore) Acquire(ctx context.Context) error { return s.Semaphore.Acquire(ctx, 1) }
func (s marusamaSemaphore) Release()                          { s.Semaphore.Release(1) }

func (s marusamaSemaphore) Turn(ctx context.Context, yield bool) error {
	if err := s.Semaphore.Acquire(ctx, 1); err != nil {
		return err
	}
	if yield {
		runtime.Gosched()
	}
	s.Semaphore.Release(1)
	return nil
}
