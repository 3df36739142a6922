// Ops is a small mail service that lets people see who holds what. A pool lends
// its SMTP sessions, a semaphore bounds how many mails are rendered at once, and a
// token bucket how many are sent per second. After some seconds, one part of the
// program forgets to give a session back.
//
//	go run .            ends after 15 s
//	go run . -for 0     goes on until it is interrupted
//
// While it runs, it serves
//
//	/metrics        for Prometheus; ration.rules.yml has the alerts, grafana.json a dashboard
//	/debug/ration   a page for people, and with ?format=pprof for go tool pprof
//	/healthz        503 once no session is left to send with, 200 before
//
// and prints what it sees itself, once a second, and what the detector has to say.
// When it ends, the error of the pool's Close names who has not given back what.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
	"github.com/ration-go/ration/promration"
)

// A config is what the flags say.
type config struct {
	addr      string
	length    time.Duration // 0: until interrupted
	leakAfter time.Duration // negative: never
	threshold time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8091", "where to serve; port 0 takes any that is free")
	flag.DurationVar(&c.length, "for", 15*time.Second, "how long to run; 0 runs until interrupted")
	flag.DurationVar(&c.leakAfter, "leak-after", 4*time.Second, "when to forget a session; negative never does")
	flag.DurationVar(&c.threshold, "threshold", 3*time.Second, "the age from which a lease is a suspect")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, c); err != nil {
		fmt.Fprintln(os.Stderr, "ops:", err)
		os.Exit(1)
	}
}

// run returns when ctx or the time is over and everything has ended.
func run(ctx context.Context, out io.Writer, c config) error {
	out = &lineWriter{out: out}
	if c.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.length)
		defer cancel()
	}
	mails, err := startMailServer()
	if err != nil {
		return err
	}
	defer mails.stop()
	s, err := newService(mails.addr(), c.threshold, out)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "serving http://%s/debug/ration, /metrics and /healthz\n", listener.Addr())

	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	worked := make(chan error, 1)
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	go func() { worked <- s.work(working, c.leakAfter) }()

	started := time.Now()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for serving := true; serving && ctx.Err() == nil; {
		select {
		case <-second.C:
			s.print(out, time.Since(started))
		case <-ctx.Done():
		case err = <-served: // it does not end by itself
			serving = false
		}
	}

	// Whoever asks comes first, then those that work, and the pool last.
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ending))
	stopWorking()
	return errors.Join(err, <-worked, s.close(ending, out))
}

// handler serves what there is to see.
func (s *service) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.metrics)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/ration", s.page)
	mux.HandleFunc("GET /healthz", s.healthz)
	return mux
}

// healthz says that the service should be restarted once every session is
// suspected to be forgotten. That all are busy is no reason.
func (s *service) healthz(w http.ResponseWriter, _ *http.Request) {
	if st := s.pool.Stats(); int64(st.Suspects) >= st.Capacity {
		http.Error(w, fmt.Sprintf("all %d sessions are lost", st.Capacity), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// print prints a line of what there is to see.
func (s *service) print(out io.Writer, at time.Duration) {
	st := s.pool.Stats()
	fmt.Fprintf(out, "%3.0f s  %4d mails sent   %d of %d sessions held  %2d waiting   %d near  %d suspect\n",
		at.Seconds(), s.sent.Load(), st.Held, st.Capacity, st.Waiters, st.Near, st.Suspects)
}

// printReport prints what a scan has found.
func printReport(out io.Writer, r ration.Report) {
	say := func(what string, leaks []ration.Leak) {
		for _, l := range leaks {
			fmt.Fprintf(out, "       %s: lease %d of %q, held %v, acquired %s\n",
				what, l.ID, l.Owner, l.Held.Round(time.Millisecond), where(l))
		}
	}
	say("SUSPECT", r.Suspects)
	say("RECOVERED", r.Recovered)
	say("PROVED", r.Proved)
}

// where says which line of the program has acquired a lease.
func where(l ration.Leak) string {
	for _, f := range l.Frames() {
		if strings.HasPrefix(f.Function, "main.") || strings.Contains(f.Function, "/ops.") {
			return fmt.Sprintf("by %s at %s:%d", f.Function[strings.LastIndex(f.Function, "/")+1:], filepath.Base(f.File), f.Line)
		}
	}
	return "somewhere"
}

// A lineWriter lets several goroutines print, each a line at a time.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(line)
}

// close closes the pool. What the leak has kept from it is said, and taken back.
func (s *service) close(ctx context.Context, out io.Writer) error {
	soon, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	err := s.pool.Close(soon)
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintln(out, err)
		for _, l := range s.pool.Leases() {
			s.pool.Revoke(l.ID)
		}
		err = s.pool.Close(ctx)
	}
	return errors.Join(err, s.pool.Audit())
}

// newService makes the parts and has them watched.
func newService(mailAddr string, threshold time.Duration, out io.Writer) (*service, error) {
	s := &service{
		metrics: promration.New(nil),
		page:    debug.New(&debug.Options{Revoke: true}), // only for those on this machine
		renders: ration.NewSemaphore(8, nil),
	}
	var err error
	if s.rate, err = ration.NewTokenBucket(ration.PerSecond(60), 10); err != nil {
		return nil, err
	}
	s.detector, err = ration.NewDetector(&ration.DetectorOptions{
		Threshold:  threshold,
		Interval:   threshold / 6,
		StackEvery: 1, // of so few loans, all can be recorded
		ProveEvery: 1,
		OnReport:   func(r ration.Report) { printReport(out, r) },
	})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (*session, error) { return dial(ctx, mailAddr) }
	s.pool, err = ration.NewPool(4, dial, &ration.PoolOptions[*session]{
		Name:     "mail",
		Reset:    func(s *session) error { return s.Reset() },
		Close:    (*session).Quit,
		Detector: s.detector,
		Observer: s.metrics.Observer("mail"),
	})
	if err != nil {
		return nil, err
	}
	s.page.Add("mail", debug.Pool(s.pool, nil))
	s.page.Add("renders", debug.Semaphore(s.renders))
	s.page.Add("mails", debug.Bucket(s.rate))
	return s, errors.Join(
		promration.AddPool(s.metrics, "mail", s.pool),
		s.metrics.AddSemaphore("renders", s.renders),
		s.metrics.AddBucket("mails", s.rate))
}
