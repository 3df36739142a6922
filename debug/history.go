package debug

import "time"

// A sample is a point of the charts: the state of one instant.
type sample struct {
	at      time.Time
	level   int64 // held, or tokens
	limit   int64 // capacity, or burst
	waiters int64

	// Counters, whose differences make rates and means of the last minutes.
	acquired, waited uint64
	waitTime         time.Duration
}

func (r reading) sample(at time.Time) sample {
	switch {
	case r.semaphore != nil:
		s := r.semaphore
		return sample{at: at, level: s.Held, limit: s.Capacity, waiters: int64(s.Waiters),
			waited: s.Waited, waitTime: s.WaitTime}
	case r.bucket != nil:
		return sample{at: at, level: r.bucket.tokens, limit: r.bucket.burst}
	default:
		s := r.pool
		return sample{at: at, level: s.Held, limit: s.Capacity, waiters: int64(s.Waiters),
			acquired: s.Acquired, waited: s.Waited, waitTime: s.WaitTime}
	}
}

// A history is the samples of the last minutes, oldest first, and at least one
// that is older, if there has been one: the chart begins with it. There are at
// most span/interval + 2.
type history []sample

// add adds a sample if the last is at least an interval old.
func (h history) add(s sample, span, interval time.Duration) history {
	old := 0
	for old+1 < len(h) && s.at.Sub(h[old+1].at) >= span {
		old++
	}
	h = h[old:] // append moves it to a new array now and then
	if len(h) == 0 || s.at.Sub(h[len(h)-1].at) >= interval {
		h = append(h, s)
	}
	return h
}

// pace is what counters have done over the samples.
type pace struct {
	over     time.Duration
	acquired uint64
	waited   uint64
	waitTime time.Duration
}

func (h history) pace(now sample) pace {
	if len(h) == 0 {
		return pace{}
	}
	first := h[0]
	return pace{
		over:     now.at.Sub(first.at),
		acquired: now.acquired - first.acquired,
		waited:   now.waited - first.waited,
		waitTime: now.waitTime - first.waitTime,
	}
}
