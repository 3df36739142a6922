package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
	"github.com/ration-go/ration/promration"
)

const (
	workers   = 12
	renderFor = 3 * time.Millisecond
)

// A service sends mails.
type service struct {
	metrics  *promration.Collector
	page     *debug.Page
	detector *ration.Detector
	pool     *ration.Pool[*session]
	renders  *ration.Semaphore   // bounds the mails rendered at once, by their size
	rate     *ration.TokenBucket // bounds the mails per second
	sent     atomic.Int64
}

// work sends mails until ctx ends, and forgets a session after some time.
func (s *service) work(ctx context.Context, leakAfter time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	part := func(fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil && ctx.Err() == nil {
				cancel(err) // the others too
			}
		})
	}
	part(func() error { return s.detector.Run(ctx) })
	part(func() error { return s.page.Run(ctx) }) // so that there is a history when somebody looks
	for w := range workers {
		part(func() error {
			for id := w; ; id += workers {
				if err := s.send(ctx, id); err != nil {
					return err
				}
			}
		})
	}
	if leakAfter >= 0 {
		part(func() error {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(leakAfter):
				return s.sendNewsletter(ctx)
			}
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// send renders a mail and sends it.
func (s *service) send(ctx context.Context, id int) error {
	if err := s.rate.Wait(ctx, 1); err != nil {
		return err
	}
	size := int64(1 + id%3)
	var text string
	err := s.renders.Do(ctx, size, func(context.Context) error {
		text = render(id, size)
		return nil
	})
	if err != nil {
		return err
	}
	lease, err := s.pool.AcquireWith(ctx, ration.AcquireOptions{Owner: "outbox"})
	if err != nil {
		return err
	}
	defer lease.Close()
	if err := lease.Value().send("service@example.com", "reader@example.com", text); err != nil {
		return err
	}
	s.sent.Add(1)
	return nil
}

// sendNewsletter has the defect that is to be found: if there is nothing to say, it
// returns without giving the session back.
func (s *service) sendNewsletter(ctx context.Context) error {
	lease, err := s.pool.AcquireWith(ctx, ration.AcquireOptions{Owner: "newsletter"})
	if err != nil {
		return err
	}
	news := gatherNews()
	if news == "" {
		return nil
	}
	defer lease.Close()
	return lease.Value().send("service@example.com", "everybody@example.com", news)
}

func gatherNews() string { return "" }

// render stands for work that takes memory, hence the semaphore.
func render(id int, size int64) string {
	time.Sleep(time.Duration(size) * renderFor)
	return fmt.Sprintf("Subject: mail %d\r\n\r\nHello from the service.\r\n", id)
}
