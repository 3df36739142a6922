package ration

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stress on pools: real goroutines and real time, cancels, discards, revokes,
// resizes and Clear all at once. Nothing may be in two hands at any time, the
// books must balance during and after, and nobody may be left behind.

const (
	poolStressCapacity = 6
	poolStressRounds   = 25_000 // at least, for each of the four tests
)

type poolStress struct {
	*testPool
	t      *testing.T
	until  time.Time
	hung   context.Context // ends only if somebody was left asleep
	rounds atomic.Int64

	served, gaveUp, failedOpens, revokes, resizes, clears, audits atomic.Int64
}

func newPoolStress(t *testing.T, opts *thingOptions) *poolStress {
	d := stressTime(t)
	hung, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	t.Cleanup(cancel)
	x := &poolStress{t: t, until: time.Now().Add(d), hung: hung}
	opts.Close = func(r *thing) error {
		yield(3)
		return nil
	}
	opts.Reset = func(r *thing) error {
		letGo := r.use()
		yield(2)
		letGo()
		return chance(50, errTest)
	}
	opts.Check = func(_ context.Context, r *thing) error {
		letGo := r.use()
		yield(2)
		letGo()
		return chance(50, errTest)
	}
	opts.CheckAfter = 20 * time.Microsecond
	opts.Detector = newStressDetector(t)
	x.testPool = newTestPool(t, poolStressCapacity, func(context.Context) error {
		yield(3)
		return chance(20, errTest)
	}, opts)
	x.limit.Store(0) // after a shrink there may be more; Audit sees to it
	return x
}

// newStressDetector returns a detector that is at work all the time.
func newStressDetector(t *testing.T) *Detector {
	d, err := NewDetector(&DetectorOptions{Threshold: leastThreshold, Interval: leastInterval, StackEvery: 50, ProveEvery: 50, Reclaim: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			d.Scan()
			d.Stats()
			runtime.Gosched()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		require.Zero(t, d.Stats().ProvedTotal, "no lease is dropped here")
		require.Zero(t, d.Stats().SuspectsNow)
	})
	return d
}

func yield(most int) {
	for range rand.IntN(most + 1) {
		runtime.Gosched()
	}
}

// chance returns err once in n times.
func chance(n int, err error) error {
	if rand.IntN(n) > 0 {
		return nil
	}
	return err
}

func (x *poolStress) over() bool {
	return !time.Now().Before(x.until) && x.rounds.Load() >= poolStressRounds || x.hung.Err() != nil
}

