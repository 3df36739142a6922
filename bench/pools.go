package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/ration-go/ration"
)

// A resource is what is lent. Only its borrower touches it, so that the sum over
// all of them tells whether they were lent to one borrower at a time.
type resource struct {
	uses int
	_    [120]byte // two cache lines: nobody's neighbour
}

// A Pool is a pool under measurement, filled with idle resources. Its turn uses
// the resource.
type Pool interface {
	taker
	lend(ctx context.Context) (r *resource, giveBack func(), err error) // a turn, step by step
	close()
}

// A PoolImpl is an implementation of a pool.
type PoolImpl struct {
	Name    string
	Bounded bool // lends no more than size resources, and the same ones again

	new func(size int, open func() *resource) Pool
}

// Pools are our two modes and their rivals.
func Pools() []PoolImpl {
	return []PoolImpl{
		{"nonfair", true, func(size int, open func() *resource) Pool { return newRationPool(size, open, false) }},
		{"fair", true, func(size int, open func() *resource) Pool { return newRationPool(size, open, true) }},
		{"puddle", true, newPuddlePool},
		{"chan", true, newChanPool},
		{"sql", true, newSQLPool},
		{"syncpool", false, newSyncPool},
	}
}

func poolCases() (cases []Case) {
	for _, o := range []op{
		{"uncontended", 1, 8, false}, // an idle resource, time and again
		{"contended", 16, 8, true},
		{"heavy", 1024, 4, true},
	} {
		for _, impl := range Pools() {
			cases = append(cases, Case{
				Kind: "Pool", Op: o.name, Impl: impl.Name, Workers: o.workers, Of: "resources", Size: o.size,
				Start: func() Run { return poolRun(o, impl) },
			})
		}
	}
	return cases
}

func poolRun(o op, impl PoolImpl) Run {
	var opener opener
	var failed atomic.Int64
	pool := impl.new(o.size, opener.open)
	turns := o.turns(pool, &failed)
	done := 0
	return Run{
		func(n int) time.Duration {
			done += n
			return turns(n)
		},
		func() error {
			pool.close()
			if uses, opened := opener.uses(), len(opener.opened); impl.Bounded && (uses != done || opened != o.size) {
				return fmt.Errorf("%d uses of %d resources, want %d of %d", uses, opened, done, o.size)
			}
			return none(&failed)
		},
	}
}

type rationPool struct{ *ration.Pool[*resource] }

func newRationPool(size int, open func() *resource, fair bool) Pool {
	pool, err := ration.NewPool(int64(size), func(context.Context) (*resource, error) { return open(), nil },
		&ration.PoolOptions[*resource]{Fair: fair})
	if err == nil {
		err = pool.Warm(context.Background(), size)
	}
	if err != nil {
		panic(err)
	}
	return rationPool{pool}
}

func (p rationPool) Turn(ctx context.Context, yield bool) error {
	lease, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	lease.Value().uses++
	if yield {
		runtime.Gosched()
	}
	return lease.Close()
}

func (p rationPool) lend(ctx context.Context) (*resource, func(), error) {
	lease, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	return lease.Value(), func() { lease.Close() }, nil
}

func (p rationPool) close() { p.Close(context.Background()) }

type puddlePool struct{ *puddle.Pool[*resource] }

func newPuddlePool(size int, open func() *resource) Pool {
	pool, err := puddle.NewPool(&puddle.Config[*resource]{
		Constructor: func(context.Context) (*resource, error) { return open(), nil },
		Destructor:  func(*resource) {},
		MaxSize:     int32(size),
	})
	for range size {
		if err == nil {
			err = pool.CreateResource(context.Background())
		}
	}
	if err != nil {
		panic(err)
	}
	return puddlePool{pool}
}

func (p puddlePool) Turn(ctx context.Context, yield bool) error {
	res, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	res.Value().uses++
	if yield {
		runtime.Gosched()
	}
	res.Release()
	return nil
}

func (p puddlePool) lend(ctx context.Context) (*resource, func(), error) {
	res, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	return res.Value(), res.Release, nil
}

func (p puddlePool) close() { p.Pool.Close() }

// A chanPool is what one writes by hand. It tracks nothing.
type chanPool chan *resource

func newChanPool(size int, open func() *resource) Pool {
	c := make(chanPool, size)
	for range size {
		c <- open()
	}
	return c
}

func (c chanPool) Turn(ctx context.Context, yield bool) error {
	select {
	case r := <-c:
		r.uses++
		if yield {
			runtime.Gosched()
		}
		c <- r
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c chanPool) lend(ctx context.Context) (*resource, func(), error) {
	select {
	case r := <-c:
		return r, func() { c <- r }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (c chanPool) close() {}

// A sqlPool lends connections of database/sql, over a driver that does
// nothing. That is not what most programs do with it, but it is the part of it
// that is a pool. Raw is how a borrower gets at the thing.
type sqlPool struct{ *sql.DB }

func newSQLPool(size int, open func() *resource) Pool {
	db := sql.OpenDB(connector(open))
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	l := sqlPool{db}
	giveBack := make([]func(), size)
	for i := range giveBack {
		var err error
		if _, giveBack[i], err = l.lend(context.Background()); err != nil {
			panic(err)
		}
	}
	for _, back := range giveBack {
		back()
	}
	return l
}

func use(c any) error {
	c.(sqlConn).uses++
	return nil
}

func (p sqlPool) Turn(ctx context.Context, yield bool) error {
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	if err := conn.Raw(use); err != nil {
		return err
	}
	if yield {
		runtime.Gosched()
	}
	return conn.Close()
}

func (p sqlPool) lend(ctx context.Context) (r *resource, giveBack func(), err error) {
	conn, err := p.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	err = conn.Raw(func(c any) error {
		r = c.(sqlConn).resource
		return nil
	})
	return r, func() { conn.Close() }, err
}

func (p sqlPool) close() { p.Close() }

type (
	connector func() *resource
	sqlConn   struct{ *resource }
)

var errNoDatabase = errors.New("there is no database")

func (c connector) Connect(context.Context) (driver.Conn, error) { return sqlConn{c()}, nil }
func (c connector) Driver() driver.Driver                        { return c }
func (c connector) Open(string) (driver.Conn, error)             { return nil, errNoDatabase }

func (sqlConn) Prepare(string) (driver.Stmt, error) { return nil, errNoDatabase }
func (sqlConn) Begin() (driver.Tx, error)           { return nil, errNoDatabase }
func (sqlConn) Close() error                        { return nil }

// A syncPool is the floor: it bounds nothing, waits for nothing, and may
// drop what it is given.
type syncPool struct{ *sync.Pool }

func newSyncPool(size int, open func() *resource) Pool {
	p := syncPool{&sync.Pool{New: func() any { return open() }}}
	for range size {
		p.Put(open())
	}
	return p
}

func (p syncPool) Turn(_ context.Context, yield bool) error {
	r := p.Get().(*resource)
	r.uses++
	if yield {
		runtime.Gosched()
	}
	p.Put(r)
	return nil
}

func (p syncPool) lend(context.Context) (*resource, func(), error) {
	r := p.Get().(*resource)
	return r, func() { p.Put(r) }, nil
}

func (p syncPool) close() {}

// An opener makes resources and keeps them.
type opener struct {
	mu     sync.Mutex
	opened []*resource
}

func (o *opener) open() *resource {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := new(resource)
	o.opened = append(o.opened, r)
	return r
}

// uses returns how often the resources have been used. A use is lost if two
// borrowers have had one resource at the same time, as chance will have it.
func (o *opener) uses() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.opened {
		n += r.uses
	}
	return n
}
