package ration

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T5: a reservation is a promise.

func TestTokenBucket_ReservationsLineUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(10), 10)
		reserve(t, 0, b, 4)
		requireTokens(t, 6, b)
		reserve(t, 0, b, 6)
		requireTokens(t, 0, b)
		first := reserve(t, 500*time.Millisecond, b, 5)
		second := reserve(t, 1500*time.Millisecond, b, 10)
		requireTokens(t, -15, b)
		require.Equal(t, 1600*time.Millisecond, b.RetryAfter(1))

		time.Sleep(499 * time.Millisecond)
		require.Equal(t, time.Millisecond, first.Delay())
		time.Sleep(time.Millisecond)
		require.Zero(t, first.Delay())
		require.Equal(t, time.Second, second.Delay())
		time.Sleep(time.Hour)
		require.Zero(t, first.Delay(), "it does not go below 0")
		require.Zero(t, second.Delay())
		requireTokens(t, 10, b)
	})
}

func TestTokenBucket_AReservationIsChargedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 5)
		reserve(t, 0, b, 3)
		reserve(t, time.Second, b, 3)
		require.False(t, b.Allow(1))
		time.Sleep(2 * time.Second)
		requireHolds(t, 1, b)
	})
}

func TestTokenBucket_ReservingNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		requireUnchanged(t, b, func() { reserve(t, 0, b, 0) })
		r := reserve(t, time.Second, b, 1)
		requireUnchanged(t, b, func() { reserve(t, 0, b, 0).Cancel() })
		r.Cancel()
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_AReservationThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, b := range map[string]*TokenBucket{
			"more than the burst": newTestBucket(t, PerSecond(10), 4),
			"rate 0":              newDrainedBucket(t, Rate{}, 5),
			"burst 0":             newTestBucket(t, PerSecond(10), 0),
			"not in this life":    newDrainedBucket(t, Every(math.MaxInt64), 5),
		} {
			requireUnchanged(t, b, func() {
				r := b.Reserve(5)
				require.False(t, r.OK(), name)
				require.Equal(t, never, r.Delay(), name)
				r.Cancel()
				r.Cancel()
				require.False(t, r.OK(), name)
			})
		}
		var zero Reservation
		require.False(t, zero.OK())
		require.Equal(t, never, zero.Delay())
		zero.Cancel()
	})
}

func TestTokenBucket_AReservationAtRateZeroTakesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Rate{}, 5)
		reserve(t, 0, b, 3)
		requireUnchanged(t, b, func() { require.False(t, b.Reserve(3).OK()) })
		reserve(t, 0, b, 2)
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_AReservationStandsBehindWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		first := parkWait(t, b, 2)
		r := reserve(t, 3*time.Second, b, 1)
		second := parkWait(t, b, 1)
		require.Equal(t, 5*time.Second, b.RetryAfter(1))

		requireServedAfter(t, 2*time.Second, first) // the reservation is nothing to it
		require.Equal(t, time.Second, r.Delay())
		requireServedAfter(t, 2*time.Second, second)
		require.Zero(t, r.Delay())
	})
}

func TestTokenBucket_AReservationKeepsItsTime(t *testing.T) {
	for name, change := range map[string]func(b *TokenBucket) error{
		"slower":       func(b *TokenBucket) error { return b.SetRate(Per(1, time.Minute)) },
		"faster":       func(b *TokenBucket) error { return b.SetRate(PerSecond(1000)) },
		"stopped":      func(b *TokenBucket) error { return b.SetRate(Rate{}) },
		"burst shrunk": func(b *TokenBucket) error { return b.SetBurst(0) },
		"burst grown":  func(b *TokenBucket) error { return b.SetBurst(1000) },
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newDrainedBucket(t, PerSecond(1), 5)
			r := reserve(t, 4*time.Second, b, 4)
			time.Sleep(time.Second)
			require.NoError(t, change(b))
			require.Equal(t, 3*time.Second, r.Delay())
			time.Sleep(3 * time.Second)
			require.Zero(t, r.Delay())
		})
	}
}

