package ration

import (
	"math/bits"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
	"weak"
)

// What a pool does for the detectors that watch it.

// A watch is the eye of one detector on one pool. The pool has it, and it does
// not have the pool. Guarded by the pool's mu, but for what never changes.
type watch struct {
	detector *Detector
	pool     weakly
	bit      watchSet // one that no other watch of the pool has
	added    int      // how often it was, less how often it was removed

	suspects, near               int    // of the leases, as marked
	suspected, recovered, proved []Leak // not yet in a report

	movements movements // at the last scan
	still     int       // scans that have found the same
	lost      bool      // as reported
	bypassed  bool
}

// A watchSet is a set of watches of a pool.
type watchSet uint32

const everyWatch = ^watchSet(0)

// marks are what detectors have found of a lease.
type marks struct {
	near, suspect watchSet // as of the last scan of each
	reported      watchSet // of them, which have counted it as a suspect
	suspected     bool     // by any detector, also one that watches no more
	proved        bool
}

// movements tell whether anything has been acquired, returned or touched.
type movements struct {
	acquired, touched uint64
	leased            int
}

// watching is a pool's part in being watched. Guarded by Pool.mu.
type watching struct {
	watches  []*watch
	bits     watchSet     // taken, by a watch that is there or being removed
	holds    *holdTimes   // nil until somebody watches
	ownHolds int          // open leases with a MaxHold
	touched  uint64       // counts Touches
	near     int          // leases near some threshold
	suspects atomic.Int64 // of some detector; written under mu
}

// isNil also finds the nil pool in a struct that a caller has embedded one in.
func isNil(p Watchable) bool {
	if p == nil {
		return true
	}
	v := reflect.ValueOf(p)
	return v.Kind() == reflect.Pointer && v.IsNil() || p.isNil()
}

func (p *Pool[T]) isNil() bool { return p == nil }

type weakPool[T any] struct{ p weak.Pointer[Pool[T]] }

func (p *Pool[T]) weakly() weakly { return weakPool[T]{weak.Make(p)} }

func (w weakPool[T]) strongly() Watchable {
	if p := w.p.Value(); p != nil {
		return p
	}
	return nil
}

func (p *Pool[T]) addWatch(d *Detector) *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watches {
		if w.detector == d {
			w.added++
			return w
		}
	}
	free := ^p.bits
	if free == 0 {
		panic("ration: Detector.Watch: more than 32 detectors watch the pool")
	}
	w := &watch{detector: d, pool: p.weakly(), bit: 1 << bits.TrailingZeros32(uint32(free)), added: 1}
	p.bits |= w.bit
	p.watches = append(p.watches, w)
	if p.holds == nil {
		p.holds = newHoldTimes(p.clock.now())
	}
	p.chooseSampling()
	return w
}

func (p *Pool[T]) removeWatch(w *watch) (gone bool) {
	p.mu.Lock()
	w.added--
	if gone = w.added == 0; gone {
		p.watches = slices.DeleteFunc(p.watches, func(other *watch) bool { return other == w })
		p.chooseSampling()
		w.detector.dropped.Add(uint64(len(w.suspected) + len(w.recovered) + len(w.proved)))
	}
	p.mu.Unlock()
	if gone {
		p.walk(func(s *slot[T]) bool {
			p.mark(s, w.bit, young)
			s.marks.reported &^= w.bit
			return true
		})
		p.mu.Lock()
		p.bits &^= w.bit // only now: nobody else may find marks of it
		p.mu.Unlock()
	}
	return gone
}

// An ageClass is what a detector makes of a lease's age.
type ageClass uint8

const (
	young ageClass = iota
	near
	suspect
)

// classify says what the detector makes of a lease's age.
func (d *Detector) classify(age, maxHold time.Duration) ageClass {
	threshold, nearIt := d.opts.Threshold, d.near
	if maxHold != 0 {
		threshold, nearIt = maxHold, d.nearOf(maxHold)
	}
	switch {
	case maxHold < 0 || age < nearIt:
		return young
	case age < threshold:
		return near
	default:
		return suspect
	}
}

// mark notes for some watches what they make of the age of s.
func (p *Pool[T]) mark(s *slot[T], by watchSet, class ageClass) {
	was := s.marks
	s.marks.near &^= by
	s.marks.suspect &^= by
	switch class {
	case near:
		s.marks.near |= by
	case suspect:
		s.marks.suspect |= by
	}
	if s.marks == was {
		return
	}
	p.near += change(was.near, s.marks.near)
	p.suspects.Add(int64(change(was.suspect, s.marks.suspect)))
	for _, w := range p.watches {
		w.near += change(was.near&w.bit, s.marks.near&w.bit)
		w.suspects += change(was.suspect&w.bit, s.marks.suspect&w.bit)
	}
}

