package ration

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// What is recorded of some leases only, since it costs more than a loan: the
// borrower's stack, and what it takes for the garbage collector to prove that the
// lease is lost.
//
// A lease that can be proved lost has a token, which nothing else points to: not
// the table, not the token's own cleanup. Its copies share the token. When the
// last of them is garbage, so is the token, and its cleanup finds the lease either
// ended or lost for ever, since nobody is left who could end it.

// A leaseToken has a pointer so that it gets memory of its own: what has none may
// share its memory with strangers, and live as long as they do.
type leaseToken struct{ _ *byte }

// A sample is what was recorded of a lease.
type sample[T any] struct {
	stack []uintptr

	// For the proof. The slot is not held: a resource that holds its own lease
	// would keep the token alive by way of the cleanup, for ever.
	slot  weak.Pointer[slot[T]]
	id    uint64
	ended atomic.Bool
	lost  *lostLeases[T]
}

// lostLeases are samples whose tokens have become garbage, on their way to the
// next scan.
type lostLeases[T any] struct {
	mu      sync.Mutex // locked last, by cleanups
	samples []*sample[T]
}

// sampling is what is to be recorded of a pool's leases.
type sampling[T any] struct {
	stackEvery, proveEvery int // 1 lease in so many; 0: none
	lost                   *lostLeases[T]
}

// chooseSampling makes up p.sampling from what the watching detectors want.
func (p *Pool[T]) chooseSampling() {
	was := p.sampling.Load()
	var s sampling[T]
	for _, w := range p.watches {
		s.stackEvery = moreOften(s.stackEvery, w.detector.opts.StackEvery)
		s.proveEvery = moreOften(s.proveEvery, w.detector.opts.ProveEvery)
	}
	switch {
	case s.stackEvery == 0 && s.proveEvery == 0 && was == nil:
		return
	case was == nil:
		s.lost = new(lostLeases[T])
	default:
		s.lost = was.lost
	}
	p.sampling.Store(&s)
}

// moreOften returns which of "1 in a" and "1 in b" is more; 0 is never.
func moreOften(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func oneIn(n int) bool {
	return n == 1 || n > 0 && rand.IntN(n) == 0
}

// record records what is wanted of the lease l, which has just been made, and
// returns it, perhaps with a token.
func (p *Pool[T]) record(l Lease[T], want *sampling[T]) Lease[T] {
	stack := want.stackEvery > 0 && (oneIn(want.stackEvery) || p.permits.Available() <= 0 || p.suspects.Load() > 0)
	prove := oneIn(want.proveEvery)
	if !stack && !prove {
		return l
	}
	sm := &sample[T]{id: l.id, lost: want.lost}
	if stack {
		sm.stack = callers()
	}
	if prove {
		sm.slot = weak.Make(l.slot)
		l.token = new(leaseToken)
		runtime.AddCleanup(l.token, (*sample[T]).tokenCollected, sm)
	}
	p.mu.Lock()
	if l.slot.state.Load() == loanState(l.id, lent) {
		l.slot.sample = sm
	}
	p.mu.Unlock()
	return l
}

// mostFrames bounds a recorded stack.
const mostFrames = 32

func callers() []uintptr {
	var pcs [mostFrames]uintptr
	n := runtime.Callers(3, pcs[:]) // without itself, record and Callers
	return slices.Clone(pcs[:n])
}

// tokenCollected runs when the last copy of a lease is garbage. It is called by
// the garbage collector, which should not wait.
func (sm *sample[T]) tokenCollected() {
	if sm.ended.Load() {
		return
	}
	sm.lost.mu.Lock()
	defer sm.lost.mu.Unlock()
	sm.lost.samples = append(sm.lost.samples, sm)
}

// collectProofs notes which leases have been proved lost since it was last
// called, and returns those to be reclaimed.
func (p *Pool[T]) collectProofs() (reclaim []*sample[T]) {
	sampling := p.sampling.Load()
	if sampling == nil {
		return nil
	}
	sampling.lost.mu.Lock()
	samples := sampling.lost.samples
	sampling.lost.samples = nil
	sampling.lost.mu.Unlock()

	for _, sm := range samples {
		if p.prove(sm) {
			reclaim = append(reclaim, sm)
		}
	}
	return reclaim
}

// prove notes that the lease of sm is lost, unless it has ended, and reports
// whether it is to be reclaimed.
func (p *Pool[T]) prove(sm *sample[T]) (reclaim bool) {
	s := sm.slot.Value()
	if s == nil {
		return false
	}
	now := p.clock.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.state.Load() != loanState(sm.id, lent) || s.marks.proved {
		return false
	}
	s.marks.proved = true
	p.stats.Proved++
	leak := s.leak(now)
	for _, w := range p.watches {
		if d := w.detector; d.opts.ProveEvery > 0 {
			d.proved.Add(1)
			d.keep(&w.proved, leak)
			reclaim = reclaim || d.opts.Reclaim
		}
	}
	return reclaim
}

// reclaim revokes a lease that is proved lost.
func (p *Pool[T]) reclaim(sm *sample[T]) {
	if s := sm.slot.Value(); s != nil {
		p.revoke(s, sm.id)
	}
}
