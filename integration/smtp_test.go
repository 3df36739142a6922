package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// A mailer is a session with an SMTP server.
type mailer struct {
	*smtp.Client
	conn net.Conn
	sent int  // MAIL commands
	gone bool // it has been found to be
}

func dialMailer(ctx context.Context, addr string) (*mailer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client, err := smtp.NewClient(conn, "localhost") // closes conn if it fails
	if err != nil {
		return nil, err
	}
	if err := client.Hello("localhost"); err != nil {
		client.Close()
		return nil, err
	}
	return &mailer{Client: client, conn: conn}, nil
}

func (m *mailer) send(to, subject string) (err error) {
	m.sent++
	defer func() { m.gone = err != nil && sessionIsGone(err) }()
	if err := m.Mail("pool@example.com"); err != nil {
		return err
	}
	if err := m.Rcpt(to); err != nil {
		return err
	}
	w, err := m.Data()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "Subject: %s\r\n\r\nDear reader,\r\nthis is %s.\r\n", subject, subject); err != nil {
		return err
	}
	return w.Close()
}

// quit ends the session, and returns when the server has ended it too: the
// server must have forgotten it before the pool opens the next.
func (m *mailer) quit() error {
	defer m.Close()
	m.conn.SetDeadline(time.Now().Add(patience))
	m.Text.Cmd("QUIT") // if it cannot be sent, the server has hung up
	_, err := io.Copy(io.Discard, m.Text.R)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return nil // a reset is an end as well
}

// sessionIsGone says whether err means that an SMTP session is of no use any more:
// the server has said so, or it says nothing. Any other answer, a refused
// recipient for example, is about the mail.
func sessionIsGone(err error) bool {
	var answer *textproto.Error
	return !errors.As(err, &answer) || answer.Code == 421
}

const sessions = 4

func newMailPool(t *testing.T, office *postOffice, opts *ration.PoolOptions[*mailer]) *ration.Pool[*mailer] {
	t.Helper()
	opts.Name = "smtp"
	opts.Reset = func(m *mailer) error {
		assert.False(t, m.gone, "a session that is gone is not reset")
		return m.Reset()
	}
	opts.Check = func(_ context.Context, m *mailer) error {
		assert.False(t, m.gone, "a session that is gone is not kept")
		return m.Noop()
	}
	opts.Close = (*mailer).quit
	opts.Broken = sessionIsGone
	opts.OpenTimeout = patience
	pool, err := ration.NewPool(sessions, func(ctx context.Context) (*mailer, error) {
		return dialMailer(ctx, office.addr)
	}, opts)
	require.NoError(t, err)
	return pool
}

// A campaign is what sendMails did.
type campaign struct {
	retries, undeliverable atomic.Int64
	maxSent                atomic.Int64 // MAIL commands in one session
}

// sendMails sends mails from 16 workers over the pool, and between them others
// to somebody who does not exist. A mail is tried again when its session, or the
// attempt to open one, turns out to be gone; the office ends sessions only
// between mails, so that this is safe.
func sendMails(ctx context.Context, pool *ration.Pool[*mailer], mails int) (*campaign, error) {
	var c campaign
	return &c, share(16, mails+mails/25, func(job int) error {
		to, subject := "reader@example.com", fmt.Sprintf("mail %d", job)
		if job >= mails {
			to = nobody
		}
		for {
			err := pool.Do(ctx, func(_ context.Context, m *mailer) error {
				err := m.send(to, subject)
				for n := c.maxSent.Load(); int64(m.sent) > n && !c.maxSent.CompareAndSwap(n, int64(m.sent)); n = c.maxSent.Load() {
				}
				return err
			})
			var answer *textproto.Error
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return err
			case errors.As(err, &answer) && answer.Code == 550 && to == nobody:
				c.undeliverable.Add(1)
				return nil
			case sessionIsGone(err):
				c.retries.Add(1)
			default:
				return err
			}
		}
	})
}

