package ration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// PoolOptions.Rate: first a token, then a permit.

func newRatedPool(t *testing.T, capacity int64, b *TokenBucket) *testPool {
	return newTestPool(t, capacity, nil, &thingOptions{Rate: b, Fair: true})
}

func TestPool_RateBoundsHowOftenItLends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(10), 2)
		p := newRatedPool(t, 5, b)
		began := time.Now()
		for i := range 10 {
			closeAll(t, p.lease())
			require.Equal(t, max(0, time.Duration(i-1))*100*time.Millisecond, time.Since(began), "lease %d", i)
		}
		requireTokens(t, 0, b)
	})
}

func TestPool_TheTokenComesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 1)
		p := newRatedPool(t, 1, b)
		waits := p.parked()
		require.Zero(t, p.Stats().Held, "no permit is kept while a token is waited for")
		require.Zero(t, p.Stats().Waiters)
		require.Zero(t, p.opens.Load())
		time.Sleep(time.Second)
		l := waits.got(t)
		time.Sleep(time.Second)
		next := p.parked()
		requireTokens(t, 0, b) // it has its token, and waits for the permit
		closeAll(t, l)
		closeAll(t, next.got(t))
	})
}

func TestPool_BucketsMayBeShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 2)
		one, other := newRatedPool(t, 5, b), newRatedPool(t, 5, b)
		closeAll(t, one.lease())
		closeAll(t, other.lease())
		_, ok := one.TryAcquire()
		require.False(t, ok)
		w := other.parked()
		time.Sleep(time.Second)
		closeAll(t, w.got(t))
	})
}

func TestPool_AWeightCostsOneToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 5)
		p := newRatedPool(t, 5, b)
		closeAll(t, p.leaseWith(AcquireOptions{Weight: 5}))
		requireTokens(t, 4, b)
	})
}

func TestPool_TheTokenGoesBackIfThePermitIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 5)
		p := newTestPool(t, 1, nil, &thingOptions{Rate: b, MaxWaiters: 1})
		l := p.lease()
		w := p.parked()
		requireTokens(t, 3, b)
		p.borrow().failed(t, "wait", ErrQueueFull)
		requireTokens(t, 3, b)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		requireTokens(t, 3, b)
		w.cancel()
		w.failed(t, "wait", context.Canceled)
		requireTokens(t, 4, b)
		p.borrowFor(time.Second)
		synctest.Wait()
		requireTokens(t, 3, b)
		time.Sleep(time.Second)
		synctest.Wait()
		requireTokens(t, 4, b)
		closeAll(t, l)
		closeAll(t, p.lease())
		requireTokens(t, 3, b)
	})
}

func TestPool_TheTokenGoesBackIfOpenFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 5)
		p := newTestPool(t, 1, func(context.Context) error { return errTest }, &thingOptions{Rate: b})
		p.borrow().failed(t, "open", errTest)
		requireTokens(t, 5, b)
	})
}

func TestPool_TheTokenGoesBackIfThereIsNothingToTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 5)
		p := newRatedPool(t, 1, b)
		_, ok := p.TryAcquire()
		require.False(t, ok, "nothing is idle")
		requireTokens(t, 5, b)
		closeAll(t, p.lease())
		l, ok := p.TryAcquire()
		require.True(t, ok)
		closeAll(t, l)
		requireTokens(t, 3, b)
	})
}

func TestPool_AWaitForATokenIsCanceled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 5)
		p := newRatedPool(t, 1, b)
		first, second := p.parked(), p.parked()
		first.cancel()
		first.failed(t, "rate", context.Canceled)
		p.borrowFor(time.Second).failed(t, "rate", context.DeadlineExceeded) // at once
		time.Sleep(time.Second)
		closeAll(t, second.got(t))
		requireTokens(t, 0, b)
	})
}

func TestPool_ARequestThatThePoolRefusesCostsNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newTestBucket(t, Every(time.Hour), 1)
		p := newRatedPool(t, 1, b)
		p.borrowWith(t.Context(), 0, AcquireOptions{Weight: 2}).failed(t, "wait", ErrTooLarge)
		p.borrowWith(canceled(), 0, AcquireOptions{}).failed(t, "wait", context.Canceled)
		requireTokens(t, 1, b)
		require.True(t, b.Allow(1))
		p.borrowWith(t.Context(), 0, AcquireOptions{Weight: 2}).failed(t, "wait", ErrTooLarge)
		require.Zero(t, p.Stats().Waited, "refused at once")
	})
}

func TestPool_CloseEndsTheWaitForAToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newDrainedBucket(t, Every(time.Hour), 1)
		p := newRatedPool(t, 1, b)
		waits := []*borrow{p.parked(), p.parked()}
		require.NoError(t, p.Close(t.Context()))
		for _, w := range waits {
			w.failed(t, "rate", ErrClosed)
			require.Zero(t, w.took)
		}
		p.borrow().failed(t, "wait", ErrClosed)
		require.Equal(t, time.Hour, b.RetryAfter(1), "nobody is left in the queue, and nothing was taken")
		time.Sleep(time.Hour)
		p.borrow().failed(t, "wait", ErrClosed)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		requireTokens(t, 1, b)
	})
}

// Who waits for a token has waited, and has held nothing.
func TestPool_TheWaitForATokenIsNoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, err := NewDetector(&DetectorOptions{Threshold: time.Second})
		require.NoError(t, err)
		b := newDrainedBucket(t, Every(time.Minute), 1)
		p := newTestPool(t, 2, nil, &thingOptions{Rate: b, Detector: d})
		require.NoError(t, p.Warm(t.Context(), 1))
		for range 3 {
			w := p.parked()
			time.Sleep(time.Minute)
			l := w.got(t)
			require.Equal(t, time.Now(), l.Info().AcquiredAt)
			require.Empty(t, d.Scan().Suspects)
			closeAll(t, l)
		}
		require.EqualValues(t, 3, p.Stats().Waited)
		require.Equal(t, 3*time.Minute, p.Stats().WaitTime)
		require.Zero(t, d.Advice(p).Max)

		l := p.leaseWith(AcquireOptions{Weight: 2}) // waits for its token here
		w := p.parked()
		time.Sleep(2 * time.Minute) // a minute for the token, another for the permit
		closeAll(t, l)
		require.Equal(t, time.Now(), w.got(t).Info().AcquiredAt)
		require.EqualValues(t, 5, p.Stats().Waited)
		require.Equal(t, 6*time.Minute, p.Stats().WaitTime)
		require.Equal(t, 2*time.Minute, p.Stats().LongestWait)
		closeAll(t, w.lease)
	})
}
