package ration

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// waiterState says what has become of a waiter. It is guarded by the lock of
// the object the waiter queues at.
type waiterState uint8

const (
	waiting waiterState = iota // in the queue, asleep or about to be
	invited                    // in the queue, woken to compete for its request
	granted                    // out of the queue, owns what it asked for
	refused                    // out of the queue, err says why
)

// A waiter is one goroutine's place in a waitQueue, and the bed it sleeps in.
//
// Its life: newWaiter, pushBack under the owner's lock, sleep as often as need
// be, and recycle once it is out of the queue.
//
//  1. A waiter is called once for each time that its state leaves waiting:
//     decided under the owner's lock, done after unlocking (wakeList).
//  2. It may find out under the lock that it is going to be called, before it
//     is. Then it has to wait for the call before the node is recycled, since
//     until then the caller still uses it.
//  3. ready holds a token only between a call that finds the waiter asleep and
//     the waiter's receipt of it, so that it never blocks the caller.
//  4. The node is recycled between waits; the channel never is. A channel
//     belongs to the testing/synctest bubble it was made in, and handing it on
//     through a process-wide pool would kill the next bubble that gets it.
type waiter struct {
	prev, next *waiter // in a waitQueue
	toWake     *waiter // the next one in a wakeList
	final      bool    // in a wakeList: it is woken for good
	n          int64   // what it asks for
	since      int64   // arrival, by the owner's clock or count
	ended      int64   // the end of the wait, likewise
	state      waiterState
	err        error // set with refused
	tag        any   // the owner's
	behind     int64 // what the owner had promised to others when it came

	bed   atomic.Uint32 // up, asleep, called or dismissed
	ready chan struct{} // made when the waiter first lies down
}

// Where a waiter is, between itself and its caller.
const (
	up        uint32 = iota // awake, and not called
	asleep                  // waits for a token
	called                  // woken to compete; it has to look at its state under the lock
	dismissed               // woken for good; its state is final
)

var waiterNodes = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(n, now int64) *waiter {
	w := waiterNodes.Get().(*waiter)
	w.n, w.since = n, now
	return w
}

// call wakes w, or keeps it from falling asleep. What the caller wrote before is
// visible to w after its sleep.
func (w *waiter) call(how uint32) {
	if w.bed.Swap(how) == asleep {
		w.ready <- struct{}{}
	}
}

// sleep parks until w is called, done is closed or timeout fires (nil channels
// never do). It reports whether w was called, and whether for good. The first
// sleep of a waiter costs the one allocation of a wait.
func (w *waiter) sleep(done <-chan struct{}, timeout <-chan time.Time) (woken, final bool) {
	if w.ready == nil {
		w.ready = make(chan struct{}, 1)
	}
	if w.bed.CompareAndSwap(up, asleep) {
		if done == nil && timeout == nil {
			<-w.ready // a receive costs half a select
		} else {
			select {
			case <-w.ready:
			case <-done:
				return false, false
			case <-timeout:
				return false, false
			}
		}
	}
	if w.bed.Load() == dismissed {
		return true, true // recycle gets it up
	}
	w.bed.Store(up)
	return true, false
}

// rise is for a waiter that has woken up without having been called, and that may
// lie down again. If it has been called meanwhile, the next sleep says so.
func (w *waiter) rise() {
	if !w.bed.CompareAndSwap(asleep, up) {
		<-w.ready
	}
}

// recycle gives back the node of a waiter that has left the queue. If it lies
// asleep and is going to be called, the token comes first (2): its bed may say
// already that it was called, with the token still to be sent.
func (w *waiter) recycle(expectToken bool) {
	if expectToken {
		<-w.ready
	}
	w.prev, w.next, w.toWake, w.err, w.tag, w.ready = nil, nil, nil, nil, nil, nil
	w.state, w.behind = waiting, 0
	if w.bed.Load() != up {
		w.bed.Store(up)
	}
	waiterNodes.Put(w)
}

// A waitQueue is an intrusive FIFO of waiters: joining, leaving from anywhere
// and looking at the head are O(1), and a waiter that has left leaves nothing
// behind. The zero value is empty. It has no lock; its owner does.
type waitQueue struct {
	head, tail *waiter
	len        int
	requests   wideSum // of n over the queue
}

func (q *waitQueue) pushBack(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.len++
	q.requests.add(w.n)
}

// remove takes w, which must be in q, out of it.
func (q *waitQueue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	q.len--
	q.requests.sub(w.n)
}

// A wideSum is a sum of requests, in 128 bits: they may be any int64 that is not
// negative, and while there is a pause, all of them wait.
type wideSum struct{ hi, lo uint64 }

func (s *wideSum) add(n int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(n), 0)
	s.hi += carry
}

func (s *wideSum) sub(n int64) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, uint64(n), 0)
	s.hi -= borrow
}

// value returns the sum, or the largest int64 if it is more.
func (s wideSum) value() int64 {
	if s.hi != 0 || s.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.lo)
}

// A wakeList collects the waiters that a critical section decided to wake, so
// that they are woken, in order, after the lock is given back: a woken
// goroutine would only run into the lock. A waiter is in at most one wakeList,
// from when its state leaves waiting until it is called. The zero value is empty.
type wakeList struct {
	head, tail *waiter
}

// add appends w, whose wait is over if final, or which is to compete.
func (l *wakeList) add(w *waiter, final bool) {
	w.final = final
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.toWake = w
	}
	l.tail = w
}

// wake calls every waiter, and leaves l empty. The owner's lock must not be
// held.
func (l *wakeList) wake() {
	w := l.head
	*l = wakeList{}
	for w != nil {
		next, how := w.toWake, called // w may be recycled as soon as it has been called
		if w.final {
			how = dismissed
		}
		w.toWake = nil
		w.call(how)
		w = next
	}
}
