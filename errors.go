package ration

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The causes an operation of this package can fail with. They are reachable
// with [errors.Is] through every wrapper this package puts around them.
var (
	// ErrClosed says that the semaphore or pool has been closed.
	ErrClosed = errors.New("ration: closed")

	// ErrTooLarge says that the request is larger than the whole capacity, so
	// that no amount of waiting could serve it.
	ErrTooLarge = errors.New("ration: request exceeds the capacity")

	// ErrQueueFull says that MaxWaiters callers were waiting already.
	ErrQueueFull = errors.New("ration: too many waiters")

	// ErrCapacity says that a resize would leave the range of valid
	// capacities, 0 to [MaxPermits], or was asked for by a negative amount.
	// Nothing was changed.
	ErrCapacity = errors.New("ration: capacity out of range")

	// ErrRate says that a [Rate] or burst makes no sense: it is negative, or
	// tokens would come in no time.
	ErrRate = errors.New("ration: invalid rate or burst")

	// ErrDuplicate says that a pool's open function returned a resource that is
	// in the pool already. It is lent to nobody a second time.
	ErrDuplicate = errors.New("ration: resource is in the pool already")

	// ErrLeaseClosed says that a lease has ended: it was closed, discarded or
	// detached.
	ErrLeaseClosed = errors.New("ration: lease closed")

	// ErrLeaseRevoked says that a lease was taken back by [Pool.Revoke].
	ErrLeaseRevoked = errors.New("ration: lease revoked")
)

// An AcquireError is how an acquire of a [Pool] fails. It says what the pool
// looked like then and who held it up. Err, the cause, is one of this package's
// sentinels, the context's error, what the pool's open function returned, or, with
// a Rate, the error of [TokenBucket.Wait]; [errors.Is] and [errors.As] see through
// to it.
type AcquireError struct {
	Pool    string        // its name
	Op      string        // what failed: "wait" for a permit, refusals at once included, "open", "check" or "rate"
	Err     error         // why
	Waited  time.Duration // since the acquire began
	Stats   PoolStats     // of the pool, when it failed
	Holders []LeaseInfo   // the oldest open leases, a few of them
}

// Error says what failed, why, after how long, and who holds what.
func (e *AcquireError) Error() string {
	var b strings.Builder
	cause := strings.TrimPrefix(fmt.Sprint(e.Err), "ration: ") // which has been said
	fmt.Fprintf(&b, "ration: acquire%s: %s: %s after %v (%d of %d permits held, %d waiting",
		poolName(e.Pool), e.Op, cause, e.Waited, e.Stats.Held, e.Stats.Capacity, e.Stats.Waiters)
	writeHolders(&b, e.Holders)
	b.WriteByte(')')
	return b.String()
}

// Unwrap returns the cause.
func (e *AcquireError) Unwrap() error { return e.Err }

// A CloseError is how [Pool.Close] fails: its context ended while something was
// still out.
type CloseError struct {
	Pool   string
	Err    error       // the context's error
	Leases []LeaseInfo // the open leases, oldest first; each is destroyed when it returns
	Busy   int         // calls of open, Check, Reset and Close in progress
}

// Error says what is still out, and who has it.
func (e *CloseError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ration: close%s: %v (%d leases still out, %d resources busy",
		poolName(e.Pool), e.Err, len(e.Leases), e.Busy)
	writeHolders(&b, e.Leases)
	b.WriteByte(')')
	return b.String()
}

// Unwrap returns the context's error.
func (e *CloseError) Unwrap() error { return e.Err }

func poolName(name string) string {
	if name == "" {
		return ""
	}
	return " " + strconv.Quote(name)
}

func writeHolders(b *strings.Builder, leases []LeaseInfo) {
	for _, l := range leases {
		b.WriteString("; ")
		b.WriteString(l.String())
	}
}
