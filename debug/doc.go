// Package debug is a page that shows who holds what: an [http.Handler] over any
// number of pools, semaphores and token buckets.
//
//	page := debug.New(nil)
//	page.Add("mail", debug.Pool(pool, nil))
//	page.Add("uploads", debug.Semaphore(uploads))
//	page.Add("api", debug.Bucket(bucket))
//	http.Handle("/debug/ration", page)
//
// Nothing registers itself, and the page has no hold on what it shows: a pool
// that the program has dropped vanishes from it.
//
// # Who may see it
//
// Requests from the machine itself, unless [Options].Authorize says otherwise.
// GET and HEAD only, unless [Options].Revoke puts a button beside each lease that
// takes it back. Names, owners and stacks are shown as text, whatever they hold.
//
// # What it shows
//
// Of a pool: what Stats tells, and the open leases with owner, weight, age and,
// if a [ration.Detector] had it recorded, the borrower's call stack; its suspects
// are marked. Of all: a chart of the last minutes. The page refreshes itself
// until it is told to pause; without JavaScript it is complete but stands still.
//
//	?format=json    the same for programs; names of fields are stable
//	?format=pprof   the leases for go tool pprof, see package leasepprof
//	?sort=owner     or age, weight, id; with &order=asc or desc
//
// # Where the charts come from
//
// The page samples Stats whenever it is asked for, at most once in
// [Options].Interval. To have a history when nobody was looking, run
//
//	go page.Run(ctx)
//
// A sample is the state of one instant: a peak between two is not seen. Waits are
// not sampled: their mean, longest and number come from the pool's own counters.
// Percentiles need a [Waits], which is told of every acquire:
//
//	waits := new(debug.Waits)
//	pool, err := ration.NewPool(8, dial, &ration.PoolOptions[net.Conn]{
//		Observer: ration.Observer{Acquired: waits.Acquired},
//	})
//	page.Add("mail", debug.Pool(pool, waits))
//
// # What it costs
//
// Nothing while nobody asks and Run does not run. A sample is one Stats of each.
// A page is one Stats and one Leases of each pool, which holds up no borrower for
// longer than it takes to copy a part of the lease table.
package debug
