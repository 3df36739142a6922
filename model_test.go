package ration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Random operations against an obvious model of the semaphore. One operation
// at a time, and everything comes to rest before the next: then even a non-fair
// semaphore has no choices left, and every answer, gauge, counter and duration
// can be foretold. What may happen when operations overlap is the subject of
// the bursts further down.

// modelSteps is how many operations each model test makes.
const modelSteps = 12_000

// A byteSource feeds a driver until it is used up.
type byteSource func() (b byte, ok bool)

func bytesOf(data []byte) byteSource {
	return func() (byte, bool) {
		if len(data) == 0 {
			return 0, false
		}
		b := data[0]
		data = data[1:]
		return b, true
	}
}

func randomBytes(r *rand.Rand, n int) byteSource {
	return func() (byte, bool) {
		n--
		return byte(r.Uint32()), n >= 0
	}
}

// testRandom returns a source of chance that RATION_SEED can repeat.
func testRandom(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if v := os.Getenv("RATION_SEED"); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err, "RATION_SEED")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat it: RATION_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// A semaphoreModel is what a semaphore is, said as simply as possible.
type semaphoreModel struct {
	fair           bool
	maxWaiters     int
	capacity, held int64
	closed         bool
	queue          []*modelCall
	stats          SemaphoreStats // the counters only
}

// A modelCall is a call in progress, and what the model says of it.
type modelCall struct {
	*call
	n        int64
	timed    bool // a TryAcquireFor, which says no where Acquire returns an error
	since    time.Time
	deadline time.Time // zero: none
	cancel   context.CancelFunc
	over     bool
	want     error // once over
}

func (m *semaphoreModel) free() int64 { return m.capacity - m.held }

// passes says whether a newcomer may take permits past the queue.
func (m *semaphoreModel) passes() bool {
	return len(m.queue) == 0 || !m.fair && time.Since(m.queue[0].since) <= barging
}

func (m *semaphoreModel) try(n int64) bool {
	if m.closed || n > 0 && (n > m.free() || !m.passes()) {
		return false
	}
	m.held += n
	return true
}

// acquire is Acquire and TryAcquireFor once the context was found not done.
func (m *semaphoreModel) acquire(c *modelCall) {
	refuse := func(err error) {
		c.over, c.want = true, err
		m.stats.Refused++
	}
	switch {
	case m.closed:
		refuse(ErrClosed)
	case m.capacity > 0 && c.n > m.capacity:
		refuse(ErrTooLarge)
	case m.try(c.n):
		c.over = true
	case m.maxWaiters > 0 && len(m.queue) >= m.maxWaiters:
		refuse(ErrQueueFull)
	default:
		m.queue = append(m.queue, c)
	}
}

// leave ends the wait of c.
func (m *semaphoreModel) leave(c *modelCall, err error) {
	m.queue = slices.DeleteFunc(m.queue, func(o *modelCall) bool { return o == c })
	c.over, c.want = true, err
	waited := time.Since(c.since)
	m.stats.Waited++
	m.stats.WaitTime += waited
	m.stats.LongestWait = max(m.stats.LongestWait, waited)
	switch err {
	case nil:
		m.held += c.n
	case context.Canceled, context.DeadlineExceeded:
		m.stats.Canceled++
	default:
		m.stats.Refused++
	}
}

// settle is the one wake rule, S5, for every event alike.
func (m *semaphoreModel) settle() {
	for _, c := range slices.Clone(m.queue) {
		if m.closed {
			m.leave(c, ErrClosed)
		} else if m.capacity > 0 && c.n > m.capacity {
			m.leave(c, ErrTooLarge)
		}
	}
	for len(m.queue) > 0 && m.queue[0].n <= m.free() {
		m.leave(m.queue[0], nil)
	}
}

func (m *semaphoreModel) resize(capacity int64) {
	m.capacity = capacity
	m.settle()
}

func (m *semaphoreModel) snapshot() SemaphoreStats {
	st := m.stats
	st.Capacity, st.Held, st.Available = m.capacity, m.held, m.free()
	st.Waiters = len(m.queue)
	for _, c := range m.queue {
		st.WaitingPermits += min(c.n, math.MaxInt64-st.WaitingPermits)
	}
	return st
}

