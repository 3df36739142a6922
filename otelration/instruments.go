package otelration

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"weak"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ration-go/ration"
)

// ErrNameTaken is the cause of the error of an Add under a name that another
// object of the same kind has.
var ErrNameTaken = errors.New("otelration: name is taken")

// Options are the options of [New]. The zero value of each is its default.
type Options struct {
	// Buckets are the upper bounds that the histograms' buckets are advised to
	// have, in seconds and ascending. The default is 1 us, 3 us, 10 us and so on to
	// 100 s. A view of the meter provider's overrides them.
	Buckets []float64
}

// defaultBuckets go from what an uncontended loan takes to what makes people
// restart a service, two to each power of ten.
var defaultBuckets = []float64{
	1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, .1, .3, 1, 3, 10, 30, 100,
}

// Instruments report pools, semaphores and token buckets to a meter.
//
// They hold them weakly. Those that the garbage collector has taken are no longer
// reported, and their names are free again.
//
// All methods may be called at any time by any goroutine. No lock is held while an
// object is asked for its Stats.
//
// Instruments must be made by [New] and must not be copied.
type Instruments struct {
	pools      shelf[ration.PoolStats] // those of databases too
	semaphores shelf[ration.SemaphoreStats]
	buckets    shelf[bucketStats]

	poolFamilies      []family[ration.PoolStats]
	dbFamilies        []family[dbStats]
	semaphoreFamilies []family[ration.SemaphoreStats]
	bucketFamilies    []family[bucketStats]

	wait, held              metric.Float64Histogram
	dbCreate, dbWait, dbUse metric.Float64Histogram
	registration            metric.Registration
	unregistered            atomic.Bool
}

// New makes the instruments with a meter and registers their callback. Nil opts
// mean the defaults. It fails if meter is nil or refuses an instrument.
func New(meter metric.Meter, opts *Options) (*Instruments, error) {
	if meter == nil {
		return nil, errors.New("otelration: nil meter")
	}
	buckets := defaultBuckets
	if opts != nil && len(opts.Buckets) > 0 {
		buckets = slices.Clone(opts.Buckets)
	}
	m := maker{meter: meter, buckets: buckets}
	in := &Instruments{
		poolFamilies:      poolFamilies(&m),
		dbFamilies:        dbFamilies(&m),
		semaphoreFamilies: semaphoreFamilies(&m),
		bucketFamilies:    bucketFamilies(&m),
	}
	in.pools.kind, in.semaphores.kind, in.buckets.kind = "pool", "semaphore", "bucket"
	// The unit is in these names since ration.pool.held is the permits.
	in.wait = m.histogram("ration.pool.wait_seconds", "What acquires waited, including those that failed and those that did not wait.")
	in.held = m.histogram("ration.pool.held_seconds", "How long leases were held, as they end.")
	in.dbCreate, in.dbWait, in.dbUse = dbHistograms(&m)
	if m.failed != nil {
		return nil, m.failed
	}
	var err error
	in.registration, err = meter.RegisterCallback(in.observe, m.made...)
	return in, err
}

// Unregister ends all reports, the observers' included, which go on to pass
// events to others. Calling it again does nothing.
func (in *Instruments) Unregister() error {
	if in.unregistered.Swap(true) {
		return nil
	}
	return in.registration.Unregister()
}

// A PoolPointer is a *[ration.Pool] of anything, or a pointer to something of the
// user's that has the same Stats method.
type PoolPointer[P any] interface {
	*P
	Stats() ration.PoolStats
}

// AddPool has a pool reported under a name. The type parameters are inferred. It
// fails with [ErrNameTaken] if another pool is reported under this name, also by
// [AddDBPool], and if the name is empty or pool is nil.
func AddPool[P any, Q PoolPointer[P]](in *Instruments, name string, pool Q) error {
	return addPool(in, name, pool, observer(in.poolFamilies, attribute.String("pool", name)))
}

// AddDBPool is [AddPool] for a pool of database connections, which is reported
// under the names that OpenTelemetry has for these. Its Stats do not tell its
// MinIdle, so idleMin does.
func AddDBPool[P any, Q PoolPointer[P]](in *Instruments, name string, pool Q, idleMin int64) error {
	rest := slices.DeleteFunc(slices.Clone(in.poolFamilies), func(f family[ration.PoolStats]) bool { return f.hasDBName })
	observeRest := observer(rest, attribute.String("pool", name))
	observeDB := observer(in.dbFamilies, poolNameKey.String(name))
	return addPool(in, name, pool, func(o metric.Observer, s *ration.PoolStats) {
		observeRest(o, s)
		observeDB(o, &dbStats{s, idleMin})
	})
}

func addPool[P any, Q PoolPointer[P]](in *Instruments, name string, pool Q, observe func(metric.Observer, *ration.PoolStats)) error {
	if pool == nil {
		return errors.New("otelration: nil pool")
	}
	held := weak.Make((*P)(pool))
	return in.pools.add(name, observe, func() (s ration.PoolStats, ok bool) {
		p := Q(held.Value())
		if p == nil {
			return s, false
		}
		return p.Stats(), true
	})
}

// AddSemaphore has a semaphore reported under a name. It fails like [AddPool].
func (in *Instruments) AddSemaphore(name string, s *ration.Semaphore) error {
	if s == nil {
		return errors.New("otelration: nil semaphore")
	}
	held := weak.Make(s)
	observe := observer(in.semaphoreFamilies, attribute.String("semaphore", name))
	return in.semaphores.add(name, observe, func() (st ration.SemaphoreStats, ok bool) {
		s := held.Value()
		if s == nil {
			return st, false
		}
		return s.Stats(), true
	})
}

// AddBucket has a token bucket reported under a name. It fails like [AddPool].
func (in *Instruments) AddBucket(name string, b *ration.TokenBucket) error {
	if b == nil {
		return errors.New("otelration: nil bucket")
	}
	held := weak.Make(b)
	observe := observer(in.bucketFamilies, attribute.String("bucket", name))
	return in.buckets.add(name, observe, func() (st bucketStats, ok bool) {
		b := held.Value()
		if b == nil {
			return st, false
		}
		return statsOf(b), true
	})
}

// RemovePool ends what [AddPool] or [AddDBPool] began. It reports whether there was
// such a pool. What its histograms have counted stays with the meter.
func (in *Instruments) RemovePool(name string) bool { return in.pools.remove(name) }

// RemoveSemaphore ends what AddSemaphore began. It reports whether there was such
// a semaphore.
func (in *Instruments) RemoveSemaphore(name string) bool { return in.semaphores.remove(name) }

// RemoveBucket ends what AddBucket began. It reports whether there was such a
// bucket.
func (in *Instruments) RemoveBucket(name string) bool { return in.buckets.remove(name) }

// observe is the callback.
func (in *Instruments) observe(_ context.Context, o metric.Observer) error {
	in.pools.observe(o)
	in.semaphores.observe(o)
	in.buckets.observe(o)
	return nil
}
