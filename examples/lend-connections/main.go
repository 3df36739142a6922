// Lend-connections sends 2,000 requests from 40 workers over 4 TCP connections
// to a server that keeps spoiling them. A pool lends the connections, each to
// one borrower at a time; a worker whose connection breaks discards it and
// asks again on another, and the pool opens a new one in its place.
//
// A table shows it live. In the end every claim is checked against the books
// that the server has kept, and the program fails if one does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration"
)

const (
	connections = 4
	workers     = 40
	trips       = 2000
	seed        = 11 // decides which requests the server spoils

	arriveEvery = 10 * time.Millisecond // between one worker's start and the next's
	longestRest = 12 * time.Millisecond // of a worker between two requests
	tick        = 100 * time.Millisecond
	ioTimeout   = 10 * time.Second // only a dead peer takes so long
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lend-connections:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	goroutines := runtime.NumGoroutine()

	server, err := startServer()
	if err != nil {
		return err
	}
	defer server.stop()
	dialer := dialer{addr: server.addr()}
	pool, err := ration.NewPool(connections, dialer.open, &ration.PoolOptions[*conn]{
		Name:  "squares",
		Close: dialer.close,
	})
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d workers, %d connections, %d requests; one request in %d costs its connection.\n\n",
		workers, connections, trips, spoilOneIn)
	crew := crew{pool: pool, answers: make([]int, trips)}
	done := make(chan error, 1)
	go func() { done <- crew.work(ctx) }()
	audits, err := watch(out, pool, &crew, done)
	if err != nil {
		return errors.Join(err, pool.Close(ctx))
	}

	err = pool.Close(ctx)
	open := server.open() // asked before the server hangs up by itself
	server.stop()
	if err != nil {
		return err
	}

	p := proof{out: out}
	fmt.Fprintln(out)
	p.claim("never more than 4 connections open", server.peak <= connections && dialer.unparted.Load() == 0,
		"at most %d at once, of %d in all, counted by the server", server.peak, server.accepted)
	wrong := crew.wrong()
	p.claim("every request answered once, rightly", wrong == 0 && server.answered == trips,
		"%d of %d; the server sent %d answers", trips-wrong, trips, server.answered)
	st, by := pool.Stats(), server.spoiled
	lost := by[dropped] + by[interrupted] + by[reset] + by[garbled]
	p.claim("every broken connection discarded", lost == crew.retries && uint64(lost) == st.DestroyedBroken,
		"%d: %d dropped, %d in mid-answer, %d reset, %d talking nonsense",
		lost, by[dropped], by[interrupted], by[reset], by[garbled])
	err = pool.Audit()
	p.claim("the pool's books are in order", err == nil, "Audit clean %d times at work and once at the end", audits)
	left := leftGoroutines(goroutines)
	p.claim("nothing left behind", open == 0 && st.Total == 0 && st.Held == 0 && left == 0,
		"%d connections, %d leases, %d permits, %d goroutines", open, st.Leased, st.Held, left)

	slices.Sort(crew.waits)
	fmt.Fprintf(out, "\nwaited for a connection: p50 %v, p99 %v, longest %v\n",
		percentile(crew.waits, 50), percentile(crew.waits, 99), percentile(crew.waits, 100))
	return errors.Join(err, p.failed)
}

// A crew is the workers and what they note down.
type crew struct {
	pool     *ration.Pool[*conn]
	answered atomic.Int64

	mu      sync.Mutex
	answers []int // per request: 0 before, 1 after a right answer, any other number is a mistake
	retries int
	waits   []time.Duration
}

// work returns when every worker has finished its share.
func (c *crew) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			sleep(ctx, time.Duration(w)*arriveEvery)
			for id := w; id < trips; id += workers {
				if err := c.request(ctx, id); err != nil {
					cancel(fmt.Errorf("request %d: %w", id, err))
					return
				}
				sleep(ctx, rand.N(longestRest))
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// request asks until it gets an answer.
func (c *crew) request(ctx context.Context, id int) error {
	for try := 1; ; try++ {
		asked := time.Now()
		lease, err := c.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		waited := time.Since(asked)

		answer, err := lease.Value().ask(id, try)
		if err != nil {
			lease.Discard() // never lent again; the next borrower gets a new one
			c.note(id, waited, false, 0)
			continue
		}
		lease.Close()
		c.note(id, waited, true, answer)
		return nil
	}
}

func (c *crew) note(id int, waited time.Duration, ok bool, answer int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, waited)
	switch {
	case !ok:
		c.retries++
	case answer == id*id:
		c.answers[id]++
		c.answered.Add(1)
	default:
		c.answers[id] = -1
	}
}

// wrong returns how many requests have not had exactly one right answer.
func (c *crew) wrong() int {
	n := 0
	for _, times := range c.answers {
		if times != 1 {
			n++
		}
	}
	return n
}

// watch prints the table until done, and audits the pool at every row.
func watch(out io.Writer, pool *ration.Pool[*conn], c *crew, done <-chan error) (audits int, err error) {
	fmt.Fprintln(out, "  time  leased  idle  replaced  answered  waiting")
	start, ticker := time.Now(), time.NewTicker(tick)
	defer ticker.Stop()
	row := func() {
		st := pool.Stats()
		fmt.Fprintf(out, "%5.1fs  %-*s  %4d  %8d  %8d  %7d  %s\n", time.Since(start).Seconds(),
			len("leased"), strings.Repeat("#", st.Leased), st.Idle, st.DestroyedBroken, c.answered.Load(),
			st.Waiters, strings.Repeat("|", st.Waiters))
	}
	for {
		select {
		case err := <-done:
			row()
			return audits, err
		case <-ticker.C:
			row()
			if err := pool.Audit(); err != nil {
				return audits, err
			}
			audits++
		}
	}
}

// A proof prints claims and collects those that do not hold.
type proof struct {
	out    io.Writer
	failed error
}

func (p *proof) claim(what string, holds bool, format string, args ...any) {
	verdict := "ok"
	if !holds {
		verdict = "FAILED"
		p.failed = errors.Join(p.failed, fmt.Errorf("does not hold: %s", what))
	}
	fmt.Fprintf(p.out, "%-6s  %-37s  %s\n", verdict, what, fmt.Sprintf(format, args...))
}

// leftGoroutines returns how many goroutines there are beyond the number at
// the start, after giving those that are on their way out time to leave.
func leftGoroutines(before int) int {
	for range 200 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return max(0, runtime.NumGoroutine()-before)
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)-1)*p/100].Round(10 * time.Microsecond)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
