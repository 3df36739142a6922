package ration

import (
	"context"
	"errors"
	"time"
)

// How resources get to borrowers.

// A need is what a borrower in Pool.needers waits for.
type need[T any] struct {
	w         *waiter         // nil once it waits no more
	ctx       context.Context // its values go to open and Check
	slot      *slot[T]        // set with granted, loose until the borrower wakes
	opened    bool            // slot was opened just now
	trying    bool            // an open or a check that was started for it is in flight
	abandoned bool            // and it has left without waiting for that
}

// waitRate takes a token of PoolOptions.Rate. It waits for one until the pool is
// closed, and reports whether it did.
func (p *Pool[T]) waitRate(ctx context.Context) (waited bool, err error) {
	if p.opts.Rate.Allow(1) {
		return false, nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.alive, cancel)()
	err = p.opts.Rate.Wait(waiting, 1)
	if err != nil && ctx.Err() == nil && p.alive.Err() != nil {
		err = ErrClosed
	}
	return true, err
}

// acquireWaiting goes on where AcquireWith found no permit. It counts as arriving.
func (p *Pool[T]) acquireWaiting(ctx context.Context, o AcquireOptions, start, now int64, waited bool) (Lease[T], error) {
	now, queued, err := p.permits.acquireQueued(ctx, o.Weight, now)
	queued = queued || waited
	p.mu.Lock()
	p.arriving.sub(o.Weight)
	if err != nil {
		p.mu.Unlock()
		return p.failed(o, "wait", outcomeOf(err), err, start, queued)
	}
	if s := p.takeIdle(now, false); s != nil {
		l := p.lend(s, &o, now)
		if queued {
			p.countWait(now - start)
		}
		p.mu.Unlock()
		return p.lent(l, &o, start, "granted"), nil
	}
	p.onTheWay += o.Weight
	p.mu.Unlock()
	return p.acquireNeeding(ctx, o, start)
}

// acquireNeeding goes on with a permit and without a resource. The weight counts
// as on the way.
func (p *Pool[T]) acquireNeeding(ctx context.Context, o AcquireOptions, start int64) (Lease[T], error) {
	w := newWaiter(o.Weight, p.clock.now())
	n := &need[T]{w: w, ctx: ctx}
	w.tag = n
	done := p.doneOf(ctx, o.Weight)
	var after chores[T]
	p.mu.Lock()
	p.needers.pushBack(w)
	p.settle(&after)
	p.mu.Unlock()
	after.do(p)

	woken, _ := w.sleep(done, nil)
	err := ctx.Err()
	if !woken && err == nil {
		err = context.Canceled // a foreign context that does not keep its word
	}

	after = chores[T]{}
	op, outcome := "wait", outcomeOf(err)
	now := p.clock.now()
	var l Lease[T]
	p.mu.Lock()
	p.onTheWay -= o.Weight
	state := w.state
	switch {
	case state == granted && err == nil:
		p.loose--
		l = p.lend(n.slot, &o, now)
		p.countWait(now - start)
		if n.opened {
			outcome = "opened"
			p.stats.Outcomes.Opened++
		}
	case state == granted:
		op = "open"
		p.loose--
		p.putBack(n.slot, nil, now, &after)
	case state == refused && err == nil:
		op, outcome, err = explain(w.err)
	default:
		switch {
		case p.opening > 0:
			op = "open"
		case p.checking > 0:
			op = "check"
		}
		if state == waiting {
			p.giveUp(w)
		}
	}
	if err != nil {
		p.permits.release(o.Weight, &after.permits)
		p.settle(&after)
	}
	p.mu.Unlock()
	after.do(p)
	w.recycle(!woken && state != waiting)
	if err != nil {
		return p.failed(o, op, outcome, err, start, true)
	}
	return p.lent(l, &o, start, outcome), nil
}

// doneOf returns ctx.Done(). That may be user code: should it panic, the permits of
// the borrower, which are on the way, go back.
func (p *Pool[T]) doneOf(ctx context.Context, weight int64) <-chan struct{} {
	returned := false
	defer func() {
		if !returned {
			p.update(func(after *chores[T]) {
				p.onTheWay -= weight
				p.permits.release(weight, &after.permits)
			})
		}
	}()
	done := ctx.Done()
	returned = true
	return done
}

