// Rate-then-concurrency calls a partner's API that allows 50 calls a second, 10
// of them in a burst, and 4 at once. A TokenBucket keeps the first limit and a
// Semaphore the second: first a token ("may start"), then a permit ("may run").
//
// Three clients make 200 calls each, with 20 workers: one keeps both limits,
// the others only one. The partner counts what it had to refuse.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration"
)

// What the partner allows.
const (
	allowedPerSecond = 50
	allowedBurst     = 10
	allowedAtOnce    = 4
	work             = 40 * time.Millisecond // for each call
)

const (
	calls   = 200
	workers = 20

	// The partner counts a call when it arrives, and not when its token was taken.
	// Calls that are held up on the way and then arrive together are a burst to
	// it, so the difference of the bursts is what may be on the way: five tokens,
	// or a tenth of a second's hiccup.
	burst = allowedBurst / 2

	// ideal is when the last token comes, and its call is done.
	ideal = time.Second*(calls-burst)/allowedPerSecond + work
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rate-then-concurrency:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	fmt.Fprintf(out, "The partner allows %d calls a second, %d of them in a burst, and %d at once.\n",
		allowedPerSecond, allowedBurst, allowedAtOnce)
	fmt.Fprintf(out, "%d calls by %d workers; with a burst of %d they take %.2f s at best.\n\n",
		calls, workers, burst, ideal.Seconds())

	clients := []*client{
		{name: "token, then permit", rate: true, atOnce: true},
		{name: "only a token", rate: true},
		{name: "only a permit", atOnce: true},
	}
	stalled := watchMachine(ctx)
	var all sync.WaitGroup
	for _, c := range clients { // side by side: each has a partner of its own
		all.Go(func() { c.err = c.work(ctx) })
	}
	all.Wait()
	stood := stalled()

	fmt.Fprintf(out, "%-20s %7s %7s %9s %12s %8s\n", "the client takes", "took", "done", "too fast", "too many", "most")
	fmt.Fprintf(out, "%-20s %7s %7s %9s %12s %8s\n", "", "", "", "(429)", "at once (503)", "at once")
	var errs []error
	for _, c := range clients {
		c.row(out)
		errs = append(errs, c.err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nCalls in each tenth of a second, x where some were refused:\n")
	for _, c := range clients {
		fmt.Fprintf(out, "%-20s %s\n", c.name, c.partner.timeline())
	}
	if stood > 0 {
		fmt.Fprintf(out, "\nThe machine was busy with something else for %v.\n", stood.Round(time.Millisecond))
	}
	return check(clients[0], clients[1], clients[2], stood)
}

// watchMachine watches how long the machine keeps somebody waiting who wants to
// run, until stop is called. Tokens that come while a client cannot run and its
// bucket is full are lost, and no limiter can do anything about that.
func watchMachine(ctx context.Context) (stop func() (stood time.Duration)) {
	const nap, usual = 5 * time.Millisecond, 10 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan time.Duration)
	go func() {
		var stood time.Duration
		for ctx.Err() == nil {
			slept := time.Now()
			time.Sleep(nap)
			if late := time.Since(slept) - nap; late > usual {
				stood += late
			}
		}
		result <- stood
	}()
	return func() time.Duration {
		cancel()
		return <-result
	}
}

// A client keeps one limit or both.
type client struct {
	name         string
	rate, atOnce bool

	tokens  *ration.TokenBucket
	permits *ration.Semaphore
	http    *http.Client
	url     string
	partner *partner

	left atomic.Int64
	took time.Duration
	err  error
}

// work makes all the calls.
func (c *client) work(ctx context.Context) error {
	transport := &http.Transport{MaxIdleConnsPerHost: workers}
	c.http = &http.Client{Transport: transport}
	c.partner = &partner{start: time.Now()}
	url, closePartner, err := c.partner.open()
	if err != nil {
		return err
	}
	c.url = url

	if c.rate {
		if c.tokens, err = ration.NewTokenBucket(ration.PerSecond(allowedPerSecond), burst); err != nil {
			return err
		}
	}
	if c.atOnce {
		c.permits = ration.NewSemaphore(allowedAtOnce, &ration.SemaphoreOptions{Fair: true})
	}

	c.left.Store(calls)
	start := time.Now()
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for c.left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = c.call(ctx)
			}
		})
	}
	all.Wait()
	c.took = time.Since(start)

	transport.CloseIdleConnections()
	return errors.Join(append(errs, closePartner(ctx))...)
}

// call makes one call as soon as the limits that the client keeps let it. What
// the partner says to it stands in the partner's book.
func (c *client) call(ctx context.Context) error {
	if c.rate {
		if err := c.tokens.Wait(ctx, 1); err != nil {
			return err
		}
	}
	if c.atOnce {
		if err := c.permits.Acquire(ctx, 1); err != nil {
			return err
		}
		defer c.permits.Release(1)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func (c *client) row(out io.Writer) {
	p := c.partner
	fmt.Fprintf(out, "%-20s %5.2f s %7d %9d %12d %8d\n", c.name, c.took.Seconds(), p.count(http.StatusOK),
		p.count(http.StatusTooManyRequests), p.count(http.StatusServiceUnavailable), p.peak)
}

// timeline draws how many calls came in each tenth of a second.
func (p *partner) timeline() string {
	const column = time.Second / 10
	var came []int
	var refused []bool
	for _, a := range p.answers {
		i := int(a.at / column)
		for len(came) <= i {
			came, refused = append(came, 0), append(refused, false)
		}
		came[i]++
		refused[i] = refused[i] || a.status != http.StatusOK
	}
	var line strings.Builder
	for i, n := range came {
		switch {
		case refused[i]:
			line.WriteByte('x')
		case n > 9:
			line.WriteByte('+')
		default:
			fmt.Fprint(&line, n)
		}
	}
	return line.String()
}

// check says which of the claims do not hold, on a machine that stood still for
// so long.
func check(both, onlyToken, onlyPermit *client, stood time.Duration) error {
	var errs []error
	claim := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	p := both.partner
	tooFast, tooMany := p.count(http.StatusTooManyRequests), p.count(http.StatusServiceUnavailable)
	claim(tooFast == 0, "with both limits kept, %d calls were too fast", tooFast)
	claim(tooMany == 0, "with both limits kept, %d calls were too many at once", tooMany)
	claim(p.count(http.StatusOK) == calls, "%d calls were done, want %d", p.count(http.StatusOK), calls)
	claim(both.took <= ideal+ideal/20+stood, "it took %v, which is more than 5 %% above %v", both.took, ideal)
	claim(both.took >= ideal-ideal/20, "it took %v, which is more than 5 %% below %v", both.took, ideal)

	claim(onlyToken.partner.count(http.StatusServiceUnavailable) > 0, "without a permit, no call was one too many at once")
	claim(onlyToken.partner.count(http.StatusTooManyRequests) == 0, "with a token, some calls were too fast")
	claim(onlyPermit.partner.count(http.StatusTooManyRequests) > 0, "without a token, no call was too fast")
	claim(onlyPermit.partner.count(http.StatusServiceUnavailable) == 0, "with a permit, some calls were too many at once")
	return errors.Join(errs...)
}
