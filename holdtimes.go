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

	lastLent int64
	credit   time.Duration // for measuring loans
	passed   uint64        // loans begun for which it was not enough
}

// holdBuckets is one more than the bucket of the longest Duration.
const holdBuckets = (63-holdBits)<<holdBits + 1<<holdBits

// holdBits is how many bits behind the first a bucket tells apart.
const holdBits = 3

func newHoldTimes(now int64) *holdTimes {
	return &holdTimes{since: now, lastLent: now, credit: mostCredit}
}

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
// what the whole loan costs. So a measurement has to be earned, by time that
// passes: all loans are measured unless they follow each other so closely that it
// matters, and then one in eight, which stands for eight. Which ones is decided
// when they begin, without knowing how long they will be, and by a sequence that
// no rhythm of borrowers can fall in step with.
const (
	measureCost = 4 * time.Microsecond
	mostCredit  = 1_024 * measureCost // also at first, so that few loans are enough
	measuredFor = 8
	goldenRatio = 0x9E3779B97F4A7C15 // 2^64 divided by it
)

// weighs says, for a loan that begins now, for how many it is to be measured.
func (h *holdTimes) weighs(now int64) uint8 {
	if now > h.lastLent {
		h.credit = min(h.credit+time.Duration(now-h.lastLent), mostCredit)
		h.lastLent = now
	}
	if h.credit >= measureCost {
		h.credit -= measureCost
		return 1
	}
	if h.passed++; h.passed*goldenRatio < 1<<64/measuredFor {
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
