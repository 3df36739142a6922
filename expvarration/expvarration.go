// Package expvarration publishes what pools, semaphores and token buckets of
// package ration do among the variables of package expvar, which a program that
// serves [http.DefaultServeMux] shows at /debug/vars.
//
//	pool, err := ration.NewPool(8, dial, nil)
//	...
//	err = expvarration.Publish("ration.mail", pool)
//	err = expvarration.Publish("ration.uploads", semaphore)
//	err = expvarration.PublishBucket("ration.partner", bucket)
//
// A variable is the JSON of the object's Stats, with the names of its fields and
// with times in nanoseconds. Where expvar ends the program because a name is in
// use, Publish returns an error. Nothing is published by importing this package,
// except that package expvar itself adds /debug/vars to the default mux.
//
// Objects are held weakly. The variable of one that the program has dropped is
// null, and its name can be used again; expvar itself has no way to take a name
// away.
//
// [http.DefaultServeMux]: https://pkg.go.dev/net/http#DefaultServeMux
package expvarration

import (
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"sync"
	"weak"

	"github.com/ration-go/ration"
)

// ErrNameTaken is the cause of the error of a Publish under a name that is in use.
var ErrNameTaken = errors.New("expvarration: name is taken")

// A Pointer is a *[ration.Pool] of anything, a *[ration.Semaphore], a
// *[ration.Detector], or a pointer to anything else with a Stats method whose result
// can be JSON.
type Pointer[O, S any] interface {
	*O
	Stats() S
}

// Publish publishes the Stats of an object under a name. The type parameters are
// inferred. It fails with [ErrNameTaken] if there is such a variable, unless
// Publish made it for an object that is gone by now, and if the name is empty or
// object is nil.
func Publish[O, S any, P Pointer[O, S]](name string, object P) error {
	if object == nil {
		return errors.New("expvarration: nil object")
	}
	held := weak.Make((*O)(object))
	return publish(name, func() any {
		if object := P(held.Value()); object != nil {
			return object.Stats()
		}
		return nil
	})
}

// BucketStats is what [PublishBucket] publishes.
type BucketStats struct {
	Tokens int64  // there are; negative is promised to reservations
	Burst  int64  // tokens the bucket can hold
	Rate   string // that they flow in at, such as 7/1m0s
}

// PublishBucket is [Publish] for a token bucket, which has no Stats.
func PublishBucket(name string, b *ration.TokenBucket) error {
	if b == nil {
		return errors.New("expvarration: nil bucket")
	}
	held := weak.Make(b)
	return publish(name, func() any {
		if b := held.Value(); b != nil {
			return BucketStats{b.Tokens(), b.Burst(), b.Rate().String()}
		}
		return nil
	})
}

var (
	mu        sync.Mutex // of published and of publishing
	published = make(map[string]*variable)
)

// A variable is an expvar.Var. Its lock is not that of publishing, so that a slow
// Stats holds up nobody but those who want to see it.
type variable struct {
	mu    sync.Mutex // nothing else is locked under it, and no stats are taken
	stats func() any // nil when the object is gone, and then for good
}

func (v *variable) get() any {
	v.mu.Lock()
	stats := v.stats
	v.mu.Unlock()
	return stats()
}

// String returns valid JSON whatever comes, as expvar demands.
func (v *variable) String() string {
	text, err := json.Marshal(v.get())
	if err != nil {
		text, _ = json.Marshal(err.Error())
	}
	return string(text)
}

func publish(name string, stats func() any) (err error) {
	if name == "" {
		return errors.New("expvarration: a variable needs a name")
	}
	mu.Lock()
	defer mu.Unlock()
	taken := fmt.Errorf("%w: there is a variable %q already", ErrNameTaken, name)
	if v := published[name]; v != nil {
		if v.get() != nil {
			return taken
		}
		v.mu.Lock()
		v.stats = stats
		v.mu.Unlock()
		return nil
	}
	if expvar.Get(name) != nil {
		return taken
	}
	defer func() {
		if recover() != nil {
			err = taken // by somebody else, since we looked; expvar has logged it
		}
	}()
	v := &variable{stats: stats}
	expvar.Publish(name, v)
	published[name] = v
	return nil
}
