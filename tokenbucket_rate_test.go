package ration

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokenBucket_APauseCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		b, err := NewTokenBucket(Every(day), 2)
		require.NoError(t, err)
		require.True(t, b.Allow(2))
		time.Sleep(day - time.Nanosecond)
		for range 3 {
			require.NoError(t, b.SetRate(Rate{}))
			require.Equal(t, Rate{}, b.Rate())
			time.Sleep(day)
			require.Zero(t, b.Tokens())
			require.NoError(t, b.SetRate(Every(day)))
		}
		time.Sleep(time.Nanosecond)
		require.EqualValues(t, 1, b.Tokens())
	})
}

func TestRate_AnOverlongWaitIsNotNone(t *testing.T) {
	// It is 2^64 - 1 ns and a bit, which rounded up is 0 in 64 bits.
	d, ok := level{}.until(1<<62+1, Per(1<<61-1, math.MaxInt64-5))
	require.False(t, ok, "%v", d)
}
