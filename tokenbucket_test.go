package ration

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokenBucket_StartsFull(t *testing.T) {
	for _, burst := range []int64{0, 1, 10, 1 << 31, 1 << 40, 1<<53 + 1, math.MaxInt64} {
		for _, r := range append(oddRates, Rate{}) {
			b := newTestBucket(t, r, burst)
			require.Equal(t, burst, b.Burst())
			require.Equal(t, r, b.Rate())
			require.Equal(t, burst, b.Tokens(), "%v", r)
			require.False(t, burst < math.MaxInt64 && b.Allow(burst+1))
			require.True(t, b.Allow(burst))
		}
	}
}

func TestTokenBucket_TakesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(10), 10)
		require.True(t, b.Allow(7))
		for _, n := range []int64{4, 5, 10, 11, math.MaxInt64} {
			requireUnchanged(t, b, func() { require.False(t, b.Allow(n), "%d", n) })
		}
		requireHolds(t, 3, b)
	})
}

// T1

// arrival is when the k-th token is there in a bucket that was empty: rounded up,
// since a nanosecond earlier a part of it is still missing.
func arrival(r Rate, k int64) time.Duration {
	d := new(big.Int).Mul(big.NewInt(k), big.NewInt(int64(r.per)))
	d.Add(d, big.NewInt(r.tokens-1))
	return time.Duration(d.Div(d, big.NewInt(r.tokens)).Int64())
}

func TestTokenBucket_EachTokenComesAtItsNanosecond(t *testing.T) {
	for _, r := range oddRates {
		for name, storm := range map[string]int{"": 0, ", after a storm of calls": 100} {
			inBubble(t, r.String()+name, func(t *testing.T) {
				b := newDrainedBucket(t, r, 1<<40)
				began := time.Now()
				taken := int64(0)
				for range 300 {
					for range storm {
						require.False(t, b.Allow(1))
					}
					due := arrival(r, taken+1)
					if wait := due - time.Since(began); wait > 1 {
						time.Sleep(wait - 1)
						require.False(t, b.Allow(1), "token %d, a nanosecond too soon", taken+1)
						time.Sleep(time.Nanosecond)
					} else {
						time.Sleep(time.Nanosecond)
					}
					for arrival(r, taken+1) <= time.Since(began) {
						require.True(t, b.Allow(1), "token %d at %v", taken+1, time.Since(began))
						taken++
					}
				}
				require.False(t, b.Allow(1))
			})
		}
	}
}

func TestTokenBucket_RetryAfterIsTheNanosecond(t *testing.T) {
	for _, r := range oddRates {
		inBubble(t, r.String(), func(t *testing.T) {
			b := newDrainedBucket(t, r, 1<<40)
			for _, n := range []int64{1, 2, 3, 100} {
				d := b.RetryAfter(n)
				require.Equal(t, arrival(r, n), d)
				if n > 1 {
					require.False(t, b.Allow(n))
				}
			}
			d := b.RetryAfter(100)
			time.Sleep(d - 1)
			require.EqualValues(t, 1, b.RetryAfter(100))
			require.False(t, b.Allow(100))
			time.Sleep(time.Nanosecond)
			require.Zero(t, b.RetryAfter(100))
			require.True(t, b.Allow(100))
		})
	}
}

// However often it is looked at in between, nothing is lost and nothing made.
func TestTokenBucket_LookingLosesNothing(t *testing.T) {
	r := testRandom(t)
	for _, rate := range oddRates {
		inBubble(t, rate.String(), func(t *testing.T) {
			b := newDrainedBucket(t, rate, math.MaxInt64)
			began := time.Now()
			for range 3000 {
				time.Sleep(time.Duration(1 + r.Int64N(1<<r.IntN(45))))
				switch r.IntN(5) {
				case 0:
					b.Allow(math.MaxInt64)
				case 1:
					b.RetryAfter(1 + r.Int64N(100))
				case 2:
					require.NoError(t, b.SetRate(b.Rate()))
				case 3:
					require.NoError(t, b.SetBurst(b.Burst()))
				case 4:
					b.Return(0)
				}
				want := new(big.Int).Mul(big.NewInt(int64(time.Since(began))), big.NewInt(rate.tokens))
				require.Equal(t, want.Div(want, big.NewInt(int64(rate.per))).Int64(), b.Tokens())
			}
		})
	}
}

