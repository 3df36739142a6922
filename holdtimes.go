package ration

import (
	"math/bits"
	"time"
)

// holdTimes is a histogram of how long leases were held, with eight buckets to
// each power of two: whatever is read off it is at most 12.5 % off. It takes 4 KiB.
type holdTimes struct {
	since    int64                // when it was begun, by the pool's clock
	counts   [holdBuckets]float64 // loans, each by its weight
	measured int                  // loans
	longest  time.Duration

	lent     uint64 // loans begun
	lastLent int64
}

// holdBuckets is one more than the bucket of the longest Duration.
const holdBuckets = (63-holdBits)<<holdBits + 1<<holdBits

// holdBits is how many bits behind the first a bucket tells apart.
const holdBits = 3

func newHoldTimes(now int64) *holdTimes { return &holdTimes{since: now, lastLent: now} }

// bucketOf returns the bucket of d.
func bucketOf(d time.Duration) int {
	v := uint64(max(0, d))
	if v < 1<<holdBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - holdBits
	return shift<<holdBits + int(v>>shift)
}

// bucketStart returns the shortest duration in the bucket i, as a float64, which
// has room for the end of the last one.
func bucketStart(i int) float64 {
	if i < 1<<holdBits {
		return float64(i)
	}
	shift := i>>holdBits - 1
	return float64(uint64(1<<holdBits+i&(1<<holdBits-1)) << shift)
}

// To measure a loan takes another reading of the clock when it ends, a quarter of
// what the whole loan costs. Where loans follow each other so closely that this
// matters, one in eight is measured and stands for eight. Which ones is decided
// when they begin, without knowing how long they will be, and by a sequence that
// no rhythm of borrowers can fall in step with.
const (
	alwaysMeasured = 1_024 // of the first loans, so that few are enough
	closeTogether  = time.Microsecond
	measuredFor    = 8
	goldenRatio    = 0x9E3779B97F4A7C15 // 2^64 divided by it
)

// weighs says, for a loan that begins now, for how many it is to be measured.
func (h *holdTimes) weighs(now int64) uint8 {
	h.lent++
	gap := now - h.lastLent
	h.lastLent = now
	switch {
	case gap >= int64(closeTogether) || h.lent <= alwaysMeasured:
		return 1
	case h.lent*goldenRatio < 1<<64/measuredFor:
		return measuredFor
	}
	return 0
}

// add counts a loan that has ended, for as many as weight says.
func (h *holdTimes) add(held time.Duration, weight uint8) {
	h.counts[bucketOf(held)] += float64(weight)
	h.measured++
	h.longest = max(h.longest, held)
}