// leave takes the borrower w out of needers. What is being opened or checked for
// it is not counted on any more: it may hang, and others had better have their
// own.
func (p *Pool[T]) leave(w *waiter) *need[T] {
	n := w.tag.(*need[T])
	n.w = nil
	p.needers.remove(w)
	if n.trying {
		n.abandoned = true
		p.abandoned = min(p.abandoned+1, p.opening+p.checking)
	}
	return n
}

// giveUp is leave for a borrower that has nothing. If it counted on an open that
// was started for no borrower, the next one does not.
func (p *Pool[T]) giveUp(w *waiter) {
	if n := p.leave(w); !n.trying && p.hopeful() > p.needers.len {
		p.abandoned++
	}
}

// takeIdle takes the idle resource whose turn it is, if it can be lent as it is,
// or else, if any will do, the next that can. Where there is nothing to open, it
// makes one.
func (p *Pool[T]) takeIdle(now int64, any bool) *slot[T] {
	if p.needers.head != nil {
		return nil // those have been waiting longer
	}
	for s := p.nextIdle(nil); s != nil; s = p.nextIdle(s) {
		if p.expired(s, now) == keep && !p.needsCheck(s, now) {
			p.idle.remove(s)
			return s
		}
		if !any {
			return nil // settle sees to it
		}
	}
	if p.open == nil && !p.closed && p.hasRoom() {
		var zero T
		return p.newSlot(zero, now)
	}
	return nil
}

// nextIdle returns the idle resource whose turn comes after that of s, or the
// first if s is nil.
func (p *Pool[T]) nextIdle(s *slot[T]) *slot[T] {
	switch {
	case s == nil && p.opts.IdleFIFO:
		return p.idle.head
	case s == nil:
		return p.idle.tail
	case p.opts.IdleFIFO:
		return s.next
	default:
		return s.prev
	}
}

// lend makes a lease of s, which is in no list. The borrower has its permits.
func (p *Pool[T]) lend(s *slot[T], o *AcquireOptions, now int64) Lease[T] {
	p.lastID++
	s.owner, s.weight, s.maxHold = o.Owner, o.Weight, o.MaxHold
	s.lentAt, s.activeAt = now, now
	s.uses++
	if p.holds != nil {
		s.weighs = p.holds.weighs(now)
	}
	if o.MaxHold != 0 {
		p.ownHolds++
	}
	s.state.Store(loanState(p.lastID, lent))
	p.out.pushBack(s)
	p.heldWeight += o.Weight
	p.stats.Acquired++
	return Lease[T]{slot: s, id: p.lastID}
}

// lent sees to what follows from a lease that has been made.
func (p *Pool[T]) lent(l Lease[T], o *AcquireOptions, start int64, outcome string) Lease[T] {
	if p.opts.MinIdle > 0 {
		p.tidy() // one idle resource fewer
	}
	if sampling := p.sampling.Load(); sampling != nil {
		l = p.record(l, sampling)
	}
	if p.opts.Observer.Acquired != nil {
		event := AcquireEvent{
			Pool: p.opts.Name, Owner: o.Owner, ID: l.id, Weight: o.Weight,
			Waited: time.Duration(p.clock.now() - start), Outcome: outcome,
		}
		// An observer that ends the goroutine keeps the lease from its borrower.
		tell(func() { p.opts.Observer.Acquired(event) }, func() { l.Close() })
	}
	return l
}

// failed makes the error of an acquire that got no lease, counts it and tells of
// it.
func (p *Pool[T]) failed(o AcquireOptions, op, outcome string, cause error, start int64, queued bool) (Lease[T], error) {
	now := p.clock.now()
	p.mu.Lock()
	if queued {
		p.countWait(now - start)
	}
	*p.stats.Outcomes.as(outcome)++
	switch outcome {
	case "closed", "too_large", "queue_full":
		p.stats.Refused++
	case "timeout", "canceled":
		if queued {
			p.stats.Canceled++
		}
	}
	err := p.acquireError(op, cause, now, start)
	p.mu.Unlock()
	if p.opts.Observer.Acquired != nil {
		event := AcquireEvent{
			Pool: p.opts.Name, Owner: o.Owner, Weight: o.Weight, Waited: err.Waited, Outcome: outcome, Err: cause,
		}
		tell(func() { p.opts.Observer.Acquired(event) }, nil)
	}
	return Lease[T]{}, err
}

