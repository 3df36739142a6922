package ration

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A thing is the resource of the test pools. It notices being in two hands, and
// how often it was destroyed.
type thing struct {
	id        int64
	born      time.Time
	inUse     atomic.Bool
	destroyed atomic.Int32
}

// use takes t into a hand, which must be the only one; the result lets it go.
func (t *thing) use() (letGo func()) {
	if !t.inUse.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("thing %d is in two hands", t.id))
	}
	return func() { t.inUse.Store(false) }
}

type thingOptions = PoolOptions[*thing]

// A testPool is a pool of things that keeps its own books.
type testPool struct {
	*Pool[*thing]
	t *testing.T

	opens  atomic.Int64 // calls of open
	opened atomic.Int64 // those that brought something
	closes atomic.Int64 // calls of Close
	busy   atomic.Int64 // things that exist, are being opened or are being destroyed
	peak   atomic.Int64 // the most there were of them
	limit  atomic.Int64 // of peak; 0: none

	mu       sync.Mutex
	things   []*thing
	detached map[*thing]bool

	leaveOpen bool // the test closes the pool itself, or means not to
}

// newTestPool returns a pool whose books are checked when the test ends. It is
// closed then, and everything it has opened must have been destroyed, once.
// Open is called around the making of a thing, and may be nil; the hooks in opts
// are kept.
func newTestPool(t *testing.T, capacity int64, open func(context.Context) error, opts *thingOptions) *testPool {
	t.Helper()
	p := &testPool{t: t, detached: make(map[*thing]bool)}
	p.limit.Store(capacity)
	var o thingOptions
	if opts != nil {
		o = *opts
	}
	destroy := o.Close
	o.Close = func(r *thing) error {
		p.closes.Add(1)
		r.destroyed.Add(1)
		defer p.busy.Add(-1)
		if destroy == nil {
			return nil
		}
		return destroy(r)
	}
	var err error
	p.Pool, err = NewPool(capacity, func(ctx context.Context) (*thing, error) {
		made := false
		p.begin()
		defer func() {
			if !made {
				p.busy.Add(-1)
			}
		}()
		if open != nil {
			if err := open(ctx); err != nil {
				return nil, err
			}
		}
		made = true
		return p.make(), nil
	}, &o)
	require.NoError(t, err)
	t.Cleanup(p.finish)
	return p
}

