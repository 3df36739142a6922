package ration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Bursts: several operations at the same moment, then rest. How they interleave
// is not known, so the model knows less: what must be true of any order, and
// what must be true at rest.

// A burstModel keeps the ledger of what the test holds, and who waits since when.
type burstModel struct {
	t        *testing.T
	s        *Semaphore
	fair     bool
	r        *rand.Rand
	capacity int64
	owned    int64
	waiting  []*burstCall // in order of arrival, for a burst has at most one
	log      []string
}

type burstCall struct {
	*call
	n        int64
	since    time.Time
	canceled bool
	cancel   context.CancelFunc
}

// aged says whether c has waited so long that nobody may pass it any more.
func (c *burstCall) aged() bool { return time.Since(c.since) > barging }

// An effect is what an operation of a burst did, once it is known.
type effect struct {
	taken, released, grown int64
	newcomer               bool // taken past the queue, if there was one
}

func (m *burstModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// step makes one burst and checks what it left.
func (m *burstModel) step() {
	var ops []func() effect
	var arrival *burstCall
	before := slices.Clone(m.waiting)
	largest, smallest := m.capacity, m.capacity // capacity is never beyond these during the burst
	releasable := m.owned
	m.note("-- burst: %+v, owned %d, waiting %d", m.s.Stats(), m.owned, len(m.waiting))

	for range 2 + m.r.IntN(4) {
		n := 1 + m.r.Int64N(4)
		switch m.r.IntN(12) {
		case 0, 1:
			if arrival != nil {
				continue
			}
			ctx, cancel := context.WithCancel(m.t.Context())
			m.t.Cleanup(cancel)
			arrival = &burstCall{n: n, since: time.Now(), cancel: cancel}
			begin := make(chan struct{})
			arrival.call = start(func() error {
				<-begin
				return m.s.Acquire(ctx, n)
			})
			m.note("Acquire(%d)", n)
			ops = append(ops, func() effect { close(begin); return effect{} })
		case 2, 3, 4:
			n = min(n, releasable)
			releasable -= n
			m.note("Release(%d)", n)
			ops = append(ops, func() effect { m.s.Release(n); return effect{released: n} })
		case 5, 6:
			m.note("TryAcquire(%d)", n)
			ops = append(ops, func() effect {
				if !m.s.TryAcquire(n) {
					return effect{}
				}
				return effect{taken: n, newcomer: true}
			})
		case 7:
			m.note("TryAcquireUpTo(%d)", n)
			ops = append(ops, func() effect {
				got := m.s.TryAcquireUpTo(n)
				return effect{taken: got, newcomer: got > 0}
			})
		case 8:
			if len(before) == 0 {
				continue
			}
			c := before[m.r.IntN(len(before))]
			c.canceled = true
			m.note("cancel one that asks for %d", c.n)
			ops = append(ops, func() effect { c.cancel(); return effect{} })
		case 9:
			if largest == 8 {
				continue
			}
			largest++
			m.note("Grow(1)")
			ops = append(ops, func() effect {
				if m.s.Grow(1) != nil {
					return effect{}
				}
				return effect{grown: 1}
			})
		case 10:
			if smallest == 0 {
				continue
			}
			smallest--
			m.note("Shrink(1)")
			ops = append(ops, func() effect {
				if m.s.Shrink(1) != nil {
					return effect{}
				}
				return effect{grown: -1}
			})
		case 11:
			m.note("misuse")
			ops = append(ops, func() effect {
				if !misused(func() { m.s.Release(MaxPermits) }) {
					m.t.Error("a release of far too much has worked")
				}
				return effect{}
			})
		}
	}

	effects := m.run(ops)
	passed := m.settle(effects, before, arrival, smallest, largest)
	m.checkAtRest(before, passed)
}

// run makes all of ops at the same moment, and waits until all is at rest.
func (m *burstModel) run(ops []func() effect) []effect {
	effects := make([]effect, len(ops))
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() {
			<-begin
			effects[i] = op()
		})
	}
	synctest.Wait()
	close(begin)
	all.Wait()
	synctest.Wait()
	return effects
}

// settle books what has happened, and says whether a newcomer took permits.
func (m *burstModel) settle(effects []effect, before []*burstCall, arrival *burstCall, smallest, largest int64) (passed bool) {
	for _, e := range effects {
		m.owned += e.taken - e.released
		m.capacity += e.grown
		passed = passed || e.newcomer
	}
	if arrival != nil {
		m.waiting = append(m.waiting, arrival)
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(c *burstCall) bool {
		select {
		case <-c.done:
		default:
			return false
		}
		switch c.err {
		case nil:
			m.owned += c.n
			passed = passed || c == arrival
		case context.Canceled:
			require.True(m.t, c.canceled, "says it was cancelled, but was not")
		case ErrTooLarge:
			require.Greater(m.t, c.n, max(1, smallest), "says it is too large, but was not at any time")
			require.Positive(m.t, largest, "nothing is too large for a pause")
		default:
			require.NoError(m.t, c.err)
		}
		return true
	})
	return passed
}

func (m *burstModel) checkAtRest(before []*burstCall, passed bool) {
	st := m.s.Stats()
	require.Equal(m.t, m.capacity, st.Capacity, "capacity")
	require.Equal(m.t, m.owned, st.Held, "held against the ledger")
	require.Equal(m.t, len(m.waiting), st.Waiters, "waiters")
	sum := int64(0)
	for _, c := range m.waiting {
		sum += c.n
		require.False(m.t, c.canceled, "a cancelled call still waits")
		require.False(m.t, m.capacity > 0 && c.n > m.capacity, "one too large still waits")
	}
	require.Equal(m.t, sum, st.WaitingPermits, "permits waited for")
	checkInvariants(m.t, m.s)
	if len(m.waiting) == 0 {
		return
	}
	head := m.waiting[0]
	require.Greater(m.t, head.n, st.Available, "permits are free, and the head that fits them is asleep")

	// Whoever waits now has waited all the time, so nobody who came later may
	// have been served meanwhile: not from the queue, and past it only within
	// the bound.
	if i := slices.Index(before, head); i >= 0 {
		for _, c := range before[i+1:] {
			if !slices.Contains(m.waiting, c) {
				require.Error(m.t, c.err, "served before the head")
			}
		}
		if passed {
			require.False(m.t, m.fair, "overtaken in fair mode")
			require.False(m.t, head.aged(), "overtaken past the bound")
		}
	}
}

// finish lets all that wait have their turn.
func (m *burstModel) finish() {
	require.NoError(m.t, m.s.Resize(8))
	m.capacity = 8
	for m.owned > 0 || len(m.waiting) > 0 {
		effects := m.run([]func() effect{func() effect {
			m.s.Release(m.owned)
			return effect{released: m.owned}
		}})
		m.settle(effects, nil, nil, 8, 8)
		m.checkAtRest(nil, false)
	}
	requireIdle(m.t, m.s, 8)
}

func TestSemaphore_BurstsLeaveNothingUndone(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		r := testRandom(t)
		for range rounds(300) {
			synctest.Test(t, func(t *testing.T) {
				m := &burstModel{t: t, fair: fair, r: r, capacity: 1 + r.Int64N(6)}
				m.s = newTestSemaphore(t, m.capacity, fair)
				defer func() {
					if t.Failed() {
						for _, line := range m.log[max(0, len(m.log)-30):] {
							t.Log(line)
						}
					}
				}()
				for range 40 {
					m.step()
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(1 + r.Int64N(int64(barging))))
					}
				}
				m.finish()
			})
			if t.Failed() {
				return
			}
		}
	})
}
