package ration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Random operations on a pool, against an obvious model of what must be
// conserved. Operations overlap: opens, checks, resets and destroys take fake
// time, fail or hang, and borrowers give up meanwhile. So the model does not
// foretell who gets what and when; it keeps the books of what has been given
// and taken, and knows what can never be.

// poolModelSteps is how many operations each test of a fair and of a non-fair
// pool makes.
const poolModelSteps = 12_000

// A poolModel drives a pool and keeps its books.
type poolModel struct {
	*testPool
	t     *testing.T
	bytes byteSource
	ended bool
	log   []string

	hooksMu sync.Mutex
	hooks   *rand.Rand // what the hooks do; nil: what they should

	capacity int64
	borrows  []*modelBorrow
	held     []*modelLease
	stale    []Lease[*thing]
	inHand   map[*thing]*modelLease
	slow     []*call // ends of leases under way, whose hooks take time

	ends, revoked, duplicates uint64
	granted, failed           uint64
}

// A modelBorrow is an Acquire in progress.
type modelBorrow struct {
	*borrow
	weight   int64
	deadline time.Time // zero: none
	canceled bool
}

// A modelLease is a lease that the model holds.
type modelLease struct {
	Lease[*thing]
	weight int64
}

// runPoolModel runs the program that the source has, and returns how many
// operations it was.
func runPoolModel(t *testing.T, fair bool, source byteSource) int {
	m := &poolModel{t: t, bytes: source, capacity: 4, inHand: make(map[*thing]*modelLease)}
	m.hooks = rand.New(rand.NewPCG(uint64(m.byte()), 0))
	defer func() {
		if t.Failed() {
			for _, line := range m.log[max(0, len(m.log)-40):] {
				t.Log(line)
			}
		}
	}()
	opts := &thingOptions{
		Fair: fair, Close: func(*thing) error { return m.hook("Close", 8) },
		OpenTimeout: 10 * time.Second,
	}
	b := m.byte()
	if b&1 != 0 {
		opts.MinIdle = 2
	}
	if b&2 != 0 {
		opts.Check = func(context.Context, *thing) error { return m.hook("Check", 4) }
		opts.CheckAfter = time.Duration(b>>6) * time.Second
	}
	if b&4 != 0 {
		opts.Reset = func(r *thing) error {
			defer r.use()()
			return m.hook("Reset", 4)
		}
	}
	if b&8 != 0 {
		opts.MaxOpening = 2
	}
	b = m.byte()
	if b&1 != 0 {
		opts.MaxLifetime = 20 * time.Second
	}
	if b&2 != 0 {
		opts.MaxIdleTime = 5 * time.Second
	}
	if b&4 != 0 {
		opts.MaxUses = 5
	}
	opts.IdleFIFO = b&8 != 0
	if b&16 != 0 {
		opts.MaxWaiters = 3
	}
	m.testPool = newTestPool(t, m.capacity, func(context.Context) error { return m.hook("open", 4) }, opts)
	m.limit.Store(0) // a resize lets it pass any number; Audit knows better

	steps := 0
	for ; !m.ended; steps++ {
		m.step(m.byte())
		if steps%8 == 0 {
			m.check()
		}
	}
	m.finish()
	return steps
}

func (m *poolModel) byte() byte {
	b, ok := m.bytes()
	if !ok {
		m.ended = true
	}
	return b
}

func (m *poolModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%v: ", time.Since(m.clock.start))+fmt.Sprintf(format, args...))
	if len(m.log) > 1000 {
		m.log = slices.Clone(m.log[900:])
	}
}

// hook is what every hook does: once in a while it fails, misbehaves, takes its
// time or more than it has.
func (m *poolModel) hook(name string, oneIn int) error {
	switch b := m.hookChance(8 * oneIn); b {
	case 0, 1:
		return errTest
	case 2:
		panic("the model's " + name)
	case 3:
		if name != "Reset" && name != "Close" { // those run on the model's own goroutine too
			goexit()
		}
	case 4:
		time.Sleep(time.Minute)
	case 5, 6, 7:
		time.Sleep(time.Duration(b) * 100 * time.Millisecond)
	}
	return nil
}

