package ration_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ration-go/ration"
)

// Somebody borrows and forgets to give back.
func ExampleDetector() {
	if err := findLeak(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 suspect, with 2 of 3 available: lease 1 of leaky, 1 permit
}

func findLeak(ctx context.Context) error {
	found := make(chan ration.Report, 1)
	detector, err := ration.NewDetector(&ration.DetectorOptions{
		Threshold: 100 * time.Millisecond, // from this age on a lease is a suspect
		OnReport: func(r ration.Report) { // of every scan; each suspect is in one only
			if len(r.Suspects) > 0 {
				found <- r
			}
		},
	})
	if err != nil {
		return err
	}
	pool, err := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Detector: detector})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go detector.Run(ctx) // scans until ctx ends

	if _, err := pool.AcquireWith(ctx, ration.AcquireOptions{Owner: "leaky"}); err != nil {
		return err
	}
	report := <-found
	leak, numbers := report.Suspects[0], report.Pools[0]
	fmt.Printf("%d suspect, with %d of %d available: lease %d of %s, %d permit\n",
		numbers.Suspects, numbers.Available, numbers.Capacity, leak.ID, leak.Owner, leak.Weight)
	return nil
}

// The zero value of every option is its default; those out of range are refused.
func ExampleDetectorOptions() {
	_, err := ration.NewDetector(&ration.DetectorOptions{Threshold: time.Millisecond})
	fmt.Println(err)
	// Output: ration: DetectorOptions.Threshold 1ms is less than 100ms
}

// Anything that the detector is told with a logger is told once.
func ExampleDetectorOptions_logger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindTime {
				return slog.Attr{} // so that it is the same every day
			}
			return a
		},
	}))
	detector, _ := ration.NewDetector(&ration.DetectorOptions{Logger: logger, Threshold: time.Hour})
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Name: "seats", Detector: detector})
	pool.Acquire(context.Background())
	for range 20 {
		detector.Scan()
	}
	// Output:
	// level=WARN msg="ration: permits lost: held, but nothing moves" pool=seats capacity=3 held=1 available=2 leases=1 waiters=0
}

// Pools can be watched that were made without a detector, of any kind.
func ExampleWatchable() {
	seats, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Name: "seats"})
	conns, _ := ration.NewPool(2, dialer(), &ration.PoolOptions[*conn]{Name: "conns"})

	detector, _ := ration.NewDetector(nil)
	for _, pool := range []ration.Watchable{seats, conns} {
		defer detector.Watch(pool)()
	}
	for _, pool := range detector.Scan().Pools {
		fmt.Println(pool.Pool, pool.Capacity)
	}
	// Output:
	// seats 3
	// conns 2
}

// A scan is made whenever one is wanted, with or without Run.
func ExampleReport() {
	detector, _ := ration.NewDetector(nil)
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Detector: detector})
	pool.Acquire(context.Background())

	report := detector.Scan()
	fmt.Println(len(report.Suspects), "suspects,", len(report.Recovered), "recovered,", len(report.Proved), "proved")
	// Output: 0 suspects, 0 recovered, 0 proved
}

// The second clue: permits that are held while nothing moves.
func ExamplePoolReport() {
	detector, _ := ration.NewDetector(&ration.DetectorOptions{Threshold: time.Hour})
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Name: "seats", Detector: detector})
	pool.Acquire(context.Background())

	var report ration.PoolReport
	for range 10 {
		report = detector.Scan().Pools[0]
	}
	fmt.Println(report.Pool, report.Available, "of", report.Capacity, "available, lost:", report.Lost)
	// Output: seats 2 of 3 available, lost: true
}

// The call stack of who has borrowed, if it was recorded.
func ExampleLeak() {
	detector, _ := ration.NewDetector(&ration.DetectorOptions{StackEvery: 1})
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Detector: detector})
	pool.AcquireWith(context.Background(), ration.AcquireOptions{
		Owner:   "impatient",
		MaxHold: time.Nanosecond, // its own threshold
	})
	for _, leak := range detector.Scan().Suspects {
		fmt.Println(leak.Owner, "in", leak.Frames()[0].Function, leak.Held > 0)
	}
	// Output: impatient in github.com/ration-go/ration_test.ExampleLeak true
}

// Counters for an alarm: a lease moves each of them once.
func ExampleDetectorStats() {
	detector, _ := ration.NewDetector(nil)
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Detector: detector})
	lease, _ := pool.AcquireWith(context.Background(), ration.AcquireOptions{MaxHold: time.Nanosecond})

	detector.Scan()
	fmt.Println(detector.Stats().SuspectsNow, "of", detector.Stats().SuspectsTotal)
	lease.Close()
	fmt.Println(detector.Stats().SuspectsNow, "of", detector.Stats().SuspectsTotal)
	// Output:
	// 1 of 1
	// 0 of 1
}

// What the threshold should be is read off the hold times.
func ExampleAdvice() {
	detector, _ := ration.NewDetector(nil)
	pool, _ := ration.NewPermitPool(3, &ration.PoolOptions[struct{}]{Detector: detector})
	for range 1_000 {
		lease, _ := pool.Acquire(context.Background())
		lease.Close()
	}
	advice := detector.Advice(pool)
	fmt.Println(advice.Samples, advice.Enough, advice.Threshold >= time.Second)
	// Output: 1000 true true
}
