package ration

import (
	"math"
	"time"
)

// Advice is what the hold times of a pool suggest for the threshold of its
// detector. Leases still open count as held for at least as long as they are, so
// that slow ones are not missing just because they have not ended; leases with a
// MaxHold of their own, revoked ones, and those that are proved lost, do not count.
//
// Quantiles are at most 12.5 % off, by the width of what they are counted in. How
// often holds will be longer than hardly any has been yet is read off a tail
// fitted to the longest of them, a generalized Pareto distribution, and is a guess
// by its nature.
type Advice struct {
	Samples int  // loans that have ended; where they are very frequent, one in eight was measured and counts for eight
	Enough  bool // at least 1,000 were measured; if not, take the rest as a hint

	P50, P99, Max time.Duration // of the time from acquire to end; Max includes what is open

	// Threshold is at least 5 times P99 and 1 s, and so long that at most one
	// lease a day, or hardly more, is longer and comes back all the same.
	Threshold time.Duration

	// FalseAlarms3x and FalseAlarms5x are how many leases a day are to be expected
	// that are longer than 3 and 5 times P99 and come back all the same.
	FalseAlarms3x, FalseAlarms5x float64
}

const (
	enoughSamples  = 1_000
	adviceFloor    = time.Second
	adviceMultiple = 5
)

// advise makes the advice for the pool.
func (p *Pool[T]) advise() Advice {
	now := p.clock.now()
	var open survival
	p.walk(func(s *slot[T]) bool {
		if held := time.Duration(now - s.lentAt); s.isLent() && s.maxHold == 0 && held >= 0 && !s.marks.proved {
			open.censor(held, s.marks.suspect != 0)
		}
		return true
	})
	p.mu.Lock()
	if p.holds == nil {
		p.mu.Unlock()
		return Advice{}
	}
	holds := *p.holds
	p.mu.Unlock()
	open.ended = holds.counts
	open.longest = max(open.longest, holds.longest)
	return open.advice(holds.measured, time.Duration(now-holds.since))
}

// A survival is how long leases live, by the buckets of holdTimes.
type survival struct {
	ended    [holdBuckets]float64 // loans that ended in the bucket
	censored [holdBuckets]float64 // loans that are open and have got that far
	suspects [holdBuckets]float64 // of these, suspects
	longest  time.Duration

	beyond [holdBuckets + 1]float64 // the part that outlives the start of the bucket
	tail   tail
}

func (v *survival) censor(held time.Duration, suspect bool) {
	i := bucketOf(held)
	v.censored[i]++
	if suspect {
		v.suspects[i]++
	}
	v.longest = max(v.longest, held)
}

// advice is that of so many measured loans within some time.
func (v *survival) advice(measured int, observed time.Duration) Advice {
	v.estimate()
	v.fitTail()
	total := sum(v.ended[:])
	a := Advice{
		Samples: int(math.Round(total)),
		Enough:  measured >= enoughSamples,
		P50:     v.quantile(0.50),
		P99:     v.quantile(0.99),
		Max:     v.longest,
	}
	if total == 0 {
		return a
	}
	perDay := 0.0
	if observed > 0 {
		perDay = total / observed.Hours() * 24
	}
	alarms := func(threshold float64) float64 { return perDay * v.outlives(threshold) }
	a.FalseAlarms3x = alarms(3 * float64(a.P99))
	a.FalseAlarms5x = alarms(5 * float64(a.P99))
	a.Threshold = atMostOne(alarms, max(adviceMultiple*float64(a.P99), float64(adviceFloor)))
	return a
}

// atMostOne returns the least threshold from some on that has at most one alarm.
func atMostOne(alarms func(float64) float64, from float64) time.Duration {
	const end = float64(math.MaxInt64)
	to := from
	for to < end && alarms(to) > 1 {
		from, to = to, 2*to
	}
	for range 20 { // to a millionth
		if mid := (from + to) / 2; alarms(mid) > 1 {
			from = mid
		} else {
			to = mid
		}
	}
	if to >= end {
		return math.MaxInt64
	}
	return time.Duration(to)
}

// estimate is that of Kaplan and Meier: of those known to have lived until a
// bucket, some ended in it.
func (v *survival) estimate() {
	atRisk := sum(v.ended[:]) + sum(v.censored[:])
	v.beyond[0] = 1
	for i := range v.ended {
		v.beyond[i+1] = v.beyond[i]
		if v.ended[i] > 0 {
			v.beyond[i+1] *= 1 - v.ended[i]/atRisk
		}
		atRisk -= v.ended[i] + v.censored[i]
	}
}

