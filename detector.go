package ration

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Detector watches the lease tables of pools and says who has not given back
// what. It only tells: nothing is taken from anybody, unless Reclaim is on, and
// then only what the garbage collector has proved to be lost.
//
// That a pool is exhausted is no sign of a leak, and that a lease is old is no
// proof of one. So a [Report] has both, the numbers of each pool and the leases
// that are older than their threshold, each of them once; and it says when
// permits are held while nothing has moved for a while, which may be seen long
// before the threshold. A holder whose work takes long should call [Lease.Touch]
// while it is at it, or say so beforehand with [AcquireOptions].MaxHold.
//
// A detector needs somebody to call Run, or Scan now and then; it has no
// goroutine of its own. It keeps no pool alive: one that is dropped, or closed
// with all its leases ended, is watched no more. Give it to pools as
// [PoolOptions].Detector, or let it Watch them.
//
// Watching costs a loan some nanoseconds, a recorded stack or a possible proof
// about a microsecond. A scan takes time for the leases that are near their
// threshold or past it; where leases have a MaxHold of their own, for all of that
// pool. It lets borrowers pass all the time.
//
// A Detector must be made by [NewDetector] and must not be copied.
type Detector struct {
	opts DetectorOptions
	near time.Duration // the age from which a lease is near the threshold

	suspected, recovered, proved, dropped atomic.Uint64

	mu      sync.Mutex // locked alone
	watches []*watch
}

// DetectorOptions are the options of [NewDetector]. The zero value of each is
// its default.
type DetectorOptions struct {
	// Threshold is the age from which a lease is a suspect, counted from its
	// acquire or last Touch. The default is 1 min, the least 100 ms. Advice says
	// what it should be.
	Threshold time.Duration

	// Interval is how often Run scans. The default is a sixth of the threshold but
	// at most 10 s, the least 10 ms.
	Interval time.Duration

	// Near is the part of the threshold from which leases are counted as near
	// it, above 0 and at most 1. The default is 0.8.
	Near float64

	// StackEvery records the borrower's call stack for 1 lease in so many, drawn
	// by chance, and for all that empty a pool or are made while it has suspects.
	// 1 records all. The default, 0, records none: a stack costs more than a loan.
	StackEvery int

	// ProveEvery lets the garbage collector prove the loss of 1 lease in so many:
	// that every copy of it has become garbage while it was open. 1 means all, the
	// default, 0, none.
	ProveEvery int

	// Reclaim revokes leases that are proved to be lost. It does nothing without
	// ProveEvery: age is no proof.
	Reclaim bool

	// OnReport is called with the report of every scan, by the goroutine that
	// scans, with no lock held. If it panics, that is ignored.
	OnReport func(Report)

	// Logger is told of each event once. Without it the detector is silent.
	Logger *slog.Logger
}

const (
	defaultThreshold = time.Minute
	leastThreshold   = 100 * time.Millisecond
	mostInterval     = 10 * time.Second // of the default
	leastInterval    = 10 * time.Millisecond
	defaultNear      = 0.8
)

func (o *DetectorOptions) validate() error {
	switch {
	case o.Threshold != 0 && o.Threshold < leastThreshold:
		return fmt.Errorf("ration: DetectorOptions.Threshold %v is less than %v", o.Threshold, leastThreshold)
	case o.Interval != 0 && o.Interval < leastInterval:
		return fmt.Errorf("ration: DetectorOptions.Interval %v is less than %v", o.Interval, leastInterval)
	case o.Near != 0 && !(o.Near > 0 && o.Near <= 1): // NaN included
		return fmt.Errorf("ration: DetectorOptions.Near %v is not above 0 and at most 1", o.Near)
	case o.StackEvery < 0:
		return fmt.Errorf("ration: DetectorOptions.StackEvery is negative: %d", o.StackEvery)
	case o.ProveEvery < 0:
		return fmt.Errorf("ration: DetectorOptions.ProveEvery is negative: %d", o.ProveEvery)
	}
	return nil
}

