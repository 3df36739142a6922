package ration

import (
	"errors"
	"fmt"
	"time"
)

// PoolStats is what [Pool.Stats] returns: the gauges of one instant, then
// counters since the pool was made.
type PoolStats struct {
	Capacity  int64 // permits there are
	Available int64 // permits free; negative is debt
	Held      int64 // Capacity - Available: permits of leases, and of borrowers that have theirs and wait for a resource

	Total      int // resources idle or leased
	Idle       int
	Leased     int // on loan, being checked or reset
	Opening    int
	Destroying int
	Waiters    int // borrowers waiting for a permit or a resource

	Acquired uint64 // leases made
	Waited   uint64 // acquires that had to wait, for a token of Rate, a permit, an open or a Check, whatever came of it
	Canceled uint64 // those of them that ended by their context
	Refused  uint64 // acquires that failed as closed, too large or queue full

	Outcomes AcquireOutcomes

	DuplicateCloses uint64 // ends of leases that had ended already
	Revoked         uint64

	Near      int    // leases that a Detector found close to its threshold
	Suspects  int    // leases that a Detector suspects now
	Suspected uint64 // leases that a Detector has ever suspected
	Recovered uint64 // those of them that have come back
	Proved    uint64 // leases that the garbage collector has proved to be forgotten

	Opened     uint64
	OpenFailed uint64

	DestroyedBroken  uint64 // discarded, or failed in Check, Reset or Do
	DestroyedExpired uint64 // by MaxLifetime, MaxUses or Clear
	DestroyedIdle    uint64 // by MaxIdleTime
	DestroyedSurplus uint64 // after a shrink
	DestroyedClosed  uint64 // after Close
	DestroyedRevoked uint64

	WaitTime    time.Duration // sum over all waits that have ended, failed ones included
	LongestWait time.Duration
}

// AcquireOutcomes counts acquires by how they ended, as [AcquireEvent].Outcome
// tells it. A TryAcquire that got nothing is in none of them.
type AcquireOutcomes struct {
	Granted, Opened                    uint64 // with a lease; Opened: of a resource opened for it
	Canceled, Timeout                  uint64 // by the context
	QueueFull, TooLarge, Closed, Error uint64 // Error: of the open function, ErrDuplicate or a Rate
}

// as returns the counter of an outcome.
func (o *AcquireOutcomes) as(outcome string) *uint64 {
	switch outcome {
	case "granted":
		return &o.Granted
	case "opened":
		return &o.Opened
	case "canceled":
		return &o.Canceled
	case "timeout":
		return &o.Timeout
	case "queue_full":
		return &o.QueueFull
	case "too_large":
		return &o.TooLarge
	case "closed":
		return &o.Closed
	default:
		return &o.Error
	}
}

func (s *PoolStats) destroyedAs(f fate) *uint64 {
	switch f {
	case destroyBroken:
		return &s.DestroyedBroken
	case destroyExpired:
		return &s.DestroyedExpired
	case destroyIdle:
		return &s.DestroyedIdle
	case destroySurplus:
		return &s.DestroyedSurplus
	case destroyClosed:
		return &s.DestroyedClosed
	default:
		return &s.DestroyedRevoked
	}
}

// Stats returns the state and the counters of one instant. It is O(1). For
// monitoring, not for control.
func (p *Pool[T]) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot()
}

// snapshot is Stats under mu.
func (p *Pool[T]) snapshot() PoolStats {
	s := p.stats
	s.Capacity, s.Available = p.permits.capacity.Load(), p.permits.Available() // resizes hold mu
	s.Held = s.Capacity - s.Available
	s.Total = p.total()
	s.Idle = p.idle.len
	s.Leased = p.out.len + p.loose
	s.Opening = p.opening
	s.Destroying = p.destroying
	s.Waiters = p.permits.Waiters() + p.needers.len
	s.Near, s.Suspects = p.near, int(p.suspects.Load())
	s.Outcomes.Granted = s.Acquired - s.Outcomes.Opened
	s.DuplicateCloses = p.duplicateCloses.Load()
	return s
}

