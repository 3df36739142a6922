package ration

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"time"
)

// How the pool keeps its house: who is served when something changes, what is
// opened ahead, and what has to go.

// A fate is what becomes of a resource.
type fate uint8

const (
	keep           fate = iota
	detach              // it leaves the pool alive
	destroyBroken       // the borrower, Check or Reset said so
	destroyExpired      // MaxLifetime, MaxUses or Clear
	destroyIdle         // MaxIdleTime
	destroySurplus      // the pool has shrunk
	destroyClosed       // the pool is closed
	destroyRevoked      // the holder of a revoked lease may still be using it
)

func (f fate) String() string {
	return [...]string{"kept", "detached", "broken", "expired", "idle", "surplus", "closed", "revoked"}[f]
}

// update runs fn in a critical section, and settles.
func (p *Pool[T]) update(fn func(after *chores[T])) {
	var after chores[T]
	p.mu.Lock()
	fn(&after)
	p.settle(&after)
	p.mu.Unlock()
	after.do(p)
}

// tidy settles.
func (p *Pool[T]) tidy() {
	var after chores[T]
	p.mu.Lock()
	p.settle(&after)
	p.mu.Unlock()
	after.do(p)
}

// settle is the pool's one rule for what happens next. It runs after every event
// that can let something happen (a borrower comes or goes, something is opened,
// checked, returned or destroyed, the capacity changes) and looks only at where
// things stand. mu is held.
func (p *Pool[T]) settle(after *chores[T]) {
	if p.closed {
		p.settleClosed(after)
		return
	}
	now := p.clock.now()
	p.abandoned = min(p.abandoned, p.opening+p.checking)
	p.serve(now, after)
	for p.idle.len > 0 && int64(p.total()+p.opening) > p.permits.capacity.Load() {
		p.evict(p.idle.head, destroySurplus, after)
	}
	if p.upkeep.replacing > 0 {
		p.sweep(now, after)
	}
	p.openAhead(after)
	p.ceiling = p.occupied()
}

// serve gives the borrowers in needers what is idle, and sees that as many
// resources are on their way as wait for one.
func (p *Pool[T]) serve(now int64, after *chores[T]) {
	for p.needers.head != nil {
		s := p.nextIdle(nil)
		if s != nil && p.expired(s, now) != keep {
			p.evict(s, p.expired(s, now), after)
			continue
		}
		if s != nil && !p.needsCheck(s, now) {
			p.idle.remove(s)
			p.hand(s, p.needers.head, after)
			continue
		}
		if p.hopeful() >= p.needers.len {
			return
		}
		n := p.nextNeed()
		switch {
		case n == nil:
			return
		case s != nil:
			p.idle.remove(s)
			p.startCheck(s, n, after)
		case !p.mayOpen():
			return
		case p.open == nil:
			var zero T
			p.hand(p.newSlot(zero, now), p.needers.head, after)
		default:
			p.startOpen(forBorrower, n, after)
		}
	}
}

// openAhead serves Warm and MinIdle with opens that no borrower waits for.
func (p *Pool[T]) openAhead(after *chores[T]) {
	target := 0
	for w := p.warmers.head; w != nil; {
		next := w.next
		if int64(p.total()) >= w.n {
			p.answerWarm(w, granted, nil, after)
		} else {
			target = max(target, int(w.n))
		}
		w = next
	}
	for p.total()+p.opening < target && p.mayOpen() {
		p.startOpen(forWarm, nil, after)
	}
	if p.open == nil || p.upkeep.retry != nil {
		return
	}
	spare := max(0, p.opening+p.checking-p.needers.len) // will be idle
	for missing := p.opts.MinIdle - (p.idle.len - p.upkeep.replacing) - spare; missing > 0 && p.mayOpen(); missing-- {
		p.startOpen(forMinIdle, nil, after)
	}
}

