package ration

import (
	"math"
	"math/bits"
	"sync"
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
// Its life: newWaiter, pushBack under the owner's lock, then receive from ready
// (beside whatever else ends the wait), and discharge once it is out of the
// queue.
//
//  1. There is a token in ready, or on its way there, if and only if the state
//     has left waiting and the token has not been received yet. So ready, which
//     has room for one, never blocks its sender.
//  2. Whoever wakes a waiter decides under the owner's lock and sends after
//     unlocking. A waiter that ends its wait for another reason, and finds that
//     it has been woken meanwhile, must receive the token before the node is
//     recycled: until then the waker still reads it.
//  3. The node is recycled between waits; the channel never is. A channel
//     belongs to the testing/synctest bubble it was made in, and handing it on
//     through a process-wide pool would kill the next bubble that gets it.
type waiter struct {
	prev, next *waiter // queue links; next also links a wakeList
	ready      chan struct{}
	n          int64 // what it asks for
	since      int64 // arrival, by the owner's clock
	state      waiterState
	err        error // set with refused
}

var waiterNodes = sync.Pool{New: func() any { return new(waiter) }}

// newWaiter costs one allocation, the channel.
func newWaiter(n, now int64) *waiter {
	w := waiterNodes.Get().(*waiter)
	w.n, w.since = n, now
	w.ready = make(chan struct{}, 1)
	return w
}

// sleep parks until w is woken, done is closed or timeout fires (nil channels
// never do), and reports whether w was woken, that is, whether it has received
// its token.
func (w *waiter) sleep(done <-chan struct{}, timeout <-chan time.Time) (woken bool) {
	if done == nil && timeout == nil {
		<-w.ready // a receive costs half a select
		return true
	}
	select {
	case <-w.ready:
		return true
	case <-done:
	case <-timeout:
	}
	return false
}

// discharge recycles w, which must have left the queue. If it has been woken
// and has not received its token, it does so first (2); then nothing refers to
// it any more.
func (w *waiter) discharge(tokenless bool) {
	if !tokenless {
		<-w.ready
	}
	*w = waiter{}
	waiterNodes.Put(w)
}

// A waitQueue is an intrusive FIFO of waiters: joining, leaving from anywhere
// and looking at the head are O(1), and a waiter that has left leaves nothing
// behind. The zero value is empty. It has no lock; its owner does.
type waitQueue struct {
	head, tail *waiter
	len        int

	// The sum of n over the queue, in 128 bits: requests may be any int64, and
	// a paused semaphore queues them all.
	sumHi, sumLo uint64
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
	var carry uint64
	q.sumLo, carry = bits.Add64(q.sumLo, uint64(w.n), 0)
	q.sumHi += carry
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
	var borrow uint64
	q.sumLo, borrow = bits.Sub64(q.sumLo, uint64(w.n), 0)
	q.sumHi -= borrow
}

// sum returns the sum of n over the queue, or the largest int64 if it is more.
func (q *waitQueue) sum() int64 {
	if q.sumHi != 0 || q.sumLo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q.sumLo)
}

// A wakeList collects the waiters that a critical section decided to wake, so
// that they are woken, in order, after the lock is given back: a woken
// goroutine would only run into the lock. The zero value is empty.
//
// An invited waiter stays in its queue and so cannot be linked here as well;
// there is at most one, and it has its own place.
type wakeList struct {
	head, tail *waiter // out of the queue, linked by next
	invited    *waiter
}

func (l *wakeList) add(w *waiter) {
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

// wake sends every waiter its token. The owner's lock must not be held.
func (l *wakeList) wake() {
	for w := l.head; w != nil; {
		next := w.next // w may be recycled as soon as it has its token
		w.ready <- struct{}{}
		w = next
	}
	if l.invited != nil {
		l.invited.ready <- struct{}{}
	}
}
