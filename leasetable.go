package ration

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A slot is a resource and its entry in the lease table. It holds that one
// resource for life: a replacement gets a slot of its own.
type slot[T any] struct {
	pool  *Pool[T]
	value T

	// state is the last loan's id and what has become of it:
	//
	//	 63                                                     2  1  0
	//	+---------------------------------------------------------+-----+
	//	| id of the loan, 0 before the first                      |phase|
	//	+---------------------------------------------------------+-----+
	//
	// Whoever swaps it from lent to something else has ended the loan, alone,
	// and must see to the rest. It is set to lent under pool.mu.
	state atomic.Uint64

	// Guarded by pool.mu.
	prev, next *slot[T] // in pool.idle or pool.out; next also links chores.doomed

	// The loan, while there is one. Times are by the pool's clock.
	owner    string
	weight   int64
	lentAt   int64
	activeAt int64 // lentAt, or the last Touch
	maxHold  time.Duration
	weighs   uint8      // for how many loans its hold time counts; 0: it is not measured
	marks    marks      // by detectors
	sample   *sample[T] // what was recorded of it

	// The resource.
	generation uint64 // of the pool when it was opened
	uses       int    // loans so far
	idleSince  int64  // if it can age
	expiresAt  int64  // 0: never
	fate       fate   // why it is being destroyed
	identity   identity
}

// The phases of a loan.
const (
	returned uint64 = iota // closed, discarded or detached
	lent
	revoked

	phaseBits = 2
)

func loanState(id, phase uint64) uint64 { return id<<phaseBits | phase }

// info describes the open loan of s. pool.mu is held.
func (s *slot[T]) info(now int64) LeaseInfo {
	i := LeaseInfo{
		Pool:       s.pool.opts.Name,
		Owner:      s.owner,
		ID:         s.state.Load() >> phaseBits,
		Weight:     s.weight,
		AcquiredAt: s.pool.clock.start.Add(time.Duration(s.lentAt)),
		Age:        time.Duration(max(0, now-s.activeAt)),
		Near:       s.marks.near != 0,
		Suspect:    s.marks.suspect != 0,
		Proved:     s.marks.proved,
	}
	if s.sample != nil {
		i.Stack = s.sample.stack
	}
	return i
}

func (s *slot[T]) isLent() bool { return s.state.Load()&(1<<phaseBits-1) == lent }

// A slotList is an intrusive list of slots. The zero value is empty.
type slotList[T any] struct {
	head, tail *slot[T]
	len        int
}

func (l *slotList[T]) pushBack(s *slot[T]) {
	s.prev, s.next = l.tail, nil
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
	l.len++
}

func (l *slotList[T]) remove(s *slot[T]) {
	if s.prev == nil {
		l.head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.tail = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	l.len--
}

// A cursor is where a walk stands in the lease table.
type cursor[T any] struct {
	at    *slot[T] // the next to visit
	other *cursor[T]
}

// walkStride is how many leases a walk visits before it lets go of the lock: some
// microseconds' worth.
const walkStride = 128

// walk calls visit under mu for every lease in the table, oldest first, until it
// returns false: for the open ones, and for those just being ended, whose end has
// not got the lock yet. It lets go of mu now and then, so that the longest of tables
// holds up nobody; leases that end meanwhile may or may not be visited, later ones
// are not.
func (p *Pool[T]) walk(visit func(*slot[T]) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := cursor[T]{at: p.out.head, other: p.cursors}
	p.cursors = &c
	last := p.lastID
	for n := 1; c.at != nil; n++ {
		s := c.at
		c.at = s.next
		if s.state.Load()>>phaseBits > last || !visit(s) {
			break
		}
		if n%walkStride == 0 {
			p.mu.Unlock()
			runtime.Gosched() // whom the unlock has woken could not get the lock otherwise
			p.mu.Lock()
		}
	}
	for at := &p.cursors; ; at = &(*at).other {
		if *at == &c {
			*at = c.other
			return
		}
	}
}

// strike takes s off the lease table.
func (p *Pool[T]) strike(s *slot[T]) {
	for c := p.cursors; c != nil; c = c.other {
		if c.at == s {
			c.at = s.next
		}
	}
	p.out.remove(s)
}
