package debug

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration"
)

// Waits counts how long the acquires of one pool have waited, for the
// percentiles on a page. Its method Acquired goes into the pool's Observer, and
// it goes into [Pool]. The zero value is ready to use.
//
// It tells percentiles to 12.5 %, from 1 µs to half an hour, in 2 KiB.
type Waits struct {
	// buckets are log-linear: the first is below 1,024 ns, then come 8 of equal
	// width to each power of two.
	buckets [waitBuckets]atomic.Uint64
	longest atomic.Int64
}

const (
	waitFloorBits = 10
	waitOctaves   = 31
	waitBuckets   = 1 + 8*waitOctaves
)

// Acquired counts an acquire, failed ones included: a figure of the successful
// ones would hide an outage. It costs one atomic addition.
func (w *Waits) Acquired(e ration.AcquireEvent) {
	for {
		longest := w.longest.Load()
		if int64(e.Waited) <= longest || w.longest.CompareAndSwap(longest, int64(e.Waited)) {
			break
		}
	}
	w.buckets[waitBucket(e.Waited)].Add(1)
}

func waitBucket(d time.Duration) int {
	if d < 1<<waitFloorBits {
		return 0
	}
	octave := bits.Len64(uint64(d)) - 1
	step := int(d>>(octave-3)) & 7
	return min(1+8*(octave-waitFloorBits)+step, waitBuckets-1)
}

// waitBucketTop is what all waits in a bucket but the last are shorter than.
func waitBucketTop(i int) time.Duration {
	octave, step := (i-1)/8+waitFloorBits, (i-1)%8
	if i == 0 {
		return 1 << waitFloorBits
	}
	return time.Duration(8+step+1) << (octave - 3)
}

// A waitCount is the state of a Waits at some time.
type waitCount struct {
	at      time.Time
	longest time.Duration // ever
	buckets [waitBuckets]uint64
}

func (w *Waits) count(at time.Time) *waitCount {
	c := &waitCount{at: at}
	for i := range w.buckets {
		c.buckets[i] = w.buckets[i].Load()
	}
	c.longest = time.Duration(w.longest.Load()) // after the buckets, so that it is that of all in them
	return c
}

// recentWaits are counts of one Waits, oldest first, few of them: percentiles are
// of what has come since the oldest.
type recentWaits []*waitCount

// waitSteps is how many counts there are to a history. The percentiles are of a
// time that is longer than that by up to one part in so many, or by as much as
// nobody has looked.
const waitSteps = 5

// add adds a count if the last is old enough, and drops those that are older
// than another that is from before the last minutes.
func (r recentWaits) add(c *waitCount, span time.Duration) recentWaits {
	for len(r) > 1 && c.at.Sub(r[1].at) >= span {
		r[0] = nil
		r = r[1:]
	}
	if len(r) == 0 || c.at.Sub(r[len(r)-1].at) >= span/waitSteps {
		r = append(r, c)
	}
	return r
}

// waitPercentiles are of the acquires that ended in the last Window.
type waitPercentiles struct {
	Window   seconds `json:"window_seconds"`
	Acquires uint64  `json:"acquires"`
	P50      seconds `json:"p50_seconds"`
	P90      seconds `json:"p90_seconds"`
	P99      seconds `json:"p99_seconds"`
}

// percentiles compares two counts of one Waits. Each is the top of its bucket, so
// it is at most 12.5 % too high, but none is more than the longest wait.
func percentiles(before, now *waitCount) *waitPercentiles {
	p := &waitPercentiles{Window: seconds(now.at.Sub(before.at))}
	var counts [waitBuckets]uint64
	for i := range counts {
		counts[i] = now.buckets[i] - before.buckets[i]
		p.Acquires += counts[i]
	}
	for _, q := range []struct {
		percent uint64
		to      *seconds
	}{{50, &p.P50}, {90, &p.P90}, {99, &p.P99}} {
		left := p.Acquires - p.Acquires*q.percent/100 // so many are at or above it
		for i := waitBuckets - 1; i >= 0; i-- {
			if counts[i] >= left {
				if left > 0 {
					*q.to = seconds(min(waitBucketTop(i), now.longest))
				}
				break
			}
			left -= counts[i]
		}
	}
	return p
}
