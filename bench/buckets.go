package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/ration-go/ration"
)

// A Bucket is a token bucket under measurement.
type Bucket interface {
	Allow() bool
	Wait(ctx context.Context) error // whose ctx not all of them know
}

// A BucketImpl is an implementation of a token bucket.
type BucketImpl struct {
	Name  string
	Polls bool                              // has Allow
	New   func(perSecond, burst int) Bucket // full at first
}

// Buckets are ours and its rivals.
func Buckets() []BucketImpl {
	return []BucketImpl{
		{"ration", true, newRationBucket},
		{"xtime", true, func(perSecond, burst int) Bucket {
			return xtimeBucket{rate.NewLimiter(rate.Limit(perSecond), burst)}
		}},
		{"juju", true, func(perSecond, burst int) Bucket {
			return jujuBucket{ratelimit.NewBucketWithRate(float64(perSecond), int64(burst))}
		}},
		{"uber", false, func(perSecond, burst int) Bucket {
			return uberBucket{uber.New(perSecond, uber.WithSlack(burst))}
		}},
	}
}

const (
	plenty      = 999_999_937 // a second: more than anybody can take, and not a round number
	plentyBurst = 1_000_000
	hardly      = 1 // a second: nothing comes while it is measured

	queued         = 1000 // goroutines that wait at once
	queuePerSecond = 200_000
	queueBurst     = queuePerSecond / 500 // what comes in 2 ms, which timers are late by
)

func bucketCases() (cases []Case) {
	for _, workers := range []int{1, 64} {
		cases = append(cases, pollCases("allow", workers, plenty, plentyBurst, true)...)
	}
	for _, workers := range []int{1, 64} {
		cases = append(cases, pollCases("denied", workers, hardly, 1, false)...)
	}
	for _, impl := range Buckets() {
		cases = append(cases, waitCase("take", impl, 1, plenty, plentyBurst)) // what is there
	}
	for _, impl := range Buckets() {
		cases = append(cases, waitCase("queue", impl, queued, queuePerSecond, queueBurst))
	}
	return cases
}

// pollCases ask for tokens that are there, or are not.
func pollCases(op string, workers, perSecond, burst int, there bool) (cases []Case) {
	for _, impl := range Buckets() {
		if impl.Polls {
			cases = append(cases, Case{Kind: "TokenBucket", Op: op, Impl: impl.Name, Workers: workers, Start: func() Run {
				return pollRun(impl.New(perSecond, burst), workers, there)
			}})
		}
	}
	return cases
}

func pollRun(b Bucket, workers int, there bool) Run {
	began := time.Now()
	if !there {
		b.Allow()
	}
	var wrong atomic.Int64
	return Run{
		func(n int) time.Duration {
			return share(n, workers, func(n int) {
				mine := 0
				for range n {
					if b.Allow() != there {
						mine++
					}
				}
				wrong.Add(int64(mine))
			})
		},
		func() error {
			most := int64(0)
			if !there {
				most = int64(1 + 2*hardly*time.Since(began).Seconds()) // tokens do come
			}
			if n := wrong.Load(); n > most {
				return fmt.Errorf("%d answers were not what was to be measured", n)
			}
			return nil
		},
	}
}

// waitCase waits for tokens, alone for those that are there, or in a queue that
// is kept filled, at a rate that all can keep: that of the queue, 5,000 ns/op,
// is the least that can come out.
func waitCase(op string, impl BucketImpl, workers, perSecond, burst int) Case {
	return Case{Kind: "TokenBucket", Op: op, Impl: impl.Name, Workers: workers, Start: func() Run {
		b := impl.New(perSecond, burst)
		if workers > 1 { // what is there at first is not what the queue waits for
			for range burst {
				b.Wait(context.Background())
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var failed atomic.Int64
		return Run{
			func(n int) time.Duration {
				return share(n, workers, func(n int) {
					for range n {
						if b.Wait(ctx) != nil {
							failed.Add(1)
						}
					}
				})
			},
			func() error {
				cancel()
				return none(&failed)
			},
		}
	}}
}

type rationBucket struct{ *ration.TokenBucket }

func newRationBucket(perSecond, burst int) Bucket {
	b, err := ration.NewTokenBucket(ration.PerSecond(int64(perSecond)), int64(burst))
	if err != nil {
		panic(err)
	}
	return rationBucket{b}
}

func (b rationBucket) Allow() bool                    { return b.TokenBucket.Allow(1) }
func (b rationBucket) Wait(ctx context.Context) error { return b.TokenBucket.Wait(ctx, 1) }

type xtimeBucket struct{ *rate.Limiter }

func (b xtimeBucket) Allow() bool                    { return b.Limiter.Allow() }
func (b xtimeBucket) Wait(ctx context.Context) error { return b.Limiter.Wait(ctx) }

type jujuBucket struct{ *ratelimit.Bucket }

func (b jujuBucket) Allow() bool { return b.TakeAvailable(1) == 1 }

func (b jujuBucket) Wait(context.Context) error {
	b.Bucket.Wait(1)
	return nil
}

// An uberBucket cannot be asked, only waited for.
type uberBucket struct{ uber.Limiter }

func (uberBucket) Allow() bool { panic("there is no such thing") }

func (b uberBucket) Wait(context.Context) error {
	b.Take()
	return nil
}
