package ration

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// barging is how long after the arrival of the head of a non-fair queue others
// may still pass it (S4).
const barging = time.Millisecond

// newTestSemaphore returns a semaphore whose invariants are checked when the
// test ends. It is closed then too, so that a test that fails with waiters
// still parked reports its failure and not a deadlocked bubble.
func newTestSemaphore(t *testing.T, permits int64, fair bool) *Semaphore {
	return newBoundedSemaphore(t, permits, fair, 0)
}

func newBoundedSemaphore(t *testing.T, permits int64, fair bool, maxWaiters int) *Semaphore {
	s := NewSemaphore(permits, &SemaphoreOptions{Fair: fair, MaxWaiters: maxWaiters})
	t.Cleanup(func() {
		defer s.Close()
		checkInvariants(t, s)
	})
	return s
}

// eachMode runs f as a subtest for a fair and for a non-fair semaphore.
func eachMode(t *testing.T, f func(t *testing.T, fair bool)) {
	for _, fair := range []bool{true, false} {
		t.Run(modeName(fair), func(t *testing.T) { f(t, fair) })
	}
}

// eachModeInBubble is eachMode with a bubble around each subtest: parking can
// be waited for, and time is fake.
func eachModeInBubble(t *testing.T, f func(t *testing.T, fair bool)) {
	eachMode(t, func(t *testing.T, fair bool) {
		synctest.Test(t, func(t *testing.T) { f(t, fair) })
	})
}

func modeName(fair bool) string {
	if fair {
		return "fair"
	}
	return "nonfair"
}

// A call is one call that may park, made on a goroutine of its own.
type call struct {
	done chan struct{}
	err  error         // once done is closed
	took time.Duration // likewise
}

func start(f func() error) *call {
	c := &call{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(c.done)
		c.err = f()
		c.took = time.Since(began)
	}()
	return c
}

// startAcquire starts an Acquire that the end of the test cancels.
func startAcquire(t *testing.T, s *Semaphore, n int64) *call {
	return start(func() error { return s.Acquire(t.Context(), n) })
}

// startCancelable starts an Acquire that cancel, or the end of the test, cancels.
func startCancelable(t *testing.T, s *Semaphore, n int64) (c *call, cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return start(func() error { return s.Acquire(ctx, n) }), cancel
}

// park is startAcquire for a call that must end up in the queue. To be called
// in a bubble, like all of the following.
func park(t *testing.T, s *Semaphore, n int64) *call {
	t.Helper()
	c := startAcquire(t, s, n)
	requireParked(t, c)
	return c
}

func parkCancelable(t *testing.T, s *Semaphore, n int64) (*call, context.CancelFunc) {
	t.Helper()
	c, cancel := startCancelable(t, s, n)
	requireParked(t, c)
	return c, cancel
}

// startTimed starts a TryAcquireFor; a false answer is errTimedTry.
func startTimed(s *Semaphore, n int64, d time.Duration) *call {
	return start(func() error {
		if !s.TryAcquireFor(n, d) {
			return errTimedTry
		}
		return nil
	})
}

var errTimedTry = errors.New("a timed try has failed")

// endBarging lets so much time pass that nobody overtakes those who wait now,
// in either mode.
func endBarging() { time.Sleep(2 * barging) }

// wait waits for the end of c, which must come.
func (c *call) wait(t testing.TB) {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
		require.Fail(t, "a call has not ended")
	}
}

// ended says, when everything in the bubble has come to rest, whether c is over.
func (c *call) ended() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// awaitWaiters waits, outside a bubble, until n wait at s.
func awaitWaiters(s *Semaphore, n int) {
	yieldUntil(func() bool { return s.Waiters() >= n })
}

// yieldUntil lets others run until done says so. Any goroutine may call it, so
// it panics if that does not come about in a very long time.
func yieldUntil(done func() bool) {
	for range 20_000_000 {
		if done() {
			return
		}
		runtime.Gosched()
	}
	panic("what a test waits for does not come about")
}

func requireParked(t *testing.T, calls ...*call) {
	t.Helper()
	for i, c := range calls {
		if c.ended() {
			require.Failf(t, "a call that must wait has ended", "call %d, error %v", i, c.err)
		}
	}
}

func requireGranted(t *testing.T, calls ...*call) {
	t.Helper()
	for i, c := range calls {
		require.True(t, c.ended(), "call %d must have its permits, but it still waits", i)
		require.NoError(t, c.err, "call %d", i)
	}
}

// requireFailed wants the very error, not one that wraps it: cancelled waits
// return a bare ctx.Err(), and the sentinels come bare as well.
func requireFailed(t *testing.T, want error, calls ...*call) {
	t.Helper()
	for i, c := range calls {
		require.True(t, c.ended(), "call %d must have failed with %v, but it still waits", i, want)
		require.Equal(t, want, c.err, "call %d", i)
	}
}

// requirePermits checks every gauge that says how many permits are where.
func requirePermits(t *testing.T, s *Semaphore, capacity, available int64) {
	t.Helper()
	require.Equal(t, capacity, s.Capacity(), "capacity")
	require.Equal(t, available, s.Available(), "available")
	require.Equal(t, capacity-available, s.Held(), "held")
	st := s.Stats()
	require.Equal(t, [3]int64{capacity, available, capacity - available},
		[3]int64{st.Capacity, st.Available, st.Held}, "capacity, available and held in Stats")
}

// requireIdle checks that all of capacity is back and nobody waits, and then
// that the semaphore is not only telling so.
func requireIdle(t *testing.T, s *Semaphore, capacity int64) {
	t.Helper()
	requirePermits(t, s, capacity, capacity)
	require.Zero(t, s.Waiters(), "waiters")
	require.Zero(t, s.Stats().WaitingPermits, "permits waited for")
	require.True(t, s.TryAcquire(capacity), "all of it can be had at once")
	if capacity > 0 {
		require.False(t, s.TryAcquire(1), "and no more")
	}
	s.Release(capacity)
	checkInvariants(t, s)
}

// requireMisuse checks that f panics with a message of this package.
func requireMisuse(t *testing.T, f func()) {
	t.Helper()
	v := panicOf(f)
	require.NotNil(t, v, "must panic")
	require.True(t, isMisuse(v), "panicked with %v", v)
}

// misused says whether f panicked with a message of this package. Any other
// panic goes on.
func misused(f func()) bool {
	v := panicOf(f)
	if v != nil && !isMisuse(v) {
		panic(v)
	}
	return v != nil
}

func isMisuse(v any) bool { return strings.HasPrefix(fmt.Sprint(v), "ration: ") }

func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// endless is a context that never ends and cannot be cancelled.
func endless() context.Context { return context.Background() }

// canceled returns a context that is done already.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// briefly returns a context for a call that must not wait, or not for long. If
// it does all the same, its test fails instead of hanging, and in a bubble,
// where without a deadline there would be a deadlock, it fails at once.
func briefly(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// watchdog returns a context whose deadline is reached only when something
// hangs: for tests with real goroutines outside a bubble.
func watchdog(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// rounds scales down the number of rounds of a test that hunts for a race.
func rounds(n int) int {
	if raceEnabled || testing.Short() {
		return n / 10
	}
	return n
}
