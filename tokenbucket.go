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
// accordingly. [TokenBucket.Reserve] is a promise instead: it stands behind the
// waiters there are, is charged at once, and keeps its time whatever comes.
//
// The calls that take tokens synchronize nothing but what the bucket itself
// needs.
//
// Allow costs a reading of the clock and a mutex or, while nothing else is asked
// of the bucket, a compare-and-swap, and allocates nothing. A wait
// allocates once, and the first in a queue once more. Everything is O(1), but for
// Reserve and Cancel while others wait, and SetBurst, which are O(waiters).
//
// Timers are late by up to about a millisecond, and tokens that come while the
// bucket is full are lost. To get the full rate out of waits far shorter than a
// millisecond, the burst has to be at least what comes in two milliseconds.
//
// A TokenBucket must be made by [NewTokenBucket] and must not be copied.
type TokenBucket struct {
	// Invariants, at every release of mu:
	//
	//  1. have <= burst. It is negative by what is promised to reservations.
	//  2. The head of the queue cannot be served yet, or is a joint waiter that
	//     has been called.
	//  3. If somebody waits and the rate is not 0, the timer is set for when the
	//     head can be served, unless that is more than a century ahead. If nobody
	//     waits there is no timer.
	//  4. A waiter asks for at most burst.
	//  5. Cancel can compute what would be there without a reservation (rooms).
	//
	// Lock order: buckets' locks are taken in the order of their ids (lockAll).
	// No user code is run and nobody woken under mu.
	id    uint64
	clock clock

	fast atomic.Pointer[fastBucket] // set and cleared under mu; while it is set, have is out of date

	mu    sync.Mutex
	calm  int // calls of Allow since any other
	rate  Rate
	burst int64
	have  level
	asOf  int64     // the latest time seen; have is of then
	queue waitQueue // of Wait and WaitAll; waiter.since is rooms.number when it came
	timer *time.Timer
	due   int64 // when it is set for
	fire  func()
	rooms rooms
}

var bucketIDs atomic.Uint64

// NewTokenBucket returns a bucket that holds burst tokens, and no more at any
// time, and gets more at the rate r. It returns [ErrRate] if r is invalid or burst is
// negative.
func NewTokenBucket(r Rate, burst int64) (*TokenBucket, error) {
	if err := checkBucket(r, burst); err != nil {
		return nil, err
	}
	b := &TokenBucket{
		id:    bucketIDs.Add(1),
		clock: startClock(),
		rate:  r,
		burst: burst,
		have:  level{whole: burst},
	}
	b.fire = func() { b.update(func(*bucketWakes) {}) } // settle serves the head
	return b, nil
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
	now := b.clock.now()
	if f := b.fast.Load(); f != nil {
		if ok, sure := f.allow(n, now); sure {
			return ok
		}
	}
	return b.allowSlow(n, now)
}

func (b *TokenBucket) allowSlow(n, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	calm := b.calm + 1
	b.advance(now)
	ok := n <= b.have.whole && b.queue.head == nil
	if ok {
		b.have.whole -= n
	}
	if b.calm = calm; calm >= calmCalls {
		b.speedUp()
	}
	return ok
}

// Return gives n tokens back that were taken and not used. The bucket holds no
// more than its burst afterwards. It panics if n is negative.
func (b *TokenBucket) Return(n int64) {
	checkTokens("TokenBucket.Return", n)
	b.update(func(*bucketWakes) { b.add(level{whole: n}) })
}

// RetryAfter returns how long it will be until n tokens could be had by whoever
// lined up now, behind all that wait: 0 if now, the largest Duration if never,
// because n exceeds the burst or the rate is 0. It panics if n is negative.
func (b *TokenBucket) RetryAfter(n int64) time.Duration {
	checkTokens("TokenBucket.RetryAfter", n)
	if n == 0 {
		return 0
	}
	now := b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	d, ok := b.delay(n)
	if !ok {
		return math.MaxInt64
	}
	return d
}

// Tokens returns how many tokens are there; negative are promised to
// reservations. For monitoring, not for control.
func (b *TokenBucket) Tokens() int64 {
	now := b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
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
func (b *TokenBucket) SetRate(r Rate) error {
	if err := checkBucket(r, 0); err != nil {
		return err
	}
	b.update(func(*bucketWakes) {
		if r.tokens == 0 {
			r.per = b.rate.per // in which the parts are
		}
		b.have.part = rescale(b.have.part, b.rate, r)
		b.rooms.rescale(b.rate, r)
		b.rate = r
	})
	return nil
}

// SetBurst changes how many tokens the bucket holds at most. If it holds more,
// the rest is lost; if a waiter asks for more, it fails with [ErrTooLarge]. It
// returns [ErrRate], having changed nothing, if n is negative.
func (b *TokenBucket) SetBurst(n int64) error {
	if err := checkBucket(Rate{}, n); err != nil {
		return err
	}
	b.update(func(wake *bucketWakes) {
		b.burst = n
		b.add(level{}) // clips
		for w := b.queue.head; w != nil; {
			next := w.next
			if w.n > n {
				b.refuse(w, ErrTooLarge, wake)
			}
			w = next
		}
	})
	return nil
}

// update runs fn in a critical section as of now, and settles.
func (b *TokenBucket) update(fn func(wake *bucketWakes)) {
	var wake bucketWakes
	now := b.clock.now()
	b.mu.Lock()
	b.advance(now)
	fn(&wake)
	b.settle(&wake)
	b.mu.Unlock()
	wake.wake()
}

// advance brings the bucket to the time now, or leaves it where it is if it has
// seen a later one: callers read the clock before they get the lock, and need
// not get it in that order.
func (b *TokenBucket) advance(now int64) {
	b.calm = 0
	b.slowDown()
	if now > b.asOf {
		b.have = b.have.after(now-b.asOf, b.rate, b.burst)
		b.asOf = now
	}
	if b.rooms.tracking {
		b.rooms.note(b.room())
	}
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
	r := room{whole: uint64(b.burst) - uint64(b.have.whole)}
	if b.have.part > 0 {
		r.whole--
		r.part = int64(b.rate.per) - b.have.part
	}
	return r
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
