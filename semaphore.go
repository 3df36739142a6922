package ration

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// MaxPermits is the largest capacity of a [Semaphore].
const MaxPermits int64 = 1<<59 - 1

// SemaphoreOptions are the options of [NewSemaphore].
type SemaphoreOptions struct {
	// Fair makes the order of arrival the order of service, for everybody: no
	// acquire, not even a TryAcquire, overtakes a waiter. The default lets
	// newcomers take free permits past the queue for as long as its head has
	// waited less than a millisecond, which is several times cheaper under load
	// because running goroutines need not be put to sleep.
	Fair bool

	// MaxWaiters bounds the queue: while this many wait, an acquire that would
	// have to wait fails with ErrQueueFull. 0 means no bound; a negative value
	// makes NewSemaphore panic.
	MaxWaiters int
}

// A Semaphore is a weighted counting semaphore: it holds a number of permits,
// its capacity, that callers acquire, any number at a time, and release.
//
// Use it to bound how many may do something at once. Use a [Pool] if there are
// distinct things to lend, and a [TokenBucket] if the bound is on how often,
// not on how many. If all holders weigh the same, the capacity never changes
// and nobody has to be told of a mistaken release, a buffered channel does.
//
// Waiters are served in the order they came. A fair semaphore (see
// [SemaphoreOptions]) lets nobody overtake them, so a large request at the head
// also holds back smaller ones behind it: if they could pass, a stream of small
// requests would starve it. A non-fair one, the default, lets newcomers barge:
// a release puts the permits back and invites the head of the queue to compete
// for them, and a goroutine that is running already may be quicker. Once the
// head has waited for more than a millisecond since it arrived, barging ends
// and permits are handed to it directly, so that the wait stays bounded.
//
// The capacity can be changed at any time. A shrink takes effect at once, even
// if all permits are held: the balance of free permits then goes negative, and
// releases repay that debt before anybody is served. At capacity 0 the
// semaphore is paused: every acquire waits.
//
// In the terminology of the Go memory model, a Release synchronizes before
// the return of the acquire that it lets through. A failed try synchronizes
// nothing.
//
// An acquire whose context is done fails with the context's error and takes
// nothing; no permit is lost to a cancellation, however late. Close fails the
// waiters and all later acquires with ErrClosed, and still counts releases.
//
// Acquire and Release cost one atomic compare-and-swap each if nobody waits,
// and then allocate nothing. A wait costs one allocation. Joining and leaving
// the queue are O(1); a release is O(waiters it serves).
//
// A Semaphore must be made by [NewSemaphore] and must not be copied.
type Semaphore struct {
	// Invariants, at every release of mu (checkInvariants in the tests):
	//
	//  1. balance = capacity - held, 0 <= held, 0 <= capacity <= MaxPermits.
	//  2. The flags of word say what they are documented to say.
	//  3. Fair, or the head overdue: the head does not fit. Otherwise: the head
	//     does not fit, or it is invited. So no permit is free with a fitting
	//     waiter asleep and nobody on the way to take it.
	//  4. At most one waiter is invited, and it is the head.
	//  5. Closed: nobody waits.
	//  6. With a capacity of at least 1, no waiter asks for more than it.
	//
	// Lock order: mu is taken with no other lock held but a pool's, and no
	// other lock is taken, no user code run and no waiter woken under it.

	_ [56]byte // keeps word off the cache line of whatever lies before

	// word is the balance and four flags:
	//
	//	 63                                                  4  3  2  1  0
	//	+------------------------------------------------------+--+--+--+--+
	//	| balance: free permits, negative in debt              | P| A| G| W|
	//	+------------------------------------------------------+--+--+--+--+
	//
	// Balance and flags change in one step, so whoever sees a flag clear and
	// swaps the word has acted before the flag was set. The balance changes by
	// compare-and-swap with or without mu, the flags only under mu.
	word atomic.Int64

	capacity atomic.Int64 // written under mu while word is gated and alarmed
	fair     bool
	clock    clock

	_ [56]byte // what follows is written under contention

	// headSince is the arrival of the head, for bargers to see without the lock
	// whether it is overdue. Written under mu before hasWaiters is set or the
	// gate opened, which the reader's load of word pairs with. What it says is
	// only a hint to take the lock or not; a stale value belongs to an earlier,
	// hence older head, and errs towards the lock.
	headSince atomic.Int64

	mu         sync.Mutex
	queue      waitQueue
	invited    *waiter // the head, while it is on its way to compete
	closed     bool
	maxWaiters int

	waited, canceled, rejected uint64
	waitTime, longestWait      time.Duration
}

