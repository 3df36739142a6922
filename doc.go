// Package ration rations scarce things inside one process: permits to do
// something, resources such as connections, buffers or licence seats, and
// tokens that come at a rate.
//
// A [Semaphore] bounds how many may do something at once. Its capacity can be
// changed while it is in use, and its waiters are served in order, strictly or
// with bounded overtaking.
//
// A [Pool] lends distinct resources, each to one borrower at a time, behind a
// [Lease] that can be closed only once, and keeps a table of who has what.
//
//	           how many at once           which one, and who has it
//	          +----------------+         +--------------------------+
//	callers   |   Semaphore    | permits |         Pool[T]          |   open
//	--------->| balance: 0     |<--------| idle:  none              |--------> new
//	  wait    | queue:  w w w  |         | table: a->#7 b->#8 c->#9 |<-------- Close
//	          +----------------+         +--------------------------+   destroy
//	                                       | Acquire    ^ Close, Discard
//	                                       v            |
//	                                     Lease[T] #7, #8, #9
//
// A [Detector] watches the lease tables of pools and says who has not given back
// what.
//
// A [TokenBucket] bounds how often something may happen, which is another
// question than how many at once. The two stack: first a token, then a permit.
//
// For a fixed number of equal permits, a buffered channel is enough. The pool
// of a client library that brings one, such as database/sql, is better placed
// than a pool around it. To save garbage, not scarce things, use [sync.Pool].
//
// # Five rules
//
// A permit before a lease. A borrower first gets a permit and only then a
// resource, so a refusal or a timeout leaves nothing behind, and an error never
// comes with something to give back.
//
// Close what you got, once. A lease is given back through itself; the first
// Close of any copy counts and the others do nothing. Permits of a Semaphore
// carry no name, so there a release too many panics, before it changes
// anything.
//
// What is broken is discarded, not returned. Only the borrower can tell that a
// connection is in the middle of somebody else's answer. Discard it; the pool
// destroys it and opens another when one is needed.
//
// Changes of capacity go into debt. A shrink is in force at once and interrupts
// nobody. What is in use beyond the new capacity is a negative balance, which
// the next releases repay before anybody else is served.
//
// Watch ages, do not guess. That all is lent is no sign of a leak; a lease that
// is much older than the others may be one. A Detector watches them. Statistics and lease tables are for
// people and alarms. A decision that depends on one, such as "acquire if some
// are available", is out of date when it is made: use TryAcquire.
package ration