func (m *poolModel) hookChance(n int) int {
	m.hooksMu.Lock()
	defer m.hooksMu.Unlock()
	if m.hooks == nil {
		return -1
	}
	return m.hooks.IntN(n)
}

// step makes one operation.
func (m *poolModel) step(op byte) {
	arg := m.byte()
	switch op % 32 {
	case 0, 1, 2, 3, 4, 5:
		m.acquire(arg)
	case 6, 7:
		if l, ok := m.TryAcquire(); ok {
			m.take(l, 1)
			m.note("TryAcquire: lease %d", l.id)
		}
	case 8, 9, 10, 11, 12, 13:
		if l := m.someLease(arg); l != nil {
			m.note("Close %d", l.id)
			m.end(l, l.Close)
		}
	case 14, 15:
		if l := m.someLease(arg); l != nil {
			m.note("Discard %d", l.id)
			m.end(l, l.Discard)
		}
	case 16:
		if l := m.someLease(arg); l != nil {
			m.note("Detach %d", l.id)
			m.letGo(l)
			m.detach(l.Lease)
		}
	case 17:
		if l := m.someLease(arg); l != nil {
			m.note("Revoke %d", l.id)
			m.letGo(l)
			require.True(m.t, m.Revoke(l.id))
			require.False(m.t, m.Revoke(l.id))
			require.Equal(m.t, ErrLeaseRevoked, l.Err())
			m.revoked++
		}
	case 18:
		if l := m.someLease(arg); l != nil {
			l.Touch()
			require.Zero(m.t, l.Info().Age)
		}
	case 19, 20:
		m.misuseStale(arg)
	case 21, 22:
		capacity := int64(arg % 8)
		m.note("Resize %d", capacity)
		require.NoError(m.t, m.Resize(capacity))
		m.capacity = capacity
	case 23:
		m.note("Clear")
		m.Clear()
	case 24:
		n := int(arg % 8)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(arg)*10*time.Millisecond)
		m.note("Warm %d", n)
		m.slow = append(m.slow, start(func() error {
			defer cancel()
			m.Warm(ctx, n)
			return nil
		}))
	case 25, 26:
		if len(m.borrows) > 0 {
			b := m.borrows[int(arg)%len(m.borrows)]
			b.canceled = true
			b.cancel()
		}
	case 27:
		for _, n := range []int64{-1, m.capacity + 1, -1 << 63} {
			require.Equal(m.t, ErrCapacity, m.Shrink(n))
		}
	case 28, 29:
		time.Sleep(time.Duration(arg) * 10 * time.Millisecond)
	case 30:
		time.Sleep(time.Duration(arg) * 100 * time.Millisecond)
	default:
		synctest.Wait()
		m.collect()
	}
}

func (m *poolModel) acquire(arg byte) {
	b := &modelBorrow{weight: 1}
	if arg%4 == 0 {
		b.weight = int64(arg / 4 % 4)
	}
	var budget time.Duration
	if arg&16 != 0 {
		budget = time.Duration(1+arg>>5) * 50 * time.Millisecond
		b.deadline = time.Now().Add(budget)
	}
	if len(m.borrows) > 12 {
		budget = time.Millisecond
		b.deadline = time.Now().Add(budget)
	}
	m.note("Acquire weight %d within %v", b.weight, budget)
	b.borrow = m.borrowWith(context.Background(), budget, AcquireOptions{Weight: b.weight})
	b.weight = max(1, b.weight)
	m.borrows = append(m.borrows, b)
}

