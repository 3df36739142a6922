// Package leasepprof shows in go tool pprof who holds the leases of
// [ration.Pool]s, by the call stack that borrowed them.
//
//	profile := leasepprof.NewHandler(nil)
//	leasepprof.Add(profile, pool) // held weakly
//	http.Handle("/debug/leases", profile)
//
// and then
//
//	go tool pprof -top http://localhost:8080/debug/leases
//	go tool pprof -top -sample_index=weight http://localhost:8080/debug/leases
//	go tool pprof -top -tagfocus=owner=nightly http://localhost:8080/debug/leases
//	go tool pprof -tags http://localhost:8080/debug/leases
//
// A profile has one sample for each open lease, with three values: leases (1),
// weight (the permits it holds), and age (nanoseconds since its acquire or last
// Touch, so that a stack's figure is the sum over its leases). Its labels are
// pool, owner and id, the first two only where they are not empty.
//
// Stacks are there for the leases whose stack a [ration.Detector] had recorded;
// DetectorOptions.StackEvery decides how many. The others are under one frame,
// "(no stack recorded)", so that the numbers add up.
//
// The profile is written when it is asked for, from [ration.Pool.Leases].
// Nothing is kept between, and a loan pays nothing for it.
package leasepprof

import (
	"io"
	"time"

	"github.com/ration-go/ration"
)

// A Lender has leases: a [*ration.Pool] of anything.
type Lender interface {
	Leases() []ration.LeaseInfo // the open ones
}

// Write writes a profile of the leases that are open now, in the format of
// pprof, compressed. The pools are asked one after the other, so a lease that is
// given back meanwhile may still be in it. The error is that of w. It is
// O(open leases), and O(distinct stacks) to resolve them.
func Write(w io.Writer, pools ...Lender) error {
	now := time.Now()
	var p profile
	for _, pool := range pools {
		for _, lease := range pool.Leases() {
			p.add(lease)
		}
	}
	return p.write(w, now)
}
