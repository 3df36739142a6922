package ration

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stress on token buckets: real goroutines and real time. Nothing may be made
// out of nothing, nothing may get lost, and nobody may be left behind. Each of
// the tests takes as long as one of the semaphore's.

const bucketStressGoroutines = 64

// A bucketStress is some buckets and the ledger of what was taken.
type bucketStress struct {
	t       *testing.T
	buckets []*TokenBucket
	taken   []atomic.Int64
	began   time.Time
	until   time.Time
	hung    context.Context // ends only if somebody was left asleep

	waited, gaveUp, tooLate, joint, promised, canceled, changes atomic.Int64
}

func newBucketStress(t *testing.T, n int, r Rate, burst int64) *bucketStress {
	d := stressTime(t)
	hung, cancel := context.WithTimeout(context.Background(), d+20*time.Second)
	t.Cleanup(cancel)
	x := &bucketStress{t: t, began: time.Now(), until: time.Now().Add(d), hung: hung, taken: make([]atomic.Int64, n)}
	for range n {
		b, err := NewTokenBucket(r, burst)
		require.NoError(t, err)
		x.buckets = append(x.buckets, b)
	}
	return x
}

func (x *bucketStress) over() bool { return !time.Now().Before(x.until) }

// run lets n goroutines work until the time is over, beside others, who see to
// that themselves.
func (x *bucketStress) run(n int, work func(r *rand.Rand), others ...func(r *rand.Rand)) {
	seeds := testRandom(x.t)
	var all sync.WaitGroup
	start := func(f func(r *rand.Rand)) {
		r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		all.Go(func() { f(r) })
	}
	for range n {
		start(func(r *rand.Rand) {
			for !x.over() {
				work(r)
			}
		})
	}
	for _, f := range others {
		start(f)
	}
	all.Wait()
	x.t.Logf("waited %d, %d jointly, gave up %d, too late %d; promises %d, canceled %d; %d changes",
		x.waited.Load(), x.joint.Load(), x.gaveUp.Load(), x.tooLate.Load(), x.promised.Load(), x.canceled.Load(), x.changes.Load())
	require.NoError(x.t, x.hung.Err(), "somebody was left asleep")
	for _, b := range x.buckets {
		require.Nil(x.t, b.queue.head, "somebody waits")
		checkBucketInvariants(x.t, b)
	}
}

// impatient returns a context that ends soon, or not at all.
func (x *bucketStress) impatient(r *rand.Rand) (context.Context, context.CancelFunc) {
	switch r.IntN(4) {
	case 0:
		return context.WithTimeout(x.hung, time.Duration(r.IntN(2000))*time.Microsecond)
	case 1:
		ctx, cancel := context.WithCancel(x.hung)
		stop := time.AfterFunc(time.Duration(r.IntN(200))*time.Microsecond, cancel)
		return ctx, func() { stop.Stop(); cancel() }
	case 2:
		ctx, cancel := context.WithCancel(x.hung)
		go func() {
			runtime.Gosched()
			cancel()
		}()
		return ctx, cancel
	}
	return x.hung, func() {}
}

// result counts n tokens of each of the buckets if the call has got them, and
// says whether it has.
func (x *bucketStress) result(err error, n int64, buckets ...int) bool {
	switch {
	case err == nil:
		for _, i := range buckets {
			x.taken[i].Add(n)
		}
		if len(buckets) > 1 {
			x.joint.Add(1)
		}
		x.waited.Add(1)
		return true
	case err == context.Canceled || err == context.DeadlineExceeded:
		x.gaveUp.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		x.tooLate.Add(1)
	default:
		x.t.Errorf("unexpected error %v", err)
	}
	return false
}

func (x *bucketStress) wait(r *rand.Rand, i int, n int64) {
	ctx, cancel := x.impatient(r)
	defer cancel()
	if x.result(x.buckets[i].Wait(ctx, n), n, i) && r.IntN(8) == 0 {
		x.giveBack(i, n)
	}
}

// giveBack counts first: the tokens may be taken again before Return is back.
func (x *bucketStress) giveBack(i int, n int64) {
	x.taken[i].Add(-n)
	x.buckets[i].Return(n)
}

// waitAll waits at two buckets in either order, or at all in any.
func (x *bucketStress) waitAll(r *rand.Rand, n int64) {
	ctx, cancel := x.impatient(r)
	defer cancel()
	which := r.Perm(len(x.buckets))[:min(len(x.buckets), 2+r.IntN(2))]
	var buckets []*TokenBucket
	for _, i := range which {
		buckets = append(buckets, x.buckets[i])
	}
	if r.IntN(8) == 0 {
		if AllowAll(n, buckets...) {
			x.result(nil, n, which...)
		}
		return
	}
	x.result(WaitAll(ctx, n, buckets...), n, which...)
}

func (x *bucketStress) reserve(r *rand.Rand, i int, n int64) {
	p := x.buckets[i].Reserve(n)
	if !p.OK() {
		x.t.Errorf("%d tokens cannot be promised", n)
		return
	}
	x.promised.Add(1)
	if r.IntN(4) > 0 {
		for range r.IntN(3) {
			runtime.Gosched()
		}
		p.Cancel()
		p.Cancel()
		x.canceled.Add(1)
		return
	}
	x.taken[i].Add(n)
}

