package otelration

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/ration-go/ration"
)

// The attributes of the database conventions.
const (
	poolNameKey attribute.Key = "db.client.connection.pool.name"
	stateKey    attribute.Key = "db.client.connection.state"
)

// dbStats is what the database conventions ask of a pool.
type dbStats struct {
	*ration.PoolStats
	idleMin int64
}

// dbFamilies makes the asynchronous instruments of the database conventions, with
// their own names, units and descriptions.
func dbFamilies(m *maker) []family[dbStats] {
	connections, err := dbconv.NewClientConnectionCountObservable(m.meter)
	m.keep(connections.Inst(), err)
	most, err := dbconv.NewClientConnectionMaxObservable(m.meter)
	m.keep(most.Inst(), err)
	idleMax, err := dbconv.NewClientConnectionIdleMaxObservable(m.meter)
	m.keep(idleMax.Inst(), err)
	idleMin, err := dbconv.NewClientConnectionIdleMinObservable(m.meter)
	m.keep(idleMin.Inst(), err)
	pending, err := dbconv.NewClientConnectionPendingRequestsObservable(m.meter)
	m.keep(pending.Inst(), err)
	timeouts, err := dbconv.NewClientConnectionTimeoutsObservable(m.meter)
	m.keep(timeouts.Inst(), err)

	type stats = dbStats
	alone := func(value func(*stats) int64) []series[stats] { return []series[stats]{{ints: value}} }
	return []family[stats]{
		{ints: connections.Inst(), attribute: stateKey, series: []series[stats]{
			{is: string(dbconv.ClientConnectionStateIdle), ints: func(s *stats) int64 { return int64(s.Idle) }},
			{is: string(dbconv.ClientConnectionStateUsed), ints: func(s *stats) int64 { return int64(s.Leased) }},
		}},
		{ints: most.Inst(), series: alone(func(s *stats) int64 { return s.Capacity })},
		{ints: idleMax.Inst(), series: alone(func(s *stats) int64 { return s.Capacity })},
		{ints: idleMin.Inst(), series: alone(func(s *stats) int64 { return s.idleMin })},
		{ints: pending.Inst(), series: alone(func(s *stats) int64 { return int64(s.Waiters) })},
		{ints: timeouts.Inst(), series: alone(func(s *stats) int64 { return int64(s.Outcomes.Timeout) })},
	}
}

func dbHistograms(m *maker) (create, wait, use metric.Float64Histogram) {
	buckets := metric.WithExplicitBucketBoundaries(m.buckets...)
	c, err1 := dbconv.NewClientConnectionCreateTime(m.meter, buckets)
	w, err2 := dbconv.NewClientConnectionWaitTime(m.meter, buckets)
	u, err3 := dbconv.NewClientConnectionUseTime(m.meter, buckets)
	m.failed = errors.Join(m.failed, err1, err2, err3)
	return c.Inst(), w.Inst(), u.Inst()
}
