package ration

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// D4.

func TestHoldTimes_BucketsAreNarrow(t *testing.T) {
	require.Equal(t, holdBuckets-1, bucketOf(math.MaxInt64))
	require.Zero(t, bucketOf(-1))
	for i := range holdBuckets {
		from, to := bucketStart(i), bucketStart(i+1)
		require.Less(t, from, to)
		require.LessOrEqual(t, to-from, max(1, from/8), "bucket %d", i)
		require.Equal(t, i, bucketOf(time.Duration(from)))
		if to < math.MaxInt64 {
			require.Equal(t, i, bucketOf(time.Duration(uint64(to)-1)))
		}
	}
}

// Loans are measured by a choice that does not depend on how long they are, and
// on average each counts for one.
func TestHoldTimes_FrequentLoansAreMeasuredByTheEighth(t *testing.T) {
	h := newHoldTimes(0)
	now := int64(0)
	for i := range 1_024 {
		require.EqualValues(t, 1, h.weighs(now), "loan %d", i)
	}
	for _, rhythm := range []int{1, 2, 3, 5, 8, 16, 24, 64} { // borrowers that take turns
		counted := make([]float64, rhythm)
		const turns = 4_000
		for range turns {
			for i := range counted {
				now += 100
				counted[i] += float64(h.weighs(now))
			}
		}
		for i, n := range counted {
			require.InEpsilon(t, turns, n, 0.05, "the %dth of %d", i, rhythm)
		}
	}
	measured := 0
	for range 100_000 {
		now += 80
		if h.weighs(now) > 0 {
			measured++
		}
	}
	require.InDelta(t, 100_000*(1.0/8+0.02), measured, 500)
	for range 10_000 {
		now += int64(measureCost)
		require.EqualValues(t, 1, h.weighs(now), "no hurry")
	}
}

func TestDetector_AdviceComesFromHoldTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 2, &DetectorOptions{Threshold: time.Hour})
		require.Zero(t, g.d.Advice(g), "of nothing")
		unwatched, err := NewPermitPool(1, nil)
		require.NoError(t, err)
		require.Zero(t, g.d.Advice(unwatched), "nor of what nobody has watched")
		hold := func(d time.Duration) {
			l := g.take(AcquireOptions{})
			time.Sleep(d)
			closeAll(t, l)
		}
		for range 979 {
			hold(10 * time.Millisecond)
		}
		for range 20 {
			hold(100 * time.Millisecond)
		}
		a := g.d.Advice(g)
		require.Equal(t, 999, a.Samples)
		require.False(t, a.Enough)
		hold(time.Second)

		a = g.d.Advice(g.Pool)
		require.Equal(t, 1_000, a.Samples)
		require.True(t, a.Enough)
		require.InEpsilon(t, 10*time.Millisecond, a.P50, 0.125)
		require.InEpsilon(t, 100*time.Millisecond, a.P99, 0.125)
		require.Equal(t, time.Second, a.Max)
		require.GreaterOrEqual(t, a.Threshold, 5*a.P99)
		require.GreaterOrEqual(t, a.FalseAlarms3x, a.FalseAlarms5x)
		require.Greater(t, a.FalseAlarms5x, 1.0, "one in 1,000 was longer, in 13 s")
		require.Greater(t, a.Threshold, time.Second)

		// What is not ruled by the detector's threshold has no say in it.
		l := g.take(AcquireOptions{MaxHold: -1})
		time.Sleep(time.Hour)
		closeAll(t, l)
		l = g.take(AcquireOptions{})
		time.Sleep(time.Minute)
		require.True(t, g.Revoke(l.id))
		require.Equal(t, 1_000, g.d.Advice(g).Samples)
		require.Equal(t, time.Second, g.d.Advice(g).Max)
	})
}

func TestDetector_AdviceForShortHoldsHasAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 1, nil)
		for range 2_000 {
			l := g.take(AcquireOptions{})
			time.Sleep(time.Millisecond)
			closeAll(t, l)
		}
		a := g.d.Advice(g)
		require.Equal(t, time.Second, a.Threshold)
		require.Zero(t, a.FalseAlarms3x)
		require.Zero(t, a.FalseAlarms5x)
	})
}

