package debug

import (
	"weak"

	"github.com/ration-go/ration"
)

// A Source is something that a page can show: a [Pool], a [Semaphore] or a
// [Bucket]. It holds it weakly.
type Source struct {
	lender    func() Lender // returns nil once it is gone
	waits     weak.Pointer[Waits]
	semaphore weak.Pointer[ration.Semaphore]
	bucket    weak.Pointer[ration.TokenBucket]
}

// A Lender is what a page needs of a pool. A [*ration.Pool] of anything is one.
type Lender interface {
	Stats() ration.PoolStats
	Leases() []ration.LeaseInfo
	Revoke(id uint64) bool
}

// Pool makes a source of a pool, usually a [*ration.Pool]. With waits, which the
// pool must have as its observer and which is also held weakly, there are
// percentiles of the waits; it may be nil. T and P are inferred.
func Pool[T any, P interface {
	*T
	Lender
}](pool P, waits *Waits) Source {
	if pool == nil {
		panic("debug: Pool: nil pool")
	}
	w := weak.Make((*T)(pool))
	return Source{
		lender: func() Lender {
			if p := w.Value(); p != nil {
				return P(p)
			}
			return nil
		},
		waits: weak.Make(waits),
	}
}

// Semaphore makes a source of a semaphore.
func Semaphore(s *ration.Semaphore) Source {
	if s == nil {
		panic("debug: Semaphore: nil semaphore")
	}
	return Source{semaphore: weak.Make(s)}
}

// Bucket makes a source of a token bucket.
func Bucket(b *ration.TokenBucket) Source {
	if b == nil {
		panic("debug: Bucket: nil bucket")
	}
	return Source{bucket: weak.Make(b)}
}

// A reading is what a source tells at one instant. Exactly one of lender,
// semaphore and bucket is set, unless the source is gone.
type reading struct {
	lender Lender
	pool   ration.PoolStats

	semaphore *ration.SemaphoreStats
	bucket    *bucketStats
}

type bucketStats struct {
	rate          ration.Rate
	burst, tokens int64
}

// read returns false if what the source stood for is gone.
func (s Source) read() (r reading, ok bool) {
	if s.lender != nil {
		if r.lender = s.lender(); r.lender == nil {
			return r, false
		}
		r.pool = r.lender.Stats()
		return r, true
	}
	if sem := s.semaphore.Value(); sem != nil {
		stats := sem.Stats()
		r.semaphore = &stats
		return r, true
	}
	if b := s.bucket.Value(); b != nil {
		r.bucket = &bucketStats{rate: b.Rate(), burst: b.Burst(), tokens: b.Tokens()}
		return r, true
	}
	return r, false
}

func (s Source) isThere() bool {
	if s.lender != nil {
		return s.lender() != nil
	}
	return s.semaphore.Value() != nil || s.bucket.Value() != nil
}
