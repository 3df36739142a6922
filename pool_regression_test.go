package ration

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What was once wrong in ways that none of the other tests had thought of.

func newIntPool(t *testing.T, capacity int64, open func(context.Context) (*int, error), opts *PoolOptions[*int]) *Pool[*int] {
	if open == nil {
		open = func(context.Context) (*int, error) { return new(int), nil }
	}
	p, err := NewPool(capacity, open, opts)
	require.NoError(t, err)
	return p
}

func TestPool_MadeOutsideABubbleServesSeveral(t *testing.T) {
	p := newIntPool(t, 2, nil, nil)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			l, err := p.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Discard())
		})
	}
	require.NoError(t, p.Close(t.Context()))
}

func TestTokenBucket_MadeOutsideABubbleServesSeveral(t *testing.T) {
	b, err := NewTokenBucket(PerSecond(10), 1)
	require.NoError(t, err)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			b.Allow(1)
			require.NoError(t, b.Wait(t.Context(), 1))
			require.NoError(t, b.Wait(t.Context(), 1))
		})
	}
	require.LessOrEqual(t, b.Tokens(), int64(1))
}

func TestPool_AReturnedObserverThatHangsKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		p := newIntPool(t, 1, nil, &PoolOptions[*int]{Observer: Observer{Returned: func(ReturnEvent) { <-block }}})
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		go l.Discard()
		next, err := p.Acquire(t.Context())
		require.NoError(t, err)
		close(block)
		require.NoError(t, next.Close())
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestPool_CloseWaitsForTheObserverOfALateOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := false
		p := newIntPool(t, 1, func(context.Context) (*int, error) { time.Sleep(60 * time.Millisecond); return nil, errTest },
			&PoolOptions[*int]{OpenTimeout: 50 * time.Millisecond, Observer: Observer{Opened: func(OpenEvent) {
				time.Sleep(time.Second)
				told = true
			}}})
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Close(t.Context()))
		require.True(t, told)
	})
}

func TestPool_WhatIsOpenedAfterTheTimeoutIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var opened, destroyed []*int
		p := newIntPool(t, 1, func(ctx context.Context) (*int, error) {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, new(int))
			return opened[len(opened)-1], nil
		}, &PoolOptions[*int]{OpenTimeout: time.Second, Close: func(v *int) error {
			mu.Lock()
			defer mu.Unlock()
			destroyed = append(destroyed, v)
			return nil
		}})
		for range 20 {
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, p.Close(t.Context()))
		require.ElementsMatch(t, opened, destroyed)
		require.NoError(t, p.Audit())
	})
}

func TestPool_IdlingForEverDoesNotKeepWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newIntPool(t, 1, nil, &PoolOptions[*int]{MaxIdleTime: math.MaxInt64, MaxLifetime: time.Minute})
		require.NoError(t, p.Warm(t.Context(), 1))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, p.Stats().Total)
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestPool_AuditOfAClosedPoolWhoseOpenWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newIntPool(t, 2, func(ctx context.Context) (*int, error) { <-ctx.Done(); return nil, ctx.Err() }, nil)
		go p.Warm(t.Context(), 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, p.Audit())
	})
}

func TestPool_AFreeListBehindTheHooksIsNoDuplicate(t *testing.T) {
	free := make(chan *int, 8)
	p := newIntPool(t, 2, func(context.Context) (*int, error) {
		select {
		case v := <-free:
			return v, nil
		default:
			return new(int), nil
		}
	}, &PoolOptions[*int]{Close: func(v *int) error { free <- v; return nil }})
	for range 2000 {
		for range 2 {
			l, err := p.Acquire(t.Context())
			require.NoError(t, err)
			go l.Discard()
		}
	}
	require.NoError(t, p.Close(t.Context()))
}

func TestPool_RateThatWouldOutlastTheContextIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := NewTokenBucket(Every(time.Hour), 1)
		var outcome string
		p := newIntPool(t, 1, nil, &PoolOptions[*int]{Rate: b, Observer: Observer{Acquired: func(e AcquireEvent) { outcome = e.Outcome }}})
		require.True(t, b.Allow(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var failed *AcquireError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "rate", failed.Op)
		require.Equal(t, "timeout", outcome)
		require.NoError(t, p.Close(t.Context()))
	})
}
