package ration

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRate_AnOverlongWaitIsNotNone(t *testing.T) {
	// It is 2^64 - 1 ns and a bit, which rounded up is 0 in 64 bits.
	d, ok := level{}.until(1<<62+1, Per(1<<61-1, math.MaxInt64-5))
	require.False(t, ok, "%v", d)
}