// Leases returns the open leases, oldest first. It is O(open leases), and holds
// up nobody for that: of leases that end or are made meanwhile, some may be
// missing and some may be there. For monitoring, not for control.
func (p *Pool[T]) Leases() []LeaseInfo {
	now := p.clock.now()
	p.mu.Lock()
	open := p.out.len
	p.mu.Unlock()
	infos := make([]LeaseInfo, 0, open) // not under mu: a large one takes its time
	p.walk(func(s *slot[T]) bool {
		if s.isLent() {
			infos = append(infos, s.info(now))
		}
		return true
	})
	return infos
}

// leases describes the oldest open leases, at most limit.
func (p *Pool[T]) leases(now int64, limit int) []LeaseInfo {
	infos := make([]LeaseInfo, 0, min(limit, p.out.len))
	for s := p.out.head; s != nil && len(infos) < limit; s = s.next {
		if s.isLent() {
			infos = append(infos, s.info(now))
		}
	}
	return infos
}

// Audit checks the pool's conservation laws, and returns nil or an error that
// names each that is broken, which would be a defect of this package or the work
// of a program that has got at its memory. It may be called at any time; while
// borrowers are on their way, it allows for the permits they may or may not have
// yet. It is O(resources).
func (p *Pool[T]) Audit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	law := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf("ration: audit%s: "+format, append([]any{poolName(p.opts.Name)}, args...)...))
		}
	}
	s := p.snapshot()

	var lentWeight int64
	seen := make(map[*slot[T]]bool)
	for l := p.out.head; l != nil; l = l.next {
		if seen[l] { // the table runs in a circle
			law(false, "lease %d is in the table twice", l.state.Load()>>phaseBits)
			break
		}
		law(l.prev == nil || l.prev.state.Load()>>phaseBits < l.state.Load()>>phaseBits || !l.isLent() || !l.prev.isLent(),
			"lease %d is out of order", l.state.Load()>>phaseBits)
		seen[l] = true
		lentWeight += l.weight
	}
	law(len(seen) == p.out.len, "%d leases in the table, %d counted", len(seen), p.out.len)
	for i := p.idle.head; i != nil; i = i.next {
		if seen[i] {
			law(false, "a resource is idle twice, or idle and on loan")
			break
		}
		law(!i.isLent(), "an idle resource is on loan")
		seen[i] = true
	}
	law(len(seen) == p.out.len+p.idle.len, "%d idle resources, %d counted", len(seen)-p.out.len, p.idle.len)
	law(p.loose >= 0 && p.opening >= 0 && p.destroying >= 0 && p.checking >= 0,
		"negative count: %d loose, %d opening, %d checking, %d destroying", p.loose, p.opening, p.checking, p.destroying)

	expected := p.heldWeight + p.onTheWay
	law(s.Held >= expected && s.Held-expected <= p.arriving.value(),
		"%d permits held, but %d by leases and %d by borrowers on their way, with up to %d arriving",
		s.Held, p.heldWeight, p.onTheWay, p.arriving.value())
	law(p.loose > 0 || lentWeight == p.heldWeight, "leases weigh %d, %d counted", lentWeight, p.heldWeight)
	law(int64(p.occupied()) <= max(s.Capacity, int64(p.ceiling)),
		"%d resources (%d idle, %d leased, %d opening, %d being destroyed) exceed the capacity %d",
		p.occupied(), s.Idle, s.Leased, s.Opening, s.Destroying, s.Capacity)
	law(p.needers.len == 0 || p.onTheWay > 0, "%d borrowers need a resource without a permit", p.needers.len)
	law(p.abandoned >= 0 && p.hopeful() >= 0, "%d opens and checks given up, of %d", p.abandoned, p.opening+p.checking)
	law(!p.closed || p.idle.len == 0, "%d resources idle in a closed pool", p.idle.len)
	return errors.Join(errs...)
}