func TestSMTP_EachMailIsDeliveredOnce(t *testing.T) {
	const mails = 500
	for _, test := range []struct {
		name    string
		office  *postOffice
		maxUses int
		check   func(t *testing.T, o *postOffice, c *campaign, s ration.PoolStats)
	}{
		{
			name:    "sessions are replaced before they reach the limit of the server",
			office:  &postOffice{perSession: 100},
			maxUses: 100,
			check: func(t *testing.T, o *postOffice, c *campaign, s ration.PoolStats) {
				require.Zero(t, o.ended, "sessions the server had to end")
				require.Zero(t, s.DestroyedBroken)
				require.GreaterOrEqual(t, s.DestroyedExpired, uint64(2)) // 4 sessions of under 100 leave over 100 mails
				require.EqualValues(t, 100, c.maxSent.Load())
				require.Zero(t, c.retries.Load())
			},
		},
		{
			name:   "sessions that reach the limit of the server are discarded",
			office: &postOffice{perSession: 100},
			check: func(t *testing.T, o *postOffice, c *campaign, s ration.PoolStats) {
				require.Positive(t, o.ended)
				require.EqualValues(t, o.ended, s.DestroyedBroken)
				require.EqualValues(t, o.ended, c.retries.Load())
				require.Zero(t, s.DestroyedExpired)
			},
		},
		{
			name:   "the server is overloaded now and then",
			office: &postOffice{overloadEvery: 19, refuseEvery: 3},
			check: func(t *testing.T, o *postOffice, c *campaign, s ration.PoolStats) {
				require.Greater(t, o.overloads, mails/19)
				require.EqualValues(t, o.overloads, s.DestroyedBroken)
				require.Positive(t, o.refused)
				require.EqualValues(t, o.refused, s.OpenFailed)
				retries := int(c.retries.Load()) // a refused connection may find its borrower served by a return
				require.GreaterOrEqual(t, retries, o.overloads)
				require.LessOrEqual(t, retries, o.overloads+o.refused, "each 421 answers one borrower")
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			office := test.office
			office.start(t)
			pool := newMailPool(t, office, &ration.PoolOptions[*mailer]{MaxUses: test.maxUses})

			c, err := sendMails(testContext(t), pool, mails)
			require.NoError(t, err)

			s := requireSettled(t, pool)
			require.LessOrEqual(t, s.Idle, sessions)
			require.EqualValues(t, s.Idle, office.connections.now.Load(), "sessions the server sees")
			requireClosed(t, pool)
			require.Zero(t, office.connections.now.Load(), "sessions after Close, as the server sees them")

			require.LessOrEqual(t, office.connections.highest.Load(), int64(sessions), "sessions at a time, as the server saw them")
			office.mu.Lock()
			defer office.mu.Unlock()
			require.Len(t, office.delivered, mails)
			for subject, times := range office.delivered {
				require.Equal(t, 1, times, subject)
			}
			require.EqualValues(t, mails/25, c.undeliverable.Load(), "mails refused for their recipient")
			require.Equal(t, mails/25, office.unknown, "a refused recipient is no reason to try again")
			require.EqualValues(t, office.accepted, s.Opened)
			test.check(t, office, c, s)
		})
	}
}

func TestSMTP_SessionsTheServerHasDroppedAreNotLent(t *testing.T) {
	ctx := testContext(t)
	var office postOffice
	office.start(t)
	pool := newMailPool(t, &office, &ration.PoolOptions[*mailer]{})
	require.NoError(t, pool.Warm(ctx, sessions))
	require.EqualValues(t, sessions, office.connections.now.Load())

	office.hangUp()
	for i := range sessions + 1 {
		require.NoError(t, pool.Do(ctx, func(_ context.Context, m *mailer) error {
			return m.send("reader@example.com", fmt.Sprintf("mail %d", i))
		}), "no retry: Check has found the dead session before it was lent")
	}

	require.Positive(t, requireSettled(t, pool).DestroyedBroken)
	requireClosed(t, pool)
	require.Len(t, office.delivered, sessions+1)
	require.LessOrEqual(t, office.connections.highest.Load(), int64(sessions))
	require.Zero(t, office.connections.now.Load())
}

func TestSMTP_HalfAMailIsResetOnReturn(t *testing.T) {
	ctx := testContext(t)
	var office postOffice
	office.start(t)
	pool := newMailPool(t, &office, &ration.PoolOptions[*mailer]{})

	lease, err := pool.Acquire(ctx)
	require.NoError(t, err)
	first := lease.Value()
	require.NoError(t, first.Mail("somebody@example.com"))
	require.NoError(t, lease.Close())

	require.NoError(t, pool.Do(ctx, func(_ context.Context, m *mailer) error {
		require.Same(t, first, m)
		return m.send("reader@example.com", "a whole mail")
	}))
	requireSettled(t, pool)
	requireClosed(t, pool)
	require.Equal(t, map[string]int{"a whole mail": 1}, office.delivered)
}

func TestSMTP_ALeaseOutlivesNoClose(t *testing.T) {
	ctx := testContext(t)
	var office postOffice
	office.start(t)
	pool := newMailPool(t, &office, &ration.PoolOptions[*mailer]{})
	lease, err := pool.AcquireWith(ctx, ration.AcquireOptions{Owner: "the slow one"})
	require.NoError(t, err)

	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	err = pool.Close(soon)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `"the slow one"`)
	require.EqualValues(t, 1, office.connections.now.Load(), "the session on loan")

	require.NoError(t, lease.Value().send("reader@example.com", "last mail"))
	require.NoError(t, lease.Close())
	require.Zero(t, office.connections.now.Load())
	require.NoError(t, pool.Close(ctx))
	require.Equal(t, map[string]int{"last mail": 1}, office.delivered)
}
