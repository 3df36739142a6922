package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/ration-go/ration"
)

// A bucket is one under check.
type bucket interface {
	wait(ctx context.Context) error
}

type (
	polled    interface{ allow() bool }
	reserving interface {
		reserve(n int) (cancel func())
	}
	rated   interface{ setRate(perSecond int) }
	clocked interface { // whose reading of the clock can be handed in
		allowAt(now time.Time) bool
	}
	canceling interface{ cancels() } // its wait ends with its context
)

func newBucket(impl string, every time.Duration, burst int) bucket {
	switch impl {
	case "ration":
		b, err := ration.NewTokenBucket(ration.Every(every), int64(burst))
		if err != nil {
			panic(err)
		}
		return rationBucket{b}
	case "x/time/rate":
		return xtimeBucket{rate.NewLimiter(rate.Every(every), burst)}
	case "juju/ratelimit":
		c := &clock{}
		return jujuBucket{ratelimit.NewBucketWithClock(every, int64(burst), c), c}
	case "uber ratelimit":
		return uberBucket{uber.New(1, uber.Per(every), uber.WithSlack(burst))}
	default:
		panic("no bucket " + impl)
	}
}

var bucketKind = kind{
	name: "bucket", title: "Token buckets",
	impls: []string{"ration", "x/time/rate", "juju/ratelimit", "uber ratelimit"},
	rows: []row{
		{"cancel-twice", "a reservation cancelled twice gives back once",
			"Of 10 tokens, all are taken, 5 more reserved, and that cancelled twice; then there is none.", onBuckets(cancelTwice)},
		{"give-up", "a wait that is given up takes nothing",
			"A token comes each 0.3 s; one waits for it and gives up after 0.03 s; the next waiter is served in time for it.", onBuckets(giveUpWait)},
		{"raise", "a raised rate lets go those who wait",
			"One waits for a token that comes in 1 hour; the rate is raised to 1,000 a second.", onBuckets(raise)},
		{"clock-back", "readings of the clock that overtake each other make no tokens",
			"64 goroutines ask for 0.3 s: no more than burst and rate allow; and, where a reading can be handed in, so do readings that alternate between now and 1 s ago.", onBuckets(clockBack)},
		{"bubbles", "it can be used in two synctest bubbles",
			"One waits in a bubble and is served, then another in another bubble.", onBuckets(bucketBubbles)},
	},
}

type bucketMaker func(every time.Duration, burst int) bucket

// onBuckets makes a check of an implementation.
func onBuckets(check func(bucketMaker) outcome) func(impl string) outcome {
	return func(impl string) outcome {
		return check(func(every time.Duration, burst int) bucket { return newBucket(impl, every, burst) })
	}
}

// left is how many tokens there are.
func left(p polled) (n int) {
	for n < 1000 && p.allow() {
		n++
	}
	return n
}

func cancelTwice(makeBucket bucketMaker) outcome {
	b := makeBucket(time.Hour, 10)
	r, ok := b.(reserving)
	if !ok {
		return nothing
	}
	r.reserve(10)
	cancel := r.reserve(5)
	cancel()
	cancel()
	if n := left(b.(polled)); n != 0 {
		return no("gives %d out of nothing", n)
	}
	return yes
}

func giveUpWait(makeBucket bucketMaker) outcome {
	b := makeBucket(later, 1)
	if _, ok := b.(canceling); !ok {
		return nothing
	}
	b.wait(context.Background())
	b.wait(timeout(soon))
	began := time.Now()
	if err := b.wait(timeout(never)); err != nil || time.Since(began) > later*3/2 {
		return no("the token is lost")
	}
	return yes
}

func raise(makeBucket bucketMaker) outcome {
	b := makeBucket(time.Hour, 1)
	r, ok := b.(rated)
	if !ok {
		return nothing
	}
	b.wait(context.Background())
	time.AfterFunc(soon, func() { r.setRate(1000) })
	if !within(never, func() { b.wait(context.Background()) }) {
		return no("they sleep on")
	}
	return yes
}

func clockBack(makeBucket bucketMaker) outcome {
	p, ok := makeBucket(10*time.Millisecond, 10).(polled)
	if !ok {
		return nothing
	}
	if c, ok := makeBucket(10*time.Millisecond, 10).(clocked); ok {
		now := time.Now()
		granted := 0
		for range 1000 {
			for _, at := range []time.Time{now, now.Add(-time.Second)} {
				if c.allowAt(at) {
					granted++
				}
			}
		}
		if granted > 110 { // the burst, and what would come in the second between
			return no("grants %d of 110", granted)
		}
	}
	began := time.Now()
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for time.Since(began) < later {
				if p.allow() {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if most := 10 + int64(time.Since(began)/(10*time.Millisecond)); granted.Load() > most {
		return no("grants %d of %d", granted.Load(), most)
	}
	return yes
}

func bucketBubbles(makeBucket bucketMaker) outcome {
	return inTwoBubbles(func(t *testing.T) {
		b := makeBucket(time.Second, 1)
		began := time.Now()
		for range 3 {
			if err := b.wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(began); d < 2*time.Second-time.Millisecond {
			t.Error("too fast", d)
		}
	})
}

type rationBucket struct{ b *ration.TokenBucket }

func (r rationBucket) wait(ctx context.Context) error { return r.b.Wait(ctx, 1) }
func (r rationBucket) allow() bool                    { return r.b.Allow(1) }
func (r rationBucket) setRate(perSecond int)          { r.b.SetRate(ration.PerSecond(int64(perSecond))) }
func (rationBucket) cancels()                         {}

func (r rationBucket) reserve(n int) (cancel func()) {
	reservation := r.b.Reserve(int64(n))
	return func() { reservation.Cancel() }
}

type xtimeBucket struct{ l *rate.Limiter }

func (x xtimeBucket) wait(ctx context.Context) error { return x.l.Wait(ctx) }
func (x xtimeBucket) allow() bool                    { return x.l.Allow() }
func (x xtimeBucket) allowAt(now time.Time) bool     { return x.l.AllowN(now, 1) }
func (x xtimeBucket) setRate(perSecond int)          { x.l.SetLimit(rate.Limit(perSecond)) }
func (x xtimeBucket) reserve(n int) (cancel func())  { return x.l.ReserveN(time.Now(), n).Cancel }
func (xtimeBucket) cancels()                         {}

// A clock is one that a test sets, or the real one.
type clock struct{ at time.Time }

func (c *clock) Now() time.Time {
	if c.at.IsZero() {
		return time.Now()
	}
	return c.at
}

func (c *clock) Sleep(d time.Duration) { time.Sleep(d) }

type jujuBucket struct {
	b *ratelimit.Bucket
	c *clock
}

func (j jujuBucket) wait(context.Context) error {
	j.b.Wait(1)
	return nil
}

func (j jujuBucket) allow() bool { return j.b.TakeAvailable(1) == 1 }

func (j jujuBucket) allowAt(now time.Time) bool {
	j.c.at = now
	return j.allow()
}

type uberBucket struct{ l uber.Limiter }

func (u uberBucket) wait(context.Context) error {
	u.l.Take()
	return nil
}
