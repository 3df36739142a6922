//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// A backend is a connection that knows whether the server's end of it is dead.
type backend struct {
	*pgconn.PgConn
	dead  atomic.Bool
	abuse *atomic.Int64 // statements run on dead ones
}

// query runs a statement and returns the first column of its rows.
func (b *backend) query(ctx context.Context, sql string, args ...string) ([]string, error) {
	if b.dead.Load() {
		b.abuse.Add(1)
	}
	values, err := query(ctx, b.PgConn, sql, args...)
	if backendIsGone(err) {
		b.dead.Store(true)
	}
	return values, err
}

func query(ctx context.Context, conn *pgconn.PgConn, sql string, args ...string) ([]string, error) {
	params := make([][]byte, len(args))
	for i, a := range args {
		params[i] = []byte(a)
	}
	result := conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	values := make([]string, len(result.Rows))
	for i, row := range result.Rows {
		values[i] = string(row[0])
	}
	return values, nil
}

// backendIsGone says whether err means that a connection is of no use any more:
// the server has said that it ends it (class 57, operator intervention), or it
// says nothing. Any other answer is about the statement.
func backendIsGone(err error) bool {
	var answer *pgconn.PgError
	return err != nil && (!errors.As(err, &answer) || strings.HasPrefix(answer.Code, "57P"))
}

// The server itself refuses the borrower's role a connection more.
const backends = 4

func TestPostgres(t *testing.T) {
	server := startPostgres(t)
	ctx := testContext(t)
	setup, err := server.connect(ctx, "admin", "postgres")
	require.NoError(t, err)
	for _, sql := range []string{
		fmt.Sprintf("create role borrower login connection limit %d", backends),
		"create table done (job int primary key, pid int)",
		"grant all on done to borrower",
	} {
		_, err := query(ctx, setup, sql)
		require.NoError(t, err)
	}
	require.NoError(t, closePG(setup))

	t.Run("killed while idle", func(t *testing.T) { newPostgresTest(t, server).killedWhileIdle(t) })
	t.Run("killed while on loan", func(t *testing.T) { newPostgresTest(t, server).killedOnLoan(t) })
	t.Run("returned within a transaction", func(t *testing.T) { newPostgresTest(t, server).returnedWithinTransaction(t) })
	t.Run("killed at random", func(t *testing.T) { newPostgresTest(t, server).killedAtRandom(t) })
}

type postgresTest struct {
	admin *pgconn.PgConn
	pool  *ration.Pool[*backend]
	abuse atomic.Int64
}

func newPostgresTest(t *testing.T, server *postgres) *postgresTest {
	t.Helper()
	admin, err := server.connect(testContext(t), "admin", "postgres")
	require.NoError(t, err)
	p := &postgresTest{admin: admin}
	p.pool, err = ration.NewPool(backends, func(ctx context.Context) (*backend, error) {
		conn, err := server.connect(ctx, "borrower", "postgres")
		if err != nil {
			return nil, err
		}
		return &backend{PgConn: conn, abuse: &p.abuse}, nil
	}, &ration.PoolOptions[*backend]{
		Name:   "postgres",
		Close:  func(b *backend) error { return closePG(b.PgConn) },
		Check:  func(ctx context.Context, b *backend) error { return b.Ping(ctx) },
		Reset:  rollBack,
		Broken: backendIsGone,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		requireClosed(t, p.pool)
		require.Zero(t, p.count(t), "backends after Close, as the server sees them")
		require.Zero(t, p.abuse.Load(), "statements run on dead connections")
		require.Zero(t, p.pool.Stats().OpenFailed, "connections that failed or that the server refused")
		require.NoError(t, closePG(admin))
	})
	return p
}

// rollBack ends the transaction that a borrower has left open.
func rollBack(b *backend) error {
	if b.TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.query(ctx, "rollback")
	return err
}

func (p *postgresTest) kill(t *testing.T, pid uint32) {
	t.Helper()
	// It waits until the backend is gone.
	killed, err := query(testContext(t), p.admin, "select pg_terminate_backend($1::int, 10000)", fmt.Sprint(pid))
	require.NoError(t, err)
	require.Equal(t, []string{"t"}, killed)
}

// count returns how many connections the server sees the pool have.
func (p *postgresTest) count(t *testing.T) int {
	t.Helper()
	counts, err := query(context.Background(), p.admin, "select count(*) from pg_stat_activity where usename = 'borrower'")
	require.NoError(t, err)
	n, err := strconv.Atoi(counts[0])
	require.NoError(t, err)
	return n
}

