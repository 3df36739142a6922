package ration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// A Pool lends resources, opening them when they are needed and keeping them
// when they come back, at most as many as its capacity. Every loan is a
// [Lease], which the borrower has to close.
//
// Use it for distinct things that are worth keeping: connections, clients,
// large buffers, licence seats ([NewPermitPool]). Use a [Semaphore] if only the
// number matters, and sync.Pool for garbage that may vanish at any time.
//
// A borrower first gets a permit from a semaphore of the pool's capacity, fair
// or not (see [Semaphore]), and then a resource: an idle one, or one that is
// opened for it, or one that another borrower returns in the meantime. Opening
// is the pool's business: a borrower that gives up leaves what is being opened
// to the next.
//
// Ending a lease synchronizes before the return of the Acquire that lends the
// resource next, and open before the first.
//
// An acquire whose context is done fails and leaves no trace in the lease
// table. [Pool.Close] fails the waiters, destroys what is idle and waits for
// what is out.
//
// Acquiring and closing an idle resource takes the pool's lock once each and
// allocates nothing. The lease table grows with the peak number of leases, not
// with the capacity.
//
// The functions in the options are called with no lock held and may use the
// pool. A panic in one of them counts as its failure. Everything here may be
// called by several goroutines at once. A Pool must be made by [NewPool] or
// [NewPermitPool] and must not be copied.
//
// If one borrower needs several resources at once, it should take them as one
// lease of that Weight. T borrowers that each take C resources one by one need
// a capacity of at least T x (C-1) + 1, or they can end up waiting for each
// other, until their contexts end.
type Pool[T any] struct {
	// Invariants, at every release of mu (Audit):
	//
	//  1. idle + out + loose + opening + destroying <= capacity, or, after a shrink,
	//     falling until it is.
	//  2. permits held = weights of the loans + weights on the way, and at most as
	//     much more as the borrowers that are arriving asked for.
	//  3. A slot is in idle and not lent, or in out and lent (or just being
	//     ended), or loose, or gone.
	//  4. A borrower waits in needers only if nothing idle can be lent as it is
	//     and as many opens and checks are in flight, not counting those whose
	//     borrower has left, as needers wait, room and MaxOpening permitting.
	//
	// Lock order: mu, then the semaphore's. No user code is run and nobody woken
	// under mu: what there is to do afterwards is collected in chores.

	permits  *Semaphore
	open     func(context.Context) (T, error) // nil: resources are values made on the spot
	opts     PoolOptions[T]
	clock    clock
	alive    context.Context // ends with the pool
	kill     context.CancelFunc
	timed    bool                        // resources can age
	observed bool                        // there is an observer
	sampling atomic.Pointer[sampling[T]] // what is to be recorded of leases; nil: nothing

	mu         sync.Mutex
	closed     bool
	drained    chan struct{} // made by Close, closed when nothing is out any more
	lastID     uint64
	generation uint64      // of Clear
	idle       slotList[T] // oldest return first
	out        slotList[T] // oldest loan first
	loose      int         // resources in neither list: being checked or reset, or on their way to a borrower; they count as leased
	opening    int
	checking   int
	abandoned  int // opens and checks in flight that are not counted on, since a borrower has left without waiting for them
	destroying int
	ceiling    int                   // occupied at the last settle: what a shrink has left above the capacity may only fall
	identities map[identity]struct{} // of all resources that have one
	needers    waitQueue             // borrowers with a permit and without a resource; tags are *need[T]
	warmers    waitQueue             // callers of Warm; n is their target
	upkeep     upkeep
	cursors    *cursor[T] // of the walks through out
	watching

	heldWeight int64   // permits of the loans
	onTheWay   int64   // permits of borrowers that have no loan yet
	arriving   wideSum // of what borrowers asked for that may or may not have their permits

	stats           PoolStats // the counters only
	duplicateCloses atomic.Uint64
	calls           atomic.Int64 // of open, Check, Reset and Close, in progress, also those given up
}

