package integration

import (
	"bufio"
	"io"
	"log"
	"maps"
	"net"
	"net/textproto"
	"slices"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
)

// A postOffice is an SMTP server that counts who is connected, remembers what
// was delivered, and has the habits of real ones: it ends sessions that have
// delivered enough, is overloaded now and then, and knows not every recipient.
type postOffice struct {
	// The habits; 0 means never.
	perSession    int // messages in a session; MAIL for a further one is answered 421
	overloadEvery int // MAIL commands; the last of them is answered 421
	refuseEvery   int // connections; the last of them is greeted with 421

	addr   string
	server *smtp.Server

	connections peak // each counts until the peer can see its end, not longer

	mu        sync.Mutex
	open      map[*lineToClient]struct{}
	delivered map[string]int // by subject
	accepted  int            // connections, refused ones not included
	refused   int            // connections
	mails     int            // MAIL commands
	ended     int            // sessions ended for a limit
	overloads int            // sessions ended for overload
	unknown   int            // recipients not known
}

const nobody = "nobody@example.com" // no recipient of this name is known

func (o *postOffice) start(t *testing.T) {
	t.Helper()
	o.open = make(map[*lineToClient]struct{})
	o.delivered = make(map[string]int)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.addr = listener.Addr().String()
	o.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &counter{office: o, conn: c}, nil
	}))
	o.server.Domain = "localhost"
	o.server.ErrorLog = log.New(io.Discard, "", 0)
	served := make(chan error, 1)
	go func() { served <- o.server.Serve(&doorkeeper{listener, o}) }()
	t.Cleanup(func() {
		require.NoError(t, o.server.Close())
		require.NoError(t, <-served)
	})
}

// hangUp ends all sessions, as a restart would.
func (o *postOffice) hangUp() {
	o.mu.Lock()
	lines := slices.Collect(maps.Keys(o.open))
	o.mu.Unlock()
	for _, l := range lines {
		l.Close()
	}
}

// A doorkeeper greets some connections with 421 and counts the others.
type doorkeeper struct {
	net.Listener
	office *postOffice
}

func (d *doorkeeper) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if line := d.office.admit(conn); line != nil {
			return line, nil
		}
		io.WriteString(conn, "421 4.3.2 too many connections, try again later\r\n")
		conn.Close()
	}
}

func (o *postOffice) admit(conn net.Conn) *lineToClient {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuseEvery > 0 && (o.accepted+o.refused+1)%o.refuseEvery == 0 {
		o.refused++
		return nil
	}
	o.accepted++
	o.connections.add(1)
	line := &lineToClient{Conn: conn, office: o}
	o.open[line] = struct{}{}
	return line
}

// A lineToClient is counted out just before the peer is told of its end: a
// client that waits for the end before it connects again is never counted twice.
type lineToClient struct {
	net.Conn
	office *postOffice
	once   sync.Once
}

func (l *lineToClient) Close() error {
	l.once.Do(func() {
		l.office.mu.Lock()
		defer l.office.mu.Unlock()
		delete(l.office.open, l)
		l.office.connections.add(-1)
	})
	return l.Conn.Close()
}

// A counter is where one client is served.
type counter struct {
	office   *postOffice
	conn     *smtp.Conn
	messages int
	begun    bool // a mail has been, and has not ended
}

func (c *counter) Mail(string, *smtp.MailOptions) error {
	if c.begun {
		return &smtp.SMTPError{Code: 503, EnhancedCode: smtp.EnhancedCode{5, 5, 1}, Message: "nested MAIL"}
	}
	if c.enough() {
		c.conn.Reject() // answers 421 and hangs up
		return smtp.ErrServerClosed
	}
	c.begun = true
	return nil
}

func (c *counter) enough() bool {
	o := c.office
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mails++
	switch {
	case o.perSession > 0 && c.messages >= o.perSession:
		o.ended++
	case o.overloadEvery > 0 && o.mails%o.overloadEvery == 0:
		o.overloads++
	default:
		return false
	}
	return true
}

func (c *counter) Rcpt(to string, _ *smtp.RcptOptions) error {
	if to != nobody {
		return nil
	}
	c.office.mu.Lock()
	defer c.office.mu.Unlock()
	c.office.unknown++
	return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such mailbox"}
}

func (c *counter) Data(r io.Reader) error {
	header, err := textproto.NewReader(bufio.NewReader(r)).ReadMIMEHeader()
	if err != nil {
		return err
	}
	c.messages++
	c.office.mu.Lock()
	defer c.office.mu.Unlock()
	c.office.delivered[header.Get("Subject")]++
	return nil
}

func (c *counter) Reset()        { c.begun = false }
func (c *counter) Logout() error { return nil }
