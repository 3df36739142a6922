package debug

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

func TestWaits_BucketsAreNarrow(t *testing.T) {
	for d := time.Duration(1); d < time.Hour/2; d = d*17/16 + 1 {
		i := waitBucket(d)
		require.Less(t, d, waitBucketTop(i), "%v", d)
		if i > 0 {
			require.GreaterOrEqual(t, d, waitBucketTop(i-1), "%v", d)
			require.LessOrEqual(t, float64(waitBucketTop(i)), float64(d)*1.125+1, "%v", d)
		}
	}
	require.Equal(t, waitBuckets-1, waitBucket(1<<62))
	require.Zero(t, waitBucket(-1))
}

func TestWaits_PercentilesAreNear(t *testing.T) {
	var w Waits
	before := w.count(time.Now())
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		w.Acquired(ration.AcquireEvent{Waited: d})
	}
	slices.Sort(all)
	p := percentiles(before, w.count(time.Now()))
	require.EqualValues(t, 10_000, p.Acquires)
	for _, q := range []struct {
		got  seconds
		want time.Duration
	}{{p.P50, all[5000]}, {p.P90, all[9000]}, {p.P99, all[9900]}} {
		require.InEpsilon(t, float64(q.want), float64(q.got), 0.126)
	}
}

func TestWaits_PercentilesOfFew(t *testing.T) {
	var w Waits
	start := w.count(time.Now())
	require.Zero(t, *percentiles(start, start))
	w.Acquired(ration.AcquireEvent{Waited: 10 * time.Millisecond})
	p := percentiles(start, w.count(time.Now()))
	require.Equal(t, seconds(10*time.Millisecond), p.P50, "no more than the longest")
	require.Equal(t, p.P50, p.P99)
}

func TestWaits_AreOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := new(Waits)
		page := New(&Options{History: 5 * time.Minute})
		pool := newPool(t, 1, &ration.PoolOptions[struct{}]{Observer: ration.Observer{Acquired: waits.Acquired}})
		page.Add("mail", Pool(pool, waits))
		waits.Acquired(ration.AcquireEvent{Waited: time.Minute}) // long ago
		for range 30 {
			time.Sleep(30 * time.Second)
			html(t, page, "")
		}
		waits.Acquired(ration.AcquireEvent{Waited: time.Millisecond})
		p := decoded(t, page).Pools[0]["wait_percentiles"].(map[string]any)
		require.EqualValues(t, 1, p["acquires"])
		require.InDelta(t, 0.001, p["p99_seconds"], 0.00013)
		require.LessOrEqual(t, p["window_seconds"], 361.0)
	})
}
