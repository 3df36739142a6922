package ration_test

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ration-go/ration"
)

func ExampleTokenBucket() {
	// Two letters an hour, and up to three at once.
	b, err := ration.NewTokenBucket(ration.Per(2, time.Hour), 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 5 {
		if b.Allow(1) {
			fmt.Println("letter", i+1, "goes out")
		} else {
			fmt.Println("letter", i+1, "can be sent in", b.RetryAfter(1).Round(time.Minute))
		}
	}
	// Output:
	// letter 1 goes out
	// letter 2 goes out
	// letter 3 goes out
	// letter 4 can be sent in 30m0s
	// letter 5 can be sent in 30m0s
}

func ExampleTokenBucket_Wait() {
	b, err := ration.NewTokenBucket(ration.PerSecond(100), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	start := time.Now()
	for range 6 {
		if err := b.Wait(ctx, 1); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("six in no less than 50 ms:", time.Since(start) >= 50*time.Millisecond)

	fmt.Println(b.Wait(ctx, 2)) // more than there ever are

	hourly, err := ration.NewTokenBucket(ration.Every(time.Hour), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hourly.Wait(ctx, 1))
	fmt.Println(hourly.Wait(ctx, 1)) // fails at once, since it could not end in time
	// Output:
	// six in no less than 50 ms: true
	// ration: request exceeds the capacity
	// <nil>
	// ration: the wait would outlast the context: context deadline exceeded
}

func ExampleReservation() {
	b, err := ration.NewTokenBucket(ration.Every(time.Minute), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	now, later := b.Reserve(1), b.Reserve(1)
	fmt.Println("now:", now.Delay())
	fmt.Println("later:", later.Delay().Round(time.Minute))
	fmt.Println("tokens:", b.Tokens())

	later.Cancel() // whoever comes next gets the token
	fmt.Println("tokens:", b.Tokens())
	fmt.Println("the next:", b.Reserve(1).Delay().Round(time.Minute))

	never := b.Reserve(2)
	fmt.Println("more than the burst:", never.OK(), never.Delay() == math.MaxInt64)
	// Output:
	// now: 0s
	// later: 1m0s
	// tokens: -1
	// tokens: 0
	// the next: 1m0s
	// more than the burst: false true
}

func ExampleAllowAll() {
	perSecond, err1 := ration.NewTokenBucket(ration.PerSecond(10), 10)
	perDay, err2 := ration.NewTokenBucket(ration.Per(15, 24*time.Hour), 15)
	if err1 != nil || err2 != nil {
		fmt.Println(err1, err2)
		return
	}
	fmt.Println(ration.AllowAll(8, perSecond, perDay))
	fmt.Println(ration.AllowAll(8, perSecond, perDay)) // neither has them
	fmt.Println(perDay.Tokens())                       // and nothing was taken
	// Output:
	// true
	// false
	// 7
}

func ExamplePer() {
	fmt.Println(ration.Per(7, time.Minute))
	fmt.Println(ration.PerSecond(50))
	fmt.Println(ration.Per(100, 2*time.Second) == ration.PerSecond(50))
	fmt.Println(ration.Every(250*time.Millisecond) == ration.PerSecond(4))

	_, err := ration.NewTokenBucket(ration.Per(1, 0), 1)
	fmt.Println(err)
	// Output:
	// 7/1m0s
	// 1/20ms
	// true
	// true
	// ration: invalid rate or burst: rate invalid
}