func TestTokenBucket_NeverHoldsMoreThanTheBurst(t *testing.T) {
	for _, burst := range []int64{0, 1, 7, 1 << 31, 1 << 40, math.MaxInt64} {
		for _, r := range append(oddRates, Per(math.MaxInt64, 1), Rate{}) {
			inBubble(t, r.String(), func(t *testing.T) {
				b := newTestBucket(t, r, burst)
				for _, d := range []time.Duration{1, time.Second, 1 << 40, 1 << 60} {
					time.Sleep(d)
					requireTokens(t, burst, b)
					require.True(t, b.Allow(burst/2))
					time.Sleep(d)
					require.LessOrEqual(t, b.Tokens(), burst)
					b.Return(math.MaxInt64)
				}
			})
		}
	}
}

func TestTokenBucket_NothingOverflows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast := newDrainedBucket(t, Per(math.MaxInt64, time.Nanosecond), math.MaxInt64)
		require.EqualValues(t, 1, fast.RetryAfter(1))
		require.EqualValues(t, 1, fast.RetryAfter(math.MaxInt64))
		time.Sleep(time.Nanosecond)
		requireHolds(t, math.MaxInt64, fast)
		time.Sleep(1 << 61)
		requireHolds(t, math.MaxInt64, fast)

		slow := newDrainedBucket(t, Every(math.MaxInt64), math.MaxInt64)
		require.Equal(t, never, slow.RetryAfter(math.MaxInt64))
		time.Sleep(1 << 61)
		requireTokens(t, 0, slow)

		big := newDrainedBucket(t, PerSecond(1), math.MaxInt64)
		require.Equal(t, never, big.RetryAfter(math.MaxInt64))
		waiter := parkWait(t, big, math.MaxInt64)
		require.Equal(t, never, big.RetryAfter(math.MaxInt64), "behind so many")
		require.Equal(t, never, big.RetryAfter(1))
		require.False(t, big.Reserve(math.MaxInt64).OK())
		big.Return(math.MaxInt64)
		requireServedAfter(t, 0, waiter)

		var ok int
		for range 10 {
			if big.Reserve(1 << 61).OK() {
				ok++
			}
		}
		require.Less(t, ok, 10, "it cannot owe that much")
		require.Negative(t, big.Tokens()-1)
	})
}

// T2

func TestTokenBucket_TimeDoesNotRunBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, storm := range []int{0, 200} { // a storm of calls may be answered in another way
			b := newDrainedBucket(t, PerSecond(1), 10)
			at(b, 3*time.Second)
			require.True(t, b.Allow(3))
			for range 20 {
				at(b, 0)
				require.False(t, b.Allow(1))
				for range storm {
					at(b, 0)
					require.False(t, b.Allow(1))
					at(b, 3*time.Second)
					require.False(t, b.Allow(1))
				}
				at(b, 3*time.Second)
				require.False(t, b.Allow(1))
			}
			at(b, 0)
			b.Return(0)
			require.NoError(t, b.SetRate(b.Rate()))
			require.NoError(t, b.SetBurst(b.Burst()))
			require.True(t, b.Reserve(1).OK())
			at(b, 3*time.Second)
			requireTokens(t, -1, b)
			at(b, 4*time.Second)
			requireTokens(t, 0, b)
		}
	})
}

// What a storm of calls has taken later is not a debt to a caller whose reading
// of the clock is older.
func TestTokenBucket_AnOldReadingOfTheClockAfterAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, r := range []Rate{PerSecond(1), Per(7, time.Minute), PerSecond(999_983)} {
			b := newDrainedBucket(t, r, 10)
			for range 100 {
				require.False(t, b.Allow(1))
			}
			at(b, arrival(r, 3))
			require.True(t, b.Allow(3))
			at(b, 0)
			requireTokens(t, 0, b)
			require.NoError(t, b.SetRate(Rate{}))
			require.NoError(t, b.SetRate(r))
			at(b, arrival(r, 5))
			requireHolds(t, 2, b)
		}
		b := newDrainedBucket(t, Per(10, time.Nanosecond), 5)
		for range 100 {
			require.False(t, b.Allow(1))
		}
		at(b, 1)
		require.True(t, b.Allow(5))
		require.False(t, b.Allow(1))
		at(b, 0)
		require.LessOrEqual(t, b.Tokens(), int64(5))
	})
}

