package ration

import (
	"context"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Bugs that other rate limiters have had, each as the scenario that showed it.
// The line above a test says what went wrong there.

// Two callers whose readings of the clock interleave: each step back made the
// next step forward pay again.
func TestTokenBucketCase_L01_TimeGoesBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		granted := 0
		for range 20 {
			at(b, time.Second)
			if b.Allow(1) {
				granted++
			}
			at(b, 0)
			require.False(t, b.Allow(1))
		}
		require.Equal(t, 1, granted)

		for range 20 { // setters have a clock, too
			at(b, time.Second)
			require.NoError(t, b.SetRate(PerSecond(1)))
			require.False(t, b.Allow(1))
			at(b, 0)
			require.NoError(t, b.SetRate(PerSecond(1)))
			require.NoError(t, b.SetBurst(10))
			require.False(t, b.Allow(1))
		}
	})
}

// Thousands of goroutines that call within one second were let through.
func TestTokenBucketCase_L03_ManyGoroutinesForOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(10), 1)
		var granted atomic.Int64
		var all sync.WaitGroup
		for i := range 5000 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 200 * time.Microsecond)
				if b.Allow(1) {
					granted.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 10, granted.Load()) // at 0, 100 ms and so on, to 900 ms
	})
}

// Reservations cancelled in order of arrival were not given back in full.
func TestTokenBucketCase_L05_CancelInOrderOfArrival(t *testing.T) {
	for name, reverse := range map[string]bool{"arrival": false, "reverse": true} {
		inBubble(t, name, func(t *testing.T) {
			b := newTestBucket(t, PerSecond(10), 10)
			reserve(t, 0, b, 10)
			first := reserve(t, 500*time.Millisecond, b, 5)
			second := reserve(t, time.Second, b, 5)
			if reverse {
				first, second = second, first
			}
			first.Cancel()
			second.Cancel()
			requireTokens(t, 0, b)
			reserve(t, 100*time.Millisecond, b, 1)
		})
	}
}

// After three reservations were cancelled in reverse, rounding had left a debt of
// a millionth of a token.
func TestTokenBucketCase_L07_CancelLeavesNoRest(t *testing.T) {
	for _, rate := range []int64{30, 60, 100} {
		synctest.Test(t, func(t *testing.T) {
			b := newTestBucket(t, PerSecond(rate), 1)
			one, two, three := b.Reserve(1), b.Reserve(1), b.Reserve(1)
			three.Cancel()
			two.Cancel()
			one.Cancel()
			require.True(t, b.Allow(1), "at %d", rate)
			require.False(t, b.Allow(1))
		})
	}
}

// At rate 0 a reservation was OK with a delay of 292 years, and stayed as a debt
// when the rate was set.
func TestTokenBucketCase_L09_ReserveAtRateZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Rate{}, 1)
		require.True(t, b.Allow(1))
		require.False(t, b.Reserve(1).OK())
		requireTokens(t, 0, b)
		require.NoError(t, b.SetRate(PerSecond(10)))
		began := time.Now()
		require.NoError(t, b.Wait(t.Context(), 1))
		require.Equal(t, 100*time.Millisecond, time.Since(began))
	})
}

// A delay of centuries overflowed to 0.
func TestTokenBucketCase_L11_DelayOfCenturies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Every(math.MaxInt64), 1) // 292 years, the slowest there is
		require.True(t, b.Allow(1))
		require.False(t, b.Allow(1))
		require.Equal(t, never, b.Reserve(1).Delay())
		require.Equal(t, never, b.RetryAfter(1))
		ctx, cancel := context.WithTimeout(t.Context(), 100*365*24*time.Hour)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, 1), context.DeadlineExceeded)
		require.NoError(t, ctx.Err(), "at once")
		requireTokens(t, 0, b)
	})
}

// One token an hour, asked for every second: what each call rounded away added
// up.
func TestTokenBucketCase_L13_PollingASlowBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 1)
		require.True(t, b.Allow(1))
		for second := 1; ; second++ {
			time.Sleep(time.Second)
			if b.Allow(1) {
				require.Equal(t, 3600, second)
				return
			}
			require.Less(t, second, 3600)
		}
	})
}

// 65,535 a second, rounded to so many each 15 us: after a second a quarter was
// there.
func TestTokenBucketCase_L15_RefillOfAnOddRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(65_535), 65_535)
		require.True(t, b.Allow(10))
		time.Sleep(time.Second)
		requireHolds(t, 65_535, b)
		time.Sleep(time.Second - 1)
		requireHolds(t, 65_534, b)
	})
}

