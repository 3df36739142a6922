package otelration

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ration-go/ration"
)

// A family is an asynchronous instrument and its series, one for each value of
// an attribute, or a single one if it has none. All of them are reported at every
// collection: a series that appears with its first event has no increase that a
// query could see.
type family[S any] struct {
	ints      metric.Int64Observable   // one of the two
	floats    metric.Float64Observable //
	attribute attribute.Key            // "" if there is a single series
	series    []series[S]
	hasDBName bool // the database conventions have a name for it
}

type series[S any] struct {
	is     string // the value of the attribute
	ints   func(*S) int64
	floats func(*S) float64
}

// observer returns what reports the stats of the object that the attribute who
// tells. The sets of attributes are made here, once.
func observer[S any](families []family[S], who attribute.KeyValue) func(metric.Observer, *S) {
	type reported struct {
		family[S]
		series[S]
		with metric.ObserveOption
	}
	var all []reported
	for _, f := range families {
		for _, s := range f.series {
			set := attribute.NewSet(who)
			if f.attribute != "" {
				set = attribute.NewSet(who, f.attribute.String(s.is))
			}
			all = append(all, reported{f, s, metric.WithAttributeSet(set)})
		}
	}
	return func(o metric.Observer, s *S) {
		for _, r := range all {
			if r.family.ints != nil {
				o.ObserveInt64(r.family.ints, r.series.ints(s), r.with)
			} else {
				o.ObserveFloat64(r.family.floats, r.series.floats(s), r.with)
			}
		}
	}
}

// A maker makes instruments and keeps what goes wrong.
type maker struct {
	meter   metric.Meter
	buckets []float64
	made    []metric.Observable
	failed  error
}

func (m *maker) keep(o metric.Observable, err error) {
	m.made = append(m.made, o)
	m.failed = errors.Join(m.failed, err)
}

func (m *maker) histogram(name, help string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(m.buckets...))
	m.failed = errors.Join(m.failed, err)
	return h
}

// level is a number that can be added up over objects, so not a gauge in the
// sense of OpenTelemetry.
func level[S any](m *maker, name, unit, help string, value func(*S) int64) family[S] {
	i, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.keep(i, err)
	return family[S]{ints: i, series: []series[S]{{ints: value}}}
}

func gauge[S any](m *maker, name, unit, help string, value func(*S) float64) family[S] {
	i, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.keep(i, err)
	return family[S]{floats: i, series: []series[S]{{floats: value}}}
}

func duration[S any](m *maker, name, help string, value func(*S) float64) family[S] {
	i, err := m.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(help))
	m.keep(i, err)
	return family[S]{floats: i, series: []series[S]{{floats: value}}}
}

func counter[S any](m *maker, name, unit, help string, value func(*S) uint64) family[S] {
	return counters(m, name, unit, help, "", count("", value))
}

func counters[S any](m *maker, name, unit, help string, by attribute.Key, series ...series[S]) family[S] {
	i, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.keep(i, err)
	return family[S]{ints: i, attribute: by, series: series}
}

func count[S any](is string, value func(*S) uint64) series[S] {
	return series[S]{is: is, ints: func(s *S) int64 { return int64(value(s)) }}
}

// db marks a family that the database conventions have a name for.
func db[S any](f family[S]) family[S] {
	f.hasDBName = true
	return f
}