// A semaphoreDriver turns bytes into operations on a semaphore and its model.
type semaphoreDriver struct {
	t       *testing.T
	s       *Semaphore
	m       semaphoreModel
	source  byteSource
	running []*modelCall // not yet known to have ended
	log     []string
	steps   int
}

// runSemaphoreModel makes a semaphore and works on it until the source is used
// up, and returns the number of operations. To be called in a bubble.
func runSemaphoreModel(t *testing.T, fair bool, source byteSource) int {
	d := &semaphoreDriver{t: t, source: source}
	defer func() {
		if t.Failed() {
			t.Logf("the last operations, the failed one at the end:")
			for _, line := range d.log[max(0, len(d.log)-40):] {
				t.Log(line)
			}
		}
	}()
	d.m.fair = fair
	d.m.capacity = int64(d.byte() % 12)
	if d.byte()%2 == 0 {
		d.m.maxWaiters = int(d.byte()%5) + 1
	}
	d.s = newBoundedSemaphore(t, d.m.capacity, fair, d.m.maxWaiters)
	d.note("a %s semaphore of %d, at most %d waiters", modeName(fair), d.m.capacity, d.m.maxWaiters)
	for {
		op, ok := source()
		if !ok {
			break
		}
		d.leaveTheBrink()
		d.step(op)
		d.steps++
		d.check()
	}
	d.finish()
	return d.steps
}

func (d *semaphoreDriver) byte() byte {
	b, _ := d.source() // zeroes at the end
	return b
}

func (d *semaphoreDriver) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// amount is a number of permits: mostly a small one, now and then a nasty one.
func (d *semaphoreDriver) amount() int64 {
	switch b := d.byte(); {
	case b < 200:
		return 1 + int64(b)%max(1, d.m.capacity)
	case b < 215:
		return 0
	case b < 230:
		return d.m.capacity
	case b < 240:
		return d.m.capacity + 1
	case b < 246:
		return int64(b)
	case b < 251:
		return MaxPermits
	default:
		return math.MaxInt64 - int64(b-251)
	}
}

// duration is around the bound of barging, or far above it.
func (d *semaphoreDriver) duration() time.Duration {
	b := time.Duration(d.byte())
	if b%4 == 3 {
		return b * time.Second
	}
	return b * barging / 64
}

func (d *semaphoreDriver) step(op byte) {
	switch op % 16 {
	case 0, 1, 2:
		d.acquire(0)
	case 3:
		d.acquire(d.duration())
	case 4:
		d.tryFor()
	case 5:
		n := d.amount()
		d.note("TryAcquire(%d)", n)
		require.Equal(d.t, d.m.try(n), d.s.TryAcquire(n))
	case 6, 7, 8:
		if n := d.portion(); n >= 0 {
			d.release(n)
		}
	case 9:
		if c := d.someone(); c != nil {
			d.cancel(c)
		}
	case 10:
		d.cancelAmidRelease()
	case 11:
		d.advance(d.duration())
	case 12, 13:
		d.resize()
	case 14:
		d.takeUpTo()
	case 15:
		switch b := d.byte(); {
		case b < 8:
			d.note("Close")
			d.s.Close()
			d.m.closed = true
			d.m.settle()
		case b < 40:
			d.note("Acquire(done)")
			require.Equal(d.t, context.Canceled, d.s.Acquire(canceled(), d.amount()))
		default:
			d.misuse(b)
		}
	}
}

// acquire starts an Acquire that can be cancelled and has a deadline if d is
// not zero.
func (d *semaphoreDriver) acquire(after time.Duration) {
	c := d.newCall(d.amount(), after)
	d.note("Acquire(%d) for %v, call %p", c.n, after, c)
	ctx, cancel := context.WithCancel(d.t.Context())
	if !c.deadline.IsZero() {
		ctx, cancel = context.WithDeadline(d.t.Context(), c.deadline)
	}
	d.t.Cleanup(cancel)
	c.cancel = cancel
	c.call = start(func() error { return d.s.Acquire(ctx, c.n) })
	d.m.acquire(c)
}

