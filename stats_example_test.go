package ration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/ration-go/ration"
)

func ExampleSemaphoreOptions() {
	s := ration.NewSemaphore(1, &ration.SemaphoreOptions{Fair: true, MaxWaiters: 1})
	fmt.Println(s.TryAcquire(1), s.Fair())
	go s.Acquire(context.Background(), 1) // the one that may wait
	for s.Waiters() == 0 {
		runtime.Gosched()
	}
	fmt.Println(s.Acquire(context.Background(), 1))
	s.Release(1)
	// Output:
	// true true
	// ration: too many waiters
}

func ExampleSemaphoreStats() {
	s := ration.NewSemaphore(3, nil)
	s.TryAcquire(3)
	s.Shrink(1)
	st := s.Stats()
	fmt.Println(st.Held, "held of", st.Capacity, "and", st.Available, "available")
	// Output: 3 held of 2 and -1 available
}

func ExamplePoolOptions() {
	_, err := ration.NewPool(4, dialer(), &ration.PoolOptions[*conn]{MinIdle: 5})
	fmt.Println(err)
	// Output: ration: PoolOptions.MinIdle 5 exceeds the capacity 4
}

func ExamplePoolStats() {
	pool, _ := ration.NewPool(4, dialer(), nil)
	lease, _ := pool.Acquire(context.Background())
	st := pool.Stats()
	fmt.Println(st.Leased, "leased,", st.Idle, "idle,", st.Opened, "opened")
	lease.Close()
	st = pool.Stats()
	fmt.Println(st.Leased, "leased,", st.Idle, "idle,", st.Opened, "opened")
	// Output:
	// 1 leased, 0 idle, 1 opened
	// 0 leased, 1 idle, 1 opened
}

func ExampleAcquireOptions() {
	pool, _ := ration.NewPermitPool(10, nil)
	lease, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{
		Owner:   "nightly report",
		Weight:  3,
		MaxHold: time.Hour, // this one takes long
	})
	defer lease.Close()
	fmt.Println(lease.Info().Owner, "has", pool.Stats().Held)
	// Output: nightly report has 3
}

func ExampleAcquireOutcomes() {
	pool, _ := ration.NewPool(1, dialer(), nil)
	pool.Do(context.Background(), func(context.Context, *conn) error { return nil })
	pool.Do(context.Background(), func(context.Context, *conn) error { return nil })
	pool.AcquireWith(context.Background(), ration.AcquireOptions{Weight: 2})
	fmt.Printf("%+v\n", pool.Stats().Outcomes)
	// Output: {Granted:1 Opened:1 Canceled:0 Timeout:0 QueueFull:0 TooLarge:1 Closed:0 Error:0}
}

func ExampleAcquireError() {
	pool, _ := ration.NewPool(1, func(context.Context) (*conn, error) { return nil, errors.New("no route to host") },
		&ration.PoolOptions[*conn]{Name: "db"})
	_, err := pool.Acquire(context.Background())
	var failed *ration.AcquireError
	if errors.As(err, &failed) {
		fmt.Printf("%s: %s: %v\n", failed.Pool, failed.Op, failed.Err)
	}
	// Output: db: open: no route to host
}

// A Close that could not wait for everything says what is still out.
func ExampleCloseError() {
	pool, _ := ration.NewPermitPool(1, nil)
	pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "nightly report"})
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	var failed *ration.CloseError
	if errors.As(pool.Close(ctx), &failed) {
		fmt.Println(failed.Err, "with", len(failed.Leases), "lease out, of", failed.Leases[0].Owner)
	}
	// Output: context deadline exceeded with 1 lease out, of nightly report
}

// A line of the lease table is a value for slog.
func ExampleLeaseInfo() {
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Name: "seats"})
	pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "ann"})
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindTime || a.Value.Kind() == slog.KindDuration {
				return slog.Attr{} // so that it is the same every day
			}
			return a
		},
	}))
	for _, lease := range pool.Leases() {
		logger.Info("out", "lease", lease)
	}
	// Output: level=INFO msg=out lease.pool=seats lease.id=1 lease.owner=ann lease.weight=1
}

func ExampleLeaseInfo_String() {
	leaky := ration.LeaseInfo{Pool: "seats", Owner: "ann", ID: 4, Weight: 1, Age: 350 * time.Millisecond}
	fmt.Println(leaky)
	fmt.Println(ration.Leak{LeaseInfo: leaky})
	// Output:
	// lease 4 of "ann", held 350ms
	// lease 4 of "ann", held 350ms
}

// observed runs a loan of a pool with an observer.
func observed(o ration.Observer) {
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Name: "db", Observer: o})
	lease, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "ann"})
	lease.Discard()
	pool.Close(context.Background())
}

func ExampleAcquireEvent() {
	observed(ration.Observer{Acquired: func(e ration.AcquireEvent) { fmt.Println(e.Pool, e.Owner, e.Outcome) }})
	// Output: db ann opened
}

func ExampleReturnEvent() {
	observed(ration.Observer{Returned: func(e ration.ReturnEvent) { fmt.Println(e.Pool, e.Owner, e.How, e.Held > 0) }})
	// Output: db ann discarded true
}

func ExampleOpenEvent() {
	observed(ration.Observer{Opened: func(e ration.OpenEvent) { fmt.Println(e.Pool, e.Err) }})
	// Output: db <nil>
}

func ExampleDestroyEvent() {
	observed(ration.Observer{Destroyed: func(e ration.DestroyEvent) { fmt.Println(e.Pool, e.Reason) }})
	// Output: db broken
}

// Rates are exact: nothing is rounded to a whole number a second.
func ExampleRate() {
	bucket, _ := ration.NewTokenBucket(ration.Per(7, time.Minute), 7)
	fmt.Println(bucket.Allow(7), bucket.RetryAfter(7) > 59*time.Second)
	_, err := ration.NewTokenBucket(ration.PerSecond(-1), 1)
	fmt.Println(err)
	// Output:
	// true true
	// ration: invalid rate or burst: rate invalid
}
