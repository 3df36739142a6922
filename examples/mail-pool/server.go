package main

import (
	"net"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

const (
	hangUpAfter   = 25 // mails in a session
	overloadEvery = 29 // mails begun: the last of them is answered 421
	deliveryTakes = 4 * time.Millisecond
)

// How a session ended.
const (
	byHangUp   = "the server, without a word"
	byOverload = "the server, with 421"
	byQuit     = "the pool, with QUIT"
	byLoss     = "the line" // nobody should see this one
)

// A server speaks as much SMTP as it takes to receive a mail, and keeps books.
type server struct {
	listener net.Listener
	started  time.Time
	all      sync.WaitGroup

	mu        sync.Mutex
	lines     map[net.Conn]struct{} // that are open
	peak      int                   // the most there have been at once
	books     []*book
	begun     int            // mails
	delivered map[string]int // by subject
}

// A book is what the server notes of a session.
type book struct {
	from, to time.Duration // since the server has started
	mails    int           // delivered
	end      string
}

func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		listener:  listener,
		started:   time.Now(),
		lines:     make(map[net.Conn]struct{}),
		delivered: make(map[string]int),
	}
	s.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // stop has closed it
			}
			s.all.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

func (s *server) addr() string { return s.listener.Addr().String() }

// stop ends the server and what sessions there are. It may be called twice.
func (s *server) stop() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.lines {
		conn.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
}

// open returns how many sessions there are.
func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// deliveredOnce returns how many mails were delivered exactly once.
func (s *server) deliveredOnce() (n int) {
	for _, times := range s.delivered {
		if times == 1 {
			n++
		}
	}
	return n
}

func (s *server) ends() (hungUp, overloaded, quit int) {
	for _, b := range s.books {
		switch b.end {
		case byHangUp:
			hungUp++
		case byOverload:
			overloaded++
		case byQuit:
			quit++
		}
	}
	return hungUp, overloaded, quit
}

// serve is a session. The books are closed before the line is: who has seen the
// end of one session and opens the next is never counted twice.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	b := s.arrived(conn)
	end := s.talk(textproto.NewConn(conn), b)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.end, b.to = end, time.Since(s.started)
	delete(s.lines, conn)
}

func (s *server) arrived(conn net.Conn) *book {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[conn] = struct{}{}
	s.peak = max(s.peak, len(s.lines))
	b := &book{from: time.Since(s.started)}
	s.books = append(s.books, b)
	return b
}

// talk answers commands until the session ends, and returns how it did.
func (s *server) talk(line *textproto.Conn, b *book) (end string) {
	say := func(answer string) { line.PrintfLine("%s", answer) }
	say("220 localhost at your service")
	inMail := false
	for b.mails < hangUpAfter {
		command, err := line.ReadLine()
		if err != nil {
			return byLoss
		}
		switch verb, _, _ := strings.Cut(command, " "); strings.ToUpper(verb) {
		case "EHLO", "HELO", "NOOP", "RCPT":
			say("250 ok")
		case "RSET":
			inMail = false
			say("250 ok")
		case "MAIL":
			if inMail {
				say("503 one mail at a time")
				continue
			}
			if s.overloaded() {
				say("421 too busy, try again later")
				return byOverload
			}
			inMail = true
			say("250 ok")
		case "DATA":
			say("354 go ahead, end with a dot")
			text, err := line.ReadDotBytes()
			if err != nil {
				return byLoss
			}
			time.Sleep(deliveryTakes)
			s.deliver(string(text), b)
			inMail = false
			say("250 delivered")
		case "QUIT":
			say("221 bye")
			return byQuit
		default:
			say("500 what?")
		}
	}
	return byHangUp
}

func (s *server) overloaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return s.begun%overloadEvery == 0
}

func (s *server) deliver(text string, b *book) {
	subject, _, _ := strings.Cut(strings.TrimPrefix(text, "Subject: "), "\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	b.mails++
	s.delivered[subject]++
}
