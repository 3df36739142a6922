package ration

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A TokenBucket bounds how often something may happen: tokens flow in at a
// steady [Rate], up to a burst, and everything that happens takes some.
//
// Use it to bound a rate, such as the calls per second that a partner allows.
// Use a [Semaphore] to bound how many happen at once; the two go together, first
// a token and then a permit. A token bucket is not a hard cap per window: in any
// time t it lets through up to burst + rate x t, so twice the rate in the first
// second if the burst is a second's worth.
//
// The arithmetic is exact: no token is lost or made over any time. Time is the
// monotonic clock's and never runs backwards.
//
// [TokenBucket.Wait] is a queue in order of arrival: nobody overtakes a waiter,
// not with Allow either, and a waiter is charged when it is served and not
// before. If one gives up, or the rate or the burst changes, all behind it move
// accordingly. A large request at the head holds back small ones behind it;
// otherwise a stream of those would starve it. [TokenBucket.Reserve] is a promise
// instead: it stands behind the waiters there are, is charged at once, and keeps
// its time whatever comes.
//
// The calls that take tokens synchronize nothing but what the bucket itself
// needs. A token says when something may happen, not what happened before.
//
// A context that is done takes nothing, and a waiter that gives up leaves nothing
// behind. There is nothing to close: a bucket that nobody waits at has no timer,
// and none has a goroutine.
//
// Allow costs a reading of the clock and a compare-and-swap or, after other calls,
// a mutex, and allocates nothing. A wait allocates once, and the first in a queue
// makes the timer for all of them. Everything is O(1), but for SetBurst and a Cancel
// while others wait, which are O(waiters).
//
// Timers are late by up to about a millisecond, and tokens that come while the
// bucket is full are lost. To get the full rate out of waits far shorter than a
// millisecond, the burst has to be at least what comes in two milliseconds.
//
// A TokenBucket must be made by [NewTokenBucket] and must not be copied.
//
// See the example of [TokenBucket.Wait].
type TokenBucket struct {
	// Invariants, at every release of mu, while there is no fastBucket:
	//
	//  1. have <= burst. It is negative by what is promised to reservations.
	//  2. The head of the queue cannot be served yet, or is a joint waiter.
	//  3. While somebody waits, timed is the head and due is when it can be served.
	//     For a joint waiter, it has been told so; for any other, the timer is set.
	//     If nobody waits there is no timer.
	//  4. A waiter asks for at most burst.
	//  5. Cancel can compute what would be there without a reservation (rooms).
	//  6. pending is empty.
	//
	// While there is a fastBucket, nobody waits, nothing is tracked by rooms, and
	// the level is the fastBucket's to say.
	//
	// Lock order: buckets' locks are taken in the order of their ids (lockAll).
	// No user code is run and nobody woken under mu.
	id    uint64
	clock clock

	fast atomic.Pointer[fastBucket] // set and cleared under mu

	mu       sync.Mutex
	calm     int // calls of Allow since any other that changed something
	rate     Rate
	burst    int64
	have     level
	asOf     int64       // the latest time seen; have is of then
	queue    waitQueue   // of Wait and WaitAll; waiter.since is rooms.number when it came
	timer    *time.Timer // every waiter but joint ones listens to it, and whoever hears it serves
	timed    *waiter
	due      int64
	pending  bucketWakes // to be woken after unlocking
	promised uint64      // to all reservations ever; see behind
	rooms    rooms
}

// What due is besides a time.
const (
	dueNever int64 = math.MaxInt64
	dueFar   int64 = dueNever - 1 // not within maxDelay; the timer is set for after that, to look again
)

var bucketIDs atomic.Uint64

// NewTokenBucket returns a bucket that holds burst tokens, and no more at any
// time, and gets more at the rate r. It returns [ErrRate] if r is invalid or burst is
// negative.
func NewTokenBucket(r Rate, burst int64) (*TokenBucket, error) {
	if err := checkBucket(r, burst); err != nil {
		return nil, err
	}
	return &TokenBucket{
		id:    bucketIDs.Add(1),
		clock: startClock(),
		rate:  r,
		burst: burst,
		have:  level{whole: burst},
	}, nil
}

func checkBucket(r Rate, burst int64) error {
	switch {
	case r.tokens < 0:
		return fmt.Errorf("%w: rate %v", ErrRate, r)
	case burst < 0:
		return fmt.Errorf("%w: burst %d", ErrRate, burst)
	}
	return nil
}

func checkTokens(method string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("ration: %s: negative number of tokens %d", method, n))
	}
}

// Allow takes n tokens if they are there and nobody waits for any, and reports
// whether it did. If not, nothing changes. It panics if n is negative.
func (b *TokenBucket) Allow(n int64) bool {
	if n <= 0 {
		checkTokens("TokenBucket.Allow", n)
		return true
	}
	if f := b.fast.Load(); f != nil {
		if ok, sure := f.allow(n, b.clock); sure {
			return ok
		}
	}
	return b.allowSlow(n)
}

func (b *TokenBucket) allowSlow(n int64) bool {
	b.lock()
	defer b.mu.Unlock()
	ok := b.take(n)
	b.relax()
	return ok
}

