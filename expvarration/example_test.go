package expvarration_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"log"
	"runtime"

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
