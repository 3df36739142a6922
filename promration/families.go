package promration

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration"
)

// A family is a metric and its series, one for each value of its second label,
// or a single one if it has none. All of them are sent at every scrape: a series
// that appears with its first event has no increase that a query could see.
type family[S any] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	series []series[S]
}

type series[S any] struct {
	label string // "" if the family has no second label
	value func(*S) float64
}

func describe[S any](ch chan<- *prometheus.Desc, families []family[S]) {
	for _, f := range families {
		ch <- f.desc
	}
}

func collect[S any](ch chan<- prometheus.Metric, families []family[S], name string, s *S) {
	for _, f := range families {
		for _, one := range f.series {
			labels := []string{name, one.label}
			if one.label == "" {
				labels = labels[:1]
			}
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, one.value(s), labels...)
		}
	}
}

// A namer makes descriptions.
type namer struct{ constLabels prometheus.Labels }

// desc describes a metric of a kind of object, which is also the name of the
// label that tells such objects apart.
func (n namer) desc(kind, name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ration_"+kind+"_"+name, help, append([]string{kind}, labels...), n.constLabels)
}

func gauge[S any](desc *prometheus.Desc, value func(*S) float64) family[S] {
	return family[S]{desc, prometheus.GaugeValue, []series[S]{{"", value}}}
}

func counter[S any](desc *prometheus.Desc, value func(*S) float64) family[S] {
	return family[S]{desc, prometheus.CounterValue, []series[S]{{"", value}}}
}

func counters[S any](desc *prometheus.Desc, series ...series[S]) family[S] {
	return family[S]{desc, prometheus.CounterValue, series}
}

func poolFamilies(n namer) []family[ration.PoolStats] {
	type stats = ration.PoolStats
	type one = series[stats]
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return n.desc("pool", name, help, labels...)
	}
	return []family[stats]{
		gauge(desc("capacity", "Permits there are."),
			func(s *stats) float64 { return float64(s.Capacity) }),
		gauge(desc("held", "Permits of leases and of borrowers on their way to one."),
			func(s *stats) float64 { return float64(s.Held) }),
		gauge(desc("available", "Permits that are free; negative is debt after a shrink."),
			func(s *stats) float64 { return float64(s.Available) }),
		gauge(desc("idle", "Resources waiting for a borrower."),
			func(s *stats) float64 { return float64(s.Idle) }),
		gauge(desc("leases", "Resources on loan, being checked or reset."),
			func(s *stats) float64 { return float64(s.Leased) }),
		gauge(desc("opening", "Resources being opened."),
			func(s *stats) float64 { return float64(s.Opening) }),
		gauge(desc("destroying", "Resources being closed."),
			func(s *stats) float64 { return float64(s.Destroying) }),
		gauge(desc("waiters", "Borrowers waiting for a permit or a resource."),
			func(s *stats) float64 { return float64(s.Waiters) }),
		gauge(desc("suspects", "Leases that a detector suspects to be forgotten."),
			func(s *stats) float64 { return float64(s.Suspects) }),
		gauge(desc("near", "Leases that a detector will suspect soon."),
			func(s *stats) float64 { return float64(s.Near) }),
		gauge(desc("longest_wait_seconds", "The longest wait since the pool was made."),
			func(s *stats) float64 { return s.LongestWait.Seconds() }),

		counters(desc("acquires_total", "Acquires by outcome.", "outcome"),
			one{"granted", func(s *stats) float64 { return float64(s.Outcomes.Granted) }},
			one{"opened", func(s *stats) float64 { return float64(s.Outcomes.Opened) }},
			one{"canceled", func(s *stats) float64 { return float64(s.Outcomes.Canceled) }},
			one{"timeout", func(s *stats) float64 { return float64(s.Outcomes.Timeout) }},
			one{"queue_full", func(s *stats) float64 { return float64(s.Outcomes.QueueFull) }},
			one{"too_large", func(s *stats) float64 { return float64(s.Outcomes.TooLarge) }},
			one{"closed", func(s *stats) float64 { return float64(s.Outcomes.Closed) }},
			one{"error", func(s *stats) float64 { return float64(s.Outcomes.Error) }}),
		counter(desc("waits_total", "Acquires that had to wait, whatever came of it."),
			func(s *stats) float64 { return float64(s.Waited) }),
		counter(desc("waited_seconds_total", "Time spent in waits that have ended, failed ones included."),
			func(s *stats) float64 { return s.WaitTime.Seconds() }),
		counters(desc("opens_total", "Calls of the open function by outcome.", "outcome"),
			one{"opened", func(s *stats) float64 { return float64(s.Opened) }},
			one{"failed", func(s *stats) float64 { return float64(s.OpenFailed) }}),
		counters(desc("destroys_total", "Resources destroyed, by reason.", "reason"),
			one{"broken", func(s *stats) float64 { return float64(s.DestroyedBroken) }},
			one{"expired", func(s *stats) float64 { return float64(s.DestroyedExpired) }},
			one{"idle", func(s *stats) float64 { return float64(s.DestroyedIdle) }},
			one{"surplus", func(s *stats) float64 { return float64(s.DestroyedSurplus) }},
			one{"closed", func(s *stats) float64 { return float64(s.DestroyedClosed) }},
			one{"revoked", func(s *stats) float64 { return float64(s.DestroyedRevoked) }}),
		counters(desc("leaks_total", "Leases that a detector has ever suspected, those of them that came back, and those proved to be forgotten.", "kind"),
			one{"suspect", func(s *stats) float64 { return float64(s.Suspected) }},
			one{"recovered", func(s *stats) float64 { return float64(s.Recovered) }},
			one{"proved", func(s *stats) float64 { return float64(s.Proved) }}),
		counter(desc("duplicate_closes_total", "Ends of leases that had ended already."),
			func(s *stats) float64 { return float64(s.DuplicateCloses) }),
		counter(desc("revokes_total", "Leases that were taken back."),
			func(s *stats) float64 { return float64(s.Revoked) }),
	}
}

