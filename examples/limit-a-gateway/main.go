// Limit-a-gateway puts a fair semaphore in front of an HTTP handler: three
// requests are worked on at a time, a few more may wait in order of arrival,
// and the rest is told to come back later instead of piling up.
//
// Thirty clients come at once. One of them hangs up while it waits; its place
// in the queue is free at once, since the handler waits on the request's
// context.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ration-go/ration"
)

const (
	clients     = 30
	atOnce      = 3  // requests worked on at the same time
	mayWait     = 12 // requests that may wait for it
	work        = 60 * time.Millisecond
	retryAfter  = 1 // second, the smallest that HTTP can say
	impatient   = 10
	patience    = 50 * time.Millisecond // of the impatient client
	maxAttempts = 20
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limit-a-gateway:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	gw := newGateway()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: gw}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	fmt.Fprintf(out, "%d clients, %d served at a time, %d may wait, the others get 503 and Retry-After: %d.\n\n",
		clients, atOnce, mayWait, retryAfter)

	transport := &http.Transport{}
	crowd := crowd{
		url:    "http://" + listener.Addr().String(),
		client: &http.Client{Transport: transport},
		gw:     gw,
		start:  time.Now(),
	}
	outcomes := crowd.comeAtOnce(ctx)

	transport.CloseIdleConnections()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return report(out, gw, outcomes)
}

// A gateway is the handler, and the book it keeps.
type gateway struct {
	permits *ration.Semaphore

	mu      sync.Mutex
	arrived []int // clients, in order of arrival, but for those refused
	started []int // clients, in order of service
	refused int
	left    int // hung up while waiting
	inside  int
	peak    int
}

func newGateway() *gateway {
	return &gateway{
		permits: ration.NewSemaphore(atOnce, &ration.SemaphoreOptions{Fair: true, MaxWaiters: mayWait}),
	}
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, err := strconv.Atoi(r.Header.Get("Client"))
	if err != nil {
		http.Error(w, "who are you?", http.StatusBadRequest)
		return
	}
	g.note(func() { g.arrived = append(g.arrived, client) })

	switch err := g.permits.Acquire(r.Context(), 1); {
	case errors.Is(err, ration.ErrQueueFull):
		g.note(func() { g.refused++; g.forget(client) })
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		http.Error(w, "too many are waiting already", http.StatusServiceUnavailable)
		return
	case err != nil: // the client hung up: nobody is left to answer
		g.note(func() { g.left++; g.forget(client) })
		return
	}
	defer g.permits.Release(1)

	g.note(func() {
		g.started = append(g.started, client)
		g.inside++
		g.peak = max(g.peak, g.inside)
	})
	time.Sleep(work) // stands for the backend that must not be overrun
	g.note(func() { g.inside-- })
	fmt.Fprintln(w, "done")
}

func (g *gateway) note(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
}

// forget strikes the client's last arrival, which led to nothing.
func (g *gateway) forget(client int) {
	for i := len(g.arrived) - 1; i >= 0; i-- {
		if g.arrived[i] == client {
			g.arrived = slices.Delete(g.arrived, i, i+1)
			return
		}
	}
}

// settled counts the requests that are past the door: let in, waiting in the
// queue, or gone. It may lag behind but never runs ahead.
func (g *gateway) settled() int {
	g.mu.Lock()
	past := len(g.started) + g.refused + g.left
	g.mu.Unlock()
	return past + g.permits.Waiters() // last: who leaves the queue meanwhile is missed, not counted twice
}

// An outcome is what one client went through.
type outcome struct {
	client   int
	attempts []attempt
	err      error
}

type attempt struct {
	sent, done time.Duration // since the start
	status     int           // 0 when the client hung up
}

// A crowd is the clients and the pavement before the gateway.
type crowd struct {
	url    string
	client *http.Client
	gw     *gateway
	start  time.Time

	door sync.Mutex // held by the client that is on its way in
	sent int        // requests so far; guarded by door
}

func (c *crowd) comeAtOnce(ctx context.Context) []outcome {
	outcomes := make([]outcome, clients)
	var all sync.WaitGroup
	for i := range outcomes {
		c.door.Lock() // so that they are numbered in the order they come
		all.Go(func() { outcomes[i] = c.visit(ctx, i+1) })
	}
	all.Wait()
	return outcomes
}

// visit is one client: it tries until it is served, and waits in between for
// as long as the gateway told it to. The caller has locked the door for it.
func (c *crowd) visit(ctx context.Context, client int) outcome {
	o := outcome{client: client}
	for range maxAttempts {
		a, wait, err := c.try(ctx, client)
		o.attempts = append(o.attempts, a)
		if a.status != http.StatusServiceUnavailable || err != nil {
			o.err = err
			return o
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			o.err = ctx.Err()
			return o
		}
		c.door.Lock()
	}
	o.err = fmt.Errorf("client %d was sent away %d times", client, maxAttempts)
	return o
}

