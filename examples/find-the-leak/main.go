// Find-the-leak lends three permits to a batch of jobs, one of which forgets to
// give its permit back, and shows how the detector finds out which: not by the
// pool being empty, which it also is when everybody is just busy, but by a lease
// that grows older than any should.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ration-go/ration"
)

const (
	capacity  = 3
	threshold = 300 * time.Millisecond
	interval  = 100 * time.Millisecond
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "find-the-leak:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Fprintf(out, "%d permits; a lease older than %v is a suspect; a scan each %v.\n\n", capacity, threshold, interval)

	line := &timeline{out: out, start: time.Now()}
	reports := make(chan ration.Report, 100)
	detector, err := ration.NewDetector(&ration.DetectorOptions{
		Threshold:  threshold,
		Interval:   interval,
		StackEvery: 1, // affordable here; 100 is plenty where loans are short
		OnReport: func(r ration.Report) {
			line.report(r)
			reports <- r
		},
	})
	if err != nil {
		return err
	}
	pool, err := ration.NewPermitPool(capacity, &ration.PoolOptions[struct{}]{Name: "jobs", Detector: detector})
	if err != nil {
		return err
	}
	scanning, stop := context.WithCancel(ctx)
	scanned := make(chan error, 1)
	go func() { scanned <- detector.Run(scanning) }()

	s := &story{ctx: ctx, pool: pool, line: line}
	s.tell(reports)
	stop()
	if err := <-scanned; !errors.Is(err, context.Canceled) {
		return err
	}

	st := detector.Stats()
	fmt.Fprintf(out, "\nsummary: suspects_total=%d recovered_total=%d suspects_now=%d\n", st.SuspectsTotal, st.RecoveredTotal, st.SuspectsNow)
	s.require(st == ration.DetectorStats{SuspectsTotal: 1}, "the counters are %+v", st)
	fmt.Fprintf(out, "lease %d was borrowed by:\n", s.leak.ID)
	for _, frame := range s.leak.Frames() {
		fmt.Fprintf(out, "    %s\n        %s:%d\n", frame.Function, filepath.Base(frame.File), frame.Line)
	}
	s.require(strings.Contains(s.leak.Frames()[0].Function, "forget"), "the stack begins with %s", s.leak.Frames()[0].Function)
	s.require(pool.Close(ctx) == nil, "the pool does not close")
	return errors.Join(s.wrong...)
}

// A story is what happens to the pool.
type story struct {
	ctx   context.Context
	pool  *ration.Pool[struct{}]
	line  *timeline
	leak  ration.Leak
	wrong []error
}

// require keeps count of what is not as it should be.
func (s *story) require(ok bool, format string, args ...any) {
	if !ok {
		s.wrong = append(s.wrong, fmt.Errorf(format, args...))
	}
}

func (s *story) tell(reports <-chan ration.Report) {
	batch := []lease{s.borrow("batch-1"), s.borrow("batch-2"), s.borrow("batch-3")}
	s.pause(50 * time.Millisecond)
	s.giveBack(batch...)

	leaky := s.forget()
	good := []lease{s.borrow("good-1"), s.borrow("good-2")}

	waiting, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := s.pool.AcquireWith(waiting, ration.AcquireOptions{Owner: "unlucky"})
	s.line.event("unlucky", "GIVES-UP", "after %v: %d waiters, %d leases", 100*time.Millisecond, s.pool.Stats().Waiters, len(s.pool.Leases()))
	s.require(errors.Is(err, context.DeadlineExceeded), "unlucky got: %v", err)
	s.require(s.pool.Stats().Waiters == 0, "a waiter that has given up is still there")

	s.giveBack(good...)
	s.require(s.pool.Stats().Available == 2, "not two permits are available")

	s.leak = s.suspect(reports)
	s.require(s.leak.Owner == "leaky", "it was %q", s.leak.Owner)
	s.require(s.leak.Held >= threshold, "it was accused after %v", s.leak.Held)
	for range 3 {
		r := <-reports
		s.require(len(r.Suspects) == 0, "it was accused twice")
		s.require(len(r.Pools) == 1 && r.Pools[0].Suspects == 1, "it is forgotten")
	}

	revoked := s.pool.Revoke(s.leak.ID)
	s.line.event("admin", "REVOKES", "lease=%d available=%d", s.leak.ID, s.pool.Stats().Available)
	s.require(revoked && s.pool.Stats().Available == capacity, "its permit is not back")

	leaky.Close()
	s.line.event("leaky", "CLOSES-LATE", "lease=%d available=%d (ignored)", s.leak.ID, s.pool.Stats().Available)
	s.require(s.pool.Stats().Available == capacity, "a late close has made a permit")
}

// suspect waits for the first report that accuses somebody.
func (s *story) suspect(reports <-chan ration.Report) ration.Leak {
	for {
		select {
		case r := <-reports:
			if len(r.Suspects) > 0 {
				s.require(len(r.Suspects) == 1, "%d are accused", len(r.Suspects))
				return r.Suspects[0]
			}
		case <-s.ctx.Done():
			s.require(false, "nobody was accused")
			return ration.Leak{}
		}
	}
}

// A lease and who has it.
type lease struct {
	ration.Lease[struct{}]
	owner string
}

func (s *story) borrow(owner string) lease {
	l, err := s.pool.AcquireWith(s.ctx, ration.AcquireOptions{Owner: owner})
	s.require(err == nil, "%s got: %v", owner, err)
	s.line.event(owner, "BORROWS", "lease=%d available=%d", l.Info().ID, s.pool.Stats().Available)
	return lease{l, owner}
}

// forget borrows and returns early, before it comes to its defer: the bug.
func (s *story) forget() lease {
	l, err := s.pool.AcquireWith(s.ctx, ration.AcquireOptions{Owner: "leaky"})
	s.require(err == nil, "leaky got: %v", err)
	s.line.event("leaky", "FORGETS", "lease=%d available=%d", l.Info().ID, s.pool.Stats().Available)
	return lease{l, "leaky"} // only for its late close
}

func (s *story) giveBack(leases ...lease) {
	for _, l := range leases {
		err := l.Close()
		s.require(err == nil, "closing: %v", err)
		s.line.event(l.owner, "RETURNS", "available=%d", s.pool.Stats().Available)
	}
}

func (s *story) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// A timeline prints a line an event.
type timeline struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func (t *timeline) event(who, what, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms := float64(time.Since(t.start)) / float64(time.Millisecond)
	fmt.Fprintf(t.out, "[%6.1f ms] %-8s %-12s %s\n", ms, who, what, fmt.Sprintf(format, args...))
}

// report prints what is new in a report.
func (t *timeline) report(r ration.Report) {
	for _, l := range r.Suspects {
		t.event("detector", "LEAK-SUSPECT", "lease=%d owner=%s held=%.1fms available=%d",
			l.ID, l.Owner, float64(l.Held)/float64(time.Millisecond), r.Pools[0].Available)
	}
	for _, l := range r.Recovered {
		t.event("detector", "RECOVERED", "lease=%d owner=%s held=%v", l.ID, l.Owner, l.Held)
	}
	for _, p := range r.Pools {
		if p.Near > 0 {
			t.event("detector", "near", "leases near their threshold: %d", p.Near)
		}
	}
}