func (p *testPool) begin() {
	p.opens.Add(1)
	now := p.busy.Add(1)
	for {
		peak := p.peak.Load()
		if now <= peak || p.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

func (p *testPool) make() *thing {
	r := &thing{id: p.opened.Add(1), born: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.things = append(p.things, r)
	return r
}

// finish checks the end of the test.
func (p *testPool) finish() {
	require.NoError(p.t, p.Audit())
	if p.leaveOpen {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(p.t, p.Close(ctx), "closing the pool")
	p.requireAllDestroyed()
	if limit := p.limit.Load(); limit > 0 {
		require.LessOrEqual(p.t, p.peak.Load(), limit, "opening, there and being destroyed, at most")
	}
}

// requireAllDestroyed checks a closed pool with nothing out.
func (p *testPool) requireAllDestroyed() {
	p.t.Helper()
	require.NoError(p.t, p.Audit())
	st := p.Stats()
	require.Equal(p.t, [6]int{}, [6]int{st.Total, st.Idle, st.Leased, st.Opening, st.Destroying, st.Waiters}, "left in the closed pool")
	require.Zero(p.t, st.Held, "permits held")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.things {
		want := int32(1)
		if p.detached[r] {
			want = 0
		}
		require.Equal(p.t, want, r.destroyed.Load(), "thing %d was destroyed that many times", r.id)
	}
}

// detach is Lease.Detach, and tells the books.
func (p *testPool) detach(l Lease[*thing]) *thing {
	p.t.Helper()
	p.takesAway(l.Value())
	r, err := l.Detach()
	require.NoError(p.t, err)
	return r
}

// takesAway tells the books that r leaves the pool by Detach.
func (p *testPool) takesAway(r *thing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detached[r] = true
	p.busy.Add(-1)
}

// lease acquires what must be had at once, but for the time an open takes.
func (p *testPool) lease() Lease[*thing] {
	p.t.Helper()
	return p.leaseWith(AcquireOptions{})
}

func (p *testPool) leaseWith(o AcquireOptions) Lease[*thing] {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	l, err := p.AcquireWith(ctx, o)
	require.NoError(p.t, err)
	return l
}

func (p *testPool) leases(n int) []Lease[*thing] {
	p.t.Helper()
	ls := make([]Lease[*thing], n)
	for i := range ls {
		ls[i] = p.lease()
	}
	return ls
}

// fill makes n things idle, in the order of their ids.
func (p *testPool) fill(n int) {
	p.t.Helper()
	closeAll(p.t, p.leases(n)...)
}

func closeAll[T any](t *testing.T, ls ...Lease[T]) {
	t.Helper()
	for _, l := range ls {
		require.NoError(t, l.Close())
	}
}

// A borrow is an Acquire on a goroutine of its own.
type borrow struct {
	*call
	lease  Lease[*thing] // once done is closed
	cancel context.CancelFunc
}

// borrow starts an Acquire that b.cancel cancels.
func (p *testPool) borrow() *borrow { return p.borrowFor(0) }

// borrowFor is borrow with a limit of time; 0 is none.
func (p *testPool) borrowFor(d time.Duration) *borrow {
	return p.borrowWith(context.Background(), d, AcquireOptions{})
}

func (p *testPool) borrowWith(ctx context.Context, d time.Duration, o AcquireOptions) *borrow {
	b := &borrow{}
	if d > 0 {
		ctx, b.cancel = context.WithTimeout(ctx, d)
	} else {
		ctx, b.cancel = context.WithCancel(ctx)
	}
	p.t.Cleanup(b.cancel)
	b.call = start(func() (err error) {
		b.lease, err = p.AcquireWith(ctx, o)
		return err
	})
	return b
}

// parked starts a borrow that must end up waiting.
func (p *testPool) parked() *borrow {
	p.t.Helper()
	b := p.borrow()
	requireParked(p.t, b.call)
	return b
}

// got returns the lease that b must have by now.
func (b *borrow) got(t *testing.T) Lease[*thing] {
	t.Helper()
	requireGranted(t, b.call)
	return b.lease
}

// failed wants b to have failed by now with the given cause.
func (b *borrow) failed(t *testing.T, op string, cause error) *AcquireError {
	t.Helper()
	require.True(t, b.ended(), "must have failed, but still waits")
	return requireAcquireError(t, b.err, op, cause)
}

func requireAcquireError(t *testing.T, err error, op string, cause error) *AcquireError {
	t.Helper()
	require.ErrorIs(t, err, cause)
	var ae *AcquireError
	require.True(t, errors.As(err, &ae), "%T is no AcquireError", err)
	require.Equal(t, op, ae.Op, "%v", err)
	return ae
}

// requireDestroyed wants exactly these to be destroyed.
func (p *testPool) requireDestroyed(ids ...int64) {
	p.t.Helper()
	synctest.Wait()
	got := []int64{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.things {
		if r.destroyed.Load() > 0 {
			got = append(got, r.id)
		}
	}
	require.ElementsMatch(p.t, ids, got, "destroyed things")
}

// A gauges is the part of PoolStats that says where the resources are.
type gauges struct{ idle, leased, opening, destroying, waiters int }

// requireGauges waits for rest and checks where everything is.
func (p *testPool) requireGauges(want gauges) {
	p.t.Helper()
	synctest.Wait()
	st := p.Stats()
	require.Equal(p.t, want, gauges{st.Idle, st.Leased, st.Opening, st.Destroying, st.Waiters})
	require.Equal(p.t, st.Idle+st.Leased, st.Total)
	require.Equal(p.t, st.Capacity-st.Available, st.Held)
	require.NoError(p.t, p.Audit())
}

// requireWhole checks that everything is back, by having all of it at once.
func (p *testPool) requireWhole(capacity int) {
	p.t.Helper()
	synctest.Wait()
	require.EqualValues(p.t, capacity, p.Stats().Available)
	ls := p.leases(capacity)
	_, ok := p.TryAcquire()
	require.False(p.t, ok, "more than everything")
	seen := make(map[*thing]bool)
	for _, l := range ls {
		require.False(p.t, seen[l.Value()], "one thing in two leases")
		seen[l.Value()] = true
	}
	closeAll(p.t, ls...)
	require.NoError(p.t, p.Audit())
}

// bubble runs f in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// hang never returns before ctx ends, if ctx is not nil, or the bubble's test
// lets it.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// after returns an open that takes d, heeding its context, and returns err.
func after(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errTest = errors.New("test error")

func goexit() { runtime.Goexit() }

// goexits runs f, which must end its goroutine, and waits.
func goexits(f func()) (completed bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		completed = true
	}()
	<-done
	return completed
}

var errDeadline = context.DeadlineExceeded

// result waits for c, in fake time if need be, and returns its error.
func (c *call) result() error {
	<-c.done
	return c.err
}

// A fault is an error that the test sets while hooks return it.
type fault struct{ p atomic.Pointer[error] }

func (f *fault) set(err error) { f.p.Store(&err) }

func (f *fault) get() error {
	if p := f.p.Load(); p != nil {
		return *p
	}
	return nil
}