// Rates

func TestTokenBucket_EqualRatiosAreEqualRates(t *testing.T) {
	require.Equal(t, PerSecond(10), Per(600, time.Minute))
	require.Equal(t, PerSecond(10), Every(100*time.Millisecond))
	require.Equal(t, PerSecond(1_000_000_000), Every(1))
	require.Equal(t, Rate{}, Per(0, time.Second))
	require.Equal(t, Rate{}, Per(0, 0))
	require.NotEqual(t, PerSecond(10), PerSecond(11))
	require.NotEqual(t, PerSecond(10).String(), PerSecond(11).String())
}

func TestTokenBucket_NonsenseIsRefused(t *testing.T) {
	nonsense := map[string]Rate{
		"negative":            Per(-1, time.Second),
		"most negative":       Per(math.MinInt64, time.Second),
		"negative a second":   PerSecond(-1),
		"negative time":       Per(1, -time.Second),
		"both negative":       Per(-1, -time.Second),
		"none in less than 0": Per(0, -1),
		"some in no time":     Per(1, 0),
		"every no time":       Every(0),
		"every less than 0":   Every(-time.Second),
		"most negative time":  Every(math.MinInt64),
	}
	b := newTestBucket(t, Every(time.Hour), 10)
	require.True(t, b.Allow(3))
	for name, r := range nonsense {
		require.NotEmpty(t, r.String(), name)
		none, err := NewTokenBucket(r, 10)
		require.Nil(t, none, name)
		requireErrRate(t, err, "rate")
		requireUnchangedFields(t, b, func() { requireErrRate(t, b.SetRate(r), "rate") })
	}
	for _, burst := range []int64{-1, math.MinInt64} {
		none, err := NewTokenBucket(PerSecond(1), burst)
		require.Nil(t, none)
		requireErrRate(t, err, "burst")
		requireUnchangedFields(t, b, func() { requireErrRate(t, b.SetBurst(burst), "burst") })
	}
}

func requireErrRate(t *testing.T, err error, field string) {
	t.Helper()
	require.ErrorIs(t, err, ErrRate)
	require.True(t, strings.HasPrefix(err.Error(), "ration: "), "%v", err)
	require.Contains(t, err.Error(), field, "it names the field")
}

// requireUnchangedFields is requireUnchanged outside a bubble, where time passes.
func requireUnchangedFields(t *testing.T, b *TokenBucket, f func()) {
	t.Helper()
	rate, burst, tokens := b.Rate(), b.Burst(), b.Tokens()
	f()
	require.Equal(t, rate, b.Rate())
	require.Equal(t, burst, b.Burst())
	require.Equal(t, tokens, b.Tokens())
}

// T4

func TestTokenBucket_MisusePanicsAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none context.Context
		ctx := briefly(t)
		b, other := newTestBucket(t, PerSecond(1), 10), newTestBucket(t, PerSecond(1), 10)
		require.True(t, b.Allow(10))
		r := reserve(t, 2*time.Second, b, 2)
		for _, n := range []int64{-1, -5, math.MinInt64} {
			for name, f := range map[string]func(){
				"Allow":      func() { b.Allow(n) },
				"Wait":       func() { _ = b.Wait(ctx, n) },
				"Wait, done": func() { _ = b.Wait(canceled(), n) },
				"Reserve":    func() { b.Reserve(n) },
				"Return":     func() { b.Return(n) },
				"RetryAfter": func() { b.RetryAfter(n) },
				"AllowAll":   func() { AllowAll(n, other, b) },
				"no buckets": func() { AllowAll(n) },
				"WaitAll":    func() { _ = WaitAll(ctx, n, other, b) },
				"none":       func() { _ = WaitAll(ctx, n) },
				"nil Wait":   func() { _ = b.Wait(none, 1) },
				"nil, 0":     func() { _ = b.Wait(none, 0) },
				"nil all":    func() { _ = WaitAll(none, 1, other, b) },
				"nil none":   func() { _ = WaitAll(none, 1) },
			} {
				t.Log(name)
				requireUnchanged(t, b, func() {
					requireUnchanged(t, other, func() { requireMisuse(t, f) })
				})
			}
		}
		require.Equal(t, 2*time.Second, r.Delay())
		time.Sleep(3 * time.Second)
		requireHolds(t, 1, b)
	})
}

