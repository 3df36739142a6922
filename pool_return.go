package ration

import (
	"errors"
	"log/slog"
	"time"
)

// How resources come back.

// takeBack gets back the resource of a loan that Close has just ended.
func (p *Pool[T]) takeBack(s *slot[T]) error {
	if p.opts.Reset == nil {
		return p.endLoan(s, "closed", keep)
	}
	return p.takeBackReset(s)
}

func (p *Pool[T]) takeBackReset(s *slot[T]) (err error) {
	now := p.clock.now()
	p.mu.Lock()
	p.writeOff(s, keep, now) // the loan ends here and not after Reset
	p.strike(s)
	p.loose++
	p.mu.Unlock()
	finish := func(failed error) error {
		f := keep
		if failed != nil {
			f = destroyBroken
		}
		p.mu.Lock()
		p.loose--
		p.out.pushBack(s) // endLoan finds it where it finds all others
		p.mu.Unlock()
		err := p.endLoan(s, "closed", f)
		if failed != nil {
			p.log(slog.LevelWarn, "reset failed", slog.Any("error", failed)) // Do has nobody else to tell
			err = errors.Join(failed, err)
		}
		return err
	}
	p.call("Reset", func() error { return p.opts.Reset(s.value) },
		func(failed error, late bool) {
			if late {
				finish(failed)
			} else {
				err = finish(failed)
			}
		},
		func(error) { err = errors.New("ration: Reset came back too late, the resource is destroyed") })
	return err
}

// expel destroys the resource of a loan that Discard has just ended.
func (p *Pool[T]) expel(s *slot[T]) error { return p.endLoan(s, "discarded", destroyBroken) }

// endLoan takes a loan, which whoever calls this has ended, off the table. The
// fate of the resource is the one given or, if that is keep, what the pool finds.
// If it is to be destroyed, that is done before endLoan returns, with the error
// of the Close hook, unless the loan was revoked: the one who did has not asked
// for the resource.
func (p *Pool[T]) endLoan(s *slot[T], how string, f fate) error {
	var now int64
	if p.timed || p.observed || s.weighs > 0 {
		now = p.clock.now()
	}
	var after chores[T]
	var event *ReturnEvent
	p.mu.Lock()
	if p.opts.Observer.Returned != nil {
		event = &ReturnEvent{
			Pool: p.opts.Name, Owner: s.owner, ID: s.state.Load() >> phaseBits, Weight: s.weight,
			Held: time.Duration(now - s.lentAt), How: how,
		}
	}
	if s.isWatched() {
		p.writeOff(s, f, now)
	}
	p.strike(s)
	p.heldWeight -= s.weight
	if !p.permits.giveFast(s.weight) {
		p.permits.release(s.weight, &after.permits)
	}
	if f == keep {
		f = p.unwanted(s, now)
	}
	switch f {
	case keep:
		p.shelve(s, nil, now, &after)
	case detach:
		p.disown(s)
		p.settle(&after)
	default:
		if f == destroyRevoked {
			p.stats.Revoked++
		}
		p.destroying++
		p.disown(s)
		p.settle(&after)
	}
	p.mu.Unlock()
	after.do(p)
	if event != nil {
		defer tell(func() { p.opts.Observer.Returned(*event) }, nil) // last, for it may not come back
	}
	switch {
	case f <= detach:
		return nil
	case f == destroyRevoked:
		p.destroyAside(s, f)
		return nil
	}
	return p.destroy(s, f)
}
