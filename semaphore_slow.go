package ration

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What the methods of Semaphore do when one compare-and-swap is not enough.
//
// Everything here that changes more than the balance happens between freeze and
// settle, under mu. While word is frozen nobody else can change it, so the code
// between the two is plain sequential code on a local balance.

// errTimedOut is how a wait of TryAcquireFor ends; nobody gets to see it.
var errTimedOut = errors.New("ration: timed out")

func checkPermits(method string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("ration: Semaphore.%s: negative number of permits %d", method, n))
	}
}

func (s *Semaphore) acquireSlow(ctx context.Context, n int64) error {
	checkPermits("Acquire", n)
	if ctx == nil {
		panic("ration: Semaphore.Acquire: nil context")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > 0 {
		if took, _ := s.barge(n, n); took == n {
			return nil
		}
	}
	_, _, err := s.acquireQueued(ctx, n, s.clock.now())
	return err
}

// acquireQueued is acquireSlow for a request that came at the time start. It
// also reports whether it was queued and, if so, when the wait ended; else that
// is start.
func (s *Semaphore) acquireQueued(ctx context.Context, n, start int64) (end int64, queued bool, err error) {
	done := ctx.Done() // asked before anything can be lost, since it may be user code
	w, err := s.join(n, start)
	if w == nil {
		return start, false, err
	}
	for {
		woken, final := w.sleep(done, nil)
		if woken && !final {
			s.linger(n)
		}
		cause := ctx.Err() // asked here, since it may be user code
		if !woken && cause == nil {
			cause = context.Canceled // a foreign context that does not keep its word
		}
		if over, end, err := s.wakeUp(w, woken, final, cause); over {
			return end, true, err
		}
	}
}

func (s *Semaphore) acquireWithin(n int64, d time.Duration) bool {
	w, err := s.join(n, s.clock.now())
	if w == nil {
		return err == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		woken, final := w.sleep(nil, timer.C)
		if woken && !final {
			s.linger(n)
		}
		var cause error
		if !woken {
			cause = errTimedOut
		}
		if over, _, err := s.wakeUp(w, woken, final, cause); over {
			return err == nil
		}
	}
}

func (s *Semaphore) tryAcquireSlow(n int64) bool {
	checkPermits("TryAcquire", n)
	if n > 0 {
		return s.grab(n, n) == n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

func (s *Semaphore) releaseSlow(n int64) {
	checkPermits("Release", n)
	var wake wakeList
	held, ok := s.release(n, &wake)
	wake.wake() // even if nothing was released: to look is to settle
	if !ok {
		panic(fmt.Sprintf("ration: Semaphore.Release: %d permits released, %d held", n, held))
	}
}

// release gives n permits back, unless fewer are held, and leaves it to the
// caller to wake whom that serves.
func (s *Semaphore) release(n int64, wake *wakeList) (held int64, ok bool) {
	for {
		w := s.word.Load()
		if w&alarmed != 0 || n > s.capacity.Load()-w>>flagBits {
			break // too many are only what they seem under the lock
		}
		if s.word.CompareAndSwap(w, w+n<<flagBits) {
			return 0, true
		}
	}
	now := s.clock.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	balance := s.freeze()
	held = s.capacity.Load() - balance
	ok = n <= held
	if ok {
		balance += n
	}
	s.settleAt(now, balance, wake)
	return held, ok
}

// grab takes as many permits as are free, at least least (which is positive)
// and at most most, past the queue if it may, and returns how many: 0 if it
// took none.
func (s *Semaphore) grab(least, most int64) int64 {
	n, sure := s.barge(least, most)
	if sure {
		return n
	}
	var wake wakeList
	s.mu.Lock()
	balance := s.freeze()
	if n = min(most, balance); n < least || s.closed || s.mustQueue() {
		n = 0
	}
	s.settle(balance-n, &wake)
	s.mu.Unlock()
	wake.wake()
	return n
}

// barge is grab without the lock. It is not sure of a 0 if it could not tell
// without the lock whether there was something to take.
func (s *Semaphore) barge(least, most int64) (n int64, sure bool) {
	for {
		w := s.word.Load()
		n := min(most, w>>flagBits)
		switch {
		case n < least:
			return 0, true
		case w&hasWaiters != 0 && s.fair:
			return 0, true
		case w&gated != 0:
			return 0, false
		case w&hasWaiters != 0 && s.overdue(s.headSince.Load(), s.clock.now()):
			return 0, false
		case s.word.CompareAndSwap(w, w-n<<flagBits):
			return n, true
		}
	}
}

// mustQueue reports whether a newcomer may not overtake those who wait. mu is
// held.
func (s *Semaphore) mustQueue() bool {
	head := s.queue.head
	return head != nil && (s.fair || s.overdue(head.since, s.clock.now()))
}

// overdue reports whether barging past somebody who arrived at since must end.
func (s *Semaphore) overdue(since, now int64) bool { return now-since > int64(patience) }

// close does what Close does, but for waking those it has refused.
func (s *Semaphore) close(wake *wakeList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	balance := s.freeze()
	s.closed = true
	for s.queue.head != nil {
		s.refuse(s.queue.head, ErrClosed, wake)
	}
	s.settle(balance, wake)
}

// leave takes w out of the queue and, with it, its invitation.
func (s *Semaphore) leave(w *waiter) {
	s.queue.remove(w)
	if s.invited == w {
		s.invited = nil
	}
}

// dismiss takes w out of the queue with its fate decided, and sees that it is
// woken: one that is invited has its token, or will get it, already.
func (s *Semaphore) dismiss(w *waiter, state waiterState, wake *wakeList) {
	awake := w.state == invited
	s.leave(w)
	w.state = state
	if !awake {
		wake.add(w, true)
	}
}

// refuse ends the wait of w with err. Its counters are moved when it wakes up,
// because its context may turn out to have ended it before.
func (s *Semaphore) refuse(w *waiter, err error, wake *wakeList) {
	w.err = err
	s.dismiss(w, refused, wake)
}

// endWait counts a wait that has come to its end.
func (s *Semaphore) endWait(w *waiter, now int64) {
	w.ended = now
	d := time.Duration(max(0, now-w.since))
	s.waited++
	s.waitTime += d
	s.longestWait = max(s.longestWait, d)
}

// freeze stops every fast path until settle and returns the balance. mu is
// held.
func (s *Semaphore) freeze() (balance int64) {
	w := s.word.Load()
	if w&(gated|alarmed) != gated|alarmed {
		w = s.word.Or(gated | alarmed)
	}
	return w >> flagBits
}

// settle is the one wake rule. It runs after every event that can make room or
// change the head (release, resize, arrival, the end of a wait, an invitation
// won, lost or given up) and looks only at where things stand, never at what
// has just happened: rules like "wake if it was full" or "wake as many as came
// back" have each left somebody asleep for ever.
//
// While the head fits, it is granted or, where others may still pass it,
// invited. Then word is set, in one step, to the balance that is left and the
// flags that go with it, which opens the fast paths again.
func (s *Semaphore) settle(balance int64, wake *wakeList) {
	var now int64
	if s.queue.head != nil {
		now = s.clock.now()
	}
	s.settleAt(now, balance, wake)
}

func (s *Semaphore) settleAt(now, balance int64, wake *wakeList) {
	head := s.queue.head
	for head != nil && head.n <= balance && (s.fair || s.overdue(head.since, now)) {
		balance -= head.n
		s.endWait(head, now)
		s.dismiss(head, granted, wake)
		head = s.queue.head
	}

	var flags int64
	switch {
	case head == nil:
		if s.closed {
			flags = gated
		}
	case s.fair || s.overdue(head.since, now):
		flags = hasWaiters | gated | alarmed
	case s.invited == nil && head.n > balance:
		flags = hasWaiters | alarmed
	default:
		flags = hasWaiters // until the invited head has competed, permits may come and go
		if s.invited == nil {
			s.invited = head
			head.state = invited
			wake.add(head, false)
		}
	}
	if head != nil && !s.fair && s.headSince.Load() != head.since {
		s.headSince.Store(head.since)
	}
	w := s.word.Load()
	if next := balance<<flagBits | w&resized | flags; next != w {
		s.word.Store(next)
	}
}
