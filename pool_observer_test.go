package ration

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A witness keeps the events of a pool.
type witness struct {
	mu        sync.Mutex
	acquired  []AcquireEvent
	returned  []ReturnEvent
	opened    []OpenEvent
	destroyed []DestroyEvent
}

func (w *witness) observer() Observer {
	return Observer{
		Acquired:  func(e AcquireEvent) { keepEvent(w, &w.acquired, e) },
		Returned:  func(e ReturnEvent) { keepEvent(w, &w.returned, e) },
		Opened:    func(e OpenEvent) { keepEvent(w, &w.opened, e) },
		Destroyed: func(e DestroyEvent) { keepEvent(w, &w.destroyed, e) },
	}
}

func keepEvent[E any](w *witness, events *[]E, e E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*events = append(*events, e)
}

// told returns the events of a kind, when everything has come to rest.
func told[E any](w *witness, events *[]E) []E {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*events)
}

func (w *witness) lastAcquired(t *testing.T) AcquireEvent {
	t.Helper()
	all := told(w, &w.acquired)
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

func TestObserver_HearsOfEveryAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var w witness
		var bad fault
		p := newTestPool(t, 2, func(context.Context) error {
			time.Sleep(time.Millisecond)
			return bad.get()
		}, &thingOptions{Name: "db", MaxWaiters: 1, Observer: w.observer()})
		o := AcquireOptions{Owner: "me", Weight: 2}

		l := p.leaseWith(o)
		require.Equal(t, AcquireEvent{Pool: "db", Owner: "me", ID: 1, Weight: 2, Waited: time.Millisecond, Outcome: "opened"}, w.lastAcquired(t))
		closeAll(t, l)
		l = p.leaseWith(o)
		require.Equal(t, AcquireEvent{Pool: "db", Owner: "me", ID: 2, Weight: 2, Outcome: "granted"}, w.lastAcquired(t))

		b := p.borrowWith(t.Context(), time.Second, AcquireOptions{})
		requireParked(t, b.call)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrQueueFull)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 1, Outcome: "queue_full", Err: ErrQueueFull}, w.lastAcquired(t))
		time.Sleep(time.Second)
		b.failed(t, "wait", context.DeadlineExceeded)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 1, Waited: time.Second, Outcome: "timeout", Err: context.DeadlineExceeded}, w.lastAcquired(t))

		b = p.parked()
		b.cancel()
		b.failed(t, "wait", context.Canceled)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 1, Outcome: "canceled", Err: context.Canceled}, w.lastAcquired(t))

		b = p.parked()
		time.Sleep(time.Minute)
		closeAll(t, l)
		l = b.got(t)
		require.Equal(t, AcquireEvent{Pool: "db", ID: 3, Weight: 1, Waited: time.Minute, Outcome: "granted"}, w.lastAcquired(t))

		_, err = p.AcquireWith(t.Context(), AcquireOptions{Weight: 3})
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 3, Outcome: "too_large", Err: ErrTooLarge}, w.lastAcquired(t))

		bad.set(errTest)
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, errTest)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 1, Waited: time.Millisecond, Outcome: "error", Err: errTest}, w.lastAcquired(t))

		closeAll(t, l)
		l, ok := p.TryAcquire()
		require.True(t, ok)
		require.Equal(t, AcquireEvent{Pool: "db", ID: 4, Weight: 1, Outcome: "granted"}, w.lastAcquired(t))
		closeAll(t, l)

		require.NoError(t, p.Pool.Close(t.Context()))
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, AcquireEvent{Pool: "db", Weight: 1, Outcome: "closed", Err: ErrClosed}, w.lastAcquired(t))

		counted := p.Stats().Outcomes
		require.Equal(t, AcquireOutcomes{Granted: 3, Opened: 1, Canceled: 1, Timeout: 1, QueueFull: 1, TooLarge: 1, Closed: 1, Error: 1}, counted)
		heard := AcquireOutcomes{}
		for _, e := range told(&w, &w.acquired) {
			*heard.as(e.Outcome)++
		}
		require.Equal(t, heard, counted)
	})
}

func TestObserver_HearsOfEveryEndOfALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var w witness
		p := newTestPool(t, 2, nil, &thingOptions{Name: "db", Observer: w.observer()})
		for i, end := range []struct {
			how string
			f   func(Lease[*thing])
		}{
			{"closed", func(l Lease[*thing]) { l.Close() }},
			{"discarded", func(l Lease[*thing]) { l.Discard() }},
			{"detached", func(l Lease[*thing]) { p.detach(l) }},
			{"revoked", func(l Lease[*thing]) { p.Revoke(l.Info().ID) }},
		} {
			l := p.leaseWith(AcquireOptions{Owner: "me", Weight: 2})
			time.Sleep(time.Second)
			l.Touch()
			time.Sleep(time.Second)
			end.f(l)
			require.Equal(t, ReturnEvent{Pool: "db", Owner: "me", ID: uint64(i + 1), Weight: 2, Held: 2 * time.Second, How: end.how}, told(&w, &w.returned)[i])
			l.Close()
			l.Discard()
			l.Detach()
			require.Len(t, told(&w, &w.returned), i+1, "told once")
		}
		p.Do(t.Context(), func(context.Context, *thing) error { return nil })
		p.Do(t.Context(), func(context.Context, *thing) error { return Broken(errTest) })
		require.Equal(t, "closed", told(&w, &w.returned)[4].How)
		require.Equal(t, "discarded", told(&w, &w.returned)[5].How)
	})
}