// The flags of Semaphore.word.
const (
	hasWaiters int64 = 1 << iota // W: the queue is not empty
	gated                        // G: acquires take the lock; closed, or being resized, or permits are handed out in order
	alarmed                      // A: releases take the lock; being resized, or the head must be granted or invited when it fits
	resized                      // P: flips with every resize, so that a word read before one is not mistaken for an equal one after it

	flagBits = iota
)

// patience is how long the head of a non-fair semaphore's queue, counted from
// its arrival, puts up with others taking permits past it. It is the figure
// sync.Mutex uses: far above what a goroutine needs to be woken, far below what
// a person notices.
const patience = time.Millisecond

// NewSemaphore returns a semaphore with the given capacity, all of it free. A
// nil opts means the defaults. It panics if permits is negative or above
// [MaxPermits], or if opts are invalid.
func NewSemaphore(permits int64, opts *SemaphoreOptions) *Semaphore {
	if permits < 0 || permits > MaxPermits {
		panic(fmt.Sprintf("ration: NewSemaphore: permits %d out of range [0, MaxPermits]", permits))
	}
	if opts == nil {
		opts = &SemaphoreOptions{}
	}
	if opts.MaxWaiters < 0 {
		panic(fmt.Sprintf("ration: NewSemaphore: negative MaxWaiters %d", opts.MaxWaiters))
	}
	s := &Semaphore{fair: opts.Fair, maxWaiters: opts.MaxWaiters, clock: startClock()}
	s.capacity.Store(permits)
	s.word.Store(permits << flagBits)
	return s
}

// Acquire takes n permits, all at once, waiting for them if need be.
//
// It fails, having taken nothing, with the bare ctx.Err() if ctx is done before
// the permits are granted, on entry even if they are free; with [ErrClosed] if the
// semaphore is closed, before or meanwhile; with [ErrTooLarge] if n exceeds the
// capacity, now or after a resize, unless the semaphore is paused; with
// [ErrQueueFull] if it would have to wait and MaxWaiters wait already. If several
// apply, that is their order. Zero permits are granted at once, whatever the
// balance.
//
// It panics if n is negative or ctx is nil.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	if ctx != nil && ctx.Err() == nil && s.takeFast(n) {
		return nil
	}
	return s.acquireSlow(ctx, n)
}

// TryAcquire takes n permits if it can do so without waiting, and reports
// whether it did. It fails if fewer are free, if waiters may not be overtaken
// (see [SemaphoreOptions]), or if the semaphore is closed. It panics if n is
// negative.
func (s *Semaphore) TryAcquire(n int64) bool {
	return s.takeFast(n) || s.tryAcquireSlow(n)
}

// takeFast takes n permits if nobody waits and one attempt does it.
func (s *Semaphore) takeFast(n int64) bool {
	w := s.word.Load()
	return w&(hasWaiters|gated) == 0 && 0 < n && n <= w>>flagBits && s.word.CompareAndSwap(w, w-n<<flagBits)
}

// TryAcquireFor is [Semaphore.Acquire] with a time limit in place of a context.
// It reports whether it took the permits; if not, it took none. With a d of 0
// or less it is TryAcquire. A wait costs the allocations of a timer on top of
// its own. It panics if n is negative.
func (s *Semaphore) TryAcquireFor(n int64, d time.Duration) bool {
	if s.TryAcquire(n) {
		return true
	}
	return d > 0 && s.acquireWithin(n, d)
}

// Release gives n permits back and wakes the waiters that can now be served.
//
// It panics if n is negative or more than are held, before it changes anything:
// if the panic is recovered, the semaphore is as it was. Any goroutine may
// release, not only the one that acquired, but permits should come back from
// whoever holds them: the semaphore can tell that too many came back only by
// their number.
func (s *Semaphore) Release(n int64) {
	if !s.giveFast(n) {
		s.releaseSlow(n)
	}
}