// quantile returns how long the part q of the leases lives at most, or how long
// the oldest has lived if too many are still open to tell.
func (v *survival) quantile(q float64) time.Duration {
	left := 1 - q
	for i := range v.ended {
		if v.beyond[i+1] > left+1e-12 {
			continue
		}
		from, to := bucketStart(i), bucketStart(i+1)
		within := 1.0
		if v.beyond[i] > v.beyond[i+1] {
			within = (v.beyond[i] - left) / (v.beyond[i] - v.beyond[i+1])
		}
		return min(v.longest, time.Duration(from+(to-from)*within))
	}
	return v.longest
}

// outlives returns which part of the leases lives longer than d, by count as long
// as there is something to count, and beyond that by the tail.
func (v *survival) outlives(d float64) float64 {
	const countable = 30
	if d >= math.MaxInt64 {
		return 0
	}
	i := bucketOf(time.Duration(d))
	if sum(v.ended[i+1:]) >= countable || v.tail.count == 0 {
		from, to := bucketStart(i), bucketStart(i+1)
		return v.beyond[i] + (v.beyond[i+1]-v.beyond[i])*(d-from)/(to-from)
	}
	return v.tail.part * v.tail.outlives(d-v.tail.from)
}

// A tail is a generalized Pareto distribution of how much longer than from the
// longest holds are.
type tail struct {
	from         float64
	part         float64 // of all, that get there
	count        float64 // of those measured that got there; 0: there is no tail
	shape, scale float64
}

// outlives returns the part of the tail that is longer than from by more than y.
func (t *tail) outlives(y float64) float64 {
	z := max(0, y) / t.scale
	if math.Abs(t.shape) < 1e-9 {
		return math.Exp(-z)
	}
	return math.Pow(max(0, 1+t.shape*z), -1/t.shape)
}

// fitTail fits a tail to the longest holds: the fewer, the more are a tail, the
// more, the less it depends on chance. It is a tenth of up to 10,000 and a
// hundredth of 100,000 and more. Open leases that are suspects have no part in
// it: they are what the threshold is to find.
func (v *survival) fitTail() {
	total := sum(v.ended[:])
	want := min(total/10, max(1_000, total/100))
	first, last, count := 0, 0, 0.0
	for i := holdBuckets - 1; i >= 0 && count < want; i-- {
		if v.ended[i] > 0 {
			count += v.ended[i]
			first, last = i, max(last, i)
		}
	}
	if first == last {
		return // too few, or all alike
	}
	from := bucketStart(first)
	excess := 0.0
	for i := first; i <= last; i++ {
		excess += v.ended[i] * ((bucketStart(i)+bucketStart(i+1))/2 - from)
	}
	v.tail = tail{from: from, part: v.beyond[first], count: count}
	for i := last; i < holdBuckets; i++ {
		if v.censored[i] > v.suspects[i] {
			last = i
		}
	}
	v.tail.fit(excess/count, func(t *tail) float64 { return v.likelihood(t, first, last) })
}

// likelihood is the logarithm of how likely a tail makes what was counted in the
// buckets from first to last.
func (v *survival) likelihood(t *tail, first, last int) float64 {
	l := 0.0
	here := 1.0
	for i := first; i <= last; i++ {
		next := t.outlives(bucketStart(i+1) - t.from)
		if v.ended[i] > 0 {
			l += v.ended[i] * math.Log(max(here-next, math.SmallestNonzeroFloat64))
		}
		if open := v.censored[i] - v.suspects[i]; open > 0 {
			l += open * math.Log(max(here, math.SmallestNonzeroFloat64))
		}
		here = next
	}
	return l
}

// fit finds the likeliest shape and scale. Shapes are tried between that of a tail
// which ends soon and one with hardly a mean.
func (t *tail) fit(mean float64, likelihood func(*tail) float64) {
	bestScale := func(shape float64) (scale, l float64) {
		at := func(logScale float64) float64 {
			return likelihood(&tail{from: t.from, shape: shape, scale: math.Exp(logScale)})
		}
		logScale := maximize(at, math.Log(mean)-5, math.Log(mean)+3, 24)
		return math.Exp(logScale), at(logScale)
	}
	ofShape := func(shape float64) float64 {
		_, l := bestScale(shape)
		return l
	}
	t.shape = maximize(ofShape, -0.5, 2, 16)
	t.scale, _ = bestScale(t.shape)
}

// maximize returns where between from and to, about, f is largest, if it rises
// and then falls: the golden section.
func maximize(f func(float64) float64, from, to float64, steps int) float64 {
	const part = 0.6180339887498949
	a, b := to-part*(to-from), from+part*(to-from)
	fa, fb := f(a), f(b)
	for range steps {
		if fa < fb {
			from, a, fa = a, b, fb
			b = from + part*(to-from)
			fb = f(b)
		} else {
			to, b, fb = b, a, fa
			a = to - part*(to-from)
			fa = f(a)
		}
	}
	return (from + to) / 2
}

func sum(counts []float64) (total float64) {
	for _, n := range counts {
		total += n
	}
	return total
}