// change is what becoming after makes of a count of those that are not empty.
func change(before, after watchSet) int {
	switch {
	case before == 0 && after != 0:
		return 1
	case before != 0 && after == 0:
		return -1
	}
	return 0
}

// isWatched reports whether the end of the loan of s is of interest to detectors.
func (s *slot[T]) isWatched() bool {
	return s.weighs > 0 || s.maxHold != 0 || s.sample != nil || s.marks != marks{}
}

// writeOff notes for the detectors that the loan of s has ended. Now is 0 if the
// clock has not been read.
func (p *Pool[T]) writeOff(s *slot[T], f fate, now int64) {
	if s.maxHold != 0 {
		p.ownHolds--
	} else if s.weighs > 0 && f != destroyRevoked {
		p.holds.add(time.Duration(now-s.lentAt), s.weighs)
	}
	if s.marks.suspected && f != destroyRevoked {
		if now == 0 {
			now = p.clock.now()
		}
		p.recovered(s, now)
	}
	if s.sample != nil {
		s.sample.ended.Store(true)
	}
	p.mark(s, everyWatch, young)
	s.weighs, s.maxHold, s.sample, s.marks = 0, 0, nil, marks{}
}

// recovered notes that a lease which was a suspect has been given back.
func (p *Pool[T]) recovered(s *slot[T], now int64) {
	p.stats.Recovered++
	leak := s.leak(now)
	for _, w := range p.watches {
		if s.marks.reported&w.bit != 0 {
			w.detector.recovered.Add(1)
			w.detector.keep(&w.recovered, leak)
		}
	}
}

// keep adds a leak to a list for a report, if that has room.
func (d *Detector) keep(list *[]Leak, leak Leak) {
	if len(*list) < mostLeaks {
		*list = append(*list, leak)
	} else {
		d.dropped.Add(1)
	}
}

func (s *slot[T]) leak(now int64) Leak {
	return Leak{LeaseInfo: s.info(now), Held: time.Duration(max(0, now-s.lentAt))}
}

func (p *Pool[T]) marked(w *watch) (suspects, near int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.suspects, w.near
}

// scan adds to the report what w finds.
func (p *Pool[T]) scan(w *watch, report *scan) {
	d := w.detector
	lost := p.collectProofs()
	now := p.clock.now()
	var excused int64 // permits of leases that have said that they take long
	p.walk(func(s *slot[T]) bool {
		switch {
		case w.added == 0:
			return false
		case !s.isLent():
			return true
		}
		class := d.classify(time.Duration(now-s.activeAt), s.maxHold)
		p.mark(s, w.bit, class)
		if class == suspect && s.marks.reported&w.bit == 0 {
			if !s.marks.suspected {
				p.stats.Suspected++
			}
			s.marks.suspected = true
			s.marks.reported |= w.bit
			d.suspected.Add(1)
			d.keep(&w.suspected, s.leak(now))
		}
		if s.maxHold != 0 && class != suspect {
			excused += s.weight
		}
		// The table is in order of age, but for those that were touched.
		return p.ownHolds > 0 || time.Duration(now-s.lentAt) >= d.near
	})
	for _, s := range lost {
		p.reclaim(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.added == 0 {
		return
	}
	report.Suspects = append(report.Suspects, w.suspected...)
	report.Recovered = append(report.Recovered, w.recovered...)
	report.Proved = append(report.Proved, w.proved...)
	w.suspected, w.recovered, w.proved = nil, nil, nil
	r := p.report(w, excused)
	if r.Lost && !w.lost {
		report.lost = append(report.lost, r)
	}
	if r.Bypassed && !w.bypassed {
		report.bypassed = append(report.bypassed, r)
	}
	w.lost, w.bypassed = r.Lost, r.Bypassed
	report.Pools = append(report.Pools, r)
	report.over = p.closed && p.occupied() == 0
}

// stillScans is after how many scans that have found the same permits that are
// held are taken for lost.
const stillScans = 10

// report returns the numbers of the pool for w.
func (p *Pool[T]) report(w *watch, excused int64) PoolReport {
	st := p.snapshot()
	moves := movements{acquired: st.Acquired, touched: p.touched, leased: st.Leased}
	if moves != w.movements {
		w.movements, w.still = moves, 0
	}
	w.still++
	unaccounted := st.Held - p.heldWeight - p.onTheWay
	return PoolReport{
		Pool:      p.opts.Name,
		Capacity:  st.Capacity,
		Held:      st.Held,
		Available: st.Available,
		Leases:    p.out.len,
		Suspects:  w.suspects,
		Near:      w.near,
		Waiters:   st.Waiters,
		Lost:      w.still >= stillScans && p.heldWeight+max(0, unaccounted) > excused,
		Bypassed:  unaccounted < 0 || unaccounted > p.arriving.value(),
	}
}