// Return gives n tokens back that were taken and not used. The bucket holds no
// more than its burst afterwards. It panics if n is negative.
func (b *TokenBucket) Return(n int64) {
	checkTokens("TokenBucket.Return", n)
	b.lock()
	b.add(level{whole: n})
	b.unlock()
}

// RetryAfter returns how long it will be until n tokens could be had by whoever
// lined up now, behind all that wait: 0 if now, the largest Duration if never,
// because n exceeds the burst or the rate is 0, or not in a century. Those who wait
// for other buckets as well may make it longer. It panics if n is negative.
func (b *TokenBucket) RetryAfter(n int64) time.Duration {
	checkTokens("TokenBucket.RetryAfter", n)
	if n == 0 {
		return 0
	}
	if d, ok := b.fast.Load().delay(n, b.clock); ok {
		return d
	}
	b.lock()
	defer b.mu.Unlock()
	d, ok := b.delay(n)
	if !ok {
		return math.MaxInt64
	}
	return d
}

// Tokens returns how many tokens are there; negative are promised to
// reservations. For monitoring, not for control.
func (b *TokenBucket) Tokens() int64 {
	if have, ok := b.fast.Load().level(b.clock); ok {
		return have.whole
	}
	b.lock()
	defer b.mu.Unlock()
	return b.have.whole
}

// Rate returns the rate.
func (b *TokenBucket) Rate() Rate {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate.tokens == 0 {
		return Rate{} // without the per of the rate before
	}
	return b.rate
}

// Burst returns how many tokens the bucket holds at most.
func (b *TokenBucket) Burst() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.burst
}

// SetRate changes the rate from now on. Waiters are served by the new rate,
// reservations keep their time. It returns [ErrRate], having changed nothing, if r is
// invalid.
//
// A fraction of a token that is there is carried over, rounded down to what the
// new rate counts in; a pause at rate 0 loses nothing.
func (b *TokenBucket) SetRate(r Rate) error {
	if err := checkBucket(r, 0); err != nil {
		return err
	}
	b.lock()
	if r.tokens == 0 {
		r.per = b.rate.per // of which have.part still is
	}
	b.have.part = rescale(b.have.part, b.rate, r)
	b.rooms.rescale(b.rate, r)
	b.rate = r
	b.unlock()
	return nil
}

// SetBurst changes how many tokens the bucket holds at most. If it holds more,
// the rest is lost; if a waiter asks for more, it fails with [ErrTooLarge]. It
// returns [ErrRate], having changed nothing, if n is negative.
func (b *TokenBucket) SetBurst(n int64) error {
	if err := checkBucket(Rate{}, n); err != nil {
		return err
	}
	b.lock()
	b.burst = n
	b.add(level{}) // clips
	for w := b.queue.head; w != nil; {
		next := w.next
		if w.n > n {
			b.refuse(w, ErrTooLarge)
		}
		w = next
	}
	b.unlock()
	return nil
}

// lock begins a critical section, as of now. The clock is read within: whoever
// reads it first and then waits for the lock would bring an old time along.
func (b *TokenBucket) lock() {
	b.mu.Lock()
	b.slowDown()
	b.advance(b.clock.now())
}

// unlock ends a critical section that may have made room or changed the head of
// the queue.
func (b *TokenBucket) unlock() {
	wake := b.finish()
	b.mu.Unlock()
	wake.wake()
}

// finish is what comes before the unlocking: it settles, and returns whom to wake
// after it.
func (b *TokenBucket) finish() bucketWakes {
	b.calm = 0
	b.settle()
	wake := b.pending
	b.pending = bucketWakes{}
	return wake
}

// advance brings the bucket to the time now, or leaves it where it is if it has
// seen a later one.
func (b *TokenBucket) advance(now int64) {
	if now < b.asOf-anotherClock {
		b.asOf = now
	}
	if now > b.asOf {
		b.have = b.have.after(now-b.asOf, b.rate, b.burst)
		b.asOf = now
	}
	if b.rooms.tracking {
		b.rooms.note(b.room())
	}
}

// anotherClock is by how much a reading is not just old but of another clock: that
// of a testing/synctest bubble, which stands in the year 2000. A bucket made
// outside goes on there with what it holds.
const anotherClock = int64(365 * 24 * time.Hour)

// take takes n tokens if they are there and nobody waits.
func (b *TokenBucket) take(n int64) bool {
	if n > b.have.whole || b.queue.head != nil {
		return false
	}
	b.have.whole -= n
	return true
}

// add adds l, as far as there is room.
func (b *TokenBucket) add(l level) {
	if added := (room{uint64(l.whole), l.part}); !added.less(b.room()) {
		b.have = level{whole: b.burst}
	} else {
		b.have = b.have.plus(l, b.rate)
	}
	if b.rooms.tracking {
		b.rooms.note(b.room())
	}
}

// room is how much the bucket could hold more.
func (b *TokenBucket) room() room {
	if b.have.whole >= b.burst {
		return room{}
	}
	return room{whole: uint64(b.burst) - uint64(b.have.whole)}.minus(room{part: b.have.part}, b.rate)
}

// delay returns how long it will be until n tokens could be had behind all that
// wait, and false if that is never.
func (b *TokenBucket) delay(n int64) (time.Duration, bool) {
	ahead := b.queue.requests.value()
	if n > b.burst || n > math.MaxInt64-ahead {
		return 0, false
	}
	return b.have.until(ahead+n, b.rate)
}
