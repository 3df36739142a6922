// Package otelration tells OpenTelemetry what pools, semaphores and token buckets
// of package ration do.
//
//	metrics, err := otelration.New(otel.Meter("mail-service"), nil)
//	...
//	defer metrics.Unregister()
//
//	pool, err := ration.NewPool(8, dial, &ration.PoolOptions[*Conn]{
//		Observer: metrics.Observer("smtp"), // for the histograms; may be left out
//	})
//	...
//	err = otelration.AddPool(metrics, "smtp", pool)
//	err = metrics.AddSemaphore("uploads", uploads)
//	err = metrics.AddBucket("partner-api", bucket)
//
// At each collection, a single callback takes one Stats of each object, which is
// O(1). Objects are held weakly: those that the program has dropped are no longer
// reported, and none is kept alive.
//
// The names are those of package promration with dots, so that the Prometheus
// exporter of OpenTelemetry makes the same of them. It adds _total to counters, and
// a unit of seconds or of so many a second:
//
//	ration.pool.capacity      ration_pool_capacity
//	ration.pool.acquires      ration_pool_acquires_total
//	ration.pool.waited        ration_pool_waited_seconds_total
//	ration.pool.wait_seconds  ration_pool_wait_seconds
//	ration.pool.held_seconds  ration_pool_held_seconds
//	ration.bucket.rate        ration_bucket_rate_per_second
//
// The attributes are the labels there: pool, semaphore or bucket, and outcome,
// reason or kind. See promration for what each means.
//
// # Pools of database connections
//
// OpenTelemetry has names of its own for these. [AddDBPool] and
// [Instruments.DBObserver], in place of [AddPool] and [Instruments.Observer], use
// them:
//
//	db.client.connection.count              {connection}  leases (state used) and idle resources (state idle)
//	db.client.connection.max                {connection}  the capacity, if leases weigh 1
//	db.client.connection.idle.max           {connection}  the capacity, since all may be idle
//	db.client.connection.idle.min           {connection}  what AddDBPool is told
//	db.client.connection.pending_requests   {request}     waiters
//	db.client.connection.timeouts           {timeout}     acquires with the outcome timeout
//	db.client.connection.create_time        s             of every open that worked
//	db.client.connection.wait_time          s             of every acquire that got a lease
//	db.client.connection.use_time           s             of every lease, when it ends
//
// with the attributes db.client.connection.pool.name and db.client.connection.state.
// What the conventions have no name for, such as suspects and leaks, is reported
// as for other pools.
package otelration
