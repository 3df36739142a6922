package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// A partner is the API of somebody else: it knows nothing of this library,
// enforces its limits by its own clock, and keeps a book.
type partner struct {
	start time.Time

	mu      sync.Mutex
	full    time.Time // when the allowance will be all there again
	inside  int
	peak    int
	answers []answer
}

type answer struct {
	at     time.Duration // of the request's arrival
	status int
}

func (p *partner) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status := p.enter()
	switch status {
	case http.StatusOK:
		time.Sleep(work)
		p.leave() // before the answer: whoever reads it may call again
		fmt.Fprintln(w, "done")
	default:
		http.Error(w, http.StatusText(status), status)
	}
}

func (p *partner) enter() (status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	status = p.judge(now)
	p.answers = append(p.answers, answer{now.Sub(p.start), status})
	if status == http.StatusOK {
		p.inside++
		p.peak = max(p.peak, p.inside)
	}
	return status
}

// judge keeps the allowance as the time when all of it will be there again: a
// call moves that by what it takes to refill one, and is too many if it comes to
// lie more than a whole allowance ahead.
func (p *partner) judge(now time.Time) (status int) {
	full := p.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Second / allowedPerSecond)
	if full.Sub(now) > allowedBurst*time.Second/allowedPerSecond {
		return http.StatusTooManyRequests
	}
	p.full = full
	if p.inside >= allowedAtOnce {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

func (p *partner) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
}

// count returns how often the partner gave this answer.
func (p *partner) count(status int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.status == status {
			n++
		}
	}
	return n
}

// open serves the partner's API on a port of its own until it is closed.
func (p *partner) open() (url string, closeIt func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: p}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
