package ration

import (
	"math"
	"sync/atomic"
	"time"
)

// A fastBucket stands in for a TokenBucket at which nobody waits and nothing is
// promised: its whole state is one word, so that a grant is a reading of the clock
// and a compare-and-swap, and a refusal not even that. Any call but Allow, a Wait
// that need not wait, and those that only look closes it and goes on with the
// mutex and the level; when enough calls of Allow have come in a row, there is a
// new one.
//
// Time and tokens are counted in one unit, so small that both are whole: a
// nanosecond is Rate.tokens units, a token is Rate.per units. The word is the
// time, in units since base, at which the bucket would be full. A token taken
// moves it per later, from the present if it lay in the past, and there are n
// tokens if it stays within a burst of the present. That is the same exact
// arithmetic as that of level, seen from the other end.
//
//	 63                                            0
//	+-----------------------------------------------+
//	| fullAt: units since base, or closedBucket, -1 |
//	+-----------------------------------------------+
//
// A closed one is never opened again, and everything else in it never changes, so
// that a compare-and-swap that succeeds has computed with the right numbers.
//
// The clock is read between the load of the word and the compare-and-swap: if
// that succeeds, the time was read while the state was what the caller saw. The
// latest time seen is clamped to by itself: a reading of the clock that is older
// only makes the bucket look emptier than it is.
type fastBucket struct {
	fullAt atomic.Int64

	base       int64 // by the bucket's clock
	rate       Rate
	burst      int64
	burstUnits int64 // burst x per
	limit      int64 // how long after base the units fit
}

const (
	closedBucket = -1

	// maxUnits is what time and tokens may come to, so that their sum and the
	// next token still fit into the word.
	maxUnits int64 = 1 << 60

	// calmCalls is after how many calls of Allow in a row a fastBucket is worth its
	// allocation.
	calmCalls = 64
)

// allow is Allow, unless it is not sure.
func (f *fastBucket) allow(n int64, c clock) (ok, sure bool) {
	for {
		was := f.fullAt.Load()
		t := c.now() - f.base
		if was == closedBucket || uint64(t) > uint64(f.limit) {
			return false, false
		}
		if n > f.burst {
			return false, true
		}
		present := t * f.rate.tokens
		is := max(was, present) + n*int64(f.rate.per)
		if is-present > f.burstUnits {
			return false, true
		}
		if f.fullAt.CompareAndSwap(was, is) {
			return true, true
		}
	}
}

// level returns how many tokens are there, if f is not nil and is sure.
func (f *fastBucket) level(c clock) (level, bool) {
	if f == nil {
		return level{}, false
	}
	was := f.fullAt.Load()
	t := c.now() - f.base
	if was == closedBucket || uint64(t) > uint64(f.limit) {
		return level{}, false
	}
	return f.at(was, t), true
}

// at returns the level at time t after base. There is no debt.
func (f *fastBucket) at(fullAt, t int64) level {
	units, per := max(0, f.burstUnits-max(0, fullAt-t*f.rate.tokens)), int64(f.rate.per)
	return level{whole: units / per, part: units % per}
}

// delay is RetryAfter, if f is not nil and is sure.
func (f *fastBucket) delay(n int64, c clock) (time.Duration, bool) {
	l, ok := f.level(c)
	if !ok {
		return 0, false
	}
	if n > f.burst {
		return math.MaxInt64, true
	}
	d, ok := l.until(n, f.rate)
	return d, ok
}

// relax counts a call that a fastBucket could have served. mu is held, and the
// bucket is at asOf.
func (b *TokenBucket) relax() {
	if b.calm++; b.calm >= calmCalls {
		b.speedUp()
	}
}

// speedUp opens a fastBucket if the numbers allow it.
func (b *TokenBucket) speedUp() {
	if b.rate.tokens == 0 || b.queue.head != nil || b.rooms.tracking ||
		b.burst > maxUnits/int64(b.rate.per) || b.have.whole < 0 {
		return
	}
	f := &fastBucket{
		base:       b.asOf,
		rate:       b.rate,
		burst:      b.burst,
		burstUnits: b.burst * int64(b.rate.per),
		limit:      maxUnits / b.rate.tokens,
	}
	f.fullAt.Store(f.burstUnits - b.have.whole*int64(b.rate.per) - b.have.part)
	b.fast.Store(f)
}

// slowDown closes the fastBucket, if there is one, and takes its state over: the
// level at its base from which what was taken since leads to the level now, or
// else the first later time at which nothing is owed any more: somebody has seen
// that time, or it could not have taken so much. mu is held.
func (b *TokenBucket) slowDown() {
	f := b.fast.Load()
	if f == nil {
		return
	}
	b.fast.Store(nil)
	fullAt := f.fullAt.Swap(closedBucket)
	seen := max(0, fullAt-f.burstUnits+f.rate.tokens-1) / f.rate.tokens
	b.have = f.at(fullAt, seen)
	b.asOf = f.base + seen
}