func TestTokenBucket_AWaiterAheadOfAReservationIsRetimedAndTheReservationIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		w := parkWait(t, b, 2)
		r := reserve(t, 5*time.Second, b, 3)
		require.NoError(t, b.SetRate(Per(1, 10*time.Second)))
		require.Equal(t, 5*time.Second, r.Delay())
		requireServedAfter(t, 20*time.Second, w)
		requireTokens(t, -3, b)
		require.Equal(t, 40*time.Second, b.RetryAfter(1), "a newcomer pays for the promise")
	})
}

func TestTokenBucket_CancelGivesBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		r := reserve(t, 3*time.Second, b, 3)
		other := reserve(t, 7*time.Second, b, 4)
		same := r
		r.Cancel()
		requireTokens(t, -4, b)
		for range 3 {
			r.Cancel()
			same.Cancel()
		}
		requireTokens(t, -4, b)
		require.Equal(t, 7*time.Second, other.Delay(), "others keep their time")
	})
}

func TestTokenBucket_CancelIsSafeFromManyGoroutines(t *testing.T) {
	for range rounds(200) {
		b := newDrainedBucket(t, Every(time.Hour), 100)
		r := b.Reserve(30)
		require.True(t, r.OK())
		var all sync.WaitGroup
		for range 8 {
			all.Go(r.Cancel)
		}
		all.Wait()
		requireTokens(t, 0, b)
	}
}

func TestTokenBucket_CancelInAnyOrderLeavesNothingBehind(t *testing.T) {
	r := testRandom(t)
	for name, count := range map[string]int{"a few": 7, "many": 900} {
		inBubble(t, name, func(t *testing.T) {
			for range 20 {
				b := newDrainedBucket(t, Per(7, time.Minute), 10)
				time.Sleep(time.Duration(r.Int64N(int64(time.Minute))))
				have := b.Tokens()
				reservations := make([]Reservation, count)
				for i := range reservations {
					reservations[i] = b.Reserve(1 + r.Int64N(10))
					require.True(t, reservations[i].OK())
				}
				r.Shuffle(count, func(i, j int) {
					reservations[i], reservations[j] = reservations[j], reservations[i]
				})
				for _, res := range reservations {
					res.Cancel()
				}
				requireTokens(t, have, b)
			}
		})
	}
}

func TestTokenBucket_CancelAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		r := reserve(t, 3*time.Second, b, 3)
		time.Sleep(5 * time.Second)
		requireTokens(t, 2, b)
		r.Cancel()
		requireHolds(t, 5, b)
	})
}

// Without the reservation the bucket would have been full after a second, and
// what came then would have been lost. So it is lost.
func TestTokenBucket_CancelGivesBackOnlyWhatWouldBeThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 10)
		require.True(t, b.Allow(1))
		r := reserve(t, 0, b, 4)
		time.Sleep(3 * time.Second) // 8; without it, 10 since two seconds ago
		require.True(t, b.Allow(6)) // 2; without it, 4
		r.Cancel()
		requireHolds(t, 4, b)
	})
}

func TestTokenBucket_CancelAfterTheBucketWasFullGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 10)
		r := reserve(t, 0, b, 10)
		time.Sleep(10 * time.Second)
		require.True(t, b.Allow(10))
		r.Cancel()
		requireTokens(t, 0, b)
	})
}

// Each of the two alone could be given back 3. But without the one, the bucket
// would have been full when the other's tokens came.
func TestTokenBucket_CancelOfTwoDoesNotMint(t *testing.T) {
	for name, order := range map[string][2]int{"in order": {0, 1}, "in reverse": {1, 0}} {
		inBubble(t, name, func(t *testing.T) {
			b := newTestBucket(t, PerSecond(1), 10)
			r := []Reservation{reserve(t, 0, b, 5), reserve(t, 0, b, 5)}
			time.Sleep(7 * time.Second)
			require.True(t, b.Allow(7)) // without reservations, 3 of 10 would be left
			r[order[0]].Cancel()
			requireTokens(t, 3, b)
			r[order[1]].Cancel()
			requireHolds(t, 3, b)
		})
	}
}

// A bucket is compared with one where the reservations that are cancelled in
// the end were never made: they must hold the same, to the last part of a token.
func TestTokenBucket_CanceledReservationsMightAsWellNotHaveBeenMade(t *testing.T) {
	r := testRandom(t)
	for _, rate := range []Rate{Per(7, time.Minute), Per(3, 10*time.Second), Per(1, 3*time.Second)} {
		inBubble(t, rate.String(), func(t *testing.T) {
			for range rounds(300) {
				compareWithoutReservations(t, r, rate)
			}
		})
	}
}