func TestTokenBucket_TakingNothingAlwaysWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, b := range []*TokenBucket{
			newDrainedBucket(t, Rate{}, 3),
			newTestBucket(t, PerSecond(1), 0),
			newDrainedBucket(t, PerSecond(1), 3),
		} {
			if b.Burst() > 0 {
				parkWait(t, b, 1)
			}
			require.True(t, b.Allow(0))
			require.NoError(t, b.Wait(briefly(t), 0), "with others waiting as well")
			require.True(t, AllowAll(0, b, b))
			require.NoError(t, WaitAll(briefly(t), 0, b, b))
			require.Zero(t, b.RetryAfter(0))
			require.Error(t, b.Wait(canceled(), 0))
		}
	})
}

func TestTokenBucket_RateZeroGivesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, Rate{}, 5)
		require.True(t, b.Allow(2))
		time.Sleep(1000 * time.Hour)
		require.Equal(t, never, b.RetryAfter(4))
		require.Zero(t, b.RetryAfter(3))
		require.False(t, b.Allow(4))
		require.NoError(t, b.Wait(briefly(t), 3))
		require.Equal(t, never, b.RetryAfter(1))
		b.Return(2)
		requireHolds(t, 2, b)
	})
}

// A pause keeps what was there, part of a token included.
func TestTokenBucket_RateZeroKeepsThePartOfAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, Per(1, 24*time.Hour), 5)
		for range 23 {
			time.Sleep(time.Hour)
			require.NoError(t, b.SetRate(Rate{}))
			require.Equal(t, Rate{}, b.Rate())
			time.Sleep(time.Hour)
			require.Equal(t, never, b.RetryAfter(1))
			requireTokens(t, 0, b)
			require.NoError(t, b.SetRate(Per(1, 24*time.Hour)))
		}
		require.Equal(t, time.Hour, b.RetryAfter(1))
	})
}

// Return and the setters

func TestTokenBucket_ReturnIsCappedAtTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		b.Return(4)
		requireTokens(t, 4, b)
		b.Return(0)
		requireTokens(t, 4, b)
		time.Sleep(500 * time.Millisecond)
		b.Return(6)
		requireTokens(t, 10, b)
		require.True(t, b.Allow(10))
		require.Equal(t, time.Second, b.RetryAfter(1), "half a token did not fit")
		b.Return(math.MaxInt64)
		requireHolds(t, 10, b)
		require.Equal(t, 10*time.Second, b.RetryAfter(10))
	})
}

func TestTokenBucket_ReturnRepaysWhatIsPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		r := reserve(t, 7*time.Second, b, 7)
		b.Return(9)
		requireHolds(t, 2, b)
		require.Equal(t, 7*time.Second, r.Delay())
	})
}

func TestTokenBucket_ANewRateCountsFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 100)
		time.Sleep(2500 * time.Millisecond)
		require.NoError(t, b.SetRate(PerSecond(10)))
		requireTokens(t, 2, b)
		require.Equal(t, 50*time.Millisecond, b.RetryAfter(3), "half a token was there")
		time.Sleep(time.Second)
		requireTokens(t, 12, b)
		require.NoError(t, b.SetRate(Every(time.Minute)))
		require.Equal(t, 30*time.Second, b.RetryAfter(13))
		time.Sleep(30 * time.Second)
		requireHolds(t, 13, b)
	})
}