func poolFamilies(m *maker) []family[ration.PoolStats] {
	type stats = ration.PoolStats
	return []family[stats]{
		db(level(m, "ration.pool.capacity", "{permit}", "Permits there are.",
			func(s *stats) int64 { return s.Capacity })),
		level(m, "ration.pool.held", "{permit}", "Permits of leases and of borrowers on their way to one.",
			func(s *stats) int64 { return s.Held }),
		level(m, "ration.pool.available", "{permit}", "Permits that are free; negative is debt after a shrink.",
			func(s *stats) int64 { return s.Available }),
		db(level(m, "ration.pool.idle", "{resource}", "Resources waiting for a borrower.",
			func(s *stats) int64 { return int64(s.Idle) })),
		db(level(m, "ration.pool.leases", "{lease}", "Resources on loan, being checked or reset.",
			func(s *stats) int64 { return int64(s.Leased) })),
		level(m, "ration.pool.opening", "{resource}", "Resources being opened.",
			func(s *stats) int64 { return int64(s.Opening) }),
		level(m, "ration.pool.destroying", "{resource}", "Resources being closed.",
			func(s *stats) int64 { return int64(s.Destroying) }),
		db(level(m, "ration.pool.waiters", "{borrower}", "Borrowers waiting for a permit or a resource.",
			func(s *stats) int64 { return int64(s.Waiters) })),
		level(m, "ration.pool.suspects", "{lease}", "Leases that a detector suspects to be forgotten.",
			func(s *stats) int64 { return int64(s.Suspects) }),
		level(m, "ration.pool.near", "{lease}", "Leases that a detector will suspect soon.",
			func(s *stats) int64 { return int64(s.Near) }),
		gauge(m, "ration.pool.longest_wait", "s", "The longest wait since the pool was made.",
			func(s *stats) float64 { return s.LongestWait.Seconds() }),

		counters(m, "ration.pool.acquires", "{acquire}", "Acquires by outcome.", "outcome",
			count("granted", func(s *stats) uint64 { return s.Outcomes.Granted }),
			count("opened", func(s *stats) uint64 { return s.Outcomes.Opened }),
			count("canceled", func(s *stats) uint64 { return s.Outcomes.Canceled }),
			count("timeout", func(s *stats) uint64 { return s.Outcomes.Timeout }),
			count("queue_full", func(s *stats) uint64 { return s.Outcomes.QueueFull }),
			count("too_large", func(s *stats) uint64 { return s.Outcomes.TooLarge }),
			count("closed", func(s *stats) uint64 { return s.Outcomes.Closed }),
			count("error", func(s *stats) uint64 { return s.Outcomes.Error })),
		counter(m, "ration.pool.waits", "{wait}", "Acquires that had to wait, whatever came of it.",
			func(s *stats) uint64 { return s.Waited }),
		duration(m, "ration.pool.waited", "Time spent in waits that have ended, failed ones included.",
			func(s *stats) float64 { return s.WaitTime.Seconds() }),
		counters(m, "ration.pool.opens", "{open}", "Calls of the open function by outcome.", "outcome",
			count("opened", func(s *stats) uint64 { return s.Opened }),
			count("failed", func(s *stats) uint64 { return s.OpenFailed })),
		counters(m, "ration.pool.destroys", "{resource}", "Resources destroyed, by reason.", "reason",
			count("broken", func(s *stats) uint64 { return s.DestroyedBroken }),
			count("expired", func(s *stats) uint64 { return s.DestroyedExpired }),
			count("idle", func(s *stats) uint64 { return s.DestroyedIdle }),
			count("surplus", func(s *stats) uint64 { return s.DestroyedSurplus }),
			count("closed", func(s *stats) uint64 { return s.DestroyedClosed }),
			count("revoked", func(s *stats) uint64 { return s.DestroyedRevoked })),
		counters(m, "ration.pool.leaks", "{lease}", "Leases that a detector has ever suspected, those of them that came back, and those proved to be forgotten.", "kind",
			count("suspect", func(s *stats) uint64 { return s.Suspected }),
			count("recovered", func(s *stats) uint64 { return s.Recovered }),
			count("proved", func(s *stats) uint64 { return s.Proved })),
		counter(m, "ration.pool.duplicate_closes", "{close}", "Ends of leases that had ended already.",
			func(s *stats) uint64 { return s.DuplicateCloses }),
		counter(m, "ration.pool.revokes", "{lease}", "Leases that were taken back.",
			func(s *stats) uint64 { return s.Revoked }),
	}
}

func semaphoreFamilies(m *maker) []family[ration.SemaphoreStats] {
	type stats = ration.SemaphoreStats
	return []family[stats]{
		level(m, "ration.semaphore.capacity", "{permit}", "Permits there are.",
			func(s *stats) int64 { return s.Capacity }),
		level(m, "ration.semaphore.held", "{permit}", "Permits that are held.",
			func(s *stats) int64 { return s.Held }),
		level(m, "ration.semaphore.available", "{permit}", "Permits that are free; negative is debt after a shrink.",
			func(s *stats) int64 { return s.Available }),
		level(m, "ration.semaphore.waiters", "{acquire}", "Acquires waiting.",
			func(s *stats) int64 { return int64(s.Waiters) }),
		level(m, "ration.semaphore.waiting_permits", "{permit}", "Permits that the waiters wait for.",
			func(s *stats) int64 { return s.WaitingPermits }),
		gauge(m, "ration.semaphore.longest_wait", "s", "The longest wait since the semaphore was made.",
			func(s *stats) float64 { return s.LongestWait.Seconds() }),
		counter(m, "ration.semaphore.waits", "{wait}", "Waits that have ended, well or not.",
			func(s *stats) uint64 { return s.Waited }),
		counter(m, "ration.semaphore.canceled_waits", "{wait}", "Waits that ended by their context or time limit.",
			func(s *stats) uint64 { return s.Canceled }),
		duration(m, "ration.semaphore.waited", "Time spent in waits that have ended, failed ones included.",
			func(s *stats) float64 { return s.WaitTime.Seconds() }),
		counter(m, "ration.semaphore.refusals", "{acquire}", "Acquires that failed as too large, queue full or closed.",
			func(s *stats) uint64 { return s.Refused }),
	}
}

// bucketStats is what there is to say of a token bucket.
type bucketStats struct {
	tokens, burst int64
	rate          float64 // tokens per second
}

func bucketFamilies(m *maker) []family[bucketStats] {
	return []family[bucketStats]{
		level(m, "ration.bucket.tokens", "{token}", "Tokens there are; negative is promised to reservations.",
			func(s *bucketStats) int64 { return s.tokens }),
		level(m, "ration.bucket.burst", "{token}", "Tokens that the bucket can hold.",
			func(s *bucketStats) int64 { return s.burst }),
		gauge(m, "ration.bucket.rate", "{token}/s", "Tokens that flow in each second.",
			func(s *bucketStats) float64 { return s.rate }),
	}
}

func statsOf(b *ration.TokenBucket) bucketStats {
	return bucketStats{b.Tokens(), b.Burst(), perSecond(b.Rate())}
}

// perSecond reads a rate's String, tokens/duration or 0, since its fields are
// its own.
func perSecond(r ration.Rate) float64 {
	n, d, _ := strings.Cut(r.String(), "/")
	tokens, err := strconv.ParseFloat(n, 64)
	per, _ := time.ParseDuration(d)
	if err != nil || tokens == 0 || per == 0 {
		return 0
	}
	return tokens / per.Seconds()
}
