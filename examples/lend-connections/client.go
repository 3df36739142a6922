package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// A conn is one connection to the server, and what the pool lends.
type conn struct {
	*net.TCPConn
	in *bufio.Reader
}

// ask makes one round trip. After an error the connection is good for nothing:
// the answer may still be on its way, and whoever reads next would get it.
func (c *conn) ask(id, try int) (answer int, err error) {
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(c, id, try); err != nil {
		return 0, err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, err // an answer cut short, too
	}
	var about int
	if _, err := fmt.Sscan(line, &about, &answer); err != nil {
		return 0, err
	}
	if about != id {
		return 0, fmt.Errorf("asked about %d, got the answer about %d", id, about)
	}
	return answer, nil
}

// A dialer opens and closes connections for the pool.
type dialer struct {
	addr     string
	unparted atomic.Int64 // connections closed before the server had hung up
}

func (d *dialer) open(ctx context.Context) (*conn, error) {
	var dial net.Dialer
	nc, err := dial.DialContext(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: nc.(*net.TCPConn), in: bufio.NewReader(nc)}
	c.SetDeadline(time.Now().Add(ioTimeout))
	if _, err := c.in.ReadString('\n'); err != nil { // the hello
		d.close(c)
		return nil, err
	}
	return c, nil
}

// close returns when the server has hung up as well. The pool counts a
// connection until then, and opens none in its place.
func (d *dialer) close(c *conn) error {
	c.SetDeadline(time.Now().Add(ioTimeout))
	c.CloseWrite()                                                                   // fails where the server was first
	if _, err := io.Copy(io.Discard, c.in); errors.Is(err, os.ErrDeadlineExceeded) { // any other end is the server's doing
		d.unparted.Add(1)
	}
	return c.TCPConn.Close()
}