// A change of the rate may cost a part of a token, but what comes in a
// nanosecond at most.
func TestTokenBucket_ChangingRatesNeitherMintsNorLoses(t *testing.T) {
	r := testRandom(t)
	synctest.Test(t, func(t *testing.T) {
		const changes = 2000
		b := newDrainedBucket(t, oddRates[0], math.MaxInt64)
		sum, lost := new(big.Rat), new(big.Rat)
		for range changes {
			d := r.Int64N(int64(time.Minute))
			time.Sleep(time.Duration(d))
			sum.Add(sum, inflow(b.Rate(), d))
			next := oddRates[r.IntN(len(oddRates))]
			require.NoError(t, b.SetRate(next))
			lost.Add(lost, big.NewRat(1, int64(next.per)))
			have := exactly(b)
			require.LessOrEqual(t, have.Cmp(sum), 0, "minted")
			require.GreaterOrEqual(t, have.Cmp(new(big.Rat).Sub(sum, lost)), 0, "lost")
		}
	})
}

// inflow is what comes in d.
func inflow(r Rate, d int64) *big.Rat {
	if r.tokens == 0 {
		return new(big.Rat)
	}
	in := new(big.Rat).SetFrac64(r.tokens, int64(r.per))
	return in.Mul(in, new(big.Rat).SetInt64(d))
}

// exactly is what b holds now, to the last part of a token.
func exactly(b *TokenBucket) *big.Rat {
	b.lock()
	defer b.mu.Unlock()
	have := new(big.Rat).SetInt64(b.have.whole)
	if b.have.part > 0 {
		have.Add(have, new(big.Rat).SetFrac64(b.have.part, int64(b.rate.per)))
	}
	return have
}

func TestTokenBucket_ASmallerBurstClipsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 10)
		require.NoError(t, b.SetBurst(4))
		requireTokens(t, 4, b)
		require.NoError(t, b.SetBurst(8))
		requireTokens(t, 4, b)
		time.Sleep(2 * time.Second)
		require.NoError(t, b.SetBurst(7))
		requireTokens(t, 6, b)
		time.Sleep(time.Hour)
		requireTokens(t, 7, b)
		require.NoError(t, b.SetBurst(0))
		requireTokens(t, 0, b)
		require.False(t, b.Allow(1))
		require.Equal(t, never, b.RetryAfter(1))
		require.NoError(t, b.SetBurst(1<<40))
		require.Equal(t, time.Second, b.RetryAfter(1))
	})
}

func TestTokenBucket_BucketsAreNotCopied(t *testing.T) {
	one, other := newDrainedBucket(t, Every(time.Hour), 1), newTestBucket(t, Every(time.Hour), 1)
	require.NotEqual(t, one.id, other.id)
	require.True(t, other.Allow(1))
}

// storms mixes storms of calls, which a bucket may answer in another way than
// single calls, with everything else.
func TestTokenBucket_AStormChangesNothingButTheSpeed(t *testing.T) {
	r := testRandom(t)
	for _, rate := range append(oddRates, Per(1_000_003, 1_000_000_007)) {
		for _, burst := range []int64{1, 10, 1000, 1 << 40} {
			inBubble(t, rate.String(), func(t *testing.T) { compareInAStorm(t, r, rate, burst) })
		}
	}
}

func compareInAStorm(t *testing.T, r *rand.Rand, rate Rate, burst int64) {
	b := newTestBucket(t, rate, burst)
	have, full := new(big.Rat).SetInt64(burst), new(big.Rat).SetInt64(burst)
	pass := func() {
		d := r.Int64N(1 << r.IntN(40))
		time.Sleep(time.Duration(d))
		if have.Add(have, inflow(rate, d)); have.Cmp(full) > 0 {
			have.Set(full)
		}
	}
	take := func() {
		n := r.Int64N(1 + min(burst, 1<<r.IntN(12)))
		want := have.Cmp(new(big.Rat).SetInt64(n)) >= 0
		require.Equal(t, want, b.Allow(n), "%d of %v", n, have)
		if want {
			have.Sub(have, new(big.Rat).SetInt64(n))
		}
	}
	for range 30 {
		for range r.IntN(300) {
			take()
			if r.IntN(3) == 0 {
				pass()
			}
		}
		require.Zero(t, have.Cmp(exactly(b)), "%v, want %v", exactly(b), have)
	}
}