// NewPool returns a pool that lends at most capacity resources at a time, made
// by open. Nil opts mean the defaults. It fails if capacity is out of range
// ([ErrCapacity]), if open is nil, or with an error that names the option that
// is invalid.
//
// Open must return a new resource each time. If it returns a pointer, channel or
// map that is in the pool already, the acquire fails with [ErrDuplicate].
// The context it gets has the values of the borrower's and ends at OpenTimeout
// or when the pool is closed, not when the borrower gives up.
func NewPool[T any](capacity int64, open func(context.Context) (T, error), opts *PoolOptions[T]) (*Pool[T], error) {
	if open == nil {
		return nil, errors.New("ration: NewPool: nil open function")
	}
	return newPool(capacity, open, opts)
}

// NewPermitPool returns a pool without resources: its leases are permits that
// know their owner and age, close once and can be revoked. See [NewPool].
func NewPermitPool(capacity int64, opts *PoolOptions[struct{}]) (*Pool[struct{}], error) {
	return newPool[struct{}](capacity, nil, opts)
}

func newPool[T any](capacity int64, open func(context.Context) (T, error), opts *PoolOptions[T]) (*Pool[T], error) {
	if opts == nil {
		opts = &PoolOptions[T]{}
	}
	if err := opts.validate(capacity); err != nil {
		return nil, err
	}
	p := &Pool[T]{
		permits:    NewSemaphore(capacity, &SemaphoreOptions{Fair: opts.Fair, MaxWaiters: opts.MaxWaiters}),
		open:       open,
		opts:       *opts,
		clock:      startClock(),
		identities: make(map[identity]struct{}),
	}
	p.permits.clock = p.clock // one time for both
	if p.opts.OpenTimeout == 0 {
		p.opts.OpenTimeout = defaultOpenTimeout
	}
	p.opts.OpenTimeout = max(0, p.opts.OpenTimeout)
	p.timed = opts.Check != nil && opts.CheckAfter > 0 || opts.MaxIdleTime > 0 || opts.MaxLifetime > 0
	p.observed = p.opts.Observer.any()
	p.alive, p.kill = context.WithCancel(context.Background())
	p.alive.Done() // made here and now, and not in whichever testing/synctest bubble needs it first
	if opts.MinIdle > 0 {
		p.tidy() // settle opens them
	}
	if opts.Detector != nil {
		opts.Detector.Watch(p)
	}
	return p, nil
}

// Acquire lends a resource, waiting for one if need be. It fails with an
// [*AcquireError] whose cause is ctx.Err(), [ErrClosed], [ErrTooLarge], [ErrQueueFull],
// [ErrDuplicate], the error of the open function or, with a Rate, that of
// [TokenBucket.Wait]. It panics if ctx is nil.
func (p *Pool[T]) Acquire(ctx context.Context) (Lease[T], error) {
	return p.AcquireWith(ctx, AcquireOptions{})
}

// AcquireWith is Acquire with options. It panics if the weight is negative.
func (p *Pool[T]) AcquireWith(ctx context.Context, o AcquireOptions) (Lease[T], error) {
	if ctx == nil {
		panic("ration: Pool.Acquire: nil context")
	}
	if o.Weight < 0 {
		panic(fmt.Sprintf("ration: Pool.AcquireWith: negative weight %d", o.Weight))
	}
	o.Weight = max(1, o.Weight)
	start := p.clock.now()
	if ctx.Err() != nil {
		return p.failed(o, "wait", outcomeOf(ctx.Err()), ctx.Err(), start, false)
	}
	if p.opts.Rate == nil {
		return p.acquire(ctx, o, start, start, false)
	}
	if err := p.permits.check(o.Weight); err != nil { // nobody waits for a token to be refused
		return p.failed(o, "wait", outcomeOf(err), err, start, false)
	}
	waited, err := p.waitRate(ctx)
	if err != nil {
		return p.failed(o, "rate", outcomeOf(err), err, start, true)
	}
	now := start
	if waited {
		now = p.clock.now() // it has not held anything until now
	}
	l, err := p.acquire(ctx, o, start, now, waited)
	if err != nil {
		p.opts.Rate.Return(1)
	}
	return l, err
}