// round borrows in one of all the ways there are, and gives back in one of them.
func (x *poolStress) round(r *rand.Rand, stale *Lease[*thing]) {
	defer x.rounds.Add(1)
	ctx, cancel := x.hung, context.CancelFunc(func() {})
	switch r.IntN(6) {
	case 0:
		ctx, cancel = context.WithTimeout(x.hung, time.Duration(r.IntN(50))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(x.hung)
		go func() {
			runtime.Gosched()
			cancel()
		}()
	}
	defer cancel()

	if r.IntN(8) == 0 {
		err := x.Do(ctx, func(_ context.Context, t *thing) error {
			x.hold(t)
			return chance(10, Broken(errTest))
		})
		x.result(err)
		return
	}
	l, ok := Lease[*thing]{}, false
	if r.IntN(4) == 0 {
		if l, ok = x.TryAcquire(); !ok {
			return
		}
	} else {
		var err error
		l, err = x.AcquireWith(ctx, AcquireOptions{Owner: "stress", Weight: r.Int64N(3)})
		x.result(err)
		if err != nil {
			return
		}
	}
	x.hold(l.slot.value) // past Value, which panics if the lease has just been revoked
	stale.Close()
	stale.Touch()
	*stale = l
	switch r.IntN(12) {
	case 0:
		l.Discard()
	case 1:
		if t, err := l.Detach(); err == nil {
			x.takesAway(t)
		}
	case 2:
		x.revoke(l.id)
	case 3:
		go l.Close() // races with the Close of the stale copy
	default:
		l.Close()
	}
}

// hold uses what was lent. A lease that an administrator revokes meanwhile
// leaves its resource in the holder's hand, and it is destroyed under it; it
// must not be lent to another.
func (x *poolStress) hold(t *thing) {
	letGo := t.use()
	yield(2)
	letGo()
}

func (x *poolStress) revoke(id uint64) {
	if x.Revoke(id) {
		x.revokes.Add(1)
	}
}

func (x *poolStress) result(err error) {
	var ae *AcquireError
	switch {
	case err == nil:
		x.served.Add(1)
	case x.hung.Err() != nil:
	case errors.Is(err, ErrLeaseRevoked), errors.As(err, new(*brokenError)):
	case !errors.As(err, &ae):
		x.t.Errorf("%T: %v", err, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		x.gaveUp.Add(1)
	case errors.Is(err, errTest):
		x.failedOpens.Add(1)
	case errors.Is(err, ErrTooLarge):
	default:
		x.t.Error(err)
	}
}

// disturb resizes, clears, warms and revokes.
func (x *poolStress) disturb(r *rand.Rand) {
	switch r.IntN(20) {
	case 0, 1, 2:
		if x.Resize(r.Int64N(2*poolStressCapacity)) == nil {
			x.resizes.Add(1)
		}
	case 3:
		x.Clear()
		x.clears.Add(1)
	case 4:
		ctx, cancel := context.WithTimeout(x.hung, 50*time.Microsecond)
		x.Warm(ctx, r.IntN(poolStressCapacity))
		cancel()
	case 5:
		if ls := x.Leases(); len(ls) > 0 {
			x.revoke(ls[r.IntN(len(ls))].ID)
		}
	default:
		for range 20 {
			runtime.Gosched()
		}
	}
}

// watch audits all the time.
func (x *poolStress) watch(r *rand.Rand) {
	if err := x.Audit(); err != nil {
		x.t.Error(err)
	}
	st := x.Stats()
	if st.Available+st.Held != st.Capacity || st.Idle+st.Leased != st.Total || st.Waiters < 0 {
		x.t.Errorf("inconsistent: %+v", st)
	}
	x.audits.Add(1)
	for range 10 {
		runtime.Gosched()
	}
}

func (x *poolStress) run(workers int) {
	seeds := testRandom(x.t)
	var all sync.WaitGroup
	repeat := func(f func(r *rand.Rand)) {
		r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		all.Go(func() {
			for !x.over() && !x.t.Failed() {
				f(r)
			}
		})
	}
	for range workers {
		var stale Lease[*thing]
		repeat(func(r *rand.Rand) { x.round(r, &stale) })
	}
	repeat(x.disturb)
	repeat(x.watch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	// While the pool is paused by a Resize(0) everybody waits, and the one who
	// ends that may have stopped.
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		default:
			if x.over() {
				require.NoError(x.t, x.Resize(poolStressCapacity))
			}
			runtime.Gosched()
		}
	}
	require.NoError(x.t, x.hung.Err(), "somebody was left asleep")
	require.NoError(x.t, x.Resize(poolStressCapacity))
	for x.Stats().Held > 0 { // some close their leases on goroutines of their own
		runtime.Gosched()
	}
	require.NoError(x.t, x.Audit())
	x.t.Logf("%d rounds: served %d, gave up %d, failed opens %d, revoked %d; %d resizes, %d clears, %d audits; %+v",
		x.rounds.Load(), x.served.Load(), x.gaveUp.Load(), x.failedOpens.Load(), x.revokes.Load(),
		x.resizes.Load(), x.clears.Load(), x.audits.Load(), x.Stats())
	for _, n := range []*atomic.Int64{&x.served, &x.gaveUp, &x.failedOpens, &x.revokes, &x.resizes, &x.clears, &x.audits} {
		require.Positive(x.t, n.Load())
	}

	// All of it can be had at once.
	var ls []Lease[*thing]
	for len(ls) < poolStressCapacity {
		l, err := x.Acquire(x.hung)
		if err == nil {
			ls = append(ls, l)
		} else {
			require.ErrorIs(x.t, err, errTest)
		}
	}
	for _, l := range ls {
		l.Close()
	}
}

func TestPool_StressOfAllAtOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		for name, opts := range map[string]thingOptions{
			"plain":   {},
			"minidle": {MinIdle: 2, MaxUses: 7, MaxLifetime: 200 * time.Microsecond, MaxIdleTime: 100 * time.Microsecond, IdleFIFO: true},
		} {
			t.Run(name, func(t *testing.T) {
				opts.Fair = fair
				newPoolStress(t, &opts).run(16)
			})
		}
	})
}
