package debug

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// samples are one a second with these levels, of a limit of 10.
func samples(levels ...int64) (h history) {
	for i, l := range levels {
		h = append(h, sample{at: start.Add(time.Duration(i) * time.Second), level: l, limit: 10})
	}
	return h
}

func TestChart_DrawsSteps(t *testing.T) {
	h := samples(0, 5, 5, 10)
	c := draw(h[:3], h[3], 10*time.Second, 3*time.Second)
	require.EqualValues(t, 10, c.Top)
	require.Equal(t, "M700 100H800V50H1000V0H1000", c.Level)
	require.Equal(t, "M700 0H1000", c.Limit)
	require.Equal(t, c.Level+"V100H700Z", c.Area)
	require.Empty(t, c.Gaps)
	require.Empty(t, c.Waiters)
}

func TestChart_ShowsWhereNobodyHasLooked(t *testing.T) {
	h := samples(2, 4, 6, 8, 10)
	c := draw(history{h[0], h[1]}, h[4], 10*time.Second, 2*time.Second)
	require.Equal(t, "M700 60L1000 0", c.Gaps)
	require.Equal(t, "M600 80H700V60H700M1000 0H1002", c.Level)
}

func TestChart_BeginsAtTheEdge(t *testing.T) {
	h := samples(2, 2, 2)
	c := draw(h[:2], h[2], time.Second, 5*time.Second)
	require.Equal(t, "M0 80H1000", c.Level, "an older sample tells how it was at the edge")
}

func TestChart_LeavesOutALimitOffTheScale(t *testing.T) {
	now := sample{at: start, level: 3, limit: 1 << 59}
	c := draw(nil, now, time.Minute, time.Second)
	require.Empty(t, c.Limit)
	require.EqualValues(t, 3, c.Top)
}

func TestChart_NeverLeavesItsBox(t *testing.T) {
	h := history{{at: start, level: 20, limit: 10, waiters: 3}, {at: start.Add(time.Second), level: -5, limit: 0}}
	c := draw(h, sample{at: start.Add(2 * time.Second)}, time.Minute, 5*time.Second)
	require.EqualValues(t, 20, c.Top, "debt is more than the limit")
	require.NotContains(t, c.Level+c.Limit+c.Area+c.Waiters, "-")
	require.NotEmpty(t, c.Waiters)
	require.EqualValues(t, 3, c.WaitersTop)
}

func TestFormat_IsForPeople(t *testing.T) {
	for v, want := range map[any]string{0: "0", 999: "999", int64(1000): "1,000", uint64(1234567): "1,234,567", -1234: "−1,234", -12: "−12"} {
		require.Equal(t, want, number(v))
	}
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.00\u00a0µs", 999 * time.Microsecond: "999\u00a0µs", 999_999: "999\u00a0µs", time.Millisecond: "1.00\u00a0ms",
		12_345 * time.Microsecond: "12.3\u00a0ms", 4200 * time.Millisecond: "4.20\u00a0s", 59_999 * time.Millisecond: "59.9\u00a0s",
		63 * time.Second: "1m 03s", 3*time.Hour + 5*time.Minute: "3h 05m", 50 * time.Hour: "2d 02h", -time.Second: "−1.00\u00a0s",
	} {
		require.Equal(t, want, duration(seconds(d)))
	}
	require.Equal(t, "–", perSecond(5, 0))
	require.Equal(t, "0/s", perSecond(0, time.Second))
	require.Equal(t, "2.50/s", perSecond(5, 2*time.Second))
	require.Equal(t, "25.0/s", perSecond(50, 2*time.Second))
	require.Equal(t, "2,500/s", perSecond(5000, 2*time.Second))
}