func semaphoreFamilies(n namer) []family[ration.SemaphoreStats] {
	type stats = ration.SemaphoreStats
	desc := func(name, help string) *prometheus.Desc { return n.desc("semaphore", name, help) }
	return []family[stats]{
		gauge(desc("capacity", "Permits there are."),
			func(s *stats) float64 { return float64(s.Capacity) }),
		gauge(desc("held", "Permits that are held."),
			func(s *stats) float64 { return float64(s.Held) }),
		gauge(desc("available", "Permits that are free; negative is debt after a shrink."),
			func(s *stats) float64 { return float64(s.Available) }),
		gauge(desc("waiters", "Acquires waiting."),
			func(s *stats) float64 { return float64(s.Waiters) }),
		gauge(desc("waiting_permits", "Permits that the waiters wait for."),
			func(s *stats) float64 { return float64(s.WaitingPermits) }),
		gauge(desc("longest_wait_seconds", "The longest wait since the semaphore was made."),
			func(s *stats) float64 { return s.LongestWait.Seconds() }),
		counter(desc("waits_total", "Waits that have ended, well or not."),
			func(s *stats) float64 { return float64(s.Waited) }),
		counter(desc("canceled_waits_total", "Waits that ended by their context or time limit."),
			func(s *stats) float64 { return float64(s.Canceled) }),
		counter(desc("waited_seconds_total", "Time spent in waits that have ended, failed ones included."),
			func(s *stats) float64 { return s.WaitTime.Seconds() }),
		counter(desc("refusals_total", "Acquires that failed as too large, queue full or closed."),
			func(s *stats) float64 { return float64(s.Refused) }),
	}
}

// bucketStats is what there is to say of a token bucket.
type bucketStats struct {
	tokens, burst int64
	rate          float64 // tokens per second
}

func bucketFamilies(n namer) []family[bucketStats] {
	desc := func(name, help string) *prometheus.Desc { return n.desc("bucket", name, help) }
	return []family[bucketStats]{
		gauge(desc("tokens", "Tokens there are; negative is promised to reservations."),
			func(s *bucketStats) float64 { return float64(s.tokens) }),
		gauge(desc("burst", "Tokens that the bucket can hold."),
			func(s *bucketStats) float64 { return float64(s.burst) }),
		gauge(desc("rate_per_second", "Tokens that flow in each second."),
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
