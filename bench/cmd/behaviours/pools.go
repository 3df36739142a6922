package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/ration-go/ration"
)

// A thing is what is lent.
type thing struct{ number int64 }

// A pool is one under check.
type pool interface {
	acquire(ctx context.Context) (lease, error)
}

// A lease is what a pool lends.
type lease interface {
	thing() *thing
	close()
}

type (
	discarder  interface{ discard() } // a lease
	poolCloser interface{ closeAll() }
)

// An opener makes things.
type opener func(ctx context.Context) (*thing, error)

func newPool(impl string, size int, open opener) pool {
	switch impl {
	case "ration":
		p, err := ration.NewPool(int64(size), open, nil)
		if err != nil {
			panic(err)
		}
		return rationPool{p}
	case "puddle":
		p, err := puddle.NewPool(&puddle.Config[*thing]{Constructor: puddle.Constructor[*thing](open), Destructor: func(*thing) {}, MaxSize: int32(size)})
		if err != nil {
			panic(err)
		}
		return puddlePool{p}
	case "database/sql":
		db := sql.OpenDB(connector(open))
		db.SetMaxOpenConns(size)
		db.SetMaxIdleConns(size)
		return sqlPool{db}
	case "channel":
		c := make(chanPool, size)
		for range size {
			t, err := open(context.Background())
			if err != nil {
				panic(err)
			}
			c <- t
		}
		return c
	default:
		panic("no pool " + impl)
	}
}

type poolMaker func(size int, open opener) pool

// onPools makes a check of an implementation.
func onPools(check func(poolMaker) outcome) func(impl string) outcome {
	return func(impl string) outcome {
		return check(func(size int, open opener) pool { return newPool(impl, size, open) })
	}
}

// whenNeeded is onPools for what opens a resource when somebody needs it, which a
// channel does not.
func whenNeeded(check func(poolMaker) outcome) func(impl string) outcome {
	return func(impl string) outcome {
		if impl == "channel" {
			return nothing
		}
		return onPools(check)(impl)
	}
}

// counting opens things and counts them.
func counting(opened *atomic.Int64) opener {
	return func(context.Context) (*thing, error) { return &thing{opened.Add(1)}, nil }
}

var poolKind = kind{
	name: "pool", title: "Pools",
	impls: []string{"ration", "puddle", "database/sql", "channel"},
	rows: []row{
		{"stale-close", "a second close cannot touch the next borrower",
			"The one resource is given back, lent again, and given back once more by its first borrower; a panic is recovered from. It is not to be lent to a third.", onPools(staleClose)},
		{"broken", "what is broken is replaced, not lent again",
			"The one resource is discarded; the next borrower gets another.", onPools(broken)},
		{"open-panics", "a panic in the opener loses nothing",
			"A pool of one; the first open panics, which its borrower recovers from; the next borrower is served.", whenNeeded(func(makePool poolMaker) outcome {
				return openFails(makePool, func() { panic("in the opener") })
			})},
		{"open-goexit", "nor does an opener that ends its goroutine",
			"The same with `runtime.Goexit`, as `t.FailNow` does it.", whenNeeded(func(makePool poolMaker) outcome {
				return openFails(makePool, runtime.Goexit)
			})},
		{"give-up", "a borrower can give up while a resource is opened for it",
			"A pool of one; the open takes 0.3 s and does not look at its context, which ends after 0.03 s: the borrower is back by then.", whenNeeded(giveUp)},
		{"given-up", "and what was opened for it is lent to others",
			"After that, another borrower gets a resource, and no more than one was opened.", whenNeeded(givenUp)},
		{"shrink", "a limit lowered below what is in use holds",
			"3 of 3 are out, the limit becomes 1: nothing is lent until all 3 are back, and then 1.", onPools(shrinkPool)},
		{"close", "closing sends those away who wait",
			"The one resource is out and stays out, one borrower waits.", onPools(closePool)},
		{"bubbles", "it can be used in two synctest bubbles",
			"One waits in a bubble and is served, then another in another bubble.", onPools(poolBubbles)},
	},
}

func staleClose(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(1, counting(&opened))
	first, err := p.acquire(timeout(never))
	if err != nil {
		return no("%v", err)
	}
	first.close()
	second, err := p.acquire(timeout(never))
	if err != nil {
		return no("%v", err)
	}
	if !within(later, first.close) {
		return no("the close hangs")
	}
	if third, err := p.acquire(timeout(later)); err == nil {
		if third.thing() == second.thing() {
			return no("lends it to two")
		}
		return no("lends two")
	}
	return yes
}

func broken(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(1, counting(&opened))
	l, err := p.acquire(timeout(never))
	if err != nil {
		return no("%v", err)
	}
	d, ok := l.(discarder)
	if !ok {
		return nothing
	}
	bad := l.thing()
	d.discard()
	l, err = p.acquire(timeout(never))
	switch {
	case err != nil:
		return no("the place is lost")
	case l.thing() == bad:
		return no("lends it again")
	}
	return yes
}

func openFails(makePool poolMaker, fail func()) outcome {
	var opened atomic.Int64
	open := func(context.Context) (*thing, error) {
		if opened.Add(1) == 1 {
			fail()
		}
		return new(thing), nil
	}
	p := makePool(1, open)
	within(later, func() { p.acquire(timeout(never)) }) // which fails
	if _, err := p.acquire(timeout(never)); err != nil {
		return no("the place is lost")
	}
	return yes
}