func compareWithoutReservations(t *testing.T, r *rand.Rand, rate Rate) {
	burst := 1 + r.Int64N(20)
	with, without := newTestBucket(t, rate, burst), newTestBucket(t, rate, burst)
	var open []Reservation
	cancel := func() {
		i := r.IntN(len(open))
		open[i].Cancel()
		open = append(open[:i], open[i+1:]...)
	}
	for range 60 {
		switch r.IntN(6) {
		case 0, 1:
			if res := with.Reserve(1 + r.Int64N(burst)); res.OK() {
				open = append(open, res)
			}
		case 2:
			time.Sleep(time.Duration(r.Int64N(20 * int64(time.Second))))
		case 3:
			if have := with.Tokens(); have > 0 {
				n := 1 + r.Int64N(have)
				require.True(t, with.Allow(n))
				require.True(t, without.Allow(n), "taken of what would not be there")
			}
		case 4:
			n := r.Int64N(burst + 1)
			with.Return(n)
			without.Return(n)
		case 5:
			if len(open) > 0 {
				cancel()
			}
		}
		require.LessOrEqual(t, with.Tokens(), without.Tokens())
	}
	for len(open) > 0 {
		cancel()
		require.LessOrEqual(t, with.Tokens(), without.Tokens())
	}
	require.Equal(t, without.Tokens(), with.Tokens())
	require.Equal(t, without.have, with.have)
}

func TestTokenBucket_CancelMovesWaitersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		r := reserve(t, 4*time.Second, b, 4)
		first, second := parkWait(t, b, 1), parkWait(t, b, 1)
		time.Sleep(1500 * time.Millisecond)
		r.Cancel() // 1.5 tokens
		requireServedAfter(t, 0, first)
		requireServedAfter(t, 500*time.Millisecond, second)
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_CancelOfAReservationIsNothingToWaitersAheadOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		ahead := parkWait(t, b, 3)
		r := reserve(t, 7*time.Second, b, 4)
		behind := parkWait(t, b, 2)
		r.Cancel()
		require.Equal(t, 6*time.Second, b.RetryAfter(1))
		requireServedAfter(t, 3*time.Second, ahead)
		requireServedAfter(t, 2*time.Second, behind)
	})
}

func TestTokenBucket_AWaiterThatLeavesDoesNotMoveAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		first, cancel := parkWaitCancelable(t, b, 2)
		r := reserve(t, 3*time.Second, b, 1)
		second := parkWait(t, b, 1) // at 4 s
		cancel()
		requireFailed(t, context.Canceled, first)
		require.Equal(t, 3*time.Second, r.Delay())
		requireServedAfter(t, 2*time.Second, second) // but those who wait move up
		require.Equal(t, time.Second, r.Delay())
	})
}

// What has to be remembered for Cancel is bounded, even if nobody ever cancels
// and the bucket is never full.
func TestTokenBucket_ReservationsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 1<<40)
		for range 100_000 {
			b.Reserve(1)
		}
		require.Less(t, cap(b.rooms.least), 10_000)
		requireTokens(t, 1<<40-100_000, b)
	})
}

// It may give back less then, by less than all that was reserved, but not mint.
func TestTokenBucket_CancelOfVeryManyDoesNotMint(t *testing.T) {
	r := testRandom(t)
	for name, shuffle := range map[string]bool{"in order": false, "in any order": true} {
		inBubble(t, name, func(t *testing.T) {
			const count, burst = 20_000, 10
			b := newTestBucket(t, PerSecond(1), burst)
			all := make([]Reservation, count)
			for i := range all {
				all[i] = b.Reserve(1)
			}
			if shuffle {
				r.Shuffle(count, func(i, j int) { all[i], all[j] = all[j], all[i] })
			}
			for i, res := range all {
				res.Cancel()
				left := int64(count - 1 - i)
				require.LessOrEqual(t, b.Tokens(), burst-left, "after %d", i)
			}
			require.GreaterOrEqual(t, b.Tokens(), int64(-count/100), "more is lost than the memory is worth")
		})
	}
}