// The delay did not count what had come since the last refill.
func TestTokenBucketCase_L17_DelayBetweenRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 4)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 800*time.Millisecond, b.RetryAfter(1))
		require.Equal(t, 2800*time.Millisecond, b.RetryAfter(3))
	})
}

// After a pause everybody was let through.
func TestTokenBucketCase_L19_NoFloodAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 2) // one more than without slack
		require.NoError(t, b.Wait(t.Context(), 1))
		time.Sleep(2 * time.Second)
		began := time.Now()
		for i := range 25 {
			require.NoError(t, b.Wait(t.Context(), 1))
			require.Equal(t, time.Duration(max(0, i-1))*time.Second, time.Since(began), "take %d", i)
		}
	})
}

// Intervals rounded to microseconds gave 4 % more than the rate, to milliseconds,
// 33 %.
func TestTokenBucketCase_L21_RateIsNotRounded(t *testing.T) {
	for _, tc := range []struct {
		rate, burst int64
		d, step     time.Duration
	}{
		{80_000, 1, time.Second, 7919 * time.Nanosecond},
		{80_000, 100, 10 * time.Second, 104_729 * time.Nanosecond},
		{750, 1, 3 * time.Second, 31_337 * time.Nanosecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newTestBucket(t, PerSecond(tc.rate), tc.burst)
			granted := int64(0)
			for began := time.Now(); time.Since(began) <= tc.d; time.Sleep(tc.step) {
				for b.Allow(1) {
					granted++
				}
			}
			most := tc.burst + tc.rate*int64(tc.d/time.Second)
			require.LessOrEqual(t, granted, most)
			if tc.burst > 1 {
				require.GreaterOrEqual(t, granted, most-10)
			}
		})
	}
}

// Seven callers with 12 s of patience at 0.3 a second: the last was let wait, or
// was charged for being refused.
func TestTokenBucketCase_L23_PatienceOfSeven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Per(3, 10*time.Second), 3)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		var calls []*call
		for range 7 {
			calls = append(calls, start(func() error { return b.Wait(ctx, 1) }))
			synctest.Wait() // so that they come in order
		}
		require.True(t, calls[6].ended())
		require.ErrorIs(t, calls[6].err, context.DeadlineExceeded)
		time.Sleep(12 * time.Second)
		for i, want := range []time.Duration{0, 0, 0, 3_333_333_334, 6_666_666_667, 10_000_000_000, 0} {
			require.True(t, calls[i].ended())
			require.Equal(t, want, calls[i].took, "call %d", i)
			require.Equal(t, i == 6, calls[i].err != nil)
		}
		require.Equal(t, 1333333334*time.Nanosecond, b.RetryAfter(1), "the seventh has taken nothing")
	})
}

// "Would exceed context deadline" was an error of its own.
func TestTokenBucketCase_L25_DeadlineTooNearIsDeadlineExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		requireUnchanged(t, b, func() {
			require.ErrorIs(t, b.Wait(ctx, 1), context.DeadlineExceeded)
		})
		require.NoError(t, ctx.Err(), "at once")
	})
}

// A waiter that had been cancelled still took a place in a queue of one. There
// is no bound here, but a place is free at once all the same.
func TestTokenBucketCase_L27_CanceledWaiterHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 1)
		first, cancel := parkWaitCancelable(t, b, 1)
		cancel()
		second := startWait(t, b, 1)
		requireFailed(t, context.Canceled, first)
		requireServedAfter(t, time.Second, second)
	})
}

// One more than the burst was had after the bucket had been drained.
func TestTokenBucketCase_L29_NotOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(5), 5)
		for range 2 {
			for range 5 {
				require.True(t, b.Allow(1))
			}
			require.False(t, b.Allow(1))
			time.Sleep(2 * time.Second)
		}
	})
}

// Four workers had more than burst and refill together.
func TestTokenBucketCase_L31_FourWorkersForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perMinute = 1200
		b := newTestBucket(t, Per(perMinute, time.Minute), perMinute)
		began := time.Now()
		var mu sync.Mutex
		granted := int64(0)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for {
					time.Sleep(time.Duration(100+i) * 37 * time.Microsecond)
					if time.Since(began) > time.Minute {
						return
					}
					mu.Lock()
					if b.Allow(10) {
						granted += 10
					}
					if bound := perMinute + perMinute*int64(time.Since(began))/int64(time.Minute); granted > bound {
						t.Errorf("%d granted, more than %d", granted, bound)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, granted, int64(2*perMinute))
		require.GreaterOrEqual(t, granted, int64(2*perMinute-10))
	})
}

