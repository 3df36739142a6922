package ration

import "sync/atomic"

// A fastBucket stands in for a TokenBucket of which nothing is asked but Allow:
// its whole state is one word, so that a grant is a reading of the clock and a
// compare-and-swap, and a refusal not even that. Any other call closes it and
// goes on with the mutex and the level; when enough calls of Allow have come in a
// row, there is a new one.
//
// Time and tokens are counted in one unit, so small that both are whole: a
// nanosecond is Rate.tokens units, a token is Rate.per units. The word is the
// time, in units since base, at which the bucket would be full. A token taken
// moves it per later, from the present if it lay in the past, and there are n
// tokens if it stays within a burst of the present. That is the same exact
// arithmetic as that of level, seen from the other end.
//
// The latest time is clamped to by itself: to a caller whose reading of the
// clock is old, the bucket looks emptier than it is.
type fastBucket struct {
	fullAt atomic.Int64 // or closedBucket

	base       int64 // by the bucket's clock
	tokens     int64 // Rate
	per        int64
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
func (f *fastBucket) allow(n, now int64) (ok, sure bool) {
	t := now - f.base
	if t < 0 || t > f.limit {
		return false, false
	}
	if n > f.burst {
		return false, true
	}
	present := t * f.tokens
	for {
		was := f.fullAt.Load()
		if was == closedBucket {
			return false, false
		}
		is := max(was, present) + n*f.per
		if is-present > f.burstUnits {
			return false, true
		}
		if f.fullAt.CompareAndSwap(was, is) {
			return true, true
		}
	}
}

// speedUp opens a fastBucket if the numbers allow it. mu is held, and the bucket
// is at asOf.
func (b *TokenBucket) speedUp() {
	if b.rate.tokens == 0 || b.queue.head != nil || b.rooms.tracking ||
		b.burst > maxUnits/int64(b.rate.per) || b.have.whole < 0 {
		return
	}
	f := &fastBucket{
		base:       b.asOf,
		tokens:     b.rate.tokens,
		per:        int64(b.rate.per),
		burst:      b.burst,
		burstUnits: b.burst * int64(b.rate.per),
		limit:      maxUnits / b.rate.tokens,
	}
	f.fullAt.Store(f.burstUnits - b.have.whole*f.per - b.have.part)
	b.fast.Store(f)
}

// slowDown closes the fastBucket, if there is one, and takes its state over: the
// level at its base from which what was taken since leads to the level now, or
// the one at the latest time that was certainly seen. mu is held.
func (b *TokenBucket) slowDown() {
	f := b.fast.Load()
	if f == nil {
		return
	}
	b.fast.Store(nil)
	units := f.burstUnits - f.fullAt.Swap(closedBucket)
	if units < 0 {
		// Tokens were taken that were not there yet at the base, so a later time was
		// seen, the one at which they had come.
		later := (-units + f.tokens - 1) / f.tokens
		units += later * f.tokens
		b.asOf += later
	}
	b.have = level{whole: units / f.per, part: units % f.per}
}
