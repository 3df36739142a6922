package ration

import "runtime"

// How waiters line up at a semaphore and leave again.

// join takes n permits, returning nil and nil, or refuses them, returning nil
// and the reason, or lines up for them, as of now.
//
// To try and to line up is one critical section. A release between the two
// would otherwise find an empty queue and wake nobody.
func (s *Semaphore) join(n, now int64) (*waiter, error) {
	w, queued := newWaiter(n, now), false // made early, to hold the lock for less
	var wake wakeList
	s.mu.Lock()
	balance := s.freeze()
	err := s.admit(n)
	switch {
	case err != nil:
	case n == 0:
	case n <= balance && !s.mustQueue():
		balance -= n
	case s.maxWaiters > 0 && s.queue.len >= s.maxWaiters:
		err = ErrQueueFull
	default:
		s.queue.pushBack(w)
		queued = true
	}
	if err != nil {
		s.rejected++
	}
	s.settleAt(now, balance, &wake)
	s.mu.Unlock()
	wake.wake()
	if !queued {
		w.recycle(false)
		w = nil
	}
	return w, err
}

// check is admit without the lock held.
func (s *Semaphore) check(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(n)
}

// admit says why a request for n permits can never be served, if so. mu is
// held.
func (s *Semaphore) admit(n int64) error {
	capacity := s.capacity.Load()
	switch {
	case s.closed:
		return ErrClosed
	case n > capacity && capacity > 0:
		return ErrTooLarge
	}
	return nil
}

// wakeUp is what a waiter does after each sleep, woken or driven by cause, the
// end of its context or time. It reports whether the wait is over, when it ended
// and how; w is then recycled.
func (s *Semaphore) wakeUp(w *waiter, woken, final bool, cause error) (over bool, end int64, err error) {
	if final && cause == nil && w.state == granted {
		end = w.ended
		w.recycle(false)
		return true, end, nil
	}

	var wake wakeList
	s.mu.Lock()
	state := w.state
	if state == granted && (cause == nil || cause == errTimedOut) {
		s.mu.Unlock() // nothing has changed
		end = w.ended
		w.recycle(!woken)
		return true, end, nil
	}

	now := s.clock.now()
	balance := s.freeze()
	switch {
	case state == granted:
		balance += w.n // the context may have been done before the grant, and then it wins
		s.canceled++

	case state == refused:
		s.endWait(w, now)
		if cause != nil {
			s.canceled++
		} else {
			s.rejected++
			cause = w.err
		}

	case cause != nil:
		s.leave(w)
		s.endWait(w, now)
		s.canceled++

	case w.n <= balance: // invited, and won
		balance -= w.n
		s.leave(w)
		s.endWait(w, now)
		over = true

	default: // invited, and lost
		s.invited = nil
		w.state = waiting
	}
	over = over || cause != nil
	s.settleAt(now, balance, &wake)
	s.mu.Unlock()
	wake.wake()
	if over {
		w.recycle(!woken && state != waiting)
	}
	return over, now, cause
}

// linger is what an invited waiter does if the permits have gone meanwhile: it
// lets others run a few turns, still invited, before it gives up and sleeps. If
// it slept at once, the next release would have to wake it again, most likely
// for nothing again, and pay for that at every release instead of one
// compare-and-swap.
func (s *Semaphore) linger(n int64) {
	for range lingerTurns {
		if w := s.word.Load(); n <= w>>flagBits || w&gated != 0 {
			return
		}
		runtime.Gosched()
	}
}

const lingerTurns = 8
