package ration

import "runtime"

// A Lease is the right to use a resource of a [Pool] until it is closed. It is
// got from [Pool.Acquire] and has to be ended once, by Close, Discard or Detach.
//
// A Lease is a small value. Its copies are the same lease: when one is closed,
// all are. A lease that has ended can do nothing any more; in particular it can
// never touch the loan of whoever has borrowed the same resource since. Ending
// it a second time does nothing and is counted in [PoolStats].DuplicateCloses,
// because it says something about the program. The zero Lease is one that has
// ended.
//
// A Lease may be used by several goroutines at once; whether its resource may
// is the resource's affair. Closing a lease synchronizes before the return of
// the Acquire that lends the resource next.
//
// Value and Err cost one atomic load, Close what is said at [Pool].
type Lease[T any] struct {
	slot  *slot[T]
	id    uint64
	token *leaseToken // set for the leases whose loss the garbage collector can prove
}

// end ends the loan, if it has not ended yet. Until then the token is in use, or a
// holder whose Close the compiler has inlined would hold no token any more, long
// before it closes, and its lease would be proved lost.
func (l Lease[T]) end(phase uint64) bool {
	ended := l.slot != nil && l.slot.state.CompareAndSwap(loanState(l.id, lent), loanState(l.id, phase))
	runtime.KeepAlive(l.token)
	return ended
}

// Value returns the resource. It panics with [ErrLeaseClosed], or with
// [ErrLeaseRevoked], once the lease has ended. What it returned before must not
// be used after the lease has ended, which nobody can check.
func (l Lease[T]) Value() T {
	if l.slot == nil || l.slot.state.Load() != loanState(l.id, lent) {
		panic(l.Err())
	}
	return l.slot.value
}

// Err returns nil while the lease is open, [ErrLeaseRevoked] after it was
// revoked and [ErrLeaseClosed] after it was ended in any other way.
func (l Lease[T]) Err() error {
	if l.slot != nil {
		switch l.slot.state.Load() {
		case loanState(l.id, lent):
			return nil
		case loanState(l.id, revoked):
			return ErrLeaseRevoked
		}
	}
	return ErrLeaseClosed
}

// Close gives the resource back to the pool. Only the first end of a lease does
// anything; later ones return nil.
//
// If the pool does not want the resource back, because it is closed or has
// shrunk, it is destroyed before Close returns, and Close returns the error of
// the pool's Close hook.
func (l Lease[T]) Close() error {
	if !l.end(returned) {
		l.duplicate()
		return nil
	}
	return l.slot.pool.takeBack(l.slot)
}

// Discard ends the lease like Close, but the resource is destroyed, for it is
// broken, and the pool opens another when it needs one. The permit is free at
// once, the resource's place only when it has been destroyed, which is before
// Discard returns. Discard returns the error of the pool's Close hook.
func (l Lease[T]) Discard() error {
	if !l.end(returned) {
		l.duplicate()
		return nil
	}
	return l.slot.pool.expel(l.slot)
}

// Detach ends the lease and leaves the resource to the caller for good. The
// pool forgets it and opens another when it needs one. If the lease has ended
// before, Detach returns the zero T and [ErrLeaseClosed], or [ErrLeaseRevoked].
func (l Lease[T]) Detach() (T, error) {
	if !l.end(returned) {
		l.duplicate()
		var zero T
		return zero, l.Err()
	}
	l.slot.pool.endLoan(l.slot, "detached", detach)
	return l.slot.value, nil
}

// Touch says that the holder is still at work: the lease's age, by which leaks
// are suspected, starts again at 0. It does nothing once the lease has ended.
func (l Lease[T]) Touch() {
	if l.slot == nil {
		return
	}
	p := l.slot.pool
	now := p.clock.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.slot.state.Load() == loanState(l.id, lent) {
		l.slot.activeAt = now
		p.touched++
		p.mark(l.slot, everyWatch, young)
	}
	runtime.KeepAlive(l.token)
}

// Info describes the lease as the lease table does. Once it has ended, only the
// pool's name and the lease's ID are left. For monitoring, not for control.
func (l Lease[T]) Info() LeaseInfo {
	if l.slot == nil {
		return LeaseInfo{}
	}
	p := l.slot.pool
	now := p.clock.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.slot.state.Load() != loanState(l.id, lent) {
		return LeaseInfo{Pool: p.opts.Name, ID: l.id}
	}
	return l.slot.info(now)
}

func (l Lease[T]) duplicate() {
	if l.slot != nil {
		l.slot.pool.duplicateCloses.Add(1)
	}
}