// NewDetector returns a detector that watches nothing yet. Nil opts mean the
// defaults. It fails with an error that names the option that is invalid.
func NewDetector(opts *DetectorOptions) (*Detector, error) {
	if opts == nil {
		opts = &DetectorOptions{}
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	d := &Detector{opts: *opts}
	o := &d.opts
	if o.Threshold == 0 {
		o.Threshold = defaultThreshold
	}
	if o.Interval == 0 {
		o.Interval = max(leastInterval, min(o.Threshold/6, mostInterval))
	}
	if o.Near == 0 {
		o.Near = defaultNear
	}
	d.near = d.nearOf(o.Threshold)
	if o.Reclaim && o.ProveEvery == 0 {
		d.log(slog.LevelWarn, "Reclaim does nothing without ProveEvery")
	}
	return d, nil
}

// nearOf is the age from which a lease is near a threshold.
func (d *Detector) nearOf(threshold time.Duration) time.Duration {
	return min(threshold, time.Duration(d.opts.Near*float64(threshold)))
}

// A Watchable is something a [Detector] can watch: a [*Pool]. Only this package
// can implement it.
type Watchable interface {
	addWatch(d *Detector) *watch      // the watch of d that is there already, or a new one
	removeWatch(w *watch) (gone bool) // gone unless it was added more than once
	scan(w *watch, s *scan)
	marked(w *watch) (suspects, near int)
	advise() Advice
	weakly() weakly
	isNil() bool
}

// weakly is a Watchable that is not kept alive.
type weakly interface {
	strongly() Watchable // nil once it is gone
}

// A Report is what a scan has found.
type Report struct {
	At        time.Time
	Pools     []PoolReport // in the order in which they came to be watched
	Suspects  []Leak       // new since the last scan
	Recovered []Leak       // suspects that have been given back since the last scan
	Proved    []Leak       // proved to be lost since the last scan
}

// A PoolReport has the numbers of a pool when it was scanned.
type PoolReport struct {
	Pool      string
	Capacity  int64
	Held      int64 // permits
	Available int64 // permits; negative is debt
	Leases    int   // open
	Suspects  int   // of them, older than their threshold
	Near      int   // of them, near their threshold but not suspects
	Waiters   int

	// Lost says that permits are held, but over 10 scans nothing has been
	// acquired, returned or touched. Leases that have said with MaxHold that they
	// take long, and are not over their time, do not count.
	Lost bool

	// Bypassed says that the permits held are not those of the leases and of the
	// borrowers on their way to one. It is no fault of borrowers; see
	// [Pool.Audit].
	Bypassed bool
}

// A Leak is a lease that was found by a detector.
type Leak struct {
	LeaseInfo
	Held time.Duration // since the acquire; of one recovered, until its end
}

// DetectorStats is what [Detector.Stats] returns. A lease moves each counter once
// at most, also if it is touched and becomes a suspect again, unless the detector
// has stopped watching the pool in between and begun anew.
type DetectorStats struct {
	SuspectsTotal  uint64
	RecoveredTotal uint64 // suspects given back; those revoked do not count
	ProvedTotal    uint64
	Dropped        uint64 // leaks counted here that are in no report: it has 10,000 of a kind and pool at most, and none of a pool no longer watched
	SuspectsNow    int
	NearNow        int // as of the last scan, but for those given back since
}

// mostLeaks bounds the leaks of one kind and pool in a report.
const mostLeaks = 10_000

// Watch begins to watch p and returns a function that ends it. A pool that this
// detector watches already is not watched twice; then each of the functions has to
// be called. Watch panics if p is nil, or if more than 32 detectors watch it.
func (d *Detector) Watch(p Watchable) (stop func()) {
	if isNil(p) {
		panic("ration: Detector.Watch: nil pool")
	}
	w := p.addWatch(d)
	d.mu.Lock()
	if !slices.Contains(d.watches, w) {
		d.watches = append(d.watches, w)
	}
	d.mu.Unlock()
	return sync.OnceFunc(func() {
		if p := w.pool.strongly(); p == nil || p.removeWatch(w) {
			d.forget(w)
		}
	})
}

func (d *Detector) forget(w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.watches, w); i >= 0 {
		d.watches = slices.Delete(d.watches, i, i+1)
	}
}

