package ration

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// PoolOptions are the options of [NewPool] and [NewPermitPool]. The zero value
// of each is its default.
type PoolOptions[T any] struct {
	// The essential ones.

	// Name is shown wherever the pool is.
	Name string

	// Close destroys a resource. Without it, resources are just dropped.
	Close func(T) error

	// Check says whether a resource is still good, before it is lent after it
	// has been idle for CheckAfter or longer. If it returns an error, the
	// resource is destroyed and the borrower gets another.
	Check func(context.Context, T) error

	// CheckAfter is how long a resource may be idle without a Check. The
	// default, 0, checks at every loan of a resource that has been idle; one that
	// goes straight from a borrower to the next has not.
	CheckAfter time.Duration

	// The frequent ones.

	// Reset makes a returned resource ready for the next borrower, before the
	// Close of its lease returns. If it fails, the resource is destroyed.
	Reset func(T) error

	// Broken says for [Pool.Do] whether an error of its function means that the
	// resource is bad. Without it, only errors marked by the function [Broken]
	// mean that.
	Broken func(error) bool

	// Fair makes the order of arrival the order of service, for permits and for
	// what comes back. Borrowers that have resources opened or checked for them
	// get them as these are ready. See [SemaphoreOptions].
	Fair bool

	// MaxWaiters bounds the borrowers waiting for a permit: further ones fail
	// with ErrQueueFull. 0 means no bound.
	MaxWaiters int

	// MinIdle is how many resources the pool keeps idle, opening them in the
	// background from the start as far as the capacity allows. It must not exceed
	// the capacity given to NewPool.
	MinIdle int

	// MaxIdleTime is after how long an idle resource is destroyed, unless that
	// would leave fewer than MinIdle. 0 means never.
	MaxIdleTime time.Duration

	// MaxLifetime is after how long a resource is destroyed, at the latest: for
	// each, up to a tenth of it, drawn by chance, is taken off, so that
	// resources opened together do not end together. A resource on loan is
	// destroyed when it returns. 0 means never.
	MaxLifetime time.Duration

	// MaxUses is after how many loans a resource is destroyed. 0 means never.
	MaxUses int

	// The rare ones.

	// IdleFIFO lends the resource that has been idle longest. The default lends
	// the one returned last, so that those not needed can reach MaxIdleTime.
	IdleFIFO bool

	// OpenTimeout bounds a call of open, Check, Reset or Close: its context, if
	// it has one, ends then, and the pool counts it as failed and goes on without
	// it. So does a borrower, but whoever closes or discards a lease waits for
	// Reset and Close to return. The default is 30 s, negative means no bound.
	OpenTimeout time.Duration

	// MaxOpening bounds the calls of open at one time. 0 means no bound but the
	// capacity.
	MaxOpening int

	// Rate is asked for a token before every acquire waits for a permit: first
	// "may start", then "may run at once". It is one token whatever the weight, also
	// for TryAcquire, and goes back if no lease comes of it. Buckets may be shared.
	Rate *TokenBucket

	// Detector watches the pool for leases that do not come back, from the start.
	Detector *Detector

	// Logger is told of failures that nobody else is told of, and of revoked
	// leases. Without it the pool is silent.
	Logger *slog.Logger

	// Observer is told of everything.
	Observer Observer
}

// defaultOpenTimeout is far above what opening anything takes that works, and
// below what people wait before they restart a service.
const defaultOpenTimeout = 30 * time.Second

func (o *PoolOptions[T]) validate(capacity int64) error {
	switch {
	case capacity < 0 || capacity > MaxPermits:
		return fmt.Errorf("%w: %d", ErrCapacity, capacity)
	case o.CheckAfter < 0:
		return fmt.Errorf("ration: PoolOptions.CheckAfter is negative: %v", o.CheckAfter)
	case o.MaxWaiters < 0:
		return fmt.Errorf("ration: PoolOptions.MaxWaiters is negative: %d", o.MaxWaiters)
	case o.MinIdle < 0:
		return fmt.Errorf("ration: PoolOptions.MinIdle is negative: %d", o.MinIdle)
	case int64(o.MinIdle) > capacity:
		return fmt.Errorf("ration: PoolOptions.MinIdle %d exceeds the capacity %d", o.MinIdle, capacity)
	case o.MaxIdleTime < 0:
		return fmt.Errorf("ration: PoolOptions.MaxIdleTime is negative: %v", o.MaxIdleTime)
	case o.MaxLifetime < 0:
		return fmt.Errorf("ration: PoolOptions.MaxLifetime is negative: %v", o.MaxLifetime)
	case o.MaxUses < 0:
		return fmt.Errorf("ration: PoolOptions.MaxUses is negative: %d", o.MaxUses)
	case o.MaxOpening < 0:
		return fmt.Errorf("ration: PoolOptions.MaxOpening is negative: %d", o.MaxOpening)
	}
	return nil
}

// AcquireOptions are the options of [Pool.AcquireWith].
type AcquireOptions struct {
	Owner   string        // free text, shown wherever the lease is
	Weight  int64         // permits the lease holds; 0 means 1, negative panics
	MaxHold time.Duration // the lease's own threshold instead of [DetectorOptions].Threshold; 0: that; negative: it is never a suspect
}
