package debugtest

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// A watched pool is a pool with what a detector would have found in it, and with
// leases that are older than they are.
type watched struct {
	*ration.Pool[struct{}]
	age   func(ration.LeaseInfo) time.Duration
	stack []uintptr
}

func (w *watched) Stats() ration.PoolStats {
	s := w.Pool.Stats()
	for _, l := range w.Leases() {
		switch {
		case l.Suspect:
			s.Suspects++
		case l.Near:
			s.Near++
		}
	}
	s.Suspected, s.Recovered = uint64(s.Suspects)+3, 3
	return s
}

func (w *watched) Leases() []ration.LeaseInfo {
	leases := w.Pool.Leases()
	for i := range leases {
		l := &leases[i]
		l.Age += w.age(*l)
		l.AcquiredAt = l.AcquiredAt.Add(-w.age(*l))
		l.Suspect = l.Age > 30*time.Second
		l.Near = !l.Suspect && l.Age > 24*time.Second
		l.Stack = w.stack
	}
	return leases
}

func callers() []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(1, pcs)]
}

// scene serves a page of a service that has seen some minutes, in a few seconds.
func scene(t *testing.T) (url string) {
	const tick = 100 * time.Millisecond // of the history; one looks like five
	p := debug.New(&debug.Options{Interval: tick, History: 60 * tick, Refresh: time.Second, Revoke: true})

	waits := new(debug.Waits)
	broken := errors.New("421 closing")
	mail, err := ration.NewPool(8, func(context.Context) (struct{}, error) { return struct{}{}, nil }, &ration.PoolOptions[struct{}]{
		Observer: ration.Observer{Acquired: waits.Acquired},
		Broken:   func(err error) bool { return errors.Is(err, broken) },
	})
	require.NoError(t, err)
	lender := &watched{Pool: mail, stack: callers(), age: func(l ration.LeaseInfo) time.Duration {
		switch l.Owner {
		case "newsletter #4812":
			return 4*time.Minute + 12*time.Second
		case "invoice run":
			return 19 * time.Second
		}
		return 0
	}}
	uploads := ration.NewSemaphore(64, nil)
	api, err := ration.NewTokenBucket(ration.PerSecond(50), 100)
	require.NoError(t, err)
	p.Add("mail", debug.Pool(lender, waits))
	p.Add("uploads", debug.Semaphore(uploads))
	p.Add("partner API", debug.Bucket(api))
	url = serve(t, p)

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { p.Run(ctx) })
	t.Cleanup(func() {
		stop()
		load.Wait()
		runtime.KeepAlive(lender) // the page does not
	})
	until := time.Now().Add(60 * tick)
	phase := func() float64 { return float64(time.Until(until)) / float64(60*tick) } // 1 to 0

	borrow(t, mail, "newsletter #4812", 1)
	borrow(t, mail, "invoice run", 2)
	owners := []string{"GET /orders", "GET /orders/{id}", "POST /reminders", "export", "webhook"}
	var n atomic.Int64
	for w := range 9 {
		load.Go(func() {
			for ctx.Err() == nil {
				busy := 0.5 + 0.5*math.Sin(phase()*9)
				if float64(w) > 2+busy*7 {
					pause(ctx, tick)
					continue
				}
				i := n.Add(1)
				acquiring, cancel := context.WithTimeout(ctx, 3*tick)
				lease, err := mail.AcquireWith(acquiring, ration.AcquireOptions{Owner: owners[i%5]})
				cancel()
				if err != nil {
					continue
				}
				pause(ctx, tick/2*time.Duration(1+i%4))
				if i%17 == 0 {
					lease.Discard()
				} else {
					lease.Close()
				}
			}
		})
	}
	load.Go(func() {
		held := int64(0)
		for ctx.Err() == nil {
			want := int64(30 + 25*math.Sin(phase()*7))
			if phase() < 0.3 {
				uploads.Resize(40)
			}
			if want > held && uploads.TryAcquire(want-held) || want < held {
				if want < held {
					uploads.Release(held - want)
				}
				held = want
			}
			if math.Sin(phase()*40) > 0 {
				api.Allow(12)
			}
			pause(ctx, tick)
		}
	})
	pause(ctx, time.Until(until))
	return url
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
