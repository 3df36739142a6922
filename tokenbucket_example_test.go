package ration_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ration-go/ration"
)

func ExampleTokenBucket() {
	b, err := ration.NewTokenBucket(ration.Per(2, time.Hour), 3) // full at first
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(b.Allow(1))
	}
	fmt.Println(b.RetryAfter(1).Round(time.Minute))
	// Output:
	// true
	// true
	// true
	// false
	// 30m0s
}

func ExampleTokenBucket_Wait() {
	b, err := ration.NewTokenBucket(ration.PerSecond(100), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 4 { // the first at once, the others 10 ms apart
		if err := b.Wait(context.Background(), 1); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(time.Since(start) >= 30*time.Millisecond)

	// A wait that would outlast its context does not begin.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.SetRate(ration.Every(time.Hour)); err != nil {
		fmt.Println(err)
	}
	err = b.Wait(ctx, 1)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ctx.Err())
	// Output:
	// true
	// true <nil>
}

func ExampleReservation() {
	b, err := ration.NewTokenBucket(ration.Every(time.Hour), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	now, later := b.Reserve(1), b.Reserve(1)
	fmt.Println(now.OK(), now.Delay())
	fmt.Println(later.OK(), later.Delay().Round(time.Minute))
	fmt.Println(b.Tokens(), "is promised")

	later.Cancel() // it will not act after all
	fmt.Println(b.Tokens())
	fmt.Println(b.Reserve(2).OK(), "as it is more than the burst")
	// Output:
	// true 0s
	// true 1h0m0s
	// -1 is promised
	// 0
	// false as it is more than the burst
}

func ExamplePer() {
	fmt.Println(ration.Per(7, time.Minute)) // exactly, not 0.11666... a second
	fmt.Println(ration.Per(600, time.Minute) == ration.PerSecond(10))
	fmt.Println(ration.PerSecond(10) == ration.Every(100*time.Millisecond))

	_, err := ration.NewTokenBucket(ration.Per(1, 0), 1)
	fmt.Println(errors.Is(err, ration.ErrRate))
	// Output:
	// 7/1m0s
	// true
	// true
	// true
}

func ExampleAllowAll() {
	everybody, err := ration.NewTokenBucket(ration.Per(100, time.Hour), 100)
	if err != nil {
		fmt.Println(err)
		return
	}
	one, err := ration.NewTokenBucket(ration.Per(2, time.Hour), 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fmt.Println(ration.AllowAll(1, everybody, one))
	}
	fmt.Println(everybody.Tokens(), "left, as the last call was not charged")
	// Output:
	// true
	// true
	// false
	// 98 left, as the last call was not charged
}
