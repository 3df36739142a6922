package ration

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Numbers at the end of an int64.

func TestTokenBucket_AskingForAllOfTheLargestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = math.MaxInt64
		b := newTestBucket(t, Per(most, time.Second), most)
		require.NoError(t, b.Wait(endless(), most))
		first, second := parkWait(t, b, most), parkWait(t, b, most)
		require.Equal(t, never, b.RetryAfter(1), "more ahead than can be counted")
		require.False(t, b.Reserve(1).OK())
		requireServedAfter(t, time.Second, first)
		requireServedAfter(t, time.Second, second)
		time.Sleep(time.Second)
		requireHolds(t, most, b)
	})
}

// Promises behind a waiter that add up to more than an int64 must not make it
// wait for ever.
func TestTokenBucket_PromisesBehindAWaiterDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 1<<62 + 1<<61, math.MaxInt64
		b := newTestBucket(t, Per(1<<61, time.Second), most)
		require.True(t, b.Allow(most-n+1))
		w := parkWait(t, b, n) // one is missing
		for range 100 {
			b.Reserve(1 << 60)
		}
		requireServedAfter(t, 1, w)
	})
}

// Twice the largest number is more than any bucket holds, the largest as well.
func TestTokenBucket_ABucketNamedTwiceForTheLargestNumberDoesNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int64{math.MaxInt64, 1 << 62} {
			b := newTestBucket(t, PerSecond(1), math.MaxInt64)
			requireUnchanged(t, b, func() {
				require.False(t, AllowAll(n, b, b))
				require.False(t, AllowAll(n, b, b, b, b, b))
				require.Equal(t, ErrTooLarge, WaitAll(briefly(t), n, b, b))
				require.Equal(t, ErrTooLarge, WaitAll(briefly(t), n, b, b, b, b, b))
			})
			require.True(t, AllowAll(n, b))
		}
	})
}

// What is promised behind a joint waiter is not missing to it, and neither is
// what comes in while it waits for its other bucket.
func TestTokenBucket_AReservationBehindAJointWaiter(t *testing.T) {
	for name, burst := range map[string]int64{"of a small bucket": 5, "of the largest": math.MaxInt64} {
		inBubble(t, name, func(t *testing.T) {
			a, b := newTestBucket(t, PerSecond(1), burst), newDrainedBucket(t, PerSecond(1), 5)
			joint := parkWaitAll(t, 3, a, b)
			a.Reserve(2)
			r := a.Reserve(2)
			require.True(t, r.OK())
			time.Sleep(2 * time.Second)
			a.Return(burst) // full again
			requireServedAfter(t, time.Second, joint)
			r.Cancel()
		})
	}
}

// While a joint waiter waits for its other bucket, this one may fill up and be
// promised away many times. It must not forget that it is ready.
func TestTokenBucket_PromisesBehindAJointWaiterDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(1), math.MaxInt64), newDrainedBucket(t, PerSecond(1), 5)
		joint := parkWaitAll(t, 1, a, b)
		for i := range 4 {
			if i == 2 {
				a.Return(math.MaxInt64)
			}
			a.Reserve(1 << 62)
		}
		requireServedAfter(t, time.Second, joint)
	})
}
