package ration

import "time"

// An Observer is told what happens in a [Pool], after it has happened and with
// no lock held. Nil functions are skipped; a pool without any pays one check
// for it. Functions are called on the goroutine that did the thing, so a slow
// one slows that goroutine; one that panics is ignored.
type Observer struct {
	Acquired  func(AcquireEvent) // every acquire, failed ones included
	Returned  func(ReturnEvent)  // every end of a lease
	Opened    func(OpenEvent)    // every open, failed ones included
	Destroyed func(DestroyEvent) // every resource that left the pool but by Detach
}

// An AcquireEvent tells of an acquire.
type AcquireEvent struct {
	Pool, Owner string
	ID          uint64 // of the lease; 0 if there is none
	Weight      int64
	Waited      time.Duration
	Outcome     string // granted, opened, canceled, timeout, queue_full, too_large, closed or error
	Err         error  // nil if granted or opened
}

// A ReturnEvent tells of the end of a lease.
type ReturnEvent struct {
	Pool, Owner string
	ID          uint64
	Weight      int64
	Held        time.Duration // since the acquire
	How         string        // closed, discarded, detached or revoked
}

// An OpenEvent tells of a call of a pool's open function.
type OpenEvent struct {
	Pool string
	Took time.Duration
	Err  error
}

// A DestroyEvent tells of a resource that was destroyed.
type DestroyEvent struct {
	Pool   string
	Reason string // broken, expired, idle, surplus, closed or revoked
	Err    error  // of the Close hook
}

func (o *Observer) any() bool {
	return o.Acquired != nil || o.Returned != nil || o.Opened != nil || o.Destroyed != nil
}