func (d *semaphoreDriver) tryFor() {
	c := d.newCall(d.amount(), 1+d.duration())
	c.timed = true
	d.note("TryAcquireFor(%d, %v), call %p", c.n, time.Until(c.deadline), c)
	c.call = startTimed(d.s, c.n, time.Until(c.deadline))
	d.m.acquire(c)
}

// newCall gives each call a deadline of its own, since between two in the same
// instant there is no order to foretell.
func (d *semaphoreDriver) newCall(n int64, after time.Duration) *modelCall {
	c := &modelCall{n: n, since: time.Now()}
	d.running = append(d.running, c)
	if after > 0 {
		c.deadline = c.since.Add(after)
		for slices.ContainsFunc(d.m.queue, func(o *modelCall) bool { return o.deadline.Equal(c.deadline) }) {
			c.deadline = c.deadline.Add(1)
		}
	}
	return c
}

// portion is a part of what is held, or -1 if nothing is.
func (d *semaphoreDriver) portion() int64 {
	if d.m.held == 0 {
		return -1
	}
	if b := int64(d.byte()); b < 250 {
		return min(d.m.held, 1+b%12)
	}
	return d.m.held
}

func (d *semaphoreDriver) release(n int64) {
	d.note("Release(%d)", n)
	d.s.Release(n)
	d.m.held -= n
	d.m.settle()
}

// someone is a waiter that can be cancelled, or nil.
func (d *semaphoreDriver) someone() *modelCall {
	if len(d.m.queue) == 0 {
		return nil
	}
	c := d.m.queue[int(d.byte())%len(d.m.queue)]
	if c.timed {
		return nil
	}
	return c
}

func (d *semaphoreDriver) cancel(c *modelCall) {
	d.note("cancel call %p", c)
	c.cancel()
	d.m.leave(c, context.Canceled)
	d.m.settle()
}

// cancelAmidRelease cancels somebody and releases with nothing in between, in
// either order.
func (d *semaphoreDriver) cancelAmidRelease() {
	c, n := d.someone(), d.portion()
	if c == nil || n < 0 {
		return
	}
	if d.byte()%2 == 0 {
		d.cancel(c)
		d.release(n)
		return
	}
	d.note("Release(%d), and at once cancel call %p", n, c)
	d.s.Release(n)
	c.cancel()
	synctest.Wait()
	// Done after the grant, it may go either way, but before it only one.
	select {
	case <-c.done:
	default:
		require.Fail(d.t, "a cancelled call still waits")
	}
	if c.err != nil {
		d.m.leave(c, context.Canceled)
	}
	d.m.held -= n
	d.m.settle()
	if c.err == nil {
		require.True(d.t, c.over, "granted out of order")
	}
}

func (d *semaphoreDriver) resize() {
	n := d.amount()
	switch b := d.byte(); {
	case b < 80:
		n = min(n, 3)
		d.note("Grow(%d)", n)
		if n > MaxPermits-d.m.capacity {
			require.Equal(d.t, ErrCapacity, d.s.Grow(n))
			return
		}
		require.NoError(d.t, d.s.Grow(n))
		d.m.resize(d.m.capacity + n)
	case b < 160:
		if b%2 == 0 {
			n = min(n, 2) // so that there is something left to have
		}
		d.note("Shrink(%d)", n)
		if n > d.m.capacity {
			require.Equal(d.t, ErrCapacity, d.s.Shrink(n))
			return
		}
		require.NoError(d.t, d.s.Shrink(n))
		d.m.resize(d.m.capacity - n)
	case b < 240:
		n = int64(b) % 12
		d.note("Resize(%d)", n)
		require.NoError(d.t, d.s.Resize(n))
		d.m.resize(n)
	default:
		d.note("resize out of range by %d", n)
		require.Equal(d.t, ErrCapacity, d.s.Grow(-1-n%MaxPermits))
		require.Equal(d.t, ErrCapacity, d.s.Shrink(-1-n%MaxPermits))
		require.Equal(d.t, ErrCapacity, d.s.Resize(-1-n%MaxPermits))
		require.Equal(d.t, ErrCapacity, d.s.Resize(MaxPermits+1+n%MaxPermits))
		require.Equal(d.t, ErrCapacity, d.s.Grow(MaxPermits-d.m.capacity+1))
	}
}

