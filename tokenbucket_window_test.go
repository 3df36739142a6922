package ration

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// T1, in real time: not only the total, but every window is within the bound.

// A windowGrant was made between two readings of the clock.
type windowGrant struct {
	before, after time.Duration
	n             int64
}

func TestTokenBucket_NoWindowExceedsBurstAndRate(t *testing.T) {
	const (
		workers   = 64
		perSecond = 4001
		burst     = 37
	)
	length := time.Second
	if testing.Short() {
		length /= 5
	}
	for _, other := range []bool{false, true} { // calls that keep the bucket from its fast path
		name := map[bool]string{false: "Allow alone", true: "and others"}[other]
		t.Run(name, func(t *testing.T) {
			seeds := testRandom(t)
			b := newTestBucket(t, PerSecond(perSecond), burst)
			began := time.Now()
			grants := make([][]windowGrant, workers)
			var all sync.WaitGroup
			for i := range workers {
				r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
				all.Go(func() {
					for {
						n := 1 + r.Int64N(3)
						before := time.Since(began)
						if before > length {
							return
						}
						ok := false
						switch {
						case other && i == 0:
							ok = AllowAll(n, b)
						case other && i == 1:
							b.Reserve(n).Cancel()
						default:
							ok = b.Allow(n)
						}
						if ok {
							grants[i] = append(grants[i], windowGrant{before, time.Since(began), n})
						}
						if r.IntN(100) == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			all.Wait()
			made := slices.Concat(grants...)
			requireWindows(t, made, perSecond, burst)

			// Nor is anything lost, as long as it was never full.
			if !other {
				total := b.Tokens()
				elapsed := time.Since(began)
				for _, g := range made {
					total += g.n
				}
				first := slices.MinFunc(made, func(a, b windowGrant) int { return int(a.after - b.after) }).after
				idle := longestPause(made)
				if idle < burst*time.Second/perSecond/2 {
					require.LessOrEqual(t, total, int64(burst+perSecond*elapsed.Seconds()))
					require.GreaterOrEqual(t, total, int64(burst+perSecond*(elapsed-first).Seconds())-1)
				}
			}
		})
	}
}

// requireWindows checks each window from the beginning of one grant to the end
// of another: all that was certainly granted in between fits.
func requireWindows(t *testing.T, grants []windowGrant, perSecond, burst int64) {
	t.Helper()
	require.NotEmpty(t, grants)
	slices.SortFunc(grants, func(a, b windowGrant) int { return int(a.after - b.after) })
	fullest := 0.0
	for _, first := range grants {
		sum := int64(0)
		for _, g := range grants {
			if g.before < first.before {
				continue
			}
			sum += g.n
			bound := float64(burst) + float64(perSecond)*(g.after-first.before).Seconds()
			if float64(sum) > bound {
				require.Failf(t, "too many in a window", "%d in %v, at most %.2f", sum, g.after-first.before, bound)
			}
			fullest = max(fullest, float64(sum)/bound)
		}
	}
	t.Logf("%d grants, the fullest window is at %.1f %%", len(grants), 100*fullest)
	require.Greater(t, fullest, 0.5, "a test that could not fail")
}

// longestPause is the longest time without a grant.
func longestPause(grants []windowGrant) time.Duration {
	longest := time.Duration(0)
	for i := range grants[1:] { // in order
		longest = max(longest, grants[i+1].after-grants[i].after)
	}
	return longest
}