// "Too many, try again" and "too many, for ever" were the same answer.
func TestTokenBucketCase_L33_LaterOrNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 5)
		require.True(t, b.Allow(1))
		require.False(t, b.Allow(5))
		require.Equal(t, time.Second, b.RetryAfter(5))
		require.False(t, b.Allow(10))
		require.Equal(t, never, b.RetryAfter(10))
		requireHolds(t, 4, b)
	})
}

// A reservation that was refused put off the next one.
func TestTokenBucketCase_L35_RefusedReservationChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(10), 2)
		reserve(t, 0, b, 2)
		requireUnchanged(t, b, func() { require.False(t, b.Reserve(3).OK()) })
		reserve(t, 200*time.Millisecond, b, 2)
	})
}

// A burst over 32 bits, or rate times burst over 64, wrapped around.
func TestTokenBucketCase_L37_LargeNumbersDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, burst := range []int64{1<<31 - 1, 1 << 31, 1<<32 + 1, 1 << 40, 1 << 62, math.MaxInt64} {
			for _, rate := range []int64{1 << 31, 1 << 40, math.MaxInt64} {
				b := newTestBucket(t, PerSecond(rate), burst)
				requireTokens(t, burst, b)
				require.True(t, b.Allow(burst-1))
				time.Sleep(1000 * time.Hour)
				want := new(big.Int).Mul(big.NewInt(rate), big.NewInt(1000*3600))
				want.Add(want, big.NewInt(1))
				if want.Cmp(big.NewInt(burst)) > 0 {
					want.SetInt64(burst)
				}
				requireHolds(t, want.Int64(), b)
				require.Positive(t, b.RetryAfter(burst))
			}
		}
	})
}

// Each SetRate filled the bucket.
func TestTokenBucketCase_L39_SetRateMakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(10), 10)
		for range 100 {
			require.NoError(t, b.SetRate(PerSecond(10)))
			require.NoError(t, b.SetRate(PerSecond(20)))
			require.NoError(t, b.SetRate(Rate{}))
			require.NoError(t, b.SetRate(PerSecond(10)))
			requireTokens(t, 0, b)
		}
		require.Equal(t, 100*time.Millisecond, b.RetryAfter(1))
	})
}

// NaN and infinity were "no limit". There are no floats here; what comes out of
// one is refused like any other nonsense.
func TestTokenBucketCase_L41_NonsenseIsNotUnlimited(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		for _, d := range []time.Duration{0, -time.Second} {
			_, err := NewTokenBucket(Per(int64(f), d), 10)
			if int64(f) != 0 || d < 0 {
				require.ErrorIs(t, err, ErrRate, "%v", f)
			}
		}
	}
	_, err := NewTokenBucket(PerSecond(-1), 10)
	require.ErrorIs(t, err, ErrRate)
}

// The slot of a waiter that gave up was lost to all behind it.
func TestTokenBucketCase_L43_TheSlotOfACanceledWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 1)
		first, cancel := parkWaitCancelable(t, b, 1)
		second := parkWait(t, b, 1)
		time.Sleep(100 * time.Millisecond)
		cancel()
		requireFailed(t, context.Canceled, first)
		r := reserve(t, 1900*time.Millisecond, b, 1)
		requireServedAfter(t, 900*time.Millisecond, second)
		require.Equal(t, time.Second, r.Delay())
	})
}

// A first call with a time from before the bucket was made found it empty.
func TestTokenBucketCase_L45_TimeBeforeTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-1, -time.Second, -364 * 24 * time.Hour} { // a year is another clock
			b := newTestBucket(t, PerSecond(1), 10)
			at(b, d)
			requireHolds(t, 10, b)
			at(b, time.Second)
			requireHolds(t, 1, b)
		}
	})
}

// A joint call that the second bucket refused was charged to the first.
func TestTokenBucketCase_L47_JointCallTakesFromAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestBucket(t, PerSecond(10), 10), newTestBucket(t, Per(5, time.Minute), 5)
		for range 5 {
			require.True(t, AllowAll(1, a, b))
		}
		require.False(t, AllowAll(1, a, b))
		requireTokens(t, 5, a)
		requireTokens(t, 0, b)
	})
}