func (d *semaphoreDriver) takeUpTo() {
	most := d.amount()
	if d.byte()%4 == 0 {
		most = math.MaxInt64
	}
	d.note("TryAcquireUpTo(%d)", most)
	want := int64(0)
	if !d.m.closed && d.m.passes() {
		want = max(0, min(most, d.m.free()))
	}
	d.m.held += want
	if most == math.MaxInt64 {
		require.Equal(d.t, want, d.s.Drain())
	} else {
		require.Equal(d.t, want, d.s.TryAcquireUpTo(most))
	}
}

func (d *semaphoreDriver) misuse(b byte) {
	d.note("misuse %d", b)
	requireMisuse(d.t, func() {
		switch b % 8 {
		case 0:
			d.s.Release(d.m.held + 1)
		case 1:
			d.s.Release(math.MaxInt64)
		case 2:
			d.s.Release(-1 - d.m.held)
		case 3:
			d.s.TryAcquire(-int64(b))
		case 4:
			_ = d.s.Acquire(briefly(d.t), math.MinInt64)
		case 5:
			d.s.TryAcquireUpTo(-1)
		case 6:
			d.s.TryAcquireFor(-1, time.Hour)
		case 7:
			_ = d.s.Do(briefly(d.t), 1, nil)
		}
	})
}

// advance lets time pass, from one deadline to the next.
func (d *semaphoreDriver) advance(by time.Duration) {
	d.note("%v pass", by)
	end := time.Now().Add(by)
	for {
		var next *modelCall
		for _, c := range d.m.queue {
			if !c.deadline.IsZero() && !c.deadline.After(end) && (next == nil || c.deadline.Before(next.deadline)) {
				next = c
			}
		}
		if next == nil {
			break
		}
		time.Sleep(time.Until(next.deadline))
		d.note("call %p times out", next)
		d.m.leave(next, context.DeadlineExceeded)
		d.m.settle()
		d.check()
	}
	time.Sleep(time.Until(end))
}

// leaveTheBrink moves on if the head is exactly as old as S4 lets others pass
// it: the model need not know on which side of the line the line is.
func (d *semaphoreDriver) leaveTheBrink() {
	for len(d.m.queue) > 0 && time.Since(d.m.queue[0].since) == barging {
		d.advance(1)
		d.check()
	}
}

// check compares everything there is to see, at rest.
func (d *semaphoreDriver) check() {
	synctest.Wait()
	d.running = slices.DeleteFunc(d.running, func(c *modelCall) bool {
		ended := false
		select {
		case <-c.done:
			ended = true
		default:
		}
		if ended != c.over {
			require.Failf(d.t, "call against model", "call %p: over %v, the model says %v", c, ended, c.over)
		}
		if !ended {
			return false
		}
		want := c.want
		if c.timed && want != nil {
			want = errTimedTry
		}
		if c.err != want {
			require.Equal(d.t, want, c.err, "call %p", c)
		}
		return true
	})
	if got, want := d.s.Stats(), d.m.snapshot(); got != want {
		require.Equal(d.t, want, got)
	}
	checkInvariants(d.t, d.s)
}

// finish gives everything back, and everybody goes home.
func (d *semaphoreDriver) finish() {
	if !d.m.closed {
		for len(d.m.queue) > 0 {
			if d.m.capacity == 0 {
				d.note("Resize(1)")
				require.NoError(d.t, d.s.Resize(1))
				d.m.resize(1)
			} else {
				require.NotZero(d.t, d.m.held, "somebody waits for nobody")
				d.release(d.m.held)
			}
			d.check()
		}
	}
	d.note("the last release")
	d.release(d.m.held)
	d.check()
	require.Empty(d.t, d.running)
	require.Zero(d.t, d.s.Held())
	if !d.m.closed {
		requireIdle(d.t, d.s, d.m.capacity)
	}
}

func TestSemaphore_DoesWhatTheModelDoes(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		r := testRandom(t)
		for steps := 0; steps < modelSteps; {
			synctest.Test(t, func(t *testing.T) {
				steps += runSemaphoreModel(t, fair, randomBytes(r, 1000))
			})
			if t.Failed() {
				return
			}
		}
	})
}
