// Package promration shows Prometheus what pools, semaphores and token buckets
// of package ration do.
//
//	metrics := promration.New(nil)
//	prometheus.MustRegister(metrics)
//
//	pool, err := ration.NewPool(8, dial, &ration.PoolOptions[*Conn]{
//		Observer: metrics.Observer("db"), // for the histograms; may be left out
//	})
//	...
//	err = promration.AddPool(metrics, "db", pool)
//	err = metrics.AddSemaphore("uploads", uploads)
//	err = metrics.AddBucket("partner-api", bucket)
//
// All series of an object exist from then on, at zero if need be, until it is
// removed or the program has dropped it: the collector holds objects weakly, and
// keeps none of them alive. A scrape takes one Stats of each, which is O(1), so the
// number of open leases does not matter, and what it shows of an object is of one
// instant.
//
// The alert that matters is ration_pool_suspects > 0 for a minute: somebody has
// not given back what is not theirs. It needs a ration.Detector that watches the
// pool, as do ration_pool_near and ration_pool_leaks_total; without one they stay at
// zero.
//
// # Metrics
//
// Gauges of a pool, with the label pool:
//
//	ration_pool_capacity              permits there are
//	ration_pool_held                  permits of leases, and of borrowers on their way to one
//	ration_pool_available             capacity - held; negative is debt after a shrink
//	ration_pool_idle                  resources waiting for a borrower
//	ration_pool_leases                resources on loan, being checked or reset
//	ration_pool_opening               resources being opened
//	ration_pool_destroying            resources being closed
//	ration_pool_waiters               borrowers waiting for a permit or a resource
//	ration_pool_suspects              leases that a detector suspects to be forgotten
//	ration_pool_near                  leases that will be suspects soon
//	ration_pool_longest_wait_seconds  the longest wait since the pool was made
//
// Counters of a pool, from its birth:
//
//	ration_pool_acquires_total{outcome}     granted, opened, canceled, timeout, queue_full, too_large, closed or error
//	ration_pool_waits_total                 acquires that had to wait, whatever came of it
//	ration_pool_waited_seconds_total        how long, in all
//	ration_pool_opens_total{outcome}        opened or failed
//	ration_pool_destroys_total{reason}      broken, expired, idle, surplus, closed or revoked
//	ration_pool_leaks_total{kind}           suspect, recovered or proved
//	ration_pool_duplicate_closes_total      leases that were ended again
//	ration_pool_revokes_total               leases that were taken back
//
// Histograms of a pool, if it was made with the collector's Observer:
//
//	ration_pool_wait_seconds  of every acquire, also of one that failed or did not wait
//	ration_pool_held_seconds  of every lease, when it ends
//
// Of a semaphore, with the label semaphore:
//
//	ration_semaphore_capacity, _held, _available, _waiters   as above
//	ration_semaphore_waiting_permits                         what the waiters wait for
//	ration_semaphore_longest_wait_seconds
//	ration_semaphore_waits_total                             waits that have ended, well or not
//	ration_semaphore_canceled_waits_total                    those ended by a context or time limit
//	ration_semaphore_waited_seconds_total                    how long all of them took
//	ration_semaphore_refusals_total                          too large, queue full or closed
//
// Of a token bucket, with the label bucket:
//
//	ration_bucket_tokens           there are now; negative is promised to reservations
//	ration_bucket_burst            tokens it can hold
//	ration_bucket_rate_per_second  tokens that flow in
//
// Package otelration reports the same under the same names.
package promration
