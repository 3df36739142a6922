package ration_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/ration-go/ration"
)

// Code blocks of README.md stand in this file and beside it;
// TestDocs_ReadmeCodeRuns compares them.

func Example() {
	here, there := net.Pipe()
	dial := func(context.Context) (net.Conn, error) { return here, nil }
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		io.Copy(os.Stdout, there)
	}()

	if err := greet(context.Background(), dial); err != nil {
		fmt.Println(err)
	}
	<-heard
	// Output: hello
}

func greet(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	pool, err := ration.NewPool(4, dial, &ration.PoolOptions[net.Conn]{Close: net.Conn.Close})
	if err != nil {
		return err
	}
	defer pool.Close(context.WithoutCancel(ctx)) // waits for what is out, closes the connections

	lease, err := pool.Acquire(ctx) // one of at most four; waits while all are out
	if err != nil {
		return err
	}
	defer lease.Close() // gives it back, unless it has been discarded

	if _, err := fmt.Fprintln(lease.Value(), "hello"); err != nil {
		lease.Discard() // broken: the pool dials another when it needs one
		return err
	}
	return nil
}

func ExampleSemaphore_Shrink() {
	if err := shrink(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// -1
	// false
}

func shrink(ctx context.Context) error {
	s := ration.NewSemaphore(3, nil)
	if err := s.Acquire(ctx, 2); err != nil { // two of three, or ctx.Err() and none
		return err
	}
	defer s.Release(2)

	if err := s.Shrink(2); err != nil { // at once, although only one is free
		return err
	}
	fmt.Println(s.Available())   // -1: one more is in use than there are
	fmt.Println(s.TryAcquire(1)) // false, until the debt is repaid
	return nil
}