// use takes tokens in one of all the ways there are.
func (x *bucketStress) use(r *rand.Rand) {
	i, n := r.IntN(len(x.buckets)), 1+r.Int64N(5)
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		x.wait(r, i, n)
	case 4, 5, 6:
		x.waitAll(r, n)
	case 7:
		x.reserve(r, i, n)
	case 8:
		if x.buckets[i].Allow(n) {
			x.taken[i].Add(n)
		}
	case 9:
		x.buckets[i].RetryAfter(n)
		x.buckets[i].Tokens()
	}
}

// requireWithin checks that no bucket has given more than its burst and what has
// come in since, at the given rate a second, and what it has promised.
func (x *bucketStress) requireWithin(burst int64, perSecond float64) {
	for i, b := range x.buckets {
		due := max(0, -b.Tokens()) // taken ahead of its time
		most := burst + due + int64(perSecond*time.Since(x.began).Seconds()) + 1
		require.LessOrEqual(x.t, x.taken[i].Load(), most, "bucket %d", i)
		require.Positive(x.t, x.taken[i].Load(), "bucket %d", i)
	}
}

func TestTokenBucket_StressOfAllowAlone(t *testing.T) {
	// Nobody waits or looks, so that it goes without the mutex.
	const rate, burst = 100_000, 100
	x := newBucketStress(t, 1, PerSecond(rate), burst)
	x.run(bucketStressGoroutines, func(r *rand.Rand) {
		if n := 1 + r.Int64N(3); x.buckets[0].Allow(n) {
			x.taken[0].Add(n)
		}
	})
	x.requireWithin(burst, rate)
}

func TestTokenBucket_StressNeverExceedsTheRate(t *testing.T) {
	const rate, burst = 20_000, 50
	x := newBucketStress(t, 3, PerSecond(rate), burst)
	x.run(bucketStressGoroutines, x.use)
	x.requireWithin(burst, rate)
	require.Positive(t, x.waited.Load())
	require.Positive(t, x.joint.Load())
	require.Positive(t, x.gaveUp.Load())
	require.Positive(t, x.canceled.Load())
}

func TestTokenBucket_StressOfChangingRates(t *testing.T) {
	const rate, burst = 40_000, 50 // the highest
	x := newBucketStress(t, 3, PerSecond(rate), burst)
	use := func(r *rand.Rand) {
		i, n := r.IntN(len(x.buckets)), 1+r.Int64N(5)
		switch r.IntN(4) {
		case 0, 1:
			x.wait(r, i, n)
		case 2:
			x.waitAll(r, n)
		case 3:
			if x.buckets[i].Allow(n) {
				x.taken[i].Add(n)
			}
		}
	}
	x.run(bucketStressGoroutines, use, func(r *rand.Rand) { x.change(r, rate, burst) })
	x.requireWithin(burst, rate)
	require.Positive(t, x.changes.Load())
}

// change changes the rates and the bursts, up to those given, and does not leave
// anybody at a rate of 0.
func (x *bucketStress) change(r *rand.Rand, perSecond, burst int64) {
	rates := []Rate{PerSecond(perSecond), PerSecond(9973), Per(7, time.Millisecond), Every(time.Millisecond), {}}
	for !x.over() {
		b := x.buckets[r.IntN(len(x.buckets))]
		err := b.SetRate(rates[r.IntN(len(rates))])
		if err == nil {
			err = b.SetBurst(5 + r.Int64N(burst-4)) // no less than anybody asks for
		}
		if err != nil {
			x.t.Error(err)
		}
		x.changes.Add(1)
		for range r.IntN(200) {
			runtime.Gosched()
		}
	}
	for _, b := range x.buckets {
		if err := b.SetRate(PerSecond(perSecond)); err != nil {
			x.t.Error(err)
		}
	}
}

func TestTokenBucket_StressKeepsTheOrder(t *testing.T) {
	// They line up one by one, some give up, and the others come out as they came.
	x := newBucketStress(t, 1, Every(20*time.Microsecond), 1)
	b := x.buckets[0]
	seeds := testRandom(t)
	for !x.over() {
		require.NoError(t, b.SetRate(Rate{}))
		b.Allow(b.Tokens())
		var mu sync.Mutex
		var out []int
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(x.hung)
		var want []int
		for i := range bucketStressGoroutines {
			c := x.hung
			if seeds.IntN(3) == 0 {
				c = ctx
			} else {
				want = append(want, i)
			}
			all.Go(func() {
				if err := b.Wait(c, 1); err == nil {
					mu.Lock()
					out = append(out, i)
					mu.Unlock()
				}
			})
			yieldUntil(func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.queue.len == i+1
			})
		}
		cancel()
		yieldUntil(func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.queue.len == len(want)
		})
		// One at a time: each is out before the next token comes.
		for i := range want {
			b.Return(1)
			yieldUntil(func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(out) == i+1
			})
		}
		all.Wait()
		require.True(t, slices.Equal(want, out), "%v, want %v", out, want)
	}
}