// collect takes note of the borrows that have ended. To be called at rest.
func (m *poolModel) collect() {
	m.borrows = slices.DeleteFunc(m.borrows, func(b *modelBorrow) bool {
		select {
		case <-b.done:
		default:
			require.False(m.t, b.canceled, "canceled, but still waits")
			require.False(m.t, !b.deadline.IsZero() && time.Now().After(b.deadline), "past its deadline, but still waits")
			return false
		}
		if b.err == nil {
			m.take(b.lease, b.weight)
			m.granted++
			return true
		}
		m.failed++
		require.Zero(m.t, b.lease)
		var ae *AcquireError
		require.ErrorAs(m.t, b.err, &ae)
		return true
	})
	m.slow = slices.DeleteFunc(m.slow, func(c *call) bool {
		select {
		case <-c.done:
			return true
		default:
			return false
		}
	})
}

// take takes a lease into the model's hands, which nobody else may have.
func (m *poolModel) take(l Lease[*thing], weight int64) {
	r := l.Value()
	require.Nil(m.t, m.inHand[r], "thing %d is lent twice", r.id)
	require.Zero(m.t, r.destroyed.Load(), "thing %d was destroyed", r.id)
	require.False(m.t, r.inUse.Load(), "thing %d is in a hook", r.id)
	ml := &modelLease{l, weight}
	m.inHand[r] = ml
	m.held = append(m.held, ml)
	if max := m.opts.MaxUses; max > 0 {
		require.LessOrEqual(m.t, l.slot.uses, max)
	}
	if len(m.stale) > 50 {
		m.stale = m.stale[25:]
	}
	m.stale = append(m.stale, l)
}

func (m *poolModel) someLease(arg byte) *modelLease {
	if len(m.held) == 0 {
		return nil
	}
	return m.held[int(arg)%len(m.held)]
}

func (m *poolModel) letGo(l *modelLease) {
	delete(m.inHand, l.Value())
	m.held = slices.DeleteFunc(m.held, func(o *modelLease) bool { return o == l })
	m.ends++
}

// end ends a lease by Close or Discard, whose hooks may take time.
func (m *poolModel) end(l *modelLease, how func() error) {
	m.letGo(l)
	m.slow = append(m.slow, start(how))
	synctest.Wait() // so that it is ended, if not over
	require.Equal(m.t, ErrLeaseClosed, l.Err())
}

// misuseStale does what must not matter with a lease that has ended.
func (m *poolModel) misuseStale(arg byte) {
	for _, l := range m.stale {
		if l.Err() == nil {
			continue
		}
		before := m.Stats().DuplicateCloses
		switch arg % 4 {
		case 0:
			require.NoError(m.t, l.Close())
		case 1:
			require.NoError(m.t, l.Discard())
		case 2:
			_, err := l.Detach()
			require.Equal(m.t, l.Err(), err)
		default:
			l.Touch()
			require.Equal(m.t, l.Err(), panicOf(func() { l.Value() }))
			return
		}
		m.duplicates++
		require.Equal(m.t, before+1, m.Stats().DuplicateCloses)
		return
	}
}

// check compares the pool at rest with the books.
func (m *poolModel) check() {
	synctest.Wait()
	m.collect()
	require.NoError(m.t, m.Audit())
	requirePoolSettled(m.t, m.Pool)
	st := m.Stats()
	require.Equal(m.t, m.capacity, st.Capacity)

	weight := int64(0)
	var ids []uint64
	for _, l := range m.held {
		require.NoError(m.t, l.Err())
		require.Same(m.t, m.inHand[l.Value()], l)
		weight += l.weight
		ids = append(ids, l.id)
	}
	slices.Sort(ids)
	var listed []uint64
	for _, l := range m.Leases() {
		listed = append(listed, l.ID)
	}
	require.Equal(m.t, ids, listed, "the lease table")
	require.Equal(m.t, weight, m.weightLent(), "weights of the leases")
	require.Equal(m.t, m.duplicates, st.DuplicateCloses)
	require.Equal(m.t, m.revoked, st.Revoked)
	require.Equal(m.t, st.Acquired, m.ends+uint64(len(m.held)), "leases made and ended")
	require.Equal(m.t, len(m.borrows), st.Waiters, "borrowers that wait")
	for r := range m.inHand {
		require.Zero(m.t, r.destroyed.Load(), "a thing in the borrower's hand was destroyed")
	}
	destroyed := st.DestroyedBroken + st.DestroyedClosed + st.DestroyedExpired + st.DestroyedIdle + st.DestroyedRevoked + st.DestroyedSurplus
	require.EqualValues(m.t, st.Opened, destroyed+uint64(st.Total+st.Destroying)+uint64(len(m.detached)), "things opened, and what became of them")
}

