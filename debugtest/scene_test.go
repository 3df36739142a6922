package debugtest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// scene returns the page of a service that has run for some minutes and has
// forgotten a lease. The minutes pass in a bubble, in an instant.
func scene(t *testing.T) (html []byte) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := newService(t, ctx)
		time.Sleep(30 * time.Second)
		s.sendNewsletter(ctx)
		time.Sleep(239 * time.Second)
		s.runInvoices(ctx)
		time.Sleep(28 * time.Second)

		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		html = w.Body.Bytes()

		stop()
		s.running.Wait()
	})
	return html
}

var errGreeting = errors.New("421 try again later")

type service struct {
	page    *debug.Page
	mail    *ration.Pool[struct{}]
	uploads *ration.Semaphore
	api     *ration.TokenBucket
	running sync.WaitGroup
	started time.Time
	loans   atomic.Int64
}

func newService(t *testing.T, ctx context.Context) *service {
	s := &service{started: time.Now(), page: debug.New(&debug.Options{Revoke: true})}
	detector, err := ration.NewDetector(&ration.DetectorOptions{Threshold: 30 * time.Second, StackEvery: 1})
	require.NoError(t, err)
	waits := new(debug.Waits)
	dials := 0
	s.mail, err = ration.NewPool(8, func(context.Context) (struct{}, error) {
		time.Sleep(40 * time.Millisecond)
		if dials++; dials%9 == 0 {
			return struct{}{}, errGreeting
		}
		return struct{}{}, nil
	}, &ration.PoolOptions[struct{}]{
		Name:       "mail",
		MaxOpening: 1,
		Observer:   ration.Observer{Acquired: waits.Acquired},
	})
	require.NoError(t, err)
	detector.Watch(s.mail)
	s.uploads = ration.NewSemaphore(64, nil)
	s.api, err = ration.NewTokenBucket(ration.PerSecond(5), 100)
	require.NoError(t, err)
	s.page.Add("mail", debug.Pool(s.mail, waits))
	s.page.Add("uploads", debug.Semaphore(s.uploads))
	s.page.Add("partner API", debug.Bucket(s.api))

	s.running.Go(func() { detector.Run(ctx) })
	s.running.Go(func() { s.page.Run(ctx) })
	s.running.Go(func() { s.upload(ctx) })
	s.running.Go(func() { s.callPartner(ctx) })
	for w := range 9 {
		s.running.Go(func() { s.work(ctx, w) })
	}
	return s
}

// wave goes between 0 and 1, once in a period.
func (s *service) wave(period time.Duration) float64 {
	return 0.5 + 0.5*math.Sin(2*math.Pi*time.Since(s.started).Seconds()/period.Seconds())
}

func (s *service) sendNewsletter(ctx context.Context) {
	s.mail.AcquireWith(ctx, ration.AcquireOptions{Owner: "newsletter #4812"}) // forgotten
}

func (s *service) runInvoices(ctx context.Context) {
	s.mail.AcquireWith(ctx, ration.AcquireOptions{Owner: "invoice run", Weight: 2})
}

// work is busy more or less, so that the pool is now full and now not.
func (s *service) work(ctx context.Context, worker int) {
	owners := []string{"POST /orders", "GET /orders/{id}/receipt", "POST /reminders", "password reset", "webhook"}
	for ctx.Err() == nil {
		if float64(worker) > 2+7*s.wave(200*time.Second) {
			pause(ctx, time.Second)
			continue
		}
		i := s.loans.Add(1)
		s.sendMail(ctx, owners[i%5], time.Duration(1+i%7)*170*time.Millisecond, i%61 == 0)
	}
}

func (s *service) sendMail(ctx context.Context, owner string, takes time.Duration, breaks bool) {
	acquiring, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
	defer cancel()
	lease, err := s.mail.AcquireWith(acquiring, ration.AcquireOptions{Owner: owner})
	if err != nil {
		return
	}
	defer lease.Close()
	pause(ctx, takes)
	if breaks {
		lease.Discard()
	}
}

// upload holds more and less, and more than there is when it is cut down.
func (s *service) upload(ctx context.Context) {
	var held int64
	for ctx.Err() == nil {
		if time.Since(s.started) > 280*time.Second {
			s.uploads.Resize(40)
		}
		switch want := int64(6 + 50*s.wave(4*time.Minute)); {
		case want > held && s.uploads.TryAcquire(want-held):
			held = want
		case want < held:
			s.uploads.Release(held - want)
			held = want
		}
		pause(ctx, time.Second)
	}
	s.uploads.Release(held)
}

func (s *service) callPartner(ctx context.Context) {
	for ctx.Err() == nil {
		if s.wave(50*time.Second) > 0.5 {
			s.api.Allow(9)
		}
		pause(ctx, time.Second)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
