package promration

import (
	"slices"
	"sync"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ration-go/ration"
)

// defaultBuckets go from what an uncontended loan takes to what makes people
// restart a service, two to each power of ten: a quantile read from them is right
// to within a factor of three, and a pool costs 40 series.
var defaultBuckets = []float64{
	1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, .1, .3, 1, 3, 10, 30, 100,
}

// timings are the histograms of the pools that were made with an Observer of
// the collector's.
type timings struct {
	wait, held *prometheus.Desc
	buckets    []float64

	mu     sync.Mutex // no other lock is taken under it
	byPool map[string]weak.Pointer[timing]
}

// A timing is kept alive by the observers that feed it, hence by their pools.
type timing struct{ wait, held prometheus.Histogram }

func (t *timings) init(n namer, buckets []float64) {
	t.wait = n.desc("pool", "wait_seconds", "What acquires waited, including those that failed and those that did not wait.")
	t.held = n.desc("pool", "held_seconds", "How long leases were held, as they end.")
	t.buckets = slices.Clone(buckets)
	if len(buckets) == 0 {
		t.buckets = defaultBuckets
	}
	t.newTiming() // panics if they are invalid, here rather than in Observer
	t.byPool = make(map[string]weak.Pointer[timing])
}

func (t *timings) newTiming() *timing {
	histogram := func(name string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Buckets: t.buckets})
	}
	return &timing{histogram("wait_seconds"), histogram("held_seconds")}
}

// Observer returns an observer that feeds the histograms ration_pool_wait_seconds
// and ration_pool_held_seconds, for the options of the pool that is then added
// under the same name. The events go on to the observers in also, in order; one
// that panics ends the event there, as it does in a pool.
//
// Observers of one name feed the same histograms, which exist as long as one of
// the observers does and are shown as long as the collector shows the pool.
//
// Observing costs two readings of a sorted list of buckets and a few atomic
// additions per loan, and allocates nothing but what the pool does to make an
// event.
func (c *Collector) Observer(pool string, also ...ration.Observer) ration.Observer {
	t := c.timings.of(pool)
	return join(append([]ration.Observer{{
		Acquired: func(e ration.AcquireEvent) { t.wait.Observe(e.Waited.Seconds()) },
		Returned: func(e ration.ReturnEvent) { t.held.Observe(e.Held.Seconds()) },
	}}, also...))
}

// join makes one observer of several. A function that none of them has costs the
// pool nothing, so it is not there.
func join(all []ration.Observer) (o ration.Observer) {
	o.Acquired = each(all, func(o ration.Observer) func(ration.AcquireEvent) { return o.Acquired })
	o.Returned = each(all, func(o ration.Observer) func(ration.ReturnEvent) { return o.Returned })
	o.Opened = each(all, func(o ration.Observer) func(ration.OpenEvent) { return o.Opened })
	o.Destroyed = each(all, func(o ration.Observer) func(ration.DestroyEvent) { return o.Destroyed })
	return o
}

func each[E any](all []ration.Observer, of func(ration.Observer) func(E)) func(E) {
	var told []func(E)
	for _, o := range all {
		if fn := of(o); fn != nil {
			told = append(told, fn)
		}
	}
	switch len(told) {
	case 0:
		return nil
	case 1:
		return told[0]
	}
	return func(e E) {
		for _, fn := range told {
			fn(e)
		}
	}
}

// of returns the timing of a pool, a new one if there is none.
func (t *timings) of(pool string) *timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	if its := t.byPool[pool].Value(); its != nil {
		return its
	}
	for name, held := range t.byPool { // so that names that are gone do not pile up
		if held.Value() == nil {
			delete(t.byPool, name)
		}
	}
	its := t.newTiming()
	t.byPool[pool] = weak.Make(its)
	return its
}

func (t *timings) describe(ch chan<- *prometheus.Desc) {
	ch <- t.wait
	ch <- t.held
}

func (t *timings) collect(ch chan<- prometheus.Metric, pool string) {
	t.mu.Lock()
	its := t.byPool[pool].Value()
	t.mu.Unlock()
	if its == nil {
		return
	}
	ch <- relabeled{its.wait, t.wait, pool}
	ch <- relabeled{its.held, t.held, pool}
}

// relabeled is a histogram as the collector describes it. A histogram of a
// prometheus.HistogramVec would have the labels of itself, but the vector would
// keep it after its pool.
type relabeled struct {
	prometheus.Histogram
	desc *prometheus.Desc
	pool string
}

func (r relabeled) Desc() *prometheus.Desc { return r.desc }

func (r relabeled) Write(m *dto.Metric) error {
	if err := r.Histogram.Write(m); err != nil {
		return err
	}
	m.Label = prometheus.MakeLabelPairs(r.desc, []string{r.pool})
	return nil
}
