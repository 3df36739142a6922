package ration

import "errors"

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
)
