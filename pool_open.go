package ration

import (
	"context"
	"log/slog"
	"reflect"
	"time"
)

// How resources come to be, and how they are found fit to be lent.

// A purpose is what a call of open is for, which decides who hears of its
// failure.
type purpose uint8

const (
	forBorrower purpose = iota // if it still waits
	forWarm                    // the first in warmers
	forMinIdle                 // nobody; the pool tries again later
)

// hasRoom reports whether there is a place for another resource.
func (p *Pool[T]) hasRoom() bool {
	return int64(p.occupied()) < p.permits.capacity.Load()
}

// occupied is how many places for resources are taken.
func (p *Pool[T]) occupied() int { return p.total() + p.opening + p.destroying }

// total is how many resources there are that can be lent or are.
func (p *Pool[T]) total() int { return p.idle.len + p.out.len + p.loose }

func (p *Pool[T]) mayOpen() bool {
	return p.hasRoom() && (p.opts.MaxOpening == 0 || p.opening < p.opts.MaxOpening)
}

// startOpen opens a resource in the background, for the borrower n if that is
// what it is for.
func (p *Pool[T]) startOpen(why purpose, n *need[T], after *chores[T]) {
	p.opening++
	ctx, generation := n.try(), p.generation
	after.jobs = append(after.jobs, func() { p.runOpen(ctx, n, why, generation) })
}

// hopeful is how many opens and checks in flight may be counted on.
func (p *Pool[T]) hopeful() int { return p.opening + p.checking - p.abandoned }

// nextNeed returns the first borrower for which nothing is being opened or
// checked.
func (p *Pool[T]) nextNeed() *need[T] {
	for w := p.needers.head; w != nil; w = w.next {
		if n := w.tag.(*need[T]); !n.trying {
			return n
		}
	}
	return nil
}

// try takes note that an open or check is started for n, if for anybody, and
// returns the context whose values it gets.
func (n *need[T]) try() context.Context {
	if n == nil {
		return context.Background()
	}
	n.trying = true
	return n.ctx
}

// tried takes note that an open or check that was started for n, if for anybody,
// is over.
func (p *Pool[T]) tried(n *need[T]) {
	if n == nil {
		return
	}
	n.trying = false
	if n.abandoned {
		p.abandoned--
	}
}

// hookContext returns the context of a call of open or Check: it has the values
// of ctx, and ends with the pool or after OpenTimeout.
func (p *Pool[T]) hookContext(ctx context.Context) (context.Context, func()) {
	ctx = context.WithoutCancel(ctx)
	var cancel context.CancelFunc
	if p.opts.OpenTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, p.opts.OpenTimeout)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	stop := context.AfterFunc(p.alive, cancel)
	return ctx, func() { stop(); cancel() }
}

func (p *Pool[T]) runOpen(ctx context.Context, n *need[T], why purpose, generation uint64) {
	ctx, cancel := p.hookContext(ctx)
	defer cancel()
	start := p.clock.now()
	var v T
	p.call("open",
		func() (err error) {
			v, err = p.open(ctx)
			return err
		},
		func(err error, late bool) {
			if err == nil && ctx.Err() == context.DeadlineExceeded {
				p.destroyStray(v) // open has not heeded its context, but in vain
				err = ctx.Err()
			}
			if err == nil {
				err = p.opened(v, n, why, generation)
			} else {
				p.update(func(after *chores[T]) { p.openFailed(err, n, why, after) })
			}
			p.tellOpened(err, time.Duration(p.clock.now()-start))
		},
		func(err error) {
			if err == nil {
				p.destroyStray(v)
			}
		})
}

// opened adds a resource that has just been opened to the pool.
func (p *Pool[T]) opened(v T, n *need[T], why purpose, generation uint64) (err error) {
	id, identified := identify(v)
	now := p.clock.now()
	p.update(func(after *chores[T]) {
		if _, known := p.identities[id]; known && identified {
			err = ErrDuplicate
			p.openFailed(err, n, why, after)
			return
		}
		p.opening--
		p.tried(n)
		p.stats.Opened++
		p.upkeep.failures = 0
		s := p.newSlot(v, now)
		s.generation = generation
		if taker := p.putBack(s, n, now, after); taker != nil {
			taker.opened = true
		}
	})
	return err
}

// openFailed counts an open that came to nothing, and answers one that waits for
// it: the others get their own try.
func (p *Pool[T]) openFailed(err error, n *need[T], why purpose, after *chores[T]) {
	p.opening--
	p.tried(n)
	p.stats.OpenFailed++
	switch {
	case why == forBorrower && n.w != nil:
		p.answer(n.w, refused, openError{err}, after)
	case why == forWarm && p.warmers.head != nil:
		p.answerWarm(p.warmers.head, refused, openError{err}, after)
	case why == forMinIdle:
		p.rest()
	}
}

// newSlot makes a slot for v, in no list.
func (p *Pool[T]) newSlot(v T, now int64) *slot[T] {
	s := &slot[T]{pool: p, value: v, generation: p.generation, idleSince: now}
	if p.opts.MaxLifetime > 0 {
		s.expiresAt = later(now, p.jitteredLifetime())
	}
	if id, ok := identify(v); ok {
		s.identity = id
		p.identities[id] = struct{}{}
	}
	return s
}

// disown forgets that s is in the pool.
func (p *Pool[T]) disown(s *slot[T]) {
	if s.identity != (identity{}) {
		delete(p.identities, s.identity)
	}
}

// An identity tells resources apart that are references.
type identity struct {
	of reflect.Type
	at uintptr
}

// identify returns the identity of v, if it has one. Pointers to values without
// a size may all be equal and are nobody's identity, nor is nil.
func identify(v any) (identity, bool) {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer:
		if r.Type().Elem().Size() == 0 {
			return identity{}, false
		}
	case reflect.Chan, reflect.Map, reflect.UnsafePointer:
	default:
		return identity{}, false
	}
	return identity{of: r.Type(), at: r.Pointer()}, !r.IsNil()
}

// needsCheck reports whether s, which is idle, has to be checked before it is
// lent.
func (p *Pool[T]) needsCheck(s *slot[T], now int64) bool {
	return p.opts.Check != nil && now-s.idleSince >= int64(p.opts.CheckAfter)
}

// startCheck checks s, which is in no list, in the background, for the borrower
// n.
func (p *Pool[T]) startCheck(s *slot[T], n *need[T], after *chores[T]) {
	p.loose++
	p.checking++
	ctx := n.try()
	after.jobs = append(after.jobs, func() {
		ctx, cancel := p.hookContext(ctx)
		defer cancel()
		p.call("Check",
			func() error { return p.opts.Check(ctx, s.value) },
			func(err error, late bool) { p.checked(s, n, err) }, nil)
	})
}

func (p *Pool[T]) checked(s *slot[T], n *need[T], err error) {
	now := p.clock.now()
	p.update(func(after *chores[T]) {
		p.loose--
		p.checking--
		p.tried(n)
		if err != nil {
			p.doom(s, destroyBroken, after)
			return
		}
		p.putBack(s, n, now, after)
	})
	if err != nil {
		p.log(slog.LevelWarn, "check failed", slog.Any("error", err))
	}
}
