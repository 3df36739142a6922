//go:build unix

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// workerEnv, if set, makes the test binary a worker.
const workerEnv = "RATION_INTEGRATION_WORKER"

// work answers the lines it reads until there are no more: "ping" with "pong",
// and "square n mib" with "n n*n", using mib MiB of memory for it.
func work(in io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var n, mib int
		if lines.Text() == "ping" {
			fmt.Fprintln(out, "pong")
		} else if _, err := fmt.Sscanf(lines.Text(), "square %d %d", &n, &mib); err == nil {
			memory := make([]byte, mib<<20)
			for i := 0; i < len(memory); i += 4096 {
				memory[i] = 1
			}
			fmt.Fprintln(out, n, n*n)
		}
	}
}

// A worker is a subprocess that works.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// A workshop starts workers, knows those not reaped yet, and kills some.
type workshop struct {
	workers peak

	mu     sync.Mutex
	alive  map[*worker]struct{}
	killed map[*worker]struct{}
}

func (s *workshop) start(ctx context.Context) (*worker, error) {
	cmd := exec.Command(os.Args[0]) // it outlives the context that it is started in
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, in: in, out: bufio.NewReader(out)}
	s.mu.Lock()
	s.alive[w] = struct{}{}
	s.mu.Unlock()
	s.workers.add(1)
	if err := w.ping(); err != nil {
		return nil, errors.Join(err, s.stop(w))
	}
	return w, nil
}

func (s *workshop) stop(w *worker) error {
	w.in.Close()
	w.cmd.Process.Kill()
	err := w.cmd.Wait() // reaps it
	s.mu.Lock()
	delete(s.alive, w)
	delete(s.killed, w)
	s.mu.Unlock()
	s.workers.add(-1)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // it was killed, by us
	}
	return err
}

// killOne kills a worker, any, and reports whether there was one.
func (s *workshop) killOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.alive { // in random order
		if _, dead := s.killed[w]; !dead {
			s.killed[w] = struct{}{}
			return w.cmd.Process.Kill() == nil
		}
	}
	return false
}

func (w *worker) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(w.in, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := w.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (w *worker) ping() error {
	answer, err := w.ask("ping")
	if err == nil && answer != "pong" {
		err = fmt.Errorf("a ping was answered by %q", answer)
	}
	return err
}

func TestWorkers_EachJobIsAnsweredOnce(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%t", fair), func(t *testing.T) { testWorkers(t, fair) })
	}
}

func testWorkers(t *testing.T, fair bool) {
	const (
		mibs   = 16 // for all workers together
		crew   = 8  // goroutines with jobs
		jobs   = 200
		enough = 20 // kills
	)
	ctx := testContext(t)
	shop := &workshop{alive: make(map[*worker]struct{}), killed: make(map[*worker]struct{})}
	pool, err := ration.NewPool(mibs, shop.start, &ration.PoolOptions[*worker]{
		Name:  "workers",
		Close: shop.stop,
		Check: func(_ context.Context, w *worker) error { return w.ping() },
		Fair:  fair,
	})
	require.NoError(t, err)

	// Kill at random until the jobs are done.
	var kills int
	done, killing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killing)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				if kills < enough && rand.IntN(2) == 0 && shop.killOne() {
					kills++
				}
			}
		}
	}()

	var memory peak
	var retries atomic.Int64
	answers := make([]atomic.Int64, jobs)
	err = share(crew, jobs, func(job int) error {
		mib := int64(1 + job%8)
		for {
			lease, err := pool.AcquireWith(ctx, ration.AcquireOptions{Owner: fmt.Sprintf("job %d", job), Weight: mib})
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				retries.Add(1) // it was killed when it had just been started
				continue
			}
			memory.add(mib)
			answer, err := lease.Value().ask("square %d %d", job, mib)
			memory.add(-mib)
			if err != nil {
				retries.Add(1)
				if err := lease.Discard(); err != nil {
					return err
				}
				continue
			}
			if answer != fmt.Sprint(job, job*job) {
				return fmt.Errorf("job %d was answered %q", job, answer)
			}
			answers[job].Add(1)
			return lease.Close()
		}
	})
	close(done)
	<-killing
	require.NoError(t, err)

	for job := range answers {
		require.EqualValues(t, 1, answers[job].Load(), "answers to job %d", job)
	}
	require.LessOrEqual(t, memory.highest.Load(), int64(mibs), "MiB in use at a time")
	require.LessOrEqual(t, shop.workers.highest.Load(), int64(mibs), "workers at a time")
	require.Positive(t, kills)
	requireSettled(t, pool)
	requireClosed(t, pool)
	s := pool.Stats()
	require.LessOrEqual(t, s.DestroyedBroken+s.OpenFailed, uint64(kills), "nobody breaks who was not killed")
	require.LessOrEqual(t, uint64(retries.Load()), s.DestroyedBroken+s.OpenFailed)
	t.Logf("%d killed, %d jobs tried again, %d workers started, at most %d at a time",
		kills, retries.Load(), s.Opened, shop.workers.highest.Load())

	require.Empty(t, shop.alive)
	requireNoChildren(t)
}

func TestWorkers_OneKilledWhileIdleIsNotLent(t *testing.T) {
	ctx := testContext(t)
	shop := &workshop{alive: make(map[*worker]struct{}), killed: make(map[*worker]struct{})}
	pool, err := ration.NewPool(4, shop.start, &ration.PoolOptions[*worker]{
		Name:  "workers",
		Close: shop.stop,
		Check: func(_ context.Context, w *worker) error { return w.ping() },
	})
	require.NoError(t, err)
	require.NoError(t, pool.Warm(ctx, 1))
	require.True(t, shop.killOne())

	require.NoError(t, pool.Do(ctx, func(_ context.Context, w *worker) error {
		answer, err := w.ask("square 7 1")
		require.Equal(t, "7 49", answer)
		return err
	}))
	s := requireSettled(t, pool)
	require.EqualValues(t, 1, s.DestroyedBroken)
	require.EqualValues(t, 2, s.Opened)
	requireClosed(t, pool)
	requireNoChildren(t)
}

// requireNoChildren checks that this process has no child, alive or zombie.
func requireNoChildren(t *testing.T) {
	t.Helper()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	require.ErrorIs(t, err, syscall.ECHILD, "child %d (0: one that is alive)", pid)
}
