package ration

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fastRates are rates with small and large terms.
var fastRates = []Rate{PerSecond(1000), PerSecond(999_983), Per(7, time.Minute), Per(3, 10*time.Second), Every(time.Nanosecond), Per(1, 24*time.Hour)}

// calm calls Allow without effect until a fastBucket opens.
func calm(t *testing.T, b *TokenBucket) {
	t.Helper()
	for range calmCalls {
		b.Allow(math.MaxInt64)
	}
	require.NotNil(t, b.fast.Load(), "no fast bucket")
}

func TestTokenBucket_FastAndSlowAgree(t *testing.T) {
	for _, rate := range fastRates {
		for _, burst := range []int64{1, 10, 1 << 12} {
			synctest.Test(t, func(t *testing.T) { fastAndSlowAgree(t, rate, burst) })
		}
	}
}

func fastAndSlowAgree(t *testing.T, rate Rate, burst int64) {
	fast, _ := NewTokenBucket(rate, burst)
	slow, _ := NewTokenBucket(rate, burst)
	each := max(1, int64(rate.per)/rate.tokens) // about a token
	for range 2000 {
		n := rand.Int64N(burst+1) + 1
		if rand.IntN(3) > 0 {
			n = 1
		}
		if fast.fast.Load() == nil {
			calm(t, fast)
		}
		slow.calm = 0 // keeps it slow
		require.Equal(t, slow.allowSlow(n), fast.Allow(n), "%d of %v, burst %d", n, rate, burst)
		require.Nil(t, slow.fast.Load())
		if rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.Int64N(3*each) + rand.Int64N(3)))
		}
		if rand.IntN(20) == 0 && each*burst < int64(30*24*time.Hour) { // fake time ends in 2262
			time.Sleep(time.Duration(each * burst)) // fills it
		}
		if rand.IntN(50) == 0 { // back to the mutex in the middle
			require.NotNil(t, fast.fast.Load())
			require.Equal(t, slow.Tokens(), fast.Tokens())
			require.Equal(t, slow.RetryAfter(n), fast.RetryAfter(n))
			require.NotNil(t, fast.fast.Load(), "to look is not to close it")
			for _, b := range []*TokenBucket{slow, fast} {
				b.lock()
				b.mu.Unlock()
			}
			require.Equal(t, slow.have, fast.have)
		}
	}
}

func TestTokenBucket_FastOpensAnewWhenTheUnitsRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := NewTokenBucket(PerSecond(999_983), 10)
		calm(t, b)
		first := b.fast.Load()
		require.True(t, b.Allow(10))
		time.Sleep(time.Duration(first.limit) + 1)
		require.True(t, b.Allow(10))
		require.NotSame(t, first, b.fast.Load())
		require.False(t, b.Allow(1))
		time.Sleep(2 * time.Microsecond)
		require.True(t, b.Allow(1))
		require.False(t, b.Allow(1))
	})
}

func TestTokenBucket_FastGivesWayToWhateverElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, call := range map[string]func(b *TokenBucket){
			"Return":   func(b *TokenBucket) { b.Return(0); require.True(t, b.Allow(2)) },
			"Reserve":  func(b *TokenBucket) { require.True(t, b.Reserve(2).OK()) },
			"AllowAll": func(b *TokenBucket) { require.True(t, AllowAll(2, b)) },
			"WaitAll":  func(b *TokenBucket) { require.NoError(t, WaitAll(t.Context(), 2, b)) },
			"SetBurst": func(b *TokenBucket) { require.NoError(t, b.SetBurst(4)) },
		} {
			b, _ := NewTokenBucket(PerSecond(10), 10)
			calm(t, b)
			require.True(t, b.Allow(4))
			require.EqualValues(t, 6, b.Tokens(), name)
			calm(t, b)
			call(b)
			require.Nil(t, b.fast.Load(), name)
			require.EqualValues(t, 4, b.Tokens(), name)
			if name != "Reserve" { // a promise keeps it closed until the bucket is full again
				calm(t, b)
			}
			require.False(t, b.Allow(5), name)
			require.True(t, b.Allow(4), name)
		}
	})
}

func TestTokenBucket_ReservingNothingIsNoPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := NewTokenBucket(Every(time.Hour), 10)
		require.True(t, b.Allow(4)) // not full, so that a promise would be remembered
		r := b.Reserve(0)
		require.True(t, r.OK())
		require.Zero(t, r.Delay())
		calm(t, b)
		r.Cancel()
		require.EqualValues(t, 6, b.Tokens())
	})
}

func TestTokenBucket_FastNeverStandsBesideWaitersOrPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := NewTokenBucket(Every(time.Hour), 1)
		require.True(t, b.Allow(1))
		w := start(func() error { return b.Wait(t.Context(), 1) })
		requireParked(t, w)
		for range 2 * calmCalls {
			require.False(t, b.Allow(1))
		}
		require.Nil(t, b.fast.Load())
		time.Sleep(time.Hour)
		require.NoError(t, w.result())

		require.True(t, b.Reserve(1).OK())
		for range 2 * calmCalls {
			require.False(t, b.Allow(1))
		}
		require.Nil(t, b.fast.Load())
	})
}

func TestTokenBucket_FastStressMintsNothing(t *testing.T) {
	const rate, burst = 200_000, 50
	b, _ := NewTokenBucket(PerSecond(rate), burst)
	var granted atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for time.Since(began) < 300*time.Millisecond {
				if b.Allow(1) {
					granted.Add(1)
				}
				if i == 0 && rand.IntN(5000) == 0 {
					b.Tokens() // opens and closes it under the others
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, granted.Load(), int64(burst+rate*time.Since(began).Seconds()+1))
	require.Positive(t, granted.Load())
}
