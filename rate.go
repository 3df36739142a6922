package ration

import (
	"fmt"
	"math/bits"
	"time"
)

// A Rate is how fast tokens come: an exact ratio of tokens to time. Make one
// with [Per], [PerSecond] or [Every]; equal ratios compare equal. The zero Rate is
// that of a bucket that nothing flows into.
type Rate struct {
	tokens int64 // per
	per    time.Duration
}

// Per returns the rate of n tokens in each d. If n or d is negative, or d is 0 and
// n is not, the rate is invalid, and is refused where it is used with [ErrRate].
func Per(n int64, d time.Duration) Rate {
	switch {
	case n < 0 || d < 0, d == 0 && n != 0:
		return Rate{tokens: -1}
	case n == 0:
		return Rate{}
	}
	g := gcd(n, int64(d))
	return Rate{tokens: n / g, per: d / time.Duration(g)}
}

// PerSecond returns the rate of n tokens a second. See [Per].
func PerSecond(n int64) Rate { return Per(n, time.Second) }

// Every returns the rate of one token in each d. See [Per].
func Every(d time.Duration) Rate { return Per(1, d) }

// String returns the rate as its lowest terms, such as "7/1m0s".
func (r Rate) String() string {
	switch {
	case r.tokens < 0:
		return "invalid"
	case r.tokens == 0:
		return "0"
	}
	return fmt.Sprintf("%d/%v", r.tokens, r.per)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A level is an amount of tokens, exact: whole ones and a rest of
// part/Rate.per, 0 <= part < Rate.per. A bucket whose rate is set to 0 keeps the
// per it had, so that a pause does not cost it the rest; in one that never had
// another, part is 0.
type level struct {
	whole int64
	part  int64
}

// after returns the level that l has risen to after d of the rate, or top if
// that is less.
func (l level) after(d int64, r Rate, top int64) level {
	if r.tokens == 0 || l.whole >= top {
		return l
	}
	hi, lo := bits.Mul64(uint64(d), uint64(r.tokens))
	lo, carry := bits.Add64(lo, uint64(l.part), 0)
	hi += carry
	if hi >= uint64(r.per) {
		return level{whole: top}
	}
	whole, part := bits.Div64(hi, lo, uint64(r.per))
	if whole >= uint64(top-l.whole) { // the difference may exceed an int64, not a uint64
		return level{whole: top}
	}
	return level{whole: l.whole + int64(whole), part: int64(part)}
}

// plus returns l + m, at the rate r. It must not exceed an int64.
func (l level) plus(m level, r Rate) level {
	sum := level{whole: l.whole + m.whole, part: l.part + m.part}
	if sum.part > 0 && sum.part >= int64(r.per) {
		sum.whole, sum.part = sum.whole+1, sum.part-int64(r.per)
	}
	return sum
}

// until returns how long it takes l to rise to want, rounded up to a nanosecond,
// and false if that is never or in more than 146 years.
func (l level) until(want int64, r Rate) (time.Duration, bool) {
	if want <= l.whole {
		return 0, true
	}
	if r.tokens == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(want-l.whole), uint64(r.per))
	lo, borrow := bits.Sub64(lo, uint64(l.part), 0)
	hi -= borrow
	if hi >= uint64(r.tokens) {
		return 0, false
	}
	d, rest := bits.Div64(hi, lo, uint64(r.tokens))
	if d > uint64(maxDelay) {
		return 0, false
	}
	if rest > 0 {
		d++
	}
	return time.Duration(d), true
}

// maxDelay leaves room to add a delay to a time.
const maxDelay = time.Duration(1) << 62

// rescale returns part/from.per in terms of to, rounded down: a change of the
// rate may cost less than one part, which is no more than comes in a
// nanosecond, and never makes anything.
func rescale(part int64, from, to Rate) int64 {
	if part == 0 || from.per == to.per {
		return part
	}
	hi, lo := bits.Mul64(uint64(part), uint64(to.per))
	q, _ := bits.Div64(hi, lo, uint64(from.per))
	return int64(q)
}
