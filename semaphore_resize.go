package ration

// Grow raises the capacity by n and wakes the waiters that can now be served.
// It returns [ErrCapacity], having changed nothing, if n is negative or the
// capacity would exceed [MaxPermits].
func (s *Semaphore) Grow(n int64) error {
	return s.resizeAndWake(grown(n))
}

// Shrink lowers the capacity by n, at once and without waiting. If more permits
// are held than the new capacity, the balance is negative until that many have
// been released, and nobody is served before. Waiters that ask for more than
// the new capacity fail with [ErrTooLarge], unless it is 0: that pauses the
// semaphore. Shrink returns [ErrCapacity], having changed nothing, if n is negative
// or more than the capacity.
//
// A change of capacity costs O(waiters), to find the requests it makes too
// large.
func (s *Semaphore) Shrink(n int64) error {
	return s.resizeAndWake(shrunk(n))
}

// Resize sets the capacity, as Grow or Shrink by the difference would. It
// returns [ErrCapacity], having changed nothing, if capacity is negative or above
// [MaxPermits].
func (s *Semaphore) Resize(capacity int64) error {
	return s.resizeAndWake(resizedTo(capacity))
}

// A newCapacity makes a capacity from the present one, and says whether it may.
type newCapacity func(capacity int64) (int64, bool)

func grown(n int64) newCapacity {
	return func(capacity int64) (int64, bool) { return capacity + n, 0 <= n && n <= MaxPermits-capacity }
}

func shrunk(n int64) newCapacity {
	return func(capacity int64) (int64, bool) { return capacity - n, 0 <= n && n <= capacity }
}

func resizedTo(capacity int64) newCapacity {
	return func(int64) (int64, bool) { return capacity, 0 <= capacity && capacity <= MaxPermits }
}

func (s *Semaphore) resizeAndWake(next newCapacity) error {
	var wake wakeList
	err := s.resize(next, &wake)
	wake.wake()
	return err
}

// resize sets the capacity to what next makes of it, and leaves it to the
// caller to wake whom that serves or refuses.
//
// Capacity and balance are two words, and Release judges the one by the other,
// so they change while no fast path runs.
func (s *Semaphore) resize(next newCapacity, wake *wakeList) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.capacity.Load()
	capacity, ok := next(old)
	if !ok {
		return ErrCapacity
	}
	balance := s.freeze() + capacity - old
	s.capacity.Store(capacity)
	s.word.Store(s.word.Load() ^ resized)
	if capacity > 0 { // else paused: everybody waits, whatever they ask for
		s.refuseLarger(capacity, wake)
	}
	s.settle(balance, wake)
	return nil
}

func (s *Semaphore) refuseLarger(capacity int64, wake *wakeList) {
	for w := s.queue.head; w != nil; {
		next := w.next
		if w.n > capacity {
			s.refuse(w, ErrTooLarge, wake)
		}
		w = next
	}
}
