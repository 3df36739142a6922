package expvarration_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"log"
	"runtime"
	"time"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/expvarration"
)

func ExamplePublish() {
	uploads := ration.NewSemaphore(8, nil)
	if err := expvarration.Publish("ration.uploads", uploads); err != nil {
		log.Fatal(err)
	}
	uploads.TryAcquire(3)

	var seen ration.SemaphoreStats // what /debug/vars shows
	if err := json.Unmarshal([]byte(expvar.Get("ration.uploads").String()), &seen); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Held, "of", seen.Capacity)

	fmt.Println(expvarration.Publish("ration.uploads", uploads))
	runtime.KeepAlive(uploads) // the variable does not keep it
	// Output:
	// 3 of 8
	// expvarration: name is taken: there is a variable "ration.uploads" already
}

func ExampleBucketStats() {
	partner, err := ration.NewTokenBucket(ration.Per(7, time.Minute), 10)
	if err != nil {
		log.Fatal(err)
	}
	if err := expvarration.PublishBucket("ration.partner", partner); err != nil {
		log.Fatal(err)
	}
	var seen expvarration.BucketStats
	if err := json.Unmarshal([]byte(expvar.Get("ration.partner").String()), &seen); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Tokens, "of", seen.Burst, "at", seen.Rate)
	runtime.KeepAlive(partner)
	// Output: 10 of 10 at 7/1m0s
}

// A queue is a Pointer, as is everything with Stats.
type queue struct{ waiting int }

type queueStats struct{ Waiting int }

func (q *queue) Stats() queueStats { return queueStats{q.waiting} }

func ExamplePointer() {
	jobs := &queue{waiting: 12}
	if err := expvarration.Publish("jobs", jobs); err != nil {
		log.Fatal(err)
	}
	fmt.Println(expvar.Get("jobs"))
	runtime.KeepAlive(jobs)
	// Output: {"Waiting":12}
}
