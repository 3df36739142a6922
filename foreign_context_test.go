package ration

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A faithless context is a foreign one that does not keep the word of
// context.Context: it is done, and says that it is not.
type faithless struct {
	context.Context
	done chan struct{}
}

func (f faithless) Done() <-chan struct{} { return f.done }
func (faithless) Err() error              { return nil }

// Whoever waits with a faithless context is let go all the same, with an error:
// nil would be a permit that nobody has given.
func TestContext_OneThatEndsWithoutAnErrorIsCanceled(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context) error{
		"Semaphore.Acquire": func(ctx context.Context) error {
			return NewSemaphore(0, nil).Acquire(ctx, 1)
		},
		"fair Semaphore.Acquire": func(ctx context.Context) error {
			return NewSemaphore(0, &SemaphoreOptions{Fair: true}).Acquire(ctx, 1)
		},
		"Pool.Acquire": func(ctx context.Context) error {
			p, err := NewPermitPool(0, nil)
			require.NoError(t, err)
			_, err = p.Acquire(ctx)
			require.Zero(t, p.Stats().Waiters)
			return err
		},
		"Pool.Acquire of what is being opened": func(ctx context.Context) error {
			p, end := hangingPool(t)
			defer end()
			_, err := p.Acquire(ctx)
			return err
		},
		"Pool.Warm": func(ctx context.Context) error {
			p, end := hangingPool(t)
			defer end()
			return p.Warm(ctx, 1)
		},
		"TokenBucket.Wait": func(ctx context.Context) error {
			return emptyBucket(t).Wait(ctx, 1)
		},
		"WaitAll": func(ctx context.Context) error {
			return WaitAll(ctx, 1, emptyBucket(t), emptyBucket(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := faithless{t.Context(), make(chan struct{})}
				time.AfterFunc(time.Second, func() { close(ctx.done) })
				began := time.Now()
				require.ErrorIs(t, wait(ctx), context.Canceled)
				require.Equal(t, time.Second, time.Since(began))
			})
		})
	}
}

// hangingPool is a pool whose opens take until its end.
func hangingPool(t *testing.T) (p *Pool[int], end func()) {
	opening := make(chan struct{})
	p, err := NewPool(1, func(context.Context) (int, error) {
		<-opening
		return 0, errors.New("too late")
	}, nil)
	require.NoError(t, err)
	return p, func() {
		close(opening)
		require.NoError(t, p.Close(context.Background()))
	}
}

func emptyBucket(t *testing.T) *TokenBucket {
	b, err := NewTokenBucket(Every(time.Hour), 1)
	require.NoError(t, err)
	require.True(t, b.Allow(1))
	return b
}