// An openError says why an open has brought nothing, on the way to whoever waits
// for it. Mostly it is the open function's own error, which may be any, also one
// that would mean something else if it were the pool's.
type openError struct{ error }

// explain says what a borrower is to be told whose wait has ended with err.
func explain(err error) (op, outcome string, cause error) {
	if e, ok := err.(openError); ok {
		return "open", "error", e.error
	}
	return "wait", outcomeOf(err), err
}

// outcomeOf is how an acquire ended, by an error of the pool's or the context's.
func outcomeOf(err error) string {
	switch err {
	case nil:
		return "granted"
	case ErrClosed:
		return "closed"
	case ErrTooLarge:
		return "too_large"
	case ErrQueueFull:
		return "queue_full"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout" // also when it can be foreseen
	}
	return "canceled"
}

func (p *Pool[T]) acquireError(op string, cause error, now, start int64) *AcquireError {
	return &AcquireError{
		Pool:    p.opts.Name,
		Op:      op,
		Err:     cause,
		Waited:  time.Duration(now - start),
		Stats:   p.snapshot(),
		Holders: p.leases(now, errorHolders),
	}
}

// errorHolders is how many of the oldest leases an AcquireError names: enough to
// show who has forgotten one, few enough to be read in a line of a log.
const errorHolders = 5

func (p *Pool[T]) countWait(d int64) {
	p.stats.Waited++
	p.stats.WaitTime += time.Duration(d)
	p.stats.LongestWait = max(p.stats.LongestWait, time.Duration(d))
}

// putBack shelves s, which is in no list and on nobody's loan, unless it has to
// go.
func (p *Pool[T]) putBack(s *slot[T], n *need[T], now int64, after *chores[T]) (taker *need[T]) {
	if f := p.unwanted(s, now); f != keep {
		p.doom(s, f, after)
		return nil
	}
	return p.shelve(s, n, now, after)
}

// shelve gives s, which is in no list, to n, for which it was opened or checked,
// if it still waits, or else to the borrower that has needed one the longest,
// which it returns; or it makes s idle.
//
// If it always went to the longest waiting, a borrower whose open hangs would
// take what was opened for the next one, which would take that of the one after
// it: there would always be one left with the open that hangs.
func (p *Pool[T]) shelve(s *slot[T], n *need[T], now int64, after *chores[T]) (taker *need[T]) {
	w := p.needers.head
	if n != nil && n.w != nil {
		w = n.w
	}
	if w != nil {
		return p.hand(s, w, after)
	}
	s.idleSince = now
	p.idle.pushBack(s)
	if p.timed {
		p.armSweep(s, now)
	}
	return nil
}

// hand gives s, which is in no list, to the borrower w.
func (p *Pool[T]) hand(s *slot[T], w *waiter, after *chores[T]) *need[T] {
	w.tag.(*need[T]).slot = s
	p.loose++
	return p.answer(w, granted, nil, after)
}

// answer ends the wait of the borrower w.
func (p *Pool[T]) answer(w *waiter, state waiterState, err error, after *chores[T]) *need[T] {
	n := p.leave(w)
	w.state, w.err = state, err
	after.waiters.add(w, true)
	return n
}

// chores is what a critical section leaves to be done without the lock.
type chores[T any] struct {
	permits wakeList // waiters of the semaphore
	waiters wakeList // of the pool
	doomed  *slot[T] // to be destroyed, linked by next, each with its fate
	jobs    []func() // opens and checks
}

// do does them. It is called where mu is not held.
func (c *chores[T]) do(p *Pool[T]) {
	if c.permits.head != nil {
		c.permits.wake()
	}
	if c.waiters.head != nil {
		c.waiters.wake()
	}
	if c.doomed != nil || c.jobs != nil {
		c.doSlow(p)
	}
}

func (c *chores[T]) doSlow(p *Pool[T]) {
	for s := c.doomed; s != nil; {
		next := s.next
		s.next = nil
		p.destroyAside(s, s.fate)
		s = next
	}
	for _, job := range c.jobs {
		go job()
	}
}
