// Mail-pool sends 200 mails from 16 workers over 4 SMTP sessions, to a server
// with the habits of real ones: it hangs up on a session that has delivered 25
// mails, and answers 421, "try again later", when it has had enough for now.
//
// A pool lends the sessions. What is special about SMTP is said in its options:
// RSET clears a session when it comes back, NOOP tries one before it is lent, 421
// or silence mean that it is of no use any more, and QUIT ends it. A mail whose
// session turns out to be gone is sent again over another.
//
// A table shows every session, and then every claim is checked against the
// server's own books. The program fails if one does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration"
)

const (
	sessions = 4
	workers  = 16
	mails    = 200
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mail-pool:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	goroutines := runtime.NumGoroutine()

	server, err := startServer()
	if err != nil {
		return err
	}
	defer server.stop()
	pool, err := newPool(server.addr())
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d mails, %d workers, %d sessions; the server hangs up after %d mails, and answers 421 now and then.\n\n",
		mails, workers, sessions, hangUpAfter)
	start := time.Now()
	retries, err := sendAll(ctx, pool)
	took := time.Since(start)
	audit := pool.Audit()
	if err := errors.Join(err, pool.Close(ctx)); err != nil {
		return err
	}
	open := server.open() // asked before the server hangs up by itself
	server.stop()
	printSessions(out, server.books)

	p := proof{out: out}
	st := pool.Stats()
	once := server.deliveredOnce()
	p.claim("every mail delivered once", once == mails && len(server.delivered) == mails,
		"%d of %d, in %v; %d had to be sent again", once, mails, took.Round(time.Millisecond), retries)
	p.claim("never more than 4 sessions", server.peak <= sessions,
		"at most %d at once, of %d in all, counted by the server", server.peak, len(server.books))
	hungUp, overloaded, quit := server.ends()
	p.claim("every lost session replaced", st.DestroyedBroken == uint64(hungUp+overloaded) && st.DestroyedClosed == uint64(quit),
		"%d opened; %d hung up on, %d told 421, %d ended by QUIT", st.Opened, hungUp, overloaded, quit)
	audit = errors.Join(audit, pool.Audit())
	p.claim("the pool's books are in order", audit == nil, "Audit clean before and after Close")
	left := leftGoroutines(goroutines)
	p.claim("nothing left behind", open == 0 && st.Total == 0 && st.Held == 0 && left == 0,
		"%d sessions, %d leases, %d permits, %d goroutines", open, st.Leased, st.Held, left)
	return errors.Join(audit, p.failed)
}

func newPool(addr string) (*ration.Pool[*session], error) {
	dial := func(ctx context.Context) (*session, error) { return dial(ctx, addr) }
	return ration.NewPool(sessions, dial, &ration.PoolOptions[*session]{
		Name:       "mail",
		Reset:      func(s *session) error { return s.Reset() },
		Check:      func(_ context.Context, s *session) error { return s.Noop() },
		CheckAfter: 10 * time.Millisecond, // RSET has just shown the others to be alive
		Broken:     isGone,
		Close:      (*session).quit,
	})
}

// isGone says whether err means that a session is of no use any more: the server
// says so, or says nothing. Any other answer is about the mail.
func isGone(err error) bool {
	var answer *textproto.Error
	return !errors.As(err, &answer) || answer.Code == 421
}

// sendAll returns when the workers have sent all mails.
func sendAll(ctx context.Context, pool *ration.Pool[*session]) (retries int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var again atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for id := w; id < mails; id += workers {
				n, err := send(ctx, pool, fmt.Sprintf("mail %d", id))
				again.Add(n)
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return again.Load(), context.Cause(ctx)
}

// send sends a mail, if need be several times. That delivers it once because the
// server ends sessions between mails only: one that ends between the last line
// of a mail and the answer would leave the sender in doubt.
func send(ctx context.Context, pool *ration.Pool[*session], subject string) (retries int64, err error) {
	for {
		err := pool.Do(ctx, func(_ context.Context, s *session) error {
			return s.send("pool@example.com", "reader@example.com", subject)
		})
		if none := (*ration.AcquireError)(nil); err == nil || errors.As(err, &none) || !isGone(err) {
			return retries, err
		}
		retries++
	}
}

// A session is the client's end of one.
type session struct {
	*smtp.Client
	conn net.Conn
}

func dial(ctx context.Context, addr string) (*session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	hurry := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer hurry()
	client, err := smtp.NewClient(conn, "localhost") // closes conn if it fails
	if err != nil {
		return nil, err
	}
	if err := client.Hello("localhost"); err != nil {
		client.Close()
		return nil, err
	}
	return &session{client, conn}, nil
}

func (s *session) send(from, to, subject string) error {
	if err := s.Mail(from); err != nil {
		return err
	}
	if err := s.Rcpt(to); err != nil {
		return err
	}
	w, err := s.Data()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Subject: %s\r\n\r\nHello from the pool.\r\n", subject)
	return w.Close()
}

// quit ends the session and waits for the server to end it too, so that the
// server has forgotten it when the pool opens the next.
func (s *session) quit() error {
	s.conn.SetDeadline(time.Now().Add(10 * time.Second))
	s.Text.Cmd("QUIT") // fails if the server has hung up
	io.Copy(io.Discard, s.Text.R)
	return s.Client.Close()
}

// printSessions prints a line for each session there has been.
func printSessions(out io.Writer, books []*book) {
	fmt.Fprintf(out, "session  from to [ms]  mails%*s  ended by\n", hangUpAfter-len("mails"), "")
	for i, b := range books {
		fmt.Fprintf(out, "%7d  %4d %5d    %-*s  %s\n", i+1,
			b.from.Milliseconds(), b.to.Milliseconds(), hangUpAfter, strings.Repeat("#", b.mails), b.end)
	}
	fmt.Fprintln(out)
}

// A proof prints claims and collects those that do not hold.
type proof struct {
	out    io.Writer
	failed error
}

func (p *proof) claim(what string, holds bool, format string, args ...any) {
	verdict := "ok"
	if !holds {
		verdict = "FAILED"
		p.failed = errors.Join(p.failed, fmt.Errorf("does not hold: %s", what))
	}
	fmt.Fprintf(p.out, "%-6s  %-29s  %s\n", verdict, what, fmt.Sprintf(format, args...))
}

// leftGoroutines returns how many goroutines there are beyond the number at
// the start, after giving those that are on their way out time to leave.
func leftGoroutines(before int) int {
	for range 200 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return max(0, runtime.NumGoroutine()-before)
}
