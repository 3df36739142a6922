package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A server squares numbers over TCP, one request after the other on each
// connection, and now and then spoils the connection instead.
//
//	server: hello              once, when the connection has been counted
//	client: <id> <try>
//	server: <id> <id squared>  or the end of the connection
//
// The server is the witness of how many connections are open at once. What it
// would see by itself is late: a connection is made before it is accepted, and
// goes on existing here for a while after the client has closed it. So both
// ends are agreed on. A client does not use a connection before the hello,
// which is sent after counting it; and when a client takes leave it waits for
// the server to hang up, which is done after uncounting it. Whatever a client
// calls open is therefore in the count, with no grace period either way.
type server struct {
	listener net.Listener
	handlers sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool // open now
	accepted int
	peak     int
	answered int
	spoiled  [fates]int
}

// A fate is what becomes of one request.
type fate int

const (
	dropped     fate = iota // the connection ends without a word
	interrupted             // it ends in the middle of the answer
	reset                   // it is reset
	garbled                 // it stays, but the answer is nonsense
	fates                   // whatever is drawn from here on is a right answer
)

const (
	spoilOneIn = 24
	parting    = time.Millisecond // what it takes to hang up after the client
)

// draw decides, by the seed alone, how long a request takes and how it ends:
// every run spoils the same requests, whoever sends them and in whatever order.
func draw(id, try int) (work time.Duration, f fate) {
	r := rand.New(rand.NewPCG(seed, uint64(id)<<16|uint64(try)))
	work = 500*time.Microsecond + time.Duration(r.IntN(2000))*time.Microsecond
	return work, fate(r.IntN(spoilOneIn * int(fates)))
}

func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, conns: make(map[net.Conn]bool)}
	s.handlers.Go(s.accept)
	return s, nil
}

func (s *server) addr() string { return s.listener.Addr().String() }

func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return // stopped
		}
		s.mu.Lock()
		s.conns[c] = true
		s.accepted++
		s.peak = max(s.peak, len(s.conns))
		s.mu.Unlock()
		s.handlers.Go(func() { s.serve(c) })
	}
}

func (s *server) serve(c net.Conn) {
	defer s.hangUp(c)
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		var id, try int
		if _, err := fmt.Sscan(lines.Text(), &id, &try); err != nil {
			return
		}
		work, f := draw(id, try)
		time.Sleep(work)
		if f < fates {
			if s.spoil(c, f, id); f != garbled {
				return
			}
			continue
		}
		s.mu.Lock()
		s.answered++
		s.mu.Unlock()
		if _, err := fmt.Fprintln(c, id, id*id); err != nil {
			return
		}
	}
	time.Sleep(parting)
}

func (s *server) spoil(c net.Conn, f fate, id int) {
	s.mu.Lock()
	s.spoiled[f]++
	s.mu.Unlock()
	switch f {
	case interrupted:
		fmt.Fprint(c, id, " ") // the square never comes
	case reset:
		c.(*net.TCPConn).SetLinger(0)
	case garbled:
		fmt.Fprintln(c, "?")
	}
}

// hangUp uncounts first: who sees the end of the connection is not in the
// count any more.
func (s *server) hangUp(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Close()
}

// open returns how many connections are open now.
func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// stop ends the server and waits for its goroutines.
func (s *server) stop() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.SetDeadline(time.Now())
	}
	s.mu.Unlock()
	s.handlers.Wait()
}
