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
	"testing"
	"time"

	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// Our pool beside puddle, a plain channel of resources, database/sql and
// sync.Pool. Within one op the rows of all of them stand next to each other, so
// that a noisy minute on the machine hits them alike; compare ratios of rows of
// one run, never times of two.

// A resource is what is lent. Only its borrower touches it, so that the sum over
// all of them tells whether they were lent to one borrower at a time.
type resource struct {
	uses int
	_    [120]byte // two cache lines: nobody's neighbour
}

// A lender is a pool under measurement, filled with idle resources.
type lender interface {
	// turn is the measured thing: borrow, use, if so told let others run in
	// between, and give back. Every implementation is written out, so that the
	// harness adds one call through an interface to each alike.
	turn(ctx context.Context, yield bool) error

	lend(ctx context.Context) (r *resource, giveBack func(), err error) // the same, step by step
	close()
}

// rivals are the lenders. To each, open gives a new resource.
var rivals = []struct {
	impl    string
	new     func(size int, open func() *resource) lender
	bounded bool // lends no more than size resources, and the same ones again
}{
	{"nonfair", func(size int, open func() *resource) lender { return newRationLender(size, open, false) }, true},
	{"fair", func(size int, open func() *resource) lender { return newRationLender(size, open, true) }, true},
	{"puddle", newPuddleLender, true},
	{"chan", newChanLender, true},
	{"sql", newSQLLender, true},
	{"syncpool", newSyncPoolLender, false},
}

type rationLender struct{ *ration.Pool[*resource] }

func newRationLender(size int, open func() *resource, fair bool) lender {
	pool, err := ration.NewPool(int64(size), func(context.Context) (*resource, error) { return open(), nil },
		&ration.PoolOptions[*resource]{Fair: fair})
	if err == nil {
		err = pool.Warm(context.Background(), size)
	}
	if err != nil {
		panic(err)
	}
	return rationLender{pool}
}

func (p rationLender) turn(ctx context.Context, yield bool) error {
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

func (p rationLender) lend(ctx context.Context) (*resource, func(), error) {
	lease, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	return lease.Value(), func() { lease.Close() }, nil
}

func (p rationLender) close() { p.Close(context.Background()) }

type puddleLender struct{ *puddle.Pool[*resource] }

func newPuddleLender(size int, open func() *resource) lender {
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
	return puddleLender{pool}
}

func (p puddleLender) turn(ctx context.Context, yield bool) error {
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

func (p puddleLender) lend(ctx context.Context) (*resource, func(), error) {
	res, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	return res.Value(), res.Release, nil
}

func (p puddleLender) close() { p.Pool.Close() }

// A chanLender is what one writes by hand. It tracks nothing.
type chanLender chan *resource

func newChanLender(size int, open func() *resource) lender {
	c := make(chanLender, size)
	for range size {
		c <- open()
	}
	return c
}

func (c chanLender) turn(ctx context.Context, yield bool) error {
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

func (c chanLender) lend(ctx context.Context) (*resource, func(), error) {
	select {
	case r := <-c:
		return r, func() { c <- r }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (c chanLender) close() {}

// A sqlLender lends connections of database/sql, over a driver that does
// nothing. That is not what most programs do with it, but it is the part of it
// that is a pool. Raw is how a borrower gets at the thing.
type sqlLender struct{ *sql.DB }

func newSQLLender(size int, open func() *resource) lender {
	db := sql.OpenDB(connector(open))
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	l := sqlLender{db}
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

func (p sqlLender) turn(ctx context.Context, yield bool) error {
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

func (p sqlLender) lend(ctx context.Context) (r *resource, giveBack func(), err error) {
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

func (p sqlLender) close() { p.Close() }

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

// A syncPoolLender is the floor: it bounds nothing, waits for nothing, and may
// drop what it is given.
type syncPoolLender struct{ *sync.Pool }

func newSyncPoolLender(size int, open func() *resource) lender {
	p := syncPoolLender{&sync.Pool{New: func() any { return open() }}}
	for range size {
		p.Put(open())
	}
	return p
}

func (p syncPoolLender) turn(_ context.Context, yield bool) error {
	r := p.Get().(*resource)
	r.uses++
	if yield {
		runtime.Gosched()
	}
	p.Put(r)
	return nil
}

func (p syncPoolLender) lend(context.Context) (*resource, func(), error) {
	r := p.Get().(*resource)
	return r, func() { p.Put(r) }, nil
}

func (p syncPoolLender) close() {}

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

func TestRivals_LendDistinctResources(t *testing.T) {
	const size = 8
	for _, r := range rivals {
		t.Run("impl="+r.impl, func(t *testing.T) {
			var o opener
			l := r.new(size, o.open)
			defer l.close()
			require.Len(t, o.opened, size, "idle resources at the start")

			for range 2 { // the second time they have been returned
				seen := make(map[*resource]bool)
				var giveBack []func()
				for range size {
					res, back, err := l.lend(t.Context())
					require.NoError(t, err)
					require.False(t, seen[res], "lent twice")
					seen[res] = true
					giveBack = append(giveBack, back)
				}
				if r.bounded {
					soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_, _, err := l.lend(soon)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded, "one more")
					require.Len(t, o.opened, size)
				}
				for _, back := range giveBack {
					back()
				}
			}
		})
	}
}

func TestRivals_OneBorrowerAtATime(t *testing.T) {
	const size, workers, turns = 8, 16, 2000
	for _, r := range rivals {
		t.Run("impl="+r.impl, func(t *testing.T) {
			var o opener
			l := r.new(size, o.open)
			defer l.close()
			var failed atomic.Int64
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range turns {
						if l.turn(t.Context(), true) != nil {
							failed.Add(1)
						}
					}
				})
			}
			all.Wait()
			require.Zero(t, failed.Load())
			require.Equal(t, workers*turns, o.uses())
			if r.bounded {
				require.Len(t, o.opened, size)
			}
		})
	}
}

func BenchmarkPool(b *testing.B) {
	for _, op := range []struct {
		name               string
		workers, resources int
	}{
		{"uncontended", 1, 8}, // an idle resource, time and again
		{"contended", 16, 8},  // others run while it is lent, as in work that waits for something
	} {
		for _, r := range rivals {
			b.Run(fmt.Sprintf("op=%s/impl=%s/workers=%d/resources=%d", op.name, r.impl, op.workers, op.resources), func(b *testing.B) {
				b.ReportAllocs()
				var o opener
				l := r.new(op.resources, o.open)
				defer l.close()
				if op.workers == 1 {
					alone(b, l)
				} else {
					together(b, l, op.workers)
				}
				if r.bounded && (o.uses() != b.N || len(o.opened) != op.resources) {
					b.Errorf("%d uses of %d resources, want %d of %d", o.uses(), len(o.opened), b.N, op.resources)
				}
			})
		}
	}
}

// alone is one borrower that never waits.
func alone(b *testing.B, l lender) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		if err := l.turn(ctx, false); err != nil {
			b.Fatal(err)
		}
	}
}

// together splits b.N over the workers, which start together.
func together(b *testing.B, l lender, workers int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begin := make(chan struct{})
	var failed atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		n := b.N / workers
		if i < b.N%workers {
			n++
		}
		all.Go(func() {
			<-begin
			for range n {
				if l.turn(ctx, true) != nil {
					failed.Add(1)
				}
			}
		})
	}
	b.ResetTimer()
	close(begin)
	all.Wait()
	b.StopTimer()
	if failed.Load() > 0 {
		b.Errorf("%d turns failed", failed.Load())
	}
}
