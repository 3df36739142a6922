package promration

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration"
)

// ErrNameTaken is the cause of the error of an Add under a name that another
// object of the same kind has.
var ErrNameTaken = errors.New("promration: name is taken")

// Options are the options of [New]. The zero value of each is its default.
type Options struct {
	// ConstLabels are added to every metric.
	ConstLabels prometheus.Labels

	// Buckets are the upper bounds of the histograms' buckets, in seconds and
	// ascending. The default is 1 us, 3 us, 10 us and so on to 100 s.
	Buckets []float64
}

// A Collector is a [prometheus.Collector] of pools, semaphores and token buckets.
//
// It holds them weakly. Those that the garbage collector has taken are no longer
// shown, and their names are free again.
//
// All methods may be called at any time by any goroutine. No lock of the
// collector is held while an object is asked for its Stats.
//
// A Collector must be made by [New] and must not be copied.
type Collector struct {
	pools      shelf[ration.PoolStats]
	semaphores shelf[ration.SemaphoreStats]
	buckets    shelf[bucketStats]

	poolFamilies      []family[ration.PoolStats]
	semaphoreFamilies []family[ration.SemaphoreStats]
	bucketFamilies    []family[bucketStats]
	timings           timings
}

// New returns a collector of nothing yet. Nil opts mean the defaults. It panics if
// a const label has an invalid name or one that the metrics use themselves, or if
// buckets are not ascending, as prometheus does.
func New(opts *Options) *Collector {
	if opts == nil {
		opts = &Options{}
	}
	names := namer{opts.ConstLabels}
	c := &Collector{
		poolFamilies:      poolFamilies(names),
		semaphoreFamilies: semaphoreFamilies(names),
		bucketFamilies:    bucketFamilies(names),
	}
	c.pools.kind, c.semaphores.kind, c.buckets.kind = "pool", "semaphore", "bucket"
	c.timings.init(names, opts.Buckets)
	return c
}

// A PoolPointer is a *[ration.Pool] of anything, or a pointer to something of the
// user's that has the same Stats method.
type PoolPointer[P any] interface {
	*P
	Stats() ration.PoolStats
}

// AddPool has c show a pool under a name. The type parameters are inferred. It
// fails with [ErrNameTaken] if c shows another pool under this name, and if the
// name is empty or not UTF-8, or pool is nil.
func AddPool[P any, Q PoolPointer[P]](c *Collector, name string, pool Q) error {
	if pool == nil {
		return errors.New("promration: nil pool")
	}
	held := weak.Make((*P)(pool))
	return c.pools.add(name, func() (s ration.PoolStats, ok bool) {
		p := Q(held.Value())
		if p == nil {
			return s, false
		}
		return p.Stats(), true
	})
}

// AddSemaphore has c show a semaphore under a name. It fails like [AddPool].
func (c *Collector) AddSemaphore(name string, s *ration.Semaphore) error {
	if s == nil {
		return errors.New("promration: nil semaphore")
	}
	held := weak.Make(s)
	return c.semaphores.add(name, func() (st ration.SemaphoreStats, ok bool) {
		s := held.Value()
		if s == nil {
			return st, false
		}
		return s.Stats(), true
	})
}

// AddBucket has c show a token bucket under a name. It fails like [AddPool].
func (c *Collector) AddBucket(name string, b *ration.TokenBucket) error {
	if b == nil {
		return errors.New("promration: nil bucket")
	}
	held := weak.Make(b)
	return c.buckets.add(name, func() (st bucketStats, ok bool) {
		b := held.Value()
		if b == nil {
			return st, false
		}
		return statsOf(b), true
	})
}

// RemovePool ends what [AddPool] began. It reports whether there was such a pool.
func (c *Collector) RemovePool(name string) bool { return c.pools.remove(name) }

// RemoveSemaphore ends what AddSemaphore began. It reports whether there was such
// a semaphore.
func (c *Collector) RemoveSemaphore(name string) bool { return c.semaphores.remove(name) }

// RemoveBucket ends what AddBucket began. It reports whether there was such a
// bucket.
func (c *Collector) RemoveBucket(name string) bool { return c.buckets.remove(name) }

// Describe sends the descriptions of all metrics there can be.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, c.poolFamilies)
	describe(ch, c.semaphoreFamilies)
	describe(ch, c.bucketFamilies)
	c.timings.describe(ch)
}

// Collect sends the metrics of all objects there are, from one Stats of each.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.pools.each(func(name string, s ration.PoolStats) {
		collect(ch, c.poolFamilies, name, &s)
		c.timings.collect(ch, name)
	})
	c.semaphores.each(func(name string, s ration.SemaphoreStats) { collect(ch, c.semaphoreFamilies, name, &s) })
	c.buckets.each(func(name string, s bucketStats) { collect(ch, c.bucketFamilies, name, &s) })
}

// A shelf holds objects of a kind by their names.
type shelf[S any] struct {
	kind string

	mu     sync.Mutex // nothing is locked, and no object asked, under it
	places map[string]*place[S]
}

// A place is that of one object. Its address tells it from another that has got
// the name since.
type place[S any] struct {
	stats func() (S, bool) // false when the object is gone, and then for good
}

func (h *shelf[S]) add(name string, stats func() (S, bool)) error {
	switch {
	case name == "":
		return fmt.Errorf("promration: a %s needs a name", h.kind)
	case !utf8.ValidString(name):
		return fmt.Errorf("promration: the name %q of a %s is not UTF-8", name, h.kind)
	}
	for {
		h.mu.Lock()
		before := h.places[name]
		if before == nil {
			if h.places == nil {
				h.places = make(map[string]*place[S])
			}
			h.places[name] = &place[S]{stats}
			h.mu.Unlock()
			return nil
		}
		h.mu.Unlock()
		if _, alive := before.stats(); alive {
			return fmt.Errorf("%w: there is a %s %q already", ErrNameTaken, h.kind, name)
		}
		h.clear(name, before)
	}
}

func (h *shelf[S]) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.places[name]
	delete(h.places, name)
	return ok
}

// clear takes away what is gone, unless somebody else has its name by now.
func (h *shelf[S]) clear(name string, gone *place[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.places[name] == gone {
		delete(h.places, name)
	}
}

// each calls fn with the stats of every object, and clears away those that are
// gone.
func (h *shelf[S]) each(fn func(name string, s S)) {
	type named struct {
		name string
		at   *place[S]
	}
	h.mu.Lock()
	all := make([]named, 0, len(h.places))
	for name, at := range h.places {
		all = append(all, named{name, at})
	}
	h.mu.Unlock()
	for _, o := range all {
		if s, alive := o.at.stats(); alive {
			fn(o.name, s)
		} else {
			h.clear(o.name, o.at)
		}
	}
}
