package ration

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzTokenBucketOperations lets the fuzzer write the program that the model test
// takes from chance.
func FuzzTokenBucketOperations(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		var program []byte
		for range 300 {
			program = append(program, byte(r.Uint32()))
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 1<<12 {
			return // longer ones find nothing that shorter ones do not
		}
		synctest.Test(t, func(t *testing.T) { runBucketModel(t, bytesOf(program)) })
	})
}

// FuzzRate compares the arithmetic of rates and levels with that of fractions.
func FuzzRate(f *testing.F) {
	extremes := []int64{math.MinInt64, -1, 0, 1, 7, int64(time.Second), 1 << 40, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	for i, tokens := range extremes {
		for j, per := range extremes {
			pick := func(k int) int64 { return extremes[(i+k*j+k)%len(extremes)] }
			f.Add(tokens, per, pick(1), pick(2), pick(3), pick(4), pick(5))
		}
	}
	f.Add(int64(1)<<61-1, int64(math.MaxInt64)-5, int64(0), int64(0), int64(math.MaxInt64), int64(1)<<62+1, int64(0))
	f.Fuzz(func(t *testing.T, tokens, per, whole, part, top, n, other int64) {
		rate := Per(tokens, time.Duration(per))
		if tokens < 0 || per < 0 || per == 0 && tokens != 0 {
			require.Equal(t, "invalid", rate.String())
			_, err := NewTokenBucket(rate, 1)
			require.ErrorIs(t, err, ErrRate)
			return
		}
		if tokens == 0 {
			require.Equal(t, Rate{}, rate)
			return
		}
		require.Zero(t, big.NewRat(tokens, per).Cmp(big.NewRat(rate.tokens, int64(rate.per))))
		if tokens <= math.MaxInt64/2 && per <= math.MaxInt64/2 {
			require.Equal(t, rate, Per(2*tokens, time.Duration(2*per)), "equal ratios")
		}
		if part < 0 || top < 0 || n < 0 || whole > top || whole < minLevel {
			return
		}

		l := level{whole: whole, part: part % int64(rate.per)}
		if whole == top {
			l.part = 0 // as in every bucket
		}
		requireAfter(t, l, rate, top, n)
		requireUntil(t, l, rate, n)
		if other > 0 {
			requireRescaled(t, l.part, rate, Per(7, time.Duration(other)))
		}
		if other > 0 && other <= top {
			requireDays(t, rate, other, n)
		}
	})
}

func ratOf(l level, r Rate) *big.Rat {
	return new(big.Rat).Add(rat(l.whole), big.NewRat(l.part, int64(r.per)))
}

// requireAfter checks that l is what it should be after d.
func requireAfter(t *testing.T, l level, r Rate, top, d int64) {
	want := new(big.Rat).Mul(big.NewRat(r.tokens, int64(r.per)), rat(d))
	want.Add(want, ratOf(l, r))
	if want.Cmp(rat(top)) > 0 {
		want = rat(top)
	}
	got := l.after(d, r, top)
	require.Zero(t, want.Cmp(ratOf(got, r)), "%+v after %d of %v, at most %d: got %+v, want %v", l, d, r, top, got, want)
	require.True(t, got.part >= 0 && got.part < int64(r.per), "%+v", got)
}

// requireUntil checks that l is n after what until says, and not before.
func requireUntil(t *testing.T, l level, r Rate, n int64) {
	m := newBucketModel(r, math.MaxInt64)
	m.level = ratOf(l, r)
	want, wantOK := m.until(big.NewInt(n))
	got, ok := l.until(n, r)
	require.Equal(t, wantOK, ok, "%+v until %d at %v: %v", l, n, r, got)
	require.Equal(t, want, got, "%+v until %d at %v", l, n, r)
	if ok && got > 0 {
		require.Less(t, l.after(int64(got)-1, r, n).whole, n)
		require.Equal(t, level{whole: n}.whole, l.after(int64(got), r, n).whole)
	}
}

func requireRescaled(t *testing.T, part int64, from, to Rate) {
	got := rescale(part, from, to)
	want := onGrid(big.NewRat(part, int64(from.per)), int64(to.per))
	require.Zero(t, want.Cmp(big.NewRat(got, int64(to.per))), "%d of %v in %v", part, from, to)
	require.Less(t, got, int64(to.per))
}

// requireDays checks a bucket that is emptied and left alone for d, on the slow
// path and on the fast one.
func requireDays(t *testing.T, r Rate, burst, d int64) {
	d %= int64(80 * 365 * 24 * time.Hour) // fake time has an end
	synctest.Test(t, func(t *testing.T) {
		for _, fast := range []bool{false, true} {
			b, err := NewTokenBucket(r, burst)
			require.NoError(t, err)
			if fast {
				for range calmCalls {
					require.Equal(t, burst == math.MaxInt64, b.Allow(math.MaxInt64))
					if burst == math.MaxInt64 {
						return
					}
				}
			}
			require.True(t, b.Allow(burst))
			m := newBucketModel(r, burst)
			m.take(burst)
			time.Sleep(time.Duration(d))
			m.flow(time.Duration(d))
			there := floor(m.level)
			require.False(t, b.Allow(there+1))
			require.True(t, b.Allow(there))
			require.Zero(t, b.Tokens())
		}
	})
}