func TestObserver_HearsOfEveryOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var w witness
		var bad fault
		p := newTestPool(t, 2, func(ctx context.Context) error { return after(time.Second, bad.get())(ctx) },
			&thingOptions{Name: "db", MinIdle: 1, Observer: w.observer()})
		time.Sleep(time.Second)
		require.Equal(t, []OpenEvent{{Pool: "db", Took: time.Second}}, told(&w, &w.opened))
		bad.set(errTest)
		l := p.lease()
		time.Sleep(time.Second)
		require.Len(t, told(&w, &w.opened), 2)
		require.Equal(t, OpenEvent{Pool: "db", Took: time.Second, Err: errTest}, told(&w, &w.opened)[1])
		closeAll(t, l)
	})
}

func TestObserver_HearsOfEveryDestroy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var w witness
		var checks, resets fault
		p := newTestPool(t, 3, nil, &thingOptions{
			Name: "db", Observer: w.observer(),
			Check:       func(context.Context, *thing) error { return checks.get() },
			Reset:       func(*thing) error { return resets.get() },
			Close:       func(*thing) error { return errTest },
			MaxIdleTime: time.Hour,
		})
		seen := 0
		expect := func(reason string) {
			t.Helper()
			all := told(&w, &w.destroyed)
			require.Len(t, all, seen+1)
			require.Equal(t, DestroyEvent{Pool: "db", Reason: reason, Err: errTest}, all[seen])
			seen++
		}
		l := p.lease()
		l.Discard()
		expect("broken")
		l = p.lease()
		resets.set(errTest)
		l.Close()
		resets.set(nil)
		expect("broken")
		p.fill(1)
		checks.set(errTest)
		l = p.lease()
		checks.set(nil)
		expect("broken")
		p.Revoke(l.Info().ID)
		expect("revoked")
		p.fill(1)
		p.Clear()
		expect("expired")
		p.fill(1)
		time.Sleep(time.Hour)
		expect("idle")
		p.fill(3)
		p.Shrink(1)
		expect("surplus")
		p.Shrink(1)
		expect("surplus")
		p.Pool.Close(t.Context())
		expect("closed")
		st := p.Stats()
		require.EqualValues(t, [6]uint64{3, 1, 1, 2, 1, 1}, [6]uint64{
			st.DestroyedBroken, st.DestroyedExpired, st.DestroyedIdle, st.DestroyedSurplus, st.DestroyedClosed, st.DestroyedRevoked})
		require.EqualValues(t, 9, st.Opened)
	})
}

func TestObserver_OpenedIsOnlyWhatWasOpenedForTheBorrower(t *testing.T) {
	// While the borrower waits for the check of an idle one, an open that a
	// Clear has made stale comes to its end.
	bubble(t, func(t *testing.T) {
		var w witness
		var takes atomic.Int64
		takes.Store(int64(time.Second))
		p := newTestPool(t, 2, func(ctx context.Context) error { return after(time.Duration(takes.Load()), nil)(ctx) }, &thingOptions{
			Check:    func(context.Context, *thing) error { time.Sleep(time.Second); return nil },
			Observer: w.observer(),
		})
		p.borrowFor(time.Millisecond)
		synctest.Wait()
		p.Clear()
		takes.Store(0)
		time.Sleep(time.Second / 2)
		closeAll(t, p.lease())
		b := p.parked()
		time.Sleep(time.Second)
		closeAll(t, b.got(t))
		require.EqualValues(t, 1, p.Stats().DestroyedExpired)
		require.Equal(t, "granted", w.lastAcquired(t).Outcome)
	})
}

// BenchmarkObserver is what a loan pays for being told of, by functions that do
// nothing.
func BenchmarkObserver(b *testing.B) {
	for _, observed := range []struct {
		by string
		Observer
	}{
		{"nobody", Observer{}},
		{"acquired", Observer{Acquired: func(AcquireEvent) {}}},
		{"returned", Observer{Returned: func(ReturnEvent) {}}},
		{"both", Observer{Acquired: func(AcquireEvent) {}, Returned: func(ReturnEvent) {}}},
	} {
		b.Run("by="+observed.by, func(b *testing.B) {
			p, err := NewPermitPool(1, &PoolOptions[struct{}]{Observer: observed.Observer})
			require.NoError(b, err)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				l, err := p.Acquire(ctx)
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
}