// Those still open are the slow ones. To leave them out would make a pool look
// quicker the slower it is.
func TestDetector_AdviceCountsOpenLeasesAsCensored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 1_000, &DetectorOptions{Threshold: time.Hour})
		var slow []Lease[struct{}]
		for i := range 2_000 {
			l := g.take(AcquireOptions{})
			if i%10 == 0 {
				slow = append(slow, l)
			} else {
				time.Sleep(time.Millisecond)
				closeAll(t, l)
			}
		}
		time.Sleep(10 * time.Second)
		a := g.d.Advice(g)
		require.Equal(t, 1_800, a.Samples)
		require.InEpsilon(t, time.Millisecond, a.P50, 0.125)
		require.Greater(t, a.P99, 10*time.Second, "one in ten takes longer than that")
		require.Greater(t, a.Max, 10*time.Second)
		closeAll(t, slow...)
	})
}

// A leak must not raise the threshold that is to find it.
func TestDetector_AdviceIsNotMovedByALeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 4, &DetectorOptions{Threshold: 30 * time.Second})
		r := testRandom(t)
		leaked := g.take(AcquireOptions{})
		for range 10_000 {
			l := g.take(AcquireOptions{})
			time.Sleep(time.Duration(r.ExpFloat64() * float64(50*time.Millisecond)))
			closeAll(t, l)
		}
		require.Len(t, g.d.Scan().Suspects, 1)
		a := g.d.Advice(g)
		require.InEpsilon(t, 230*time.Millisecond, a.P99, 0.2)
		require.Less(t, a.Threshold, 3*time.Second)
		require.Less(t, a.FalseAlarms5x, 1.0)
		closeAll(t, leaked)
	})
}

// The false alarms foretold are those that come.
func TestDetector_AdviceForetellsFalseAlarms(t *testing.T) {
	norm := func(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }
	for _, dist := range []struct {
		name     string
		draw     func(r *rand.Rand) float64 // in units of 10 ms
		outlives func(x float64) float64    // exactly
	}{
		{"exponential", func(r *rand.Rand) float64 { return r.ExpFloat64() }, func(x float64) float64 { return math.Exp(-x) }},
		{"log-normal", func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) }, func(x float64) float64 { return norm(math.Log(x)) }},
		{"Pareto 1.5", func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -1/1.5) }, func(x float64) float64 { return math.Pow(max(1, x), -1.5) }},
		{"Pareto 3", func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -1/3.0) }, func(x float64) float64 { return math.Pow(max(1, x), -3) }},
	} {
		for _, n := range []int{2_000, 20_000, 200_000} {
			t.Run(dist.name, func(t *testing.T) {
				const unit = float64(10 * time.Millisecond)
				const perDay = 1e6
				r := testRandom(t)
				var v survival
				for range n {
					held := time.Duration(dist.draw(r) * unit)
					v.ended[bucketOf(held)]++
					v.longest = max(v.longest, held)
				}
				observed := time.Duration(float64(n) / perDay * float64(24*time.Hour))
				start := time.Now()
				a := v.advice(n, observed)
				took := time.Since(start)
				p99 := float64(a.P99) / unit
				exact := func(d float64) float64 { return perDay * dist.outlives(d/unit) }
				t.Logf("%d samples: P99 %v; at 3 x %.3g alarms a day, exactly %.3g; at 5 x %.3g, %.3g; threshold %v, there %.3g; %v",
					n, a.P99, a.FalseAlarms3x, exact(3*p99*unit), a.FalseAlarms5x, exact(5*p99*unit), a.Threshold, exact(float64(a.Threshold)), took)
				require.True(t, a.Enough)
				require.InDelta(t, 0.01, dist.outlives(p99), 0.0025+5*math.Sqrt(0.01/float64(n)), "what is longer than P99")
				// Within a factor that chance explains, or hardly any of the million.
				within := func(got, want, factor, hardlyAny float64) {
					require.LessOrEqual(t, got, factor*want+hardlyAny)
					require.GreaterOrEqual(t, got, want/factor-hardlyAny)
				}
				if n < 10_000 { // 200 make the tail: at 5 x P99 it is anybody's guess
					within(a.FalseAlarms3x, exact(3*p99*unit), 40, 400)
				} else {
					within(a.FalseAlarms3x, exact(3*p99*unit), 3, 20)
					within(a.FalseAlarms5x, exact(5*p99*unit), 6, 20)
				}
				require.GreaterOrEqual(t, a.Threshold, max(time.Second, 5*a.P99))
			})
		}
	}
}
