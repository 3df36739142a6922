package ration

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An accountant checks what a detector says against what it has said before.
type accountant struct {
	mu                  sync.Mutex
	suspects, recovered map[uint64]Leak
	doubled, unheardOf  int
}

func (a *accountant) hear(r Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range r.Suspects {
		if _, ok := a.suspects[l.ID]; ok {
			a.doubled++
		}
		a.suspects[l.ID] = l
	}
	for _, l := range r.Recovered {
		if _, ok := a.recovered[l.ID]; ok {
			a.doubled++
		}
		if before, ok := a.suspects[l.ID]; !ok || before.Owner != l.Owner || l.Held < before.Held {
			a.unheardOf++
		}
		a.recovered[l.ID] = l
	}
	panic("whoever listens may fail")
}

// Three detectors with thresholds of their own, a fourth that comes and goes,
// and everything that can happen to a lease at once: each detector says of each
// lease what is so, once, and the books balance when all is over.
func TestDetector_BooksBalanceWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, loans = 40, 60
		thresholds := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}
		accountants := make([]*accountant, len(thresholds))
		detectors := make([]*Detector, len(thresholds))
		p, err := NewPermitPool(25, nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var watching, working sync.WaitGroup
		for i, threshold := range thresholds {
			accountants[i] = &accountant{suspects: make(map[uint64]Leak), recovered: make(map[uint64]Leak)}
			detectors[i], err = NewDetector(&DetectorOptions{
				Threshold: threshold, Interval: 10 * time.Millisecond, StackEvery: 3, OnReport: accountants[i].hear,
			})
			require.NoError(t, err)
			detectors[i].Watch(p)
			watching.Go(func() { detectors[i].Run(ctx) })
			watching.Go(func() {
				for ctx.Err() == nil {
					detectors[i].Stats()
					detectors[i].Advice(p)
					time.Sleep(101 * time.Millisecond)
				}
			})
		}
		watching.Go(func() { // comes and goes, and its marks with it
			passing, err := NewDetector(&DetectorOptions{Threshold: 100 * time.Millisecond})
			require.NoError(t, err)
			for ctx.Err() == nil {
				end := passing.Watch(p)
				time.Sleep(37 * time.Millisecond)
				passing.Scan()
				end()
			}
			require.Zero(t, passing.Stats().SuspectsNow)
		})
		watching.Go(func() {
			for n := int64(0); ctx.Err() == nil; n++ {
				require.NoError(t, p.Resize(15+n%20))
				time.Sleep(53 * time.Millisecond)
			}
		})

		var mu sync.Mutex
		var revoked uint64
		for w := range workers {
			random := rand.New(rand.NewPCG(7, uint64(w)))
			working.Go(func() {
				for range loans {
					o := AcquireOptions{Owner: "worker", Weight: 1 + random.Int64N(3)}
					if random.IntN(8) == 0 {
						o.MaxHold = time.Duration(random.IntN(2000)) * time.Millisecond
					}
					acquiring, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(3000))*time.Millisecond)
					l, err := p.AcquireWith(acquiring, o)
					cancel()
					if err != nil {
						continue
					}
					hold := time.Duration(random.ExpFloat64() * 80 * float64(time.Millisecond))
					time.Sleep(hold / 2)
					if random.IntN(4) == 0 {
						l.Touch()
					}
					time.Sleep(hold / 2)
					switch random.IntN(10) {
					case 0:
						l.Discard()
					case 1:
						_, err = l.Detach()
						require.NoError(t, err)
					case 2:
						if p.Revoke(l.Info().ID) {
							mu.Lock()
							revoked++
							mu.Unlock()
						}
						l.Close() // late
					default:
						go l.Close()
						l.Close()
					}
				}
			})
		}
		working.Wait()
		synctest.Wait()
		stop()
		watching.Wait()

		st := p.Stats()
		require.Equal(t, revoked, st.Revoked)
		require.Zero(t, st.Held)
		require.Zero(t, st.Suspects)
		require.Zero(t, st.Near)
		require.NoError(t, p.Audit())
		for i, d := range detectors {
			d.Scan() // what the last ones have left
			a, ds := accountants[i], d.Stats()
			require.Zero(t, a.doubled+a.unheardOf)
			require.EqualValues(t, len(a.suspects), ds.SuspectsTotal)
			require.EqualValues(t, len(a.recovered), ds.RecoveredTotal)
			require.LessOrEqual(t, ds.RecoveredTotal, ds.SuspectsTotal)
			require.Zero(t, ds.SuspectsNow)
			require.Zero(t, ds.NearNow)
			require.Zero(t, ds.Dropped)
		}
		require.NotZero(t, detectors[0].Stats().SuspectsTotal, "or nothing was tried")
		require.Greater(t, detectors[0].Stats().SuspectsTotal, detectors[2].Stats().SuspectsTotal)
		require.NoError(t, p.Close(t.Context()))
	})
}