// giveFast releases n permits if nobody has to hear of it and one attempt does
// it.
func (s *Semaphore) giveFast(n int64) bool {
	w := s.word.Load()
	return w&alarmed == 0 && 0 < n && n <= s.capacity.Load()-w>>flagBits && s.word.CompareAndSwap(w, w+n<<flagBits)
}

// Do runs fn while holding n permits, and returns what it returns. The permits
// are released when fn is done, also if it panics or calls [runtime.Goexit].
// If they cannot be acquired, Do returns the error of [Semaphore.Acquire]
// without running fn. It panics if n is negative or ctx or fn is nil.
func (s *Semaphore) Do(ctx context.Context, n int64, fn func(context.Context) error) error {
	if fn == nil {
		panic("ration: Semaphore.Do: nil function")
	}
	if err := s.Acquire(ctx, n); err != nil {
		return err
	}
	defer s.Release(n)
	return fn(ctx)
}

// TryAcquireUpTo takes as many permits as are free, at most limit, and returns
// how many it took. It takes none that are owed (see [Semaphore.Shrink]), none
// while waiters may not be overtaken, and none from a closed semaphore. It
// panics if limit is negative.
func (s *Semaphore) TryAcquireUpTo(limit int64) int64 {
	if limit < 0 {
		panic(fmt.Sprintf("ration: Semaphore.TryAcquireUpTo: negative limit %d", limit))
	}
	if limit == 0 {
		return 0
	}
	return s.grab(1, limit)
}

// Drain takes all permits that are free and returns how many they were, as
// TryAcquireUpTo without a limit would. The caller holds them and has to
// release them some time.
func (s *Semaphore) Drain() int64 { return s.TryAcquireUpTo(math.MaxInt64) }

// Close fails all waiters and all later acquires with [ErrClosed]. Permits that
// are held stay held, releases and resizes still count. Closing twice is the
// same as closing once.
func (s *Semaphore) Close() {
	var wake wakeList
	s.close(&wake)
	wake.wake()
}

// Available returns the balance: how many permits are free or, if negative, how
// many must come back before any is. For monitoring, not for control: it may
// have changed before the caller looks at it.
func (s *Semaphore) Available() int64 { return s.word.Load() >> flagBits }

// Capacity returns how many permits there are, held or free. For monitoring,
// not for control.
func (s *Semaphore) Capacity() int64 { return s.capacity.Load() }

// Held returns how many permits are out: capacity minus available, at one
// instant. For monitoring, not for control.
func (s *Semaphore) Held() int64 {
	s.mu.Lock() // no resize comes between the two
	defer s.mu.Unlock()
	return s.capacity.Load() - s.Available()
}

// Waiters returns how many acquires are waiting. For monitoring, not for
// control.
func (s *Semaphore) Waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.len
}

// Fair reports whether the semaphore was made with [SemaphoreOptions].Fair.
func (s *Semaphore) Fair() bool { return s.fair }

// SemaphoreStats is what [Semaphore.Stats] returns. Of the counters, those that
// an acquire which does not wait would have to move are left out on purpose: it
// would cost as much as the acquire.
type SemaphoreStats struct {
	Capacity  int64 // permits there are
	Available int64 // permits free; negative is debt
	Held      int64 // Capacity - Available

	Waiters        int   // acquires waiting
	WaitingPermits int64 // the sum of what they wait for, or the largest int64 if it is more

	Waited   uint64 // waits in the queue that have ended, well or not
	Canceled uint64 // those of them that ended by their context or time limit
	Refused  uint64 // acquires that failed as closed, too large or queue full, at once or after a wait

	WaitTime    time.Duration // sum over all ended waits, failed ones included: a figure of the successful ones would hide an outage
	LongestWait time.Duration // the longest ended wait
}

// Stats returns the state and the counters of one instant. It is O(1) and
// allocates nothing. For monitoring, not for control.
func (s *Semaphore) Stats() SemaphoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	capacity, available := s.capacity.Load(), s.Available()
	return SemaphoreStats{
		Capacity:       capacity,
		Available:      available,
		Held:           capacity - available,
		Waiters:        s.queue.len,
		WaitingPermits: s.queue.requests.value(),
		Waited:         s.waited,
		Canceled:       s.canceled,
		Refused:        s.rejected,
		WaitTime:       s.waitTime,
		LongestWait:    s.longestWait,
	}
}
