package debug

import (
	"cmp"
	"encoding/json"
	"runtime"
	"slices"
	"time"

	"github.com/ration-go/ration"
)

// A report is what a page shows, and its JSON form. The names of the fields do
// not change; there may be more of them.
type report struct {
	At         time.Time         `json:"at"`
	Pools      []poolReport      `json:"pools"`
	Semaphores []semaphoreReport `json:"semaphores"`
	Buckets    []bucketReport    `json:"buckets"`
}

// What there is of everything.
type common struct {
	key     int
	Name    string  `json:"name"`
	History []point `json:"history"` // oldest first

	history history
	now     sample
}

type point struct {
	At      time.Time `json:"at"`
	Level   int64     `json:"level"` // held, or tokens
	Limit   int64     `json:"limit"` // capacity, or burst
	Waiters int64     `json:"waiters"`
}

type poolReport struct {
	common
	Capacity    int64 `json:"capacity"`
	Available   int64 `json:"available"`
	Held        int64 `json:"held"`
	Waiters     int   `json:"waiters"`
	Total       int   `json:"total"`
	Idle        int   `json:"idle"`
	Leased      int   `json:"leased"`
	Opening     int   `json:"opening"`
	Destroying  int   `json:"destroying"`
	NearCount   int   `json:"near"`
	SuspectsNow int   `json:"suspects"`

	Acquired        uint64 `json:"acquired"`
	Suspected       uint64 `json:"suspected"`
	Recovered       uint64 `json:"recovered"`
	Proved          uint64 `json:"proved"`
	DuplicateCloses uint64 `json:"duplicate_closes"`
	Revoked         uint64 `json:"revoked"`
	Opened          uint64 `json:"opened"`
	OpenFailed      uint64 `json:"open_failed"`

	Outcomes  outcomes  `json:"outcomes"`
	Destroyed destroyed `json:"destroyed"`
	waits
	Percentiles *waitPercentiles `json:"wait_percentiles,omitempty"`

	LeasesTotal int           `json:"leases_total"`
	Leases      []leaseReport `json:"leases"` // at most Options.MaxLeases

	lately pace
}

type outcomes struct {
	Granted   uint64 `json:"granted"`
	Opened    uint64 `json:"opened"`
	Canceled  uint64 `json:"canceled"`
	Timeout   uint64 `json:"timeout"`
	QueueFull uint64 `json:"queue_full"`
	TooLarge  uint64 `json:"too_large"`
	Closed    uint64 `json:"closed"`
	Error     uint64 `json:"error"`
}

type destroyed struct {
	Broken  uint64 `json:"broken"`
	Expired uint64 `json:"expired"`
	Idle    uint64 `json:"idle"`
	Surplus uint64 `json:"surplus"`
	Closed  uint64 `json:"closed"`
	Revoked uint64 `json:"revoked"`
}

// waits are what a pool and a semaphore count of waits.
type waits struct {
	Waited      uint64  `json:"waited"`
	Canceled    uint64  `json:"canceled"`
	Refused     uint64  `json:"refused"`
	WaitTime    seconds `json:"wait_seconds"`
	LongestWait seconds `json:"longest_wait_seconds"`
}

// Mean is the mean of all waits, 0 without any.
func (w waits) Mean() seconds { return mean(time.Duration(w.WaitTime), w.Waited) }

func mean(sum time.Duration, n uint64) seconds {
	if n == 0 {
		return 0
	}
	return seconds(float64(sum) / float64(n))
}

type leaseReport struct {
	ID         uint64    `json:"id"`
	Owner      string    `json:"owner"`
	Weight     int64     `json:"weight"`
	AcquiredAt time.Time `json:"acquired_at"`
	Age        seconds   `json:"age_seconds"`
	Near       bool      `json:"near"`
	Suspect    bool      `json:"suspect"`
	Proved     bool      `json:"proved"`
	Stack      []frame   `json:"stack,omitempty"` // innermost first, without package ration itself
}

type frame struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
}

type semaphoreReport struct {
	common
	Capacity       int64 `json:"capacity"`
	Available      int64 `json:"available"`
	Held           int64 `json:"held"`
	Waiters        int   `json:"waiters"`
	WaitingPermits int64 `json:"waiting_permits"`
	waits
}

type bucketReport struct {
	common
	Rate   string `json:"rate"` // tokens/duration, in lowest terms
	Burst  int64  `json:"burst"`
	Tokens int64  `json:"tokens"`
}

// seconds is a duration that is written to JSON in seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

// report makes a report of now.
func (p *Page) report(order order) report {
	now := time.Now()
	r := report{At: now, Pools: []poolReport{}, Semaphores: []semaphoreReport{}, Buckets: []bucketReport{}}
	for _, o := range p.readAll(now) {
		c := common{key: o.key, Name: o.name, history: o.history, now: o.now}
		switch {
		case o.reading.semaphore != nil:
			r.Semaphores = append(r.Semaphores, reportSemaphore(c, o.reading.semaphore))
		case o.reading.bucket != nil:
			b := o.reading.bucket
			r.Buckets = append(r.Buckets, bucketReport{common: c, Rate: b.rate.String(), Burst: b.burst, Tokens: b.tokens})
		default:
			pool := reportPool(c, o.reading.pool)
			pool.Percentiles = o.waits
			pool.lately = o.history.pace(o.now)
			pool.Leases, pool.LeasesTotal = p.reportLeases(o.reading.lender, order)
			r.Pools = append(r.Pools, pool)
		}
	}
	return r
}

