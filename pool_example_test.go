package ration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ration-go/ration"
)

// A conn stands for anything that is dear to open.
type conn struct{ id int }

func (c *conn) Query(q string) string { return fmt.Sprintf("connection %d: %s", c.id, q) }

func (c *conn) Close() error {
	fmt.Printf("connection %d closed\n", c.id)
	return nil
}

// dialer returns an open function for conns.
func dialer() func(context.Context) (*conn, error) {
	opened := 0
	return func(context.Context) (*conn, error) {
		opened++
		return &conn{id: opened}, nil
	}
}

func ExampleNewPool() {
	ctx := context.Background()
	pool, err := ration.NewPool(2, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	if err != nil {
		panic(err)
	}
	defer pool.Close(ctx)

	lease, err := pool.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	defer lease.Close()
	fmt.Println(lease.Value().Query("select 1"))
	// Output:
	// connection 1: select 1
	// connection 1 closed
}

// An acquire that fails says who has what it waited for.
func ExamplePool_Acquire_deadline() {
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Name: "db"})
	report, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "nightly report"})
	defer report.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := pool.Acquire(ctx)

	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	var failed *ration.AcquireError
	if errors.As(err, &failed) {
		fmt.Println(failed.Op, failed.Stats.Held, "of", failed.Stats.Capacity)
		for _, holder := range failed.Holders {
			fmt.Println("held by", holder.Owner)
		}
	}
	// Output:
	// true
	// wait 1 of 1
	// held by nightly report
}

// A borrower that needs several at once takes them as one lease of that weight:
// one by one, borrowers can end up waiting for each other.
func ExamplePool_AcquireWith_weight() {
	pool, _ := ration.NewPermitPool(3, nil)
	both, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "copy", Weight: 2})
	fmt.Println(both.Info().Owner, both.Info().Weight)
	fmt.Println(pool.Stats().Available)
	both.Close()
	fmt.Println(pool.Stats().Available)
	// Output:
	// copy 2
	// 1
	// 3
}

func ExamplePool_TryAcquire() {
	pool, _ := ration.NewPool(1, dialer(), nil)
	_, ok := pool.TryAcquire()
	fmt.Println(ok, "it opens nothing")

	pool.Warm(context.Background(), 1)
	lease, ok := pool.TryAcquire()
	fmt.Println(ok)
	lease.Close()
	// Output:
	// false it opens nothing
	// true
}

func ExamplePool_Do() {
	pool, _ := ration.NewPool(1, dialer(), nil)
	err := pool.Do(context.Background(), func(_ context.Context, c *conn) error {
		fmt.Println(c.Query("select 1"))
		return nil
	})
	fmt.Println(err, pool.Stats().Idle)
	// Output:
	// connection 1: select 1
	// <nil> 1
}

// An error that says that the resource is bad is marked as Broken, and the
// resource is not lent again.
func ExampleBroken() {
	ctx := context.Background()
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	err := pool.Do(ctx, func(context.Context, *conn) error {
		return ration.Broken(io.ErrUnexpectedEOF)
	})
	fmt.Println(err, errors.Is(err, io.ErrUnexpectedEOF))
	pool.Do(ctx, func(_ context.Context, c *conn) error {
		fmt.Println(c.Query("select 1"))
		return nil
	})
	// Output:
	// connection 1 closed
	// unexpected EOF true
	// connection 2: select 1
}

// Twenty licences would work the same: seats without a resource, but with
// owners, and an administrator who can take one back.
func ExampleNewPermitPool() {
	ctx := context.Background()
	seats, _ := ration.NewPermitPool(2, &ration.PoolOptions[struct{}]{Name: "cad"})
	ann, _ := seats.AcquireWith(ctx, ration.AcquireOptions{Owner: "ann"})
	bob, _ := seats.AcquireWith(ctx, ration.AcquireOptions{Owner: "bob"})
	for _, seat := range seats.Leases() {
		fmt.Println(seat.ID, seat.Owner)
	}

	seats.Revoke(ann.Info().ID)
	fmt.Println("ann:", ann.Err())
	fmt.Println("free:", seats.Stats().Available)
	ann.Close() // late, and without any effect
	fmt.Println("free:", seats.Stats().Available)
	bob.Close()
	// Output:
	// 1 ann
	// 2 bob
	// ann: ration: lease revoked
	// free: 1
	// free: 1
}

func ExampleLease_Close() {
	pool, _ := ration.NewPool(1, dialer(), nil)
	lease, _ := pool.Acquire(context.Background())
	duplicate := lease
	lease.Close()
	fmt.Println(duplicate.Err())
	duplicate.Close() // does nothing
	fmt.Println(pool.Stats().DuplicateCloses)
	// Output:
	// ration: lease closed
	// 1
}

func ExampleLease_Discard() {
	ctx := context.Background()
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	lease, _ := pool.Acquire(ctx)
	lease.Discard() // it is broken
	lease, _ = pool.Acquire(ctx)
	fmt.Println(lease.Value().Query("select 1"))
	lease.Close()
	// Output:
	// connection 1 closed
	// connection 2: select 1
}

func ExampleLease_Detach() {
	ctx := context.Background()
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	lease, _ := pool.Acquire(ctx)
	mine, _ := lease.Detach()
	pool.Close(ctx)
	fmt.Println(mine.Query("listen"))
	mine.Close()
	// Output:
	// connection 1: listen
	// connection 1 closed
}

// Shrinking takes effect at once: what is idle is closed now, and what is lent
// when it comes back.
func ExamplePool_Shrink() {
	ctx := context.Background()
	pool, _ := ration.NewPool(2, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	a, _ := pool.Acquire(ctx)
	b, _ := pool.Acquire(ctx)
	pool.Shrink(1)
	fmt.Println(pool.Stats().Available)
	a.Close()
	fmt.Println(pool.Stats().Available)
	b.Close()
	fmt.Println(pool.Stats().Available)
	// Output:
	// -1
	// connection 1 closed
	// 0
	// 1
}

// A Close that cannot wait any longer names those who have not given back.
func ExamplePool_Close_deadline() {
	pool, _ := ration.NewPool(1, dialer(), &ration.PoolOptions[*conn]{Close: (*conn).Close})
	lease, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "nightly report"})

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	var failed *ration.CloseError
	if errors.As(pool.Close(ctx), &failed) {
		for _, l := range failed.Leases {
			fmt.Println(l.Owner)
		}
	}
	lease.Close()
	// Output:
	// nightly report
	// connection 1 closed
}

func ExampleObserver() {
	pool, _ := ration.NewPermitPool(1, &ration.PoolOptions[struct{}]{
		Observer: ration.Observer{
			Acquired: func(e ration.AcquireEvent) { fmt.Println("acquired:", e.Owner, e.Outcome) },
			Returned: func(e ration.ReturnEvent) { fmt.Println("returned:", e.Owner, e.How) },
		},
	})
	lease, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "me"})
	lease.Close()
	pool.AcquireWith(context.Background(), ration.AcquireOptions{Owner: "you", Weight: 2})
	// Output:
	// acquired: me granted
	// returned: me closed
	// acquired: you too_large
}