// acquire is AcquireWith once there is a token, which may have had to be waited
// for.
func (p *Pool[T]) acquire(ctx context.Context, o AcquireOptions, start, now int64, waited bool) (Lease[T], error) {
	p.mu.Lock()
	if !p.permits.takeFast(o.Weight) {
		if took, _ := p.permits.barge(o.Weight, o.Weight); took == 0 {
			p.arriving.add(o.Weight)
			p.mu.Unlock()
			return p.acquireWaiting(ctx, o, start, now, waited)
		}
	}
	s := p.takeIdle(now, false)
	if s == nil {
		p.onTheWay += o.Weight
		p.mu.Unlock()
		return p.acquireNeeding(ctx, o, start)
	}
	l := p.lend(s, &o, now)
	if waited {
		p.countWait(now - start)
	}
	p.mu.Unlock()
	return p.lent(l, &o, start, "granted"), nil
}

// TryAcquire lends a resource that is idle now, if there is one and waiters may
// be overtaken. It never opens or checks one: a resource that would need a Check
// is passed over, so with a Check and a CheckAfter of 0 it never succeeds, and in
// a new pool not before [Pool.Warm] or MinIdle.
func (p *Pool[T]) TryAcquire() (Lease[T], bool) {
	if p.opts.Rate == nil {
		return p.tryAcquire()
	}
	if !p.opts.Rate.Allow(1) {
		return Lease[T]{}, false
	}
	l, ok := p.tryAcquire()
	if !ok {
		p.opts.Rate.Return(1)
	}
	return l, ok
}

func (p *Pool[T]) tryAcquire() (Lease[T], bool) {
	o := AcquireOptions{Weight: 1}
	start := p.clock.now()
	p.mu.Lock()
	took, sure := p.permits.barge(1, 1)
	if took == 0 && !sure {
		// Only the semaphore's lock can tell, and to take it may mean to wake somebody.
		p.arriving.add(1)
		p.mu.Unlock()
		took = p.permits.grab(1, 1)
		p.mu.Lock()
		p.arriving.sub(1)
	}
	if took == 0 {
		p.mu.Unlock()
		return Lease[T]{}, false
	}
	s := p.takeIdle(start, true)
	if s == nil {
		var after chores[T]
		p.permits.release(1, &after.permits)
		p.mu.Unlock()
		after.do(p)
		return Lease[T]{}, false
	}
	l := p.lend(s, &o, start)
	p.mu.Unlock()
	return p.lent(l, &o, start, "granted"), true
}

// Do lends a resource to fn and returns what fn returns. The resource goes back
// to the pool when fn is done, or is destroyed if fn panics, calls
// [runtime.Goexit] or returns an error that says that the resource is bad: one
// marked by [Broken], or for which [PoolOptions].Broken returns true. If no
// resource can be acquired, Do returns the error of [Pool.Acquire] without
// running fn. If the lease is revoked while fn runs, which does not end its
// context, [ErrLeaseRevoked] is joined to what fn returns. The lease has no owner
// and weight 1. It panics if ctx or fn is nil.
func (p *Pool[T]) Do(ctx context.Context, fn func(context.Context, T) error) (err error) {
	if fn == nil {
		panic("ration: Pool.Do: nil function")
	}
	l, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	bad := true // unless fn and judge get to their ends
	defer func() {
		switch {
		case !l.end(returned):
			err = errors.Join(err, ErrLeaseRevoked) // only Revoke can have been quicker
		case bad:
			p.expel(l.slot)
		default:
			p.takeBack(l.slot)
		}
	}()
	if err = fn(ctx, l.slot.value); err == nil {
		bad = false
		return nil
	}
	bad, err = p.judge(err)
	return err
}

// judge says whether err, of the function of a Do, means that the resource is
// bad. If the Broken hook fails, it is, and err says that too.
func (p *Pool[T]) judge(err error) (bad bool, _ error) {
	if p.opts.Broken == nil || isBroken(err) {
		return isBroken(err), err
	}
	runHook("Broken", 0, func() error { bad = p.opts.Broken(err); return nil }, func(failed error, _ bool) {
		if failed != nil {
			bad, err = true, errors.Join(err, failed)
		}
	}, nil, func() {})
	return bad, err
}

// Broken marks err, returned by the function of [Pool.Do], as saying that the
// resource is bad and must not be lent again. It returns nil if err is nil.
func Broken(err error) error {
	if err == nil {
		return nil
	}
	return &brokenError{err}
}

type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

func isBroken(err error) bool {
	var b *brokenError
	return errors.As(err, &b)
}
