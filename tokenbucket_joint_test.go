package ration

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T6: several buckets at once.

func TestTokenBucket_NoBucketsAreASuccess(t *testing.T) {
	require.True(t, AllowAll(1))
	require.True(t, AllowAll(math.MaxInt64))
	require.NoError(t, WaitAll(endless(), 1))
	require.Equal(t, context.Canceled, WaitAll(canceled(), 1))
}

func TestTokenBucket_AllowAllTakesFromAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newTestBucket(t, PerSecond(1), 10), newTestBucket(t, PerSecond(1), 5), newTestBucket(t, Rate{}, 7)
		require.True(t, AllowAll(3, a, b, c))
		requireTokens(t, 7, a)
		requireTokens(t, 2, b)
		requireTokens(t, 4, c)
		for _, order := range [][]*TokenBucket{{a, b, c}, {b, a, c}, {c, a, b}} {
			require.False(t, AllowAll(3, order...))
			require.False(t, AllowAll(math.MaxInt64, order...))
		}
		requireTokens(t, 7, a)
		requireTokens(t, 2, b)
		requireTokens(t, 4, c)
		require.True(t, AllowAll(2, c, b, a))
		requireHolds(t, 5, a)
		requireHolds(t, 0, b)
		requireHolds(t, 2, c)
	})
}

func TestTokenBucket_ABucketNamedTwiceIsChargedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(1), 10), newTestBucket(t, PerSecond(1), 10)
		require.True(t, AllowAll(2, a, b, a, a))
		requireTokens(t, 4, a)
		requireTokens(t, 8, b)
		require.False(t, AllowAll(3, a, a))
		require.False(t, AllowAll(math.MaxInt64, a, a), "no overflow")
		require.False(t, AllowAll(math.MaxInt64/2+1, a, a), "no overflow")
		requireTokens(t, 4, a)

		require.Equal(t, ErrTooLarge, WaitAll(t.Context(), 6, a, b, a))
		require.Equal(t, ErrTooLarge, WaitAll(t.Context(), math.MaxInt64, a, a))
		require.Equal(t, ErrTooLarge, WaitAll(t.Context(), math.MaxInt64/2+1, a, a))
		requireTokens(t, 4, a)
		requireTokens(t, 8, b)
		requireServedAfter(t, 2*time.Second, parkWaitAll(t, 3, a, b, a))
		requireTokens(t, 0, a)
		requireTokens(t, 7, b)
	})
}

func TestTokenBucket_ManyBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buckets []*TokenBucket
		for range 30 {
			buckets = append(buckets, newTestBucket(t, PerSecond(1), 4))
		}
		require.True(t, AllowAll(3, buckets...))
		require.False(t, AllowAll(2, buckets...))
		requireServedAfter(t, time.Second, parkWaitAll(t, 2, buckets...))
		for _, b := range buckets {
			requireTokens(t, 0, b)
		}
	})
}

func TestTokenBucket_WaitAllEndsWhenTheLastHasTheTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newDrainedBucket(t, PerSecond(1), 9), newDrainedBucket(t, Every(3*time.Second), 9), newTestBucket(t, Rate{}, 9)
		w := parkWaitAll(t, 2, a, b, c)
		requireServedAfter(t, 6*time.Second, w)
		requireTokens(t, 4, a)
		requireTokens(t, 0, b)
		requireTokens(t, 7, c)
	})
}

func TestTokenBucket_AJointWaiterHasItsPlaceInEveryQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(10*time.Second), 10)
		ahead := parkWait(t, a, 1)
		joint := parkWaitAll(t, 1, a, b)
		behindA, behindB := parkWait(t, a, 1), parkWait(t, b, 1)
		requireServedAfter(t, time.Second, ahead)
		time.Sleep(5 * time.Second)
		requireParked(t, joint, behindA, behindB) // its tokens in a are there
		require.False(t, a.Allow(1))
		requireTokens(t, 5, a)
		requireServedAfter(t, 4*time.Second, joint)
		requireGranted(t, behindA)
		requireParked(t, behindB)
		requireTokens(t, 7, a)
		requireServedAfter(t, 10*time.Second, behindB)
	})
}

func TestTokenBucket_AJointWaiterOvertakesNobodyAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, Every(2*time.Second), 10), newDrainedBucket(t, PerSecond(1), 10)
		ahead := parkWait(t, b, 5)
		joint := parkWaitAll(t, 1, a, b)
		behind := parkWait(t, a, 1)
		time.Sleep(4 * time.Second)
		requireParked(t, ahead, joint, behind) // each bucket has enough, but one of them not for it
		require.False(t, AllowAll(1, a, b))
		requireServedAfter(t, time.Second, ahead)
		requireServedAfter(t, time.Second, joint)
		requireGranted(t, behind)
	})
}