func (p *postgresTest) killedWhileIdle(t *testing.T) {
	ctx := testContext(t)
	require.NoError(t, p.pool.Warm(ctx, backends))
	require.Equal(t, backends, p.count(t))
	lease, err := p.pool.Acquire(ctx)
	require.NoError(t, err)
	victim := lease.Value().PID()
	require.NoError(t, lease.Close())
	p.kill(t, victim)

	require.NoError(t, p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		require.NotEqual(t, victim, b.PID())
		_, err := b.query(ctx, "select 1")
		return err
	}), "nobody is lent the dead one")
	s := requireSettled(t, p.pool)
	require.EqualValues(t, 1, s.DestroyedBroken)
	require.Equal(t, s.Idle, p.count(t))
}

func (p *postgresTest) killedOnLoan(t *testing.T) {
	ctx := testContext(t)
	var victim uint32
	err := p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		victim = b.PID()
		p.kill(t, victim)
		_, err := b.query(ctx, "select 1")
		return err
	})
	require.Error(t, err)
	require.True(t, backendIsGone(err), "%v", err)
	s := requireSettled(t, p.pool)
	require.EqualValues(t, 1, s.DestroyedBroken)
	require.Zero(t, s.Total)

	// An error that is about the statement costs no connection.
	var healthy uint32
	err = p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		healthy = b.PID()
		_, err := b.query(ctx, "select 1/0")
		return err
	})
	var answer *pgconn.PgError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, "22012", answer.Code)
	require.NotEqual(t, victim, healthy)
	require.NoError(t, p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		require.Equal(t, healthy, b.PID())
		_, err := b.query(ctx, "select 1")
		return err
	}))
	require.EqualValues(t, 2, requireSettled(t, p.pool).Opened)
}

func (p *postgresTest) returnedWithinTransaction(t *testing.T) {
	ctx := testContext(t)
	err := p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		if _, err := b.query(ctx, "begin"); err != nil {
			return err
		}
		_, err := b.query(ctx, "insert into done values (-1, 0)")
		return err
	})
	require.NoError(t, err)
	err = p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
		require.EqualValues(t, 'I', b.TxStatus(), "not in a transaction")
		rows, err := b.query(ctx, "select job from done where job = -1")
		require.Empty(t, rows)
		return err
	})
	require.NoError(t, err)
	s := requireSettled(t, p.pool)
	require.EqualValues(t, 1, s.Opened)
	require.Zero(t, s.DestroyedBroken)
}

func (p *postgresTest) killedAtRandom(t *testing.T) {
	const jobs = 400
	ctx := testContext(t)

	// Look often, and kill now and then, until the jobs are done.
	highest, kills := 0, 0
	done, killing := make(chan struct{}), make(chan error, 1)
	go func() {
		const look = "select count(*) from pg_stat_activity where usename = 'borrower'"
		// One without a state is still being opened, and that must not fail here.
		const kill = "select pg_terminate_backend(pid)::text from pg_stat_activity " +
			"where usename = 'borrower' and state is not null order by random() limit 1"
		for round := 1; ; round++ {
			select {
			case <-done:
				killing <- nil
				return
			case <-time.After(time.Millisecond):
			}
			sql := look
			if round%5 == 0 {
				sql = kill
			}
			rows, err := query(ctx, p.admin, sql)
			if err != nil {
				killing <- err
				return
			}
			if sql == kill {
				kills += len(rows)
			} else if n, _ := strconv.Atoi(rows[0]); n > highest {
				highest = n
			}
		}
	}()

	var retries atomic.Int64
	err := share(16, jobs, func(job int) error {
		for {
			err := p.pool.Do(ctx, func(ctx context.Context, b *backend) error {
				// A backend killed after the commit and before its answer has done the
				// job; whoever tries again must not do it twice.
				_, err := b.query(ctx, `with nap as materialized (select pg_sleep(0.002))
					insert into done select $1::int, pg_backend_pid() from nap on conflict do nothing`, strconv.Itoa(job))
				return err
			})
			if acquire := (*ration.AcquireError)(nil); errors.As(err, &acquire) || !backendIsGone(err) {
				return err
			}
			retries.Add(1)
		}
	})
	close(done)
	require.NoError(t, <-killing)
	require.NoError(t, err)

	rows, err := query(ctx, p.admin, "select job from done where job >= 0")
	require.NoError(t, err)
	require.Len(t, rows, jobs)
	require.Positive(t, kills)
	require.Positive(t, highest)
	require.LessOrEqual(t, highest, backends, "connections at a time, as the server saw them")
	s := requireSettled(t, p.pool)
	require.LessOrEqual(t, uint64(retries.Load()), s.DestroyedBroken, "a dead connection fails one borrower")
	require.LessOrEqual(t, s.DestroyedBroken, uint64(kills), "nobody breaks that was not killed")
	t.Logf("%d killed, %d jobs tried again, %d connections opened, at most %d at a time", kills, retries.Load(), s.Opened, highest)
}