// each calls fn for every watched pool that is still there.
func (d *Detector) each(fn func(Watchable, *watch)) {
	d.mu.Lock()
	watches := slices.Clone(d.watches)
	d.mu.Unlock()
	for _, w := range watches {
		if p := w.pool.strongly(); p != nil {
			fn(p, w)
		} else {
			d.forget(w)
		}
	}
}

// Scan looks through the lease tables once and returns what it has found, after
// it has told the logger and OnReport. It may be called at any time, also while
// Run runs; what is new is in one of the reports then.
func (d *Detector) Scan() Report {
	s := scan{Report: Report{At: time.Now()}}
	d.each(func(p Watchable, w *watch) {
		p.scan(w, &s)
		if s.over {
			s.over = false
			d.forget(w)
		}
	})
	d.tell(&s)
	return s.Report
}

// Run scans every Interval until ctx ends, and returns ctx.Err(). It panics if ctx
// is nil.
func (d *Detector) Run(ctx context.Context) error {
	if ctx == nil {
		panic("ration: Detector.Run: nil context")
	}
	ticker := time.NewTicker(d.opts.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d.Scan()
		}
	}
}

// Stats returns the counters, and the gauges of all pools. It is O(pools). For
// monitoring, not for control.
func (d *Detector) Stats() DetectorStats {
	s := DetectorStats{
		SuspectsTotal:  d.suspected.Load(),
		RecoveredTotal: d.recovered.Load(),
		ProvedTotal:    d.proved.Load(),
		Dropped:        d.dropped.Load(),
	}
	d.each(func(p Watchable, w *watch) {
		suspects, near := p.marked(w)
		s.SuspectsNow += suspects
		s.NearNow += near
	})
	return s
}

// Advice says what the hold times of p, from when the first detector began to
// watch it, suggest for its threshold. See [Advice]. It is O(open leases), and
// takes some milliseconds of thought. It panics if p is nil.
func (d *Detector) Advice(p Watchable) Advice {
	if isNil(p) {
		panic("ration: Detector.Advice: nil pool")
	}
	return p.advise()
}

// A scan is a report being made.
type scan struct {
	Report
	lost, bypassed []PoolReport // those that were not so at the last scan
	over           bool         // the pool just scanned is closed and nothing is out any more
}

// tell tells the logger and OnReport.
func (d *Detector) tell(s *scan) {
	if d.opts.Logger != nil {
		for _, l := range s.Suspects {
			d.log(slog.LevelWarn, "leak suspected", slog.Any("lease", l.LeaseInfo), slog.Duration("held", l.Held))
		}
		for _, l := range s.Recovered {
			d.log(slog.LevelInfo, "suspect recovered", slog.Any("lease", l.LeaseInfo), slog.Duration("held", l.Held))
		}
		for _, l := range s.Proved {
			d.log(slog.LevelError, "leak proved", slog.Any("lease", l.LeaseInfo), slog.Duration("held", l.Held))
		}
		for _, p := range s.lost {
			d.log(slog.LevelWarn, "permits lost: held, but nothing moves", p.attrs()...)
		}
		for _, p := range s.bypassed {
			d.log(slog.LevelError, "permits bypassed: not those of the leases", p.attrs()...)
		}
	}
	if d.opts.OnReport != nil {
		tell(func() { d.opts.OnReport(s.Report) }, nil)
	}
}

func (p *PoolReport) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("pool", p.Pool),
		slog.Int64("capacity", p.Capacity),
		slog.Int64("held", p.Held),
		slog.Int64("available", p.Available),
		slog.Int("leases", p.Leases),
		slog.Int("waiters", p.Waiters),
	}
}

func (d *Detector) log(level slog.Level, what string, attrs ...slog.Attr) {
	logTo(d.opts.Logger, level, what, attrs)
}