func TestTokenBucket_AJointWaiterThatLeavesLetsBothQueuesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(10*time.Second), 10)
		ctx, cancel := context.WithCancel(t.Context())
		joint := start(func() error { return WaitAll(ctx, 5, b, a) })
		requireParked(t, joint)
		behindA, behindB := parkWait(t, a, 1), parkWait(t, b, 1)
		time.Sleep(12 * time.Second)
		requireParked(t, behindA, behindB)
		cancel()
		requireFailed(t, context.Canceled, joint)
		requireGranted(t, behindA, behindB)
		requireTokens(t, 9, a)
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_AJointWaiterIsRetimed(t *testing.T) {
	for name, change := range map[string]func(b *TokenBucket){
		"by a rate":        func(b *TokenBucket) { _ = b.SetRate(Per(1_000_000_000, 1)) },
		"by a return":      func(b *TokenBucket) { b.Return(5) },
		"by a reservation": nil,
	} {
		inBubble(t, name, func(t *testing.T) {
			a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(time.Hour), 10)
			var r Reservation
			if change == nil {
				b.Return(5)
				r = reserve(t, 0, b, 5)
			}
			joint := parkWaitAll(t, 5, a, b)
			time.Sleep(5 * time.Second)
			requireParked(t, joint)
			if change != nil {
				change(b)
			} else {
				r.Cancel()
			}
			requireServedAfter(t, 0, orNext(joint))
			requireTokens(t, 0, a)
		})
	}
}

// orNext lets a nanosecond pass.
func orNext(c *call) *call {
	time.Sleep(time.Nanosecond)
	return c
}

func TestTokenBucket_ASmallerBurstFailsAJointWaiterEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(time.Hour), 10)
		joint := parkWaitAll(t, 5, a, b)
		behind := parkWait(t, a, 2)
		time.Sleep(3 * time.Second)
		require.NoError(t, b.SetBurst(4))
		requireFailed(t, ErrTooLarge, joint)
		requireGranted(t, behind)
		requireTokens(t, 1, a)
		require.Nil(t, b.queue.head)
	})
}

func TestTokenBucket_AJointWaitFailsAtOnceIfOneBucketIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(time.Hour), 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, order := range [][]*TokenBucket{{a, b}, {b, a}} {
			require.ErrorIs(t, WaitAll(ctx, 5, order...), context.DeadlineExceeded)
			require.NoError(t, ctx.Err(), "at once")
		}
		requireHolds(t, 10, a)
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_AJointWaitTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(1), 10), newDrainedBucket(t, Rate{}, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := start(func() error { return WaitAll(ctx, 5, a, b) })
		requireParked(t, c)
		require.False(t, a.Allow(1))
		time.Sleep(time.Minute)
		requireFailed(t, context.DeadlineExceeded, c)
		requireHolds(t, 10, a)
	})
}

func TestTokenBucket_JointWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, PerSecond(1), 10)
		calls := []*call{parkWaitAll(t, 2, a, b), parkWaitAll(t, 1, b, a), parkWaitAll(t, 3, a, b)}
		onlyA := parkWait(t, a, 1)
		requireServedAfter(t, 2*time.Second, calls[0])
		requireServedAfter(t, time.Second, calls[1])
		requireServedAfter(t, 3*time.Second, calls[2])
		requireServedAfter(t, time.Second, onlyA)
		requireTokens(t, 1, b)
	})
}

func TestTokenBucket_AReservationKeepsItsTimeBehindAJointWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newDrainedBucket(t, PerSecond(1), 10), newDrainedBucket(t, Every(10*time.Second), 10)
		joint := parkWaitAll(t, 1, a, b)
		r := reserve(t, 4*time.Second, a, 3)
		time.Sleep(4 * time.Second)
		require.Zero(t, r.Delay())
		requireServedAfter(t, 6*time.Second, joint)
		requireTokens(t, 6, a)
	})
}

// Neither the locks nor the places may be taken in the order of the arguments.
func TestTokenBucket_OppositeOrdersDoNotDeadlock(t *testing.T) {
	const workers = 8
	each := int64(rounds(300))
	ctx := watchdog(t)
	a, b, c := newDrainedBucket(t, Rate{}, 1000), newDrainedBucket(t, Rate{}, 1000), newDrainedBucket(t, Rate{}, 1000)
	orders := [][]*TokenBucket{{a, b, c}, {c, b, a}, {b, a, c}, {c, a, b}}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for j := range each {
				order := orders[(int64(i)+j)%4]
				if err := WaitAll(ctx, 1, order...); err != nil {
					t.Error(err)
					return
				}
				AllowAll(0, order...)
			}
		})
	}
	for i, bucket := range []*TokenBucket{a, b, c} {
		all.Go(func() {
			for left := workers * each; left > 0; {
				n := min(left, int64(1+i))
				for bucket.Tokens() > 900 && ctx.Err() == nil { // it would spill
					runtime.Gosched()
				}
				bucket.Return(n)
				left -= n
			}
		})
	}
	all.Wait()
	for _, bucket := range orders[0] {
		requireTokens(t, 0, bucket)
	}
}

func TestTokenBucket_CancelOfAReservationBehindAJointWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(1), 5), newDrainedBucket(t, PerSecond(1), 5)
		joint := parkWaitAll(t, 3, a, b)
		r := reserve(t, 2*time.Second, a, 4)
		requireTokens(t, 1, a)
		behind := parkWait(t, a, 2)
		time.Sleep(time.Second)
		r.Cancel()
		requireTokens(t, 5, a)
		requireServedAfter(t, 2*time.Second, joint)
		requireGranted(t, behind)
		requireTokens(t, 0, a)
	})
}
