package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/ration-go/ration/bench"
)

// A step measures something, and writes down what came out.
type step struct {
	name string
	do   func(w io.Writer) error
}

// measure measures everything. The file is written at the end, so that one that
// was there is not lost to an interrupt.
func measure(ctx context.Context, c config, progress io.Writer) error {
	var raw bytes.Buffer
	writeMachine(&raw, time.Now())
	cases := bench.Cases()
	for _, workers := range crowds {
		for _, impl := range bench.Semaphores() {
			cases = append(cases, bench.Crowd(impl, workers))
		}
	}
	timed, err := calibrate(ctx, cases, c.slice, progress)
	if err != nil {
		return err
	}
	p := startProgress(progress, "measuring", c.rounds*len(timed)+2)
	for range c.rounds {
		for _, s := range round(timed) {
			if err := perform(ctx, s, &raw, p); err != nil {
				return err
			}
		}
	}
	for _, s := range []step{{"a pool that shrinks", shrinkScene}, {"a leak", leakScene}} {
		if err := perform(ctx, s, &raw, p); err != nil {
			return err
		}
	}
	p.end()
	return os.WriteFile(c.raw, raw.Bytes(), 0o644)
}

func perform(ctx context.Context, s step, w io.Writer, p *progress) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.step(s.name)
	if err := s.do(w); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// A timedCase is a case and how often it has to be done to take its time.
type timedCase struct {
	bench.Case
	n int
}

// calibrate finds out how often each case is to be done.
func calibrate(ctx context.Context, cases []bench.Case, slice time.Duration, w io.Writer) (timed []timedCase, err error) {
	p := startProgress(w, "calibrating", len(cases))
	for _, c := range cases {
		err := perform(ctx, step{c.Name(), func(io.Writer) error {
			run := c.Start()
			n := c.Workers
			took := run.Do(n)
			for tries := 0; took < slice/2 && tries < 30; tries++ {
				// What is new gets faster for a while, so not all at once.
				n = max(n+1, min(n*10, int(float64(n)*float64(slice)/float64(max(took, 1)))))
				took = run.Do(n)
			}
			timed = append(timed, timedCase{c, max(1, int(float64(n)*float64(slice)/float64(took)))})
			return run.Finish()
		}}, nil, p)
		if err != nil {
			return nil, err
		}
	}
	p.end()
	return timed, nil
}

// round returns the steps of a round: each case once, those of one op beside
// each other and in random order, and then the waits.
func round(cases []timedCase) (steps []step) {
	for from := 0; from < len(cases); {
		to := from + 1
		for to < len(cases) && sameWork(cases[to].Case, cases[from].Case) {
			to++
		}
		for _, i := range rand.Perm(to - from) {
			c := cases[from+i]
			steps = append(steps, step{c.Name(), c.measure})
		}
		from = to
	}
	return append(steps, waitSteps()...)
}

func sameWork(a, b bench.Case) bool {
	return a.Kind == b.Kind && a.Op == b.Op && a.Workers == b.Workers && a.Size == b.Size
}

func (c timedCase) measure(w io.Writer) error {
	run := c.Start()
	var before, after runtime.MemStats
	runtime.GC() // what others have left is not to be paid for here
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	took := run.Do(c.n)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	n := float64(c.n)
	fmt.Fprintf(w, "Benchmark%s \t%d\t%.4g ns/op\t%.4g cpu-ns/op\t%.3g B/op\t%.3g allocs/op\n", c.Name(), c.n,
		float64(took)/n, float64(cpu)/n, float64(after.TotalAlloc-before.TotalAlloc)/n, float64(after.Mallocs-before.Mallocs)/n)
	return run.Finish()
}