// expired says why s, which may be idle, can no longer be lent, if so.
func (p *Pool[T]) expired(s *slot[T], now int64) fate {
	switch {
	case s.generation != p.generation,
		p.opts.MaxUses > 0 && s.uses >= p.opts.MaxUses,
		s.expiresAt != 0 && now >= s.expiresAt:
		return destroyExpired
	case p.opts.MaxIdleTime > 0 && p.idle.len > p.opts.MinIdle && now-s.idleSince >= int64(p.opts.MaxIdleTime):
		return destroyIdle
	}
	return keep
}

// unwanted says why s, which is in no list, should not be idle or lent, if so.
func (p *Pool[T]) unwanted(s *slot[T], now int64) fate {
	switch {
	case p.closed:
		return destroyClosed
	case int64(p.total()+p.opening) >= p.permits.capacity.Load():
		return destroySurplus
	case s.generation != p.generation,
		p.opts.MaxUses > 0 && s.uses >= p.opts.MaxUses,
		s.expiresAt != 0 && now >= s.expiresAt:
		return destroyExpired
	}
	return keep
}

// evict destroys s, which is idle.
func (p *Pool[T]) evict(s *slot[T], f fate, after *chores[T]) {
	p.idle.remove(s)
	p.doom(s, f, after)
}

// doom has s, which is in no list, destroyed after the critical section.
func (p *Pool[T]) doom(s *slot[T], f fate, after *chores[T]) {
	p.destroying++
	p.disown(s)
	s.fate = f
	s.next = after.doomed
	after.doomed = s
}

// destroy destroys the resource of s, which counts as being destroyed.
func (p *Pool[T]) destroy(s *slot[T], f fate) error {
	if !p.hearsOfDestroys() {
		p.destroyed(s, f, nil)
		return nil
	}
	var result error
	p.call("Close",
		func() error {
			if p.opts.Close == nil {
				return nil
			}
			return p.opts.Close(s.value)
		},
		func(err error, late bool) {
			if !late {
				result = err
			}
			p.destroyed(s, f, err)
		}, nil)
	return result
}

// destroyAside is destroy for a caller that no user code may hold up or end.
func (p *Pool[T]) destroyAside(s *slot[T], f fate) {
	if p.hearsOfDestroys() {
		go p.destroy(s, f)
	} else {
		p.destroy(s, f)
	}
}

// hearsOfDestroys reports whether a destroy runs user code.
func (p *Pool[T]) hearsOfDestroys() bool {
	return p.opts.Close != nil || p.opts.Observer.Destroyed != nil
}

func (p *Pool[T]) destroyed(s *slot[T], f fate, err error) {
	p.update(func(after *chores[T]) {
		p.destroying--
		*p.stats.destroyedAs(f)++
	})
	if err != nil {
		p.log(slog.LevelWarn, "resource not closed cleanly", slog.String("reason", f.String()), slog.Any("error", err))
	}
	if p.opts.Observer.Destroyed != nil {
		tell(func() {
			p.opts.Observer.Destroyed(DestroyEvent{Pool: p.opts.Name, Reason: f.String(), Err: err})
		}, nil)
	}
}

// destroyStray destroys what an open returned after the pool had given it up.
func (p *Pool[T]) destroyStray(v T) {
	id, identified := identify(v)
	p.mu.Lock()
	_, known := p.identities[id]
	p.mu.Unlock()
	if p.opts.Close == nil || known && identified {
		return
	}
	runHook("Close", 0, func() error { return p.opts.Close(v) }, func(err error, _ bool) {
		if err != nil {
			p.log(slog.LevelWarn, "late resource not closed cleanly", slog.Any("error", err))
		}
	}, nil, func() {})
}

func (p *Pool[T]) tellOpened(err error, took time.Duration) {
	if err != nil {
		p.log(slog.LevelWarn, "open failed", slog.Any("error", err))
	}
	if p.opts.Observer.Opened != nil {
		tell(func() { p.opts.Observer.Opened(OpenEvent{Pool: p.opts.Name, Took: took, Err: err}) }, nil)
	}
}

func (p *Pool[T]) log(level slog.Level, what string, attrs ...slog.Attr) {
	logTo(p.opts.Logger, level, what, append(attrs, slog.String("pool", p.opts.Name)))
}

