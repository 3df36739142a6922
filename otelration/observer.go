package otelration

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ration-go/ration"
)

// Observer returns an observer that feeds the histograms
// ration.pool.wait_seconds and ration.pool.held_seconds, for the options of the pool
// that is then added under the same name. The events go on to the observers in also, in order; one that panics ends
// the event there, as it does in a pool.
//
// The histograms are the meter's, which keeps what they have counted of a pool
// after the pool is gone.
func (in *Instruments) Observer(pool string, also ...ration.Observer) ration.Observer {
	record := in.recorder(attribute.String("pool", pool))
	return join(append([]ration.Observer{{
		Acquired: func(e ration.AcquireEvent) { record(in.wait, e.Waited) },
		Returned: func(e ration.ReturnEvent) { record(in.held, e.Held) },
	}}, also...))
}

// DBObserver is Observer for a pool that is added by [AddDBPool]. It feeds
// db.client.connection.create_time, wait_time and use_time.
func (in *Instruments) DBObserver(pool string, also ...ration.Observer) ration.Observer {
	record := in.recorder(poolNameKey.String(pool))
	return join(append([]ration.Observer{{
		Acquired: func(e ration.AcquireEvent) {
			if e.Err == nil {
				record(in.dbWait, e.Waited)
			}
		},
		Returned: func(e ration.ReturnEvent) { record(in.dbUse, e.Held) },
		Opened: func(e ration.OpenEvent) {
			if e.Err == nil {
				record(in.dbCreate, e.Took)
			}
		},
	}}, also...))
}

func (in *Instruments) recorder(who attribute.KeyValue) func(metric.Float64Histogram, time.Duration) {
	// A slice, so that a record does not have to make one.
	with := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(who))}
	return func(h metric.Float64Histogram, d time.Duration) {
		if !in.unregistered.Load() {
			h.Record(context.Background(), d.Seconds(), with...)
		}
	}
}

// join makes one observer of several. A function that none of them has costs the
// pool nothing, so it is not there.
func join(all []ration.Observer) (o ration.Observer) {
	o.Acquired = each(all, func(o ration.Observer) func(ration.AcquireEvent) { return o.Acquired })
	o.Returned = each(all, func(o ration.Observer) func(ration.ReturnEvent) { return o.Returned })
	o.Opened = each(all, func(o ration.Observer) func(ration.OpenEvent) { return o.Opened })
	o.Destroyed = each(all, func(o ration.Observer) func(ration.DestroyEvent) { return o.Destroyed })
	return o
}

func each[E any](all []ration.Observer, of func(ration.Observer) func(E)) func(E) {
	var told []func(E)
	for _, o := range all {
		if fn := of(o); fn != nil {
			told = append(told, fn)
		}
	}
	switch len(told) {
	case 0:
		return nil
	case 1:
		return told[0]
	}
	return func(e E) {
		for _, fn := range told {
			fn(e)
		}
	}
}
