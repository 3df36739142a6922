package ration

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
)

// What is done to a pool as a whole.

// Grow raises the capacity by n and wakes the borrowers that can now be served.
// It returns [ErrCapacity], having changed nothing, if n is negative or the
// capacity would exceed [MaxPermits], and [ErrClosed] if the pool is closed.
func (p *Pool[T]) Grow(n int64) error { return p.resize(grown(n)) }

// Shrink lowers the capacity by n, at once and without waiting: idle resources
// are destroyed, in the background, and the rest as they return. See
// [Semaphore.Shrink]. It returns [ErrCapacity], having changed nothing, if n is negative
// or more than the capacity, and [ErrClosed] if the pool is closed.
func (p *Pool[T]) Shrink(n int64) error { return p.resize(shrunk(n)) }

// Resize sets the capacity, as Grow or Shrink by the difference would.
func (p *Pool[T]) Resize(capacity int64) error { return p.resize(resizedTo(capacity)) }

func (p *Pool[T]) resize(next newCapacity) (err error) {
	p.update(func(after *chores[T]) {
		if p.closed {
			err = ErrClosed
			return
		}
		if err = p.permits.resize(next, &after.permits); err != nil {
			return
		}
		capacity := p.permits.capacity.Load()
		for w := p.warmers.head; w != nil; {
			next := w.next
			if w.n > capacity {
				p.answerWarm(w, refused, ErrTooLarge, after)
			}
			w = next
		}
	})
	return err
}

// Clear starts a new generation: what is idle is destroyed now, in the
// background, what is on loan when it returns, and what is being opened when it
// is there.
func (p *Pool[T]) Clear() {
	p.update(func(after *chores[T]) {
		p.generation++
		for p.idle.head != nil {
			p.evict(p.idle.head, destroyExpired, after)
		}
	})
}

// Warm opens resources until n exist, idle or on loan, and returns when they do.
// It fails with an [*AcquireError] whose cause is ctx.Err(), [ErrTooLarge] if n exceeds
// the capacity, [ErrClosed], or the error of an open that failed; what has been
// opened until then stays. It panics if n is negative or ctx is nil.
func (p *Pool[T]) Warm(ctx context.Context, n int) error {
	if ctx == nil {
		panic("ration: Pool.Warm: nil context")
	}
	if n < 0 {
		panic(fmt.Sprintf("ration: Pool.Warm: negative number of resources %d", n))
	}
	start := p.clock.now()
	err := ctx.Err()
	if err == nil {
		err = p.warm(ctx, n, start)
	}
	if err == nil {
		return nil
	}
	op, _, cause := explain(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acquireError(op, cause, p.clock.now(), start)
}

func (p *Pool[T]) warm(ctx context.Context, n int, start int64) (err error) {
	var w *waiter
	p.update(func(after *chores[T]) {
		switch {
		case p.closed:
			err = ErrClosed
		case int64(n) > p.permits.capacity.Load():
			err = ErrTooLarge
		case p.open == nil:
		default:
			w = newWaiter(int64(n), start)
			p.warmers.pushBack(w)
		}
	})
	if w == nil {
		return err
	}
	woken, _ := w.sleep(ctx.Done(), nil)
	p.mu.Lock()
	state := w.state
	switch state {
	case waiting:
		p.warmers.remove(w)
		if err = ctx.Err(); err == nil {
			err = context.Canceled // a foreign context that does not keep its word
		}
		err = openError{err}
	case refused:
		err = w.err
	}
	p.mu.Unlock()
	w.recycle(!woken && state != waiting)
	return err
}

// answerWarm ends the wait of a caller of Warm.
func (p *Pool[T]) answerWarm(w *waiter, state waiterState, err error, after *chores[T]) {
	p.warmers.remove(w)
	w.state, w.err = state, err
	after.waiters.add(w, true)
}

// Revoke ends the lease with the given id, for its holder: the holder's Value
// panics with [ErrLeaseRevoked] from then on, and its Close does nothing. The permit is
// free at once; the resource is destroyed, in the background, since the holder
// may still be using it. Nothing interrupts the holder: it has to ask [Lease.Err],
// and until it stops there is one more at work than the capacity says. Revoke
// reports whether there was such a lease. It is O(open leases).
func (p *Pool[T]) Revoke(id uint64) bool {
	var found *slot[T]
	p.walk(func(s *slot[T]) bool {
		if s.state.Load() == loanState(id, lent) {
			found = s
		}
		return found == nil
	})
	return found != nil && p.revoke(found, id)
}

func (p *Pool[T]) revoke(s *slot[T], id uint64) bool {
	if !(Lease[T]{slot: s, id: id}).end(revoked) {
		return false
	}
	p.endLoan(s, "revoked", destroyRevoked)
	p.log(slog.LevelInfo, "lease revoked", slog.Uint64("lease", id))
	return true
}

// Close closes the pool: waiting borrowers and later acquires fail with
// [ErrClosed], what is idle is destroyed, and what is on loan when it returns. Close
// waits for all that, and for opens under way, until ctx ends. Then it returns a
// [*CloseError] that unwraps to ctx.Err() and names the leases still out; they
// are destroyed all the same when they return. Once Close has returned nil, no
// goroutine of the pool is left and none of its hooks runs any more.
//
// Close may be called more than once and concurrently; each call waits. A caller
// that holds a lease, or is called by the pool, waits for itself, until ctx ends.
// With a context that has ended already, Close waits for nothing.
// It panics if ctx is nil.
func (p *Pool[T]) Close(ctx context.Context) error {
	if ctx == nil {
		panic("ration: Pool.Close: nil context")
	}
	var drained chan struct{}
	p.update(func(after *chores[T]) {
		if p.drained == nil {
			p.drained = make(chan struct{})
		}
		drained = p.drained
		if !p.closed {
			p.closed = true
			p.permits.close(&after.permits)
			p.upkeep.stop()
		}
	})
	p.kill() // opens and checks under way end early, if they heed their contexts
	select {
	case <-drained:
		return nil
	default:
	}
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	leases := p.Leases()
	p.mu.Lock()
	defer p.mu.Unlock()
	return &CloseError{
		Pool:   p.opts.Name,
		Err:    cmp.Or(ctx.Err(), context.Canceled), // for a foreign context that does not keep its word
		Leases: leases,
		Busy:   max(int(p.calls.Load()), p.occupied()-len(leases)),
	}
}

// settleClosed is settle once the pool is closed.
func (p *Pool[T]) settleClosed(after *chores[T]) {
	p.abandoned = min(p.abandoned, p.opening+p.checking)
	for p.needers.head != nil {
		p.answer(p.needers.head, refused, ErrClosed, after)
	}
	for p.warmers.head != nil {
		p.answerWarm(p.warmers.head, refused, ErrClosed, after)
	}
	for p.idle.head != nil {
		p.evict(p.idle.head, destroyClosed, after)
	}
	if p.occupied() == 0 && p.calls.Load() == 0 && !p.isDrained() {
		close(p.drained)
	}
}

func (p *Pool[T]) isDrained() bool {
	select {
	case <-p.drained:
		return true
	default:
		return false
	}
}