// upkeep is what the pool does without being asked. It has timers, but no
// goroutine while there is nothing to do. Guarded by Pool.mu.
type upkeep struct {
	sweeper   *time.Timer // runs the sweep, if anything idle will have to go
	sweepAt   int64
	replacing int // idle resources that have expired and stay until a replacement is there

	retry    *time.Timer // set while failed opens for MinIdle are not repeated
	failures int         // rests in a row, with no open between them that worked
}

func (u *upkeep) stop() {
	if u.sweeper != nil {
		u.sweeper.Stop()
	}
	if u.retry != nil {
		u.retry.Stop()
	}
}

// jitteredLifetime is MaxLifetime less up to a tenth of it.
func (p *Pool[T]) jitteredLifetime() int64 {
	life := int64(p.opts.MaxLifetime)
	return life - rand.Int64N(life/10+1)
}

// idleUntil is when s has been idle for d.
func (s *slot[T]) idleUntil(d time.Duration) int64 { return later(s.idleSince, int64(d)) }

// later is t + d, or the end of time.
func later(t, d int64) int64 {
	if d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// armSweep sees that the sweep runs when s, which has just become idle, has to
// go.
func (p *Pool[T]) armSweep(s *slot[T], now int64) {
	due := int64(math.MaxInt64)
	if s.expiresAt != 0 {
		due = s.expiresAt
	}
	if p.opts.MaxIdleTime > 0 && p.idle.len > p.opts.MinIdle {
		due = min(due, p.idle.head.idleUntil(p.opts.MaxIdleTime))
	}
	p.sweepBy(due, now)
}

func (p *Pool[T]) sweepBy(due, now int64) {
	u := &p.upkeep
	if due == math.MaxInt64 || u.sweeper != nil && u.sweepAt <= due {
		return
	}
	if u.sweeper != nil {
		u.sweeper.Stop()
	}
	u.sweepAt = due
	var timer *time.Timer
	timer = time.AfterFunc(time.Duration(due-now), func() {
		p.update(func(after *chores[T]) {
			if p.upkeep.sweeper == timer && !p.closed {
				p.upkeep.sweeper = nil
				p.sweep(p.clock.now(), after)
			}
		})
	})
	u.sweeper = timer
}

// sweep destroys what has been idle for too long or has expired. What MinIdle
// wants kept goes only when its replacement is there, if there is room for one.
func (p *Pool[T]) sweep(now int64, after *chores[T]) {
	p.upkeep.replacing = 0
	due := int64(math.MaxInt64)
	for s := p.idle.head; s != nil; {
		next := s.next
		f := p.expired(s, now)
		switch {
		case f == destroyExpired && p.idle.len <= p.opts.MinIdle && (p.hasRoom() || p.opening > 0):
			p.upkeep.replacing++
		case f != keep:
			p.evict(s, f, after)
		default:
			if s.expiresAt != 0 {
				due = min(due, s.expiresAt)
			}
			if p.opts.MaxIdleTime > 0 && p.idle.len > p.opts.MinIdle {
				due = min(due, s.idleUntil(p.opts.MaxIdleTime))
			}
		}
		s = next
	}
	p.sweepBy(due, now)
}

// The delays between opens for MinIdle that fail double from the first to the
// last, and are shortened by chance by up to a half, so that the pools of many
// processes do not come back at one time.
const (
	firstRest = 100 * time.Millisecond
	lastRest  = 30 * time.Second
)

// rest keeps the pool from opening ahead for a while.
func (p *Pool[T]) rest() {
	u := &p.upkeep
	if u.retry != nil || p.closed {
		return // what fails together is one failure
	}
	u.failures++
	d := min(lastRest, firstRest<<min(u.failures-1, 16))
	d -= time.Duration(rand.Int64N(int64(d/2) + 1))
	u.retry = time.AfterFunc(d, func() {
		p.update(func(*chores[T]) { p.upkeep.retry = nil })
	})
}
