package otelration

import (
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// A shelf holds objects of a kind by their names.
type shelf[S any] struct {
	kind string

	mu     sync.Mutex // nothing is locked, and no object asked, under it
	places map[string]*place[S]
}

// A place is that of one object. Its address tells it from another that has got
// the name since.
type place[S any] struct {
	observe func(metric.Observer, *S)
	stats   func() (S, bool) // false when the object is gone, and then for good
}

func (h *shelf[S]) add(name string, observe func(metric.Observer, *S), stats func() (S, bool)) error {
	if name == "" {
		return fmt.Errorf("otelration: a %s needs a name", h.kind)
	}
	for {
		h.mu.Lock()
		before := h.places[name]
		if before == nil {
			if h.places == nil {
				h.places = make(map[string]*place[S])
			}
			h.places[name] = &place[S]{observe, stats}
			h.mu.Unlock()
			return nil
		}
		h.mu.Unlock()
		if _, alive := before.stats(); alive {
			return fmt.Errorf("%w: there is a %s %q already", ErrNameTaken, h.kind, name)
		}
		h.clear(name, before)
	}
}

func (h *shelf[S]) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.places[name]
	delete(h.places, name)
	return ok
}

// clear takes away what is gone, unless somebody else has its name by now.
func (h *shelf[S]) clear(name string, gone *place[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.places[name] == gone {
		delete(h.places, name)
	}
}

// observe reports the stats of every object, and clears away those that are gone.
func (h *shelf[S]) observe(o metric.Observer) {
	type named struct {
		name string
		at   *place[S]
	}
	h.mu.Lock()
	all := make([]named, 0, len(h.places))
	for name, at := range h.places {
		all = append(all, named{name, at})
	}
	h.mu.Unlock()
	for _, one := range all {
		if s, alive := one.at.stats(); alive {
			one.at.observe(o, &s)
		} else {
			h.clear(one.name, one.at)
		}
	}
}
