package main

import (
	"context"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

// deliveryTakes is how long the server thinks about a mail.
const deliveryTakes = 25 * time.Millisecond

// A session is a client's, with the mail server.
type session struct{ *smtp.Client }

func dial(ctx context.Context, addr string) (*session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second)) // for the greeting
	client, err := smtp.NewClient(conn, "localhost")   // closes conn if it fails
	if err != nil {
		return nil, err
	}
	if err := client.Hello("localhost"); err != nil {
		client.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &session{client}, nil
}

func (s *session) send(from, to, text string) error {
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
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return w.Close()
}

// A mailServer takes mails on the loopback interface and throws them away.
type mailServer struct {
	listener net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func startMailServer() (*mailServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailServer{listener: listener, conns: make(map[net.Conn]bool)}
	m.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // stop has closed it
			}
			m.mu.Lock()
			m.conns[conn] = true
			m.mu.Unlock()
			m.all.Go(func() { m.serve(conn) })
		}
	})
	return m, nil
}

func (m *mailServer) addr() string { return m.listener.Addr().String() }

func (m *mailServer) stop() {
	m.listener.Close()
	m.mu.Lock()
	for conn := range m.conns {
		conn.Close()
	}
	m.mu.Unlock()
	m.all.Wait()
}

func (m *mailServer) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		m.mu.Lock()
		delete(m.conns, conn)
		m.mu.Unlock()
	}()
	line := textproto.NewConn(conn)
	answer := "220 localhost"
	for {
		if line.PrintfLine("%s", answer) != nil || strings.HasPrefix(answer, "221") {
			return
		}
		command, err := line.ReadLine()
		if err != nil {
			return
		}
		answer = "250 ok"
		switch verb, _, _ := strings.Cut(command, " "); strings.ToUpper(verb) {
		case "DATA":
			if line.PrintfLine("354 go ahead") != nil {
				return
			}
			if _, err := io.Copy(io.Discard, line.DotReader()); err != nil {
				return
			}
			time.Sleep(deliveryTakes)
		case "QUIT":
			answer = "221 bye"
		}
	}
}
