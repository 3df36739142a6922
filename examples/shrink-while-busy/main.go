// Shrink-while-busy takes capacity away from a semaphore whose permits are all
// in use, and shows what happens to the difference: it becomes a debt, which
// the next releases repay before anybody is let in again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/ration-go/ration"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shrink-while-busy:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	s := ration.NewSemaphore(3, nil)
	t := table{out: out, s: s}

	fmt.Fprintln(out, "Three permits, three jobs at work. Then an operator takes one permit away.")
	fmt.Fprintln(out)
	fmt.Fprintf(out, "%-34s %8s %5s %9s  %s\n", "what happens", "capacity", "held", "available", "TryAcquire(1)")

	if err := s.Acquire(ctx, 3); err != nil {
		return err
	}
	t.row("three jobs start", 0)

	if err := s.Shrink(1); err != nil { // returns at once, although nothing is free
		return err
	}
	t.row("Shrink(1), nobody is interrupted", -1)

	s.Release(1)
	t.row("the first job ends: debt repaid", 0)
	t.try(false)

	s.Release(1)
	t.row("the second job ends: one is free", 1)
	t.try(true)

	t.row("a fourth job has taken it", 0)

	// Somebody waits for two at once, which two busy permits cannot give.
	let := make(chan error, 1)
	go func() { let <- s.Acquire(ctx, 2) }()
	for s.Waiters() == 0 && ctx.Err() == nil {
		runtime.Gosched()
	}
	t.row("a fifth job wants two, and waits", 0)

	if err := s.Grow(1); err != nil {
		return err
	}
	t.row("Grow(1): one free, not enough", 1)

	if err := s.Grow(1); err != nil {
		return err
	}
	if err := <-let; err != nil {
		return err
	}
	t.row("Grow(1): the fifth job starts", 0)

	s.Release(4)
	t.row("all jobs end", 4)

	if err := s.Shrink(5); !errors.Is(err, ration.ErrCapacity) {
		return fmt.Errorf("Shrink(5) of a capacity of 4: got %v, want ErrCapacity", err)
	}
	t.row("Shrink(5): refused, no change", 4)

	fmt.Fprintln(out)
	if t.wrong > 0 {
		return fmt.Errorf("%d rows are not what the contract says", t.wrong)
	}
	fmt.Fprintln(out, "No job was interrupted, none started while there was a debt, and the count is exact.")
	return nil
}

// A table prints the semaphore's numbers row by row and counts those that are
// not as expected.
type table struct {
	out   io.Writer
	s     *ration.Semaphore
	wrong int
}

func (t *table) row(what string, available int64) {
	st := t.s.Stats()
	fmt.Fprintf(t.out, "%-34s %8d %5d %9d%s\n", what, st.Capacity, st.Held, st.Available, t.verdict(st.Available == available))
}

func (t *table) try(want bool) {
	got := t.s.TryAcquire(1)
	fmt.Fprintf(t.out, "%-34s %8s %5s %9s  %t%s\n", "  may a newcomer start?", "", "", "", got, t.verdict(got == want))
}

func (t *table) verdict(ok bool) string {
	if ok {
		return ""
	}
	t.wrong++
	return "  <- WRONG"
}