func slowly(opened *atomic.Int64) opener {
	return func(context.Context) (*thing, error) {
		time.Sleep(later)
		return &thing{opened.Add(1)}, nil
	}
}

func giveUp(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(1, slowly(&opened))
	if !within(later/2, func() { p.acquire(timeout(soon)) }) {
		return no("waits for the open")
	}
	return yes
}

func givenUp(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(1, slowly(&opened))
	if l, err := p.acquire(timeout(soon)); err == nil {
		l.close()
	}
	if _, err := p.acquire(timeout(never)); err != nil {
		return no("the place is lost")
	}
	if n := opened.Load(); n != 1 {
		return no("opens %d", n)
	}
	return yes
}

func shrinkPool(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(3, counting(&opened))
	r, ok := p.(resizer)
	if !ok {
		return nothing
	}
	var out []lease
	for range 3 {
		l, err := p.acquire(timeout(never))
		if err != nil {
			return no("%v", err)
		}
		out = append(out, l)
	}
	if !within(later, func() { r.resize(1) }) {
		return no("hangs")
	}
	for i, l := range out {
		if _, err := p.acquire(timeout(soon)); err == nil {
			return no("lends one with %d out", 3-i)
		}
		l.close()
	}
	if _, err := p.acquire(timeout(never)); err != nil {
		return no("there is none")
	}
	if _, err := p.acquire(timeout(soon)); err == nil {
		return no("there are 2 of 1")
	}
	return yes
}

func closePool(makePool poolMaker) outcome {
	var opened atomic.Int64
	p := makePool(1, counting(&opened))
	c, ok := p.(poolCloser)
	if !ok {
		return nothing
	}
	if _, err := p.acquire(timeout(never)); err != nil {
		return no("%v", err)
	}
	time.AfterFunc(soon, c.closeAll)
	if _, err := p.acquire(timeout(never)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		return no("they wait on")
	}
	return yes
}

func poolBubbles(makePool poolMaker) outcome {
	return inTwoBubbles(func(t *testing.T) {
		var opened atomic.Int64
		p := makePool(1, counting(&opened))
		l, err := p.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var other sync.WaitGroup
		other.Go(func() {
			l, err := p.acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			l.close()
		})
		time.Sleep(time.Second)
		l.close()
		other.Wait()
		if c, ok := p.(poolCloser); ok {
			c.closeAll()
		}
	})
}

type (
	rationPool  struct{ p *ration.Pool[*thing] }
	rationLease struct{ l ration.Lease[*thing] }
)

func (r rationPool) acquire(ctx context.Context) (lease, error) {
	l, err := r.p.Acquire(ctx)
	return rationLease{l}, err
}

func (r rationPool) resize(n int)   { r.p.Resize(int64(n)) }
func (r rationPool) closeAll()      { r.p.Close(timeout(never)) }
func (r rationLease) thing() *thing { return r.l.Value() }
func (r rationLease) close()        { r.l.Close() }
func (r rationLease) discard()      { r.l.Discard() }

type (
	puddlePool  struct{ p *puddle.Pool[*thing] }
	puddleLease struct{ r *puddle.Resource[*thing] }
)

func (p puddlePool) acquire(ctx context.Context) (lease, error) {
	r, err := p.p.Acquire(ctx)
	return puddleLease{r}, err
}

func (p puddlePool) closeAll()      { p.p.Close() }
func (p puddleLease) thing() *thing { return p.r.Value() }
func (p puddleLease) close()        { p.r.Release() }
func (p puddleLease) discard()      { p.r.Destroy() }

type (
	sqlPool  struct{ db *sql.DB }
	sqlLease struct{ c *sql.Conn }
)

func (s sqlPool) acquire(ctx context.Context) (lease, error) {
	c, err := s.db.Conn(ctx)
	return sqlLease{c}, err
}

func (s sqlPool) resize(n int) { s.db.SetMaxOpenConns(n) }
func (s sqlPool) closeAll()    { s.db.Close() }

func (s sqlLease) thing() (t *thing) {
	s.c.Raw(func(c any) error {
		t = c.(sqlConn).thing
		return nil
	})
	return t
}

func (s sqlLease) close() { s.c.Close() }

func (s sqlLease) discard() {
	s.c.Raw(func(any) error { return driver.ErrBadConn })
	s.c.Close()
}

type (
	connector opener
	sqlConn   struct{ thing *thing }
)

var errNoDatabase = errors.New("there is no database")

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	t, err := c(ctx)
	if err != nil {
		return nil, err
	}
	return sqlConn{t}, nil
}

func (c connector) Driver() driver.Driver            { return c }
func (c connector) Open(string) (driver.Conn, error) { return nil, errNoDatabase }

func (sqlConn) Prepare(string) (driver.Stmt, error) { return nil, errNoDatabase }
func (sqlConn) Begin() (driver.Tx, error)           { return nil, errNoDatabase }
func (sqlConn) Close() error                        { return nil }

// A chanPool is what one writes by hand: a channel that holds what is idle.
type chanPool chan *thing

type chanLease struct {
	c chanPool
	t *thing
}

func (c chanPool) acquire(ctx context.Context) (lease, error) {
	select {
	case t := <-c:
		return chanLease{c, t}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l chanLease) thing() *thing { return l.t }
func (l chanLease) close()        { l.c <- l.t }