func reportPool(c common, s ration.PoolStats) poolReport {
	return poolReport{
		common:          c,
		Capacity:        s.Capacity,
		Available:       s.Available,
		Held:            s.Held,
		Waiters:         s.Waiters,
		Total:           s.Total,
		Idle:            s.Idle,
		Leased:          s.Leased,
		Opening:         s.Opening,
		Destroying:      s.Destroying,
		NearCount:       s.Near,
		SuspectsNow:     s.Suspects,
		Acquired:        s.Acquired,
		Suspected:       s.Suspected,
		Recovered:       s.Recovered,
		Proved:          s.Proved,
		DuplicateCloses: s.DuplicateCloses,
		Revoked:         s.Revoked,
		Opened:          s.Opened,
		OpenFailed:      s.OpenFailed,
		Outcomes:        outcomes(s.Outcomes),
		Destroyed: destroyed{
			Broken:  s.DestroyedBroken,
			Expired: s.DestroyedExpired,
			Idle:    s.DestroyedIdle,
			Surplus: s.DestroyedSurplus,
			Closed:  s.DestroyedClosed,
			Revoked: s.DestroyedRevoked,
		},
		waits: waits{s.Waited, s.Canceled, s.Refused, seconds(s.WaitTime), seconds(s.LongestWait)},
	}
}

func reportSemaphore(c common, s *ration.SemaphoreStats) semaphoreReport {
	return semaphoreReport{
		common:         c,
		Capacity:       s.Capacity,
		Available:      s.Available,
		Held:           s.Held,
		Waiters:        s.Waiters,
		WaitingPermits: s.WaitingPermits,
		waits:          waits{s.Waited, s.Canceled, s.Refused, seconds(s.WaitTime), seconds(s.LongestWait)},
	}
}

// reportLeases lists the first leases in some order, and tells how many there are.
func (p *Page) reportLeases(lender Lender, order order) (leases []leaseReport, total int) {
	infos := lender.Leases()
	order.sort(infos)
	leases = make([]leaseReport, 0, min(len(infos), p.opts.MaxLeases))
	for _, i := range infos[:cap(leases)] {
		leases = append(leases, leaseReport{
			ID:         i.ID,
			Owner:      i.Owner,
			Weight:     i.Weight,
			AcquiredAt: i.AcquiredAt,
			Age:        seconds(i.Age),
			Near:       i.Near,
			Suspect:    i.Suspect,
			Proved:     i.Proved,
			Stack:      borrower(i.Frames()),
		})
	}
	return leases, len(infos)
}

// borrower leaves out the runtime's frame at the bottom, which is the same for
// everybody.
func borrower(frames []runtime.Frame) (stack []frame) {
	for _, f := range frames {
		if f.Function != "runtime.goexit" {
			stack = append(stack, frame{f.Function, f.File, f.Line})
		}
	}
	return stack
}

// An order is how the tables of leases are sorted.
type order struct {
	by         string
	descending bool
}

// columns can be sorted by. The first is the default.
var columns = []struct {
	name       string
	descending bool // at first
	compare    func(a, b ration.LeaseInfo) int
}{
	{"age", true, func(a, b ration.LeaseInfo) int { return cmp.Compare(a.Age, b.Age) }},
	{"id", false, func(a, b ration.LeaseInfo) int { return cmp.Compare(a.ID, b.ID) }},
	{"owner", false, func(a, b ration.LeaseInfo) int { return cmp.Compare(a.Owner, b.Owner) }},
	{"weight", true, func(a, b ration.LeaseInfo) int { return cmp.Compare(a.Weight, b.Weight) }},
}

// parseOrder takes what it does not know for the default.
func parseOrder(by, direction string) order {
	for _, c := range columns {
		if c.name == by {
			return order{by, direction == "desc" || direction != "asc" && c.descending}
		}
	}
	return order{columns[0].name, columns[0].descending}
}

// sort sorts leases. Of equal ones, the one acquired first comes first.
func (o order) sort(leases []ration.LeaseInfo) {
	for _, c := range columns {
		if c.name != o.by {
			continue
		}
		slices.SortFunc(leases, func(a, b ration.LeaseInfo) int {
			order := c.compare(a, b)
			if o.descending {
				order = -order
			}
			return cmp.Or(order, cmp.Compare(a.ID, b.ID))
		})
	}
}

// points is the history as JSON has it, the present included.
func (c *common) points() []point {
	points := make([]point, 0, len(c.history)+1)
	for _, s := range c.history {
		points = append(points, point{s.at, s.level, s.limit, s.waiters})
	}
	if n := len(c.history); n == 0 || c.now.at.After(c.history[n-1].at) {
		points = append(points, point{c.now.at, c.now.level, c.now.limit, c.now.waiters})
	}
	return points
}
