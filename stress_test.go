package ration

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stress: real goroutines and real time, everything at once. The end must be
// exact, and nobody may be left behind.

// stressTime is how long each of the four stress tests of the semaphore takes.
// Together they take RATION_STRESS, or a second.
func stressTime(t *testing.T) time.Duration {
	d := time.Second
	if v := os.Getenv("RATION_STRESS"); v != "" {
		var err error
		d, err = time.ParseDuration(v)
		require.NoError(t, err, "RATION_STRESS")
	}
	return d / 4
}

const stressPermits = 8

// A stress is a semaphore and the ledger of all who use it.
type stress struct {
	t     *testing.T
	s     *Semaphore
	until time.Time
	hung  context.Context // ends only if somebody was left asleep

	inUse, most       atomic.Int64
	served, gaveUp    atomic.Int64
	resizes, misuses  atomic.Int64
	refused, timeouts atomic.Int64
}

func newStress(t *testing.T, fair bool) *stress {
	d := stressTime(t)
	hung, cancel := context.WithTimeout(context.Background(), d+20*time.Second)
	t.Cleanup(cancel)
	return &stress{t: t, s: newTestSemaphore(t, stressPermits, fair), until: time.Now().Add(d), hung: hung}
}

func (x *stress) over() bool { return !time.Now().Before(x.until) }

// use has n permits for a moment.
func (x *stress) use(r *rand.Rand, n int64) {
	now := x.inUse.Add(n)
	for {
		most := x.most.Load()
		if now <= most || x.most.CompareAndSwap(most, now) {
			break
		}
	}
	for range r.IntN(3) {
		runtime.Gosched()
	}
	x.inUse.Add(-n) // before the release: afterwards they are somebody else's
	x.served.Add(1)
}

// hold uses n permits and gives them back.
func (x *stress) hold(r *rand.Rand, n int64) {
	x.use(r, n)
	x.s.Release(n)
}

// borrow takes permits in one of all the ways there are, and gives them back.
func (x *stress) borrow(r *rand.Rand) {
	n := 1 + r.Int64N(4)
	if r.IntN(50) == 0 {
		n = stressPermits
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		x.result(r, n, x.s.Acquire(x.hung, n))
	case 3, 4:
		ctx, cancel := context.WithTimeout(x.hung, time.Duration(r.IntN(100))*time.Microsecond)
		x.result(r, n, x.s.Acquire(ctx, n))
		cancel()
	case 5:
		ctx, cancel := context.WithCancel(x.hung)
		go func() {
			for range r.IntN(3) {
				runtime.Gosched()
			}
			cancel()
		}()
		err := x.s.Acquire(ctx, n)
		<-ctx.Done() // r is used by one of us at a time
		x.result(r, n, err)
	case 6:
		if x.s.TryAcquire(n) {
			x.hold(r, n)
		}
	case 7:
		if x.s.TryAcquireFor(n, time.Duration(r.IntN(50))*time.Microsecond) {
			x.hold(r, n)
		} else {
			x.timeouts.Add(1)
		}
	case 8:
		got := x.s.TryAcquireUpTo(n)
		if r.IntN(20) == 0 {
			got += x.s.Drain()
		}
		if got > 0 {
			x.hold(r, got)
		}
	case 9:
		x.do(r, n)
	}
}

func (x *stress) do(r *rand.Rand, n int64) {
	const users = "the user's own"
	defer func() {
		if v := recover(); v != nil && v != users {
			panic(v)
		}
	}()
	_ = x.s.Do(x.hung, n, func(context.Context) error {
		x.use(r, n)
		if r.IntN(2) == 0 {
			panic(users)
		}
		return nil
	})
}

func (x *stress) result(r *rand.Rand, n int64, err error) {
	switch err {
	case nil:
		x.hold(r, n)
	case context.Canceled, context.DeadlineExceeded:
		x.gaveUp.Add(1)
	case ErrTooLarge:
		x.refused.Add(1)
	default:
		x.t.Errorf("unexpected error %v", err)
	}
}

// misuse gives back what nobody can hold.
func (x *stress) misuse(r *rand.Rand) {
	for !x.over() {
		n := []int64{MaxPermits, math.MaxInt64, -1, math.MinInt64, 1000}[r.IntN(5)]
		if !misused(func() { x.s.Release(n) }) {
			x.t.Errorf("a release of %d has worked", n)
		}
		x.misuses.Add(1)
		runtime.Gosched()
	}
}

// resize moves the capacity about, with pauses, and leaves it as it was.
func (x *stress) resize(r *rand.Rand) {
	defer func() {
		if err := x.s.Resize(stressPermits); err != nil {
			x.t.Error(err)
		}
	}()
	for !x.over() {
		var err error
		switch r.IntN(4) {
		case 0:
			err = x.s.Grow(r.Int64N(4))
		case 1:
			err = x.s.Shrink(min(r.Int64N(4), x.s.Capacity())) // there is one who resizes
		case 2:
			err = x.s.Resize(r.Int64N(2 * stressPermits))
		case 3:
			err = x.s.Resize(0)
		}
		if err != nil {
			x.t.Error(err)
		}
		x.resizes.Add(1)
		for range r.IntN(50) {
			runtime.Gosched()
		}
	}
}

func (x *stress) watch() {
	for !x.over() {
		st := x.s.Stats()
		if st.Available+st.Held != st.Capacity || st.Held < 0 || st.Waiters < 0 || st.WaitingPermits < int64(st.Waiters) {
			x.t.Errorf("inconsistent: %+v", st)
			return
		}
		runtime.Gosched()
	}
}

// run lets n goroutines borrow until the time is over, beside others, and
// checks the end.
func (x *stress) run(n int, others ...func(r *rand.Rand)) {
	seeds := testRandom(x.t)
	var all sync.WaitGroup
	work := func(f func(r *rand.Rand)) {
		r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		all.Go(func() { f(r) })
	}
	for range n {
		work(func(r *rand.Rand) {
			for !x.over() {
				x.borrow(r)
			}
		})
	}
	for _, f := range others {
		work(f)
	}
	all.Wait()
	x.t.Logf("served %d, gave up %d, refused %d, timed out %d; %d resizes, %d misuses; %+v",
		x.served.Load(), x.gaveUp.Load(), x.refused.Load(), x.timeouts.Load(), x.resizes.Load(), x.misuses.Load(), x.s.Stats())
	require.NoError(x.t, x.hung.Err(), "somebody was left asleep")
	require.Zero(x.t, x.inUse.Load())
	require.Positive(x.t, x.served.Load())
	requireIdle(x.t, x.s, stressPermits)
}

func TestSemaphore_StressOfAllAtOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		x := newStress(t, fair)
		watch := func(*rand.Rand) { x.watch() }
		x.run(24, x.resize, x.misuse, watch)
		require.Positive(t, x.resizes.Load())
		require.Positive(t, x.misuses.Load())
	})
}

func TestSemaphore_StressNeverExceedsTheCapacity(t *testing.T) {
	// With nobody to resize it, what is in use is never more than there is.
	eachMode(t, func(t *testing.T, fair bool) {
		x := newStress(t, fair)
		x.run(24, x.misuse)
		require.LessOrEqual(t, x.most.Load(), int64(stressPermits))
	})
}
