package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ration-go/ration"
)

// Two scenes from the life of a pool, played once and written down as they are.

// A scene writes down what happens to a pool.
type scene struct {
	name    string
	pool    *ration.Pool[struct{}]
	began   time.Time
	running sync.WaitGroup

	mu sync.Mutex
	w  io.Writer
}

const sampling = 4 * time.Millisecond

func (s *scene) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, format+"\n", args...)
}

func (s *scene) now() float64 { return time.Since(s.began).Seconds() * 1000 }

// watch writes the state down, time and again, until ctx ends.
func (s *scene) watch(ctx context.Context) {
	ticker := time.NewTicker(sampling)
	defer ticker.Stop()
	for ctx.Err() == nil {
		st := s.pool.Stats()
		s.line("BenchmarkState/scene=%s 1 %.1f at-ms %d capacity %d held %d available %d waiters",
			s.name, s.now(), st.Capacity, st.Held, st.Available, st.Waiters)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (s *scene) event(what string) {
	s.line("BenchmarkEvent/scene=%s/event=%s 1 %.1f at-ms", s.name, what, s.now())
}

// hold borrows once, for as long as given.
func (s *scene) hold(ctx context.Context, o ration.AcquireOptions, d time.Duration) {
	lease, err := s.pool.AcquireWith(ctx, o)
	if err != nil {
		return
	}
	from := s.now()
	pause(ctx, d)
	lease.Close()
	s.line("BenchmarkLoan/scene=%s/owner=%s 1 %.1f from-ms %.1f until-ms", s.name, o.Owner, from, s.now())
}

func (s *scene) end() error {
	s.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.pool.Close(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// shrinkScene is a pool of 12, all out, that is cut down to 4 and gets them back.
func shrinkScene(w io.Writer) error {
	pool, err := ration.NewPermitPool(12, nil)
	if err != nil {
		return err
	}
	s := &scene{name: "shrink", pool: pool, began: time.Now(), w: w}
	ctx, stop := context.WithTimeout(context.Background(), 2800*time.Millisecond)
	defer stop()
	s.running.Go(func() { s.watch(ctx) })
	for i := range 14 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		s.running.Go(func() {
			pause(ctx, time.Duration(i)*20*time.Millisecond)
			for ctx.Err() == nil {
				s.hold(ctx, ration.AcquireOptions{Owner: "worker"}, time.Duration(60+random.IntN(500))*time.Millisecond)
				pause(ctx, time.Duration(random.IntN(40))*time.Millisecond)
			}
		})
	}
	pause(ctx, 800*time.Millisecond)
	err = pool.Resize(4)
	s.event("shrink")
	pause(ctx, time.Second)
	err = errors.Join(err, pool.Resize(12))
	s.event("grow")
	<-ctx.Done()
	return errors.Join(err, s.end())
}

const (
	leakThreshold = 500 * time.Millisecond
	leakReport    = 900 * time.Millisecond // the hold of a report, which says so
)

// leakScene is a pool of 6, one of whose borrowers forgets.
func leakScene(w io.Writer) error {
	accused := make(chan ration.Leak, 10)
	detector, err := ration.NewDetector(&ration.DetectorOptions{
		Threshold: leakThreshold,
		Interval:  50 * time.Millisecond,
		OnReport: func(r ration.Report) {
			for _, leak := range r.Suspects {
				accused <- leak
			}
		},
	})
	if err != nil {
		return err
	}
	pool, err := ration.NewPermitPool(6, &ration.PoolOptions[struct{}]{Detector: detector})
	if err != nil {
		return err
	}
	s := &scene{name: "leak", pool: pool, began: time.Now(), w: w}
	ctx, stop := context.WithTimeout(context.Background(), 1600*time.Millisecond)
	defer stop()
	s.running.Go(func() { detector.Run(ctx) })
	s.running.Go(func() { s.watch(ctx) })
	for i := range 5 {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		s.running.Go(func() {
			owner := fmt.Sprintf("worker%d", i+1)
			for ctx.Err() == nil {
				pause(ctx, time.Duration(random.IntN(120))*time.Millisecond)
				s.hold(ctx, ration.AcquireOptions{Owner: owner}, time.Duration(40+random.IntN(160))*time.Millisecond)
			}
		})
	}
	pause(ctx, 100*time.Millisecond)
	s.running.Go(func() {
		s.hold(ctx, ration.AcquireOptions{Owner: "report", MaxHold: 2 * leakReport}, leakReport)
	})
	pause(ctx, 100*time.Millisecond)
	if _, err := pool.AcquireWith(ctx, ration.AcquireOptions{Owner: "newsletter"}); err != nil { // and forgets
		return err
	}
	from := s.now()
	var leak ration.Leak
	select {
	case leak = <-accused:
	case <-ctx.Done():
		return errors.New("nobody was accused")
	}
	s.event("suspect")
	pause(ctx, 350*time.Millisecond)
	pool.Revoke(leak.ID)
	s.event("revoke")
	s.line("BenchmarkLoan/scene=leak/owner=%s 1 %.1f from-ms %.1f until-ms", leak.Owner, from, s.now())
	<-ctx.Done()
	return s.end()
}
