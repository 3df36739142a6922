package ration

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A million leases, taken by borrowers of all kinds while the detector scans: each
// that is overdue is reported once, each that comes back after that once, and no
// other ever. With less than RATION_STRESS it is a tenth of them.
func TestDetector_StressMillionLeases(t *testing.T) {
	total := 1_000_000
	if os.Getenv("RATION_STRESS") == "" || raceEnabled {
		total /= 10
	}
	const (
		borrowers = 200
		threshold = time.Second
		interval  = 100 * time.Millisecond
	)
	synctest.Test(t, func(t *testing.T) {
		type fate struct {
			held             time.Duration // 0: for ever
			touched, revoked bool
		}
		fates := make([]fate, total+1) // by id
		suspected, recovered := make([]int, total+1), make([]int, total+1)
		g := newGuarded(t, MaxPermits, &DetectorOptions{
			Threshold: threshold, Interval: interval, StackEvery: 1_000, ProveEvery: 1_000,
			OnReport: func(r Report) {
				for _, l := range r.Suspects {
					suspected[l.ID]++
				}
				for _, l := range r.Recovered {
					recovered[l.ID]++
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var scanning, working sync.WaitGroup
		scanning.Go(func() { g.d.Run(ctx) })
		for range borrowers {
			working.Go(func() {
				for range total / borrowers {
					f := fate{held: time.Duration(rand.ExpFloat64() * float64(20*time.Millisecond))}
					what := rand.IntN(1_000)
					switch {
					case what < 1: // forgets it
						f.held = 0
					case what < 2: // is very slow
						f.held = threshold + rand.N(2*threshold)
					case what < 3: // is slow, but says so
						f.held, f.touched = 2*threshold, true
					case what < 4: // has it taken away
						f.held, f.revoked = 2*threshold, true
					}
					l, err := g.Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					fates[l.id] = f
					if f.touched {
						for range 4 {
							time.Sleep(f.held / 4)
							l.Touch()
						}
					} else {
						time.Sleep(f.held)
					}
					switch {
					case f.held == 0:
					case f.revoked:
						g.Revoke(l.id)
					default:
						l.Close()
					}
				}
			})
		}
		working.Wait()
		time.Sleep(threshold + interval)
		cancel()
		scanning.Wait()

		var forgotten, late, maybe int
		for id, f := range fates[1:] {
			id++
			most, least := 0, 0
			switch {
			case f.touched:
			case f.held == 0:
				most, least = 1, 1
				forgotten++
			case f.held >= threshold+interval:
				most, least = 1, 1
				late++
			case f.held >= threshold:
				most = 1
				maybe++
			}
			require.LessOrEqual(t, suspected[id], most, "lease %d: %+v", id, f)
			require.GreaterOrEqual(t, suspected[id], least, "lease %d: %+v", id, f)
			back := suspected[id]
			if f.held == 0 || f.revoked {
				back = 0
			}
			require.Equal(t, back, recovered[id], "lease %d: %+v", id, f)
		}
		require.NotZero(t, forgotten*late*maybe)
		require.Equal(t, forgotten, g.d.Stats().SuspectsNow)
		require.Len(t, g.Leases(), forgotten)
		require.Zero(t, g.d.Stats().Dropped)
		t.Logf("%d leases, %d forgotten, %d late", total, forgotten, late)
	})
}