// weightLent is what the lease table says. It leaves out the loans whose
// resource is being reset, which have ended, and hold their permits still.
func (m *poolModel) weightLent() (weight int64) {
	m.Pool.mu.Lock()
	defer m.Pool.mu.Unlock()
	for s := m.out.head; s != nil; s = s.next {
		weight += s.weight
	}
	return weight
}

// requirePoolSettled checks at rest that nothing is left undone that could be
// done (invariant 4).
func requirePoolSettled[T any](t *testing.T, p *Pool[T]) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.now()
	if p.needers.len > 0 {
		if s := p.nextIdle(nil); s != nil {
			require.True(t, p.needsCheck(s, now) && p.expired(s, now) == keep, "a borrower waits though a resource is idle")
			require.True(t, p.hopeful() >= p.needers.len || p.nextNeed() == nil, "a borrower waits though a resource could be checked for it")
		}
		require.True(t, p.hopeful() >= p.needers.len || p.nextNeed() == nil || !p.mayOpen(), "a borrower waits with nothing under way for it")
	}
	for w := p.warmers.head; w != nil; w = w.next {
		require.Less(t, int64(p.total()), w.n, "a Warm waits for what there is")
		require.True(t, int64(p.total()+p.opening) >= w.n || !p.mayOpen(), "a Warm waits with nothing under way for it")
	}
	if capacity := p.permits.capacity.Load(); int64(p.total()+p.opening) > capacity {
		require.Zero(t, p.idle.len, "idle above the capacity")
	}
	if p.opts.MinIdle > 0 && p.upkeep.retry == nil && !p.closed && p.open != nil {
		require.True(t, p.idle.len+max(0, p.opening+p.checking-p.needers.len) >= p.opts.MinIdle || !p.mayOpen(), "fewer than MinIdle idle, and nothing under way")
	}
	if p.needers.len == 0 {
		require.Zero(t, p.onTheWay, "weight on the way, and nobody there")
	}
}

// finish gives everything back and checks the end.
func (m *poolModel) finish() {
	m.note("the end")
	m.hooksMu.Lock()
	m.hooks = nil
	m.hooksMu.Unlock()
	for len(m.borrows) > 0 || len(m.held) > 0 || len(m.slow) > 0 {
		synctest.Wait()
		m.collect()
		for _, b := range m.borrows {
			b.cancel()
			b.canceled = true
		}
		for len(m.held) > 0 {
			l := m.held[0]
			m.end(l, l.Close)
		}
		time.Sleep(time.Second)
	}
	require.NoError(m.t, m.Resize(5))
	m.capacity = 5
	time.Sleep(time.Minute) // also what hangs is over, and any backoff
	m.check()
	require.Zero(m.t, m.Stats().Held)
	m.requireWhole(5)
}

func TestPool_ConservesWhatTheModelConserves(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		r := testRandom(t)
		steps := 0
		for steps < poolModelSteps {
			synctest.Test(t, func(t *testing.T) {
				steps += runPoolModel(t, fair, randomBytes(r, 4000))
			})
			if t.Failed() {
				return
			}
		}
	})
}

// FuzzPoolOperations lets the fuzzer write the program that the model test takes
// from chance.
func FuzzPoolOperations(f *testing.F) {
	for seed := range byte(16) {
		program := []byte{seed % 2, seed * 37, seed * 91}
		for i := range 300 {
			program = append(program, byte(i*i)^seed*17+byte(i))
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 || len(program) > 1<<12 {
			return // longer ones find nothing that shorter ones do not
		}
		synctest.Test(t, func(t *testing.T) {
			runPoolModel(t, program[0]%2 == 1, bytesOf(program[1:]))
		})
	})
}