// try sends one request, and unlocks the door as soon as the gateway knows of
// it.
func (c *crowd) try(ctx context.Context, client int) (attempt, time.Duration, error) {
	a := attempt{sent: time.Since(c.start)}
	c.sent++
	sent, answered, in := c.sent, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(in)
		c.unlockDoor(sent, answered)
	}()
	defer func() {
		close(answered)
		<-in
	}()

	if client == impatient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return a, 0, err
	}
	request.Header.Set("Client", strconv.Itoa(client))
	response, err := c.client.Do(request)
	a.done = time.Since(c.start)
	if err != nil {
		if client == impatient && errors.Is(err, context.DeadlineExceeded) {
			err = nil // as planned
		}
		return a, 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return a, 0, err
	}
	a.status = response.StatusCode
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return a, time.Duration(seconds) * time.Second, nil
}

// unlockDoor waits until all requests sent so far are in the gateway, and lets
// the next client go. Without the door, "order of arrival" would be a matter
// of opinion: two requests that are read in the same microsecond may reach the
// semaphore in either order. All the waiting still happens side by side.
func (c *crowd) unlockDoor(sent int, answered <-chan struct{}) {
	defer c.door.Unlock()
	for c.gw.settled() < sent {
		select {
		case <-answered:
			return
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// report draws what happened and checks what was promised.
func report(out io.Writer, gw *gateway, outcomes []outcome) error {
	var last time.Duration
	for _, o := range outcomes {
		last = max(last, o.attempts[len(o.attempts)-1].done)
	}
	const columns = 68
	column := func(t time.Duration) int { return int(t * (columns - 1) / last) }

	fmt.Fprintf(out, "client  0 %*s\n", columns-2, last.Round(time.Millisecond))
	var served, sentAway, hungUp int
	var errs []error
	for _, o := range outcomes {
		line := []byte(strings.Repeat(" ", columns))
		for _, a := range o.attempts {
			draw(line, column(a.sent), column(max(a.sent, a.done-work)), column(a.done), a.status)
			switch a.status {
			case http.StatusOK:
				served++
			case http.StatusServiceUnavailable:
				sentAway++
			default:
				hungUp++
			}
		}
		fmt.Fprintf(out, "  %2d    %s\n", o.client, strings.TrimRight(string(line), " "))
		errs = append(errs, o.err)
	}
	fmt.Fprintf(out, "        . waits in the queue   # is served   x got 503   / hung up\n\n")

	fmt.Fprintf(out, "arrived  %s\n", numbers(gw.arrived))
	fmt.Fprintf(out, "served   %s\n\n", numbers(gw.started))
	fmt.Fprintf(out, "%d served, %d answers of 503 honoured, %d hung up while waiting; at most %d were inside at once\n",
		served, sentAway, hungUp, gw.peak)

	if gw.peak > atOnce {
		errs = append(errs, fmt.Errorf("%d were inside at once, want at most %d", gw.peak, atOnce))
	}
	if n := mostOvertaken(gw.arrived, gw.started); n >= atOnce {
		errs = append(errs, fmt.Errorf("somebody was served before %d who had come earlier", n))
	}
	if served+hungUp != clients {
		errs = append(errs, fmt.Errorf("%d clients were served and %d hung up, of %d", served, hungUp, clients))
	}
	if held, waiters := gw.permits.Held(), gw.permits.Waiters(); held != 0 || waiters != 0 {
		errs = append(errs, fmt.Errorf("in the end %d permits are held and %d wait", held, waiters))
	}
	return errors.Join(errs...)
}

// mostOvertaken returns the largest number of earlier arrivals that anybody
// was served before. The semaphore grants in strict order, but a handler that
// has its permit still has to wake up and sign the book, and those that hold
// permits at the same time may sign in any order. That is at most atOnce-1
// places; queue jumping would know no such bound.
func mostOvertaken(arrived, started []int) int {
	most := 0
	for i, client := range started {
		passed := 0
		for _, earlier := range arrived[:slices.Index(arrived, client)] {
			if !slices.Contains(started[:i], earlier) {
				passed++
			}
		}
		most = max(most, passed)
	}
	return most
}

func draw(line []byte, sent, started, done, status int) {
	fill := func(from, to int, mark byte) {
		for i := from; i <= to; i++ {
			line[i] = mark
		}
	}
	switch status {
	case http.StatusOK:
		fill(sent, started, '.')
		fill(started, done, '#')
	case http.StatusServiceUnavailable:
		line[sent] = 'x'
	default:
		fill(sent, done, '.')
		line[done] = '/'
	}
}

func numbers(clients []int) string {
	words := make([]string, len(clients))
	for i, c := range clients {
		words[i] = strconv.Itoa(c)
	}
	return strings.Join(words, " ")
}
