package ration

import (
	"context"
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// newAllocPool returns a pool of n things, all idle.
func newAllocPool(t *testing.T, n int64, opts *PoolOptions[*thing]) *Pool[*thing] {
	t.Helper()
	p, err := NewPool(n, func(context.Context) (*thing, error) { return &thing{}, nil }, opts)
	require.NoError(t, err)
	require.NoError(t, p.Warm(watchdog(t), int(n)))
	t.Cleanup(func() {
		require.NoError(t, p.Audit())
		require.NoError(t, p.Close(watchdog(t)))
	})
	return p
}

// acquireAndClose is a loan.
func acquireAndClose[T any](p *Pool[T], ctx context.Context) bool {
	l, err := p.Acquire(ctx)
	return err == nil && l.Close() == nil
}

func TestPool_AllocatesNothingWhenNothingWaits(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		for name, opts := range map[string]PoolOptions[*thing]{
			"plain":    {},
			"expiring": {MaxIdleTime: 1 << 40, MaxLifetime: 1 << 40, MaxUses: math.MaxInt32},
			"minidle":  {MinIdle: 1},
		} {
			t.Run(name, func(t *testing.T) {
				opts.Fair = fair
				p := newAllocPool(t, 2, &opts)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for name, f := range map[string]func() bool{
					"Acquire": func() bool { return acquireAndClose(p, ctx) },
					"AcquireWith": func() bool {
						l, err := p.AcquireWith(ctx, AcquireOptions{Owner: "me", Weight: 2})
						return err == nil && l.Close() == nil
					},
					"TryAcquire": func() bool {
						l, ok := p.TryAcquire()
						return ok && l.Close() == nil
					},
					"Stats": func() bool { return p.Stats().Idle == 2 },
				} {
					t.Run(name, func(t *testing.T) { requireAllocs(t, 0, f) })
				}
			})
		}
	})
}

func TestPool_DoAllocatesNothing(t *testing.T) {
	p := newAllocPool(t, 1, nil)
	ctx := t.Context()
	nothing := func(context.Context, *thing) error { return nil }
	requireAllocs(t, 0, func() bool { return p.Do(ctx, nothing) == nil })
}

func TestPool_AFailedTryAcquireAllocatesNothing(t *testing.T) {
	refused := func(p *Pool[*thing]) func() bool {
		return func() bool {
			_, ok := p.TryAcquire()
			return !ok
		}
	}
	t.Run("no permit", func(t *testing.T) {
		p := newAllocPool(t, 1, nil)
		l, ok := p.TryAcquire()
		require.True(t, ok)
		t.Cleanup(func() { l.Close() })
		requireAllocs(t, 0, refused(p))
	})
	t.Run("nothing idle", func(t *testing.T) {
		p := newAllocPool(t, 1, nil)
		p.Clear()
		requireAllocs(t, 0, refused(p))
	})
}

func TestLease_MethodsAllocateNothing(t *testing.T) {
	p := newAllocPool(t, 1, &PoolOptions[*thing]{Name: "db"})
	stale, ok := p.TryAcquire()
	require.True(t, ok)
	require.NoError(t, stale.Close())
	l, ok := p.TryAcquire()
	require.True(t, ok)
	t.Cleanup(func() { l.Close() })
	requireAllocs(t, 0, func() bool {
		l.Touch()
		return l.Value() != nil && l.Err() == nil && l.Info().ID == l.id &&
			stale.Err() == ErrLeaseClosed && stale.Close() == nil
	})
}

func TestNewPermitPool_AllocatesNothing(t *testing.T) {
	p, err := NewPermitPool(2, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(endless())) })
	ctx := t.Context()
	requireAllocs(t, 0, func() bool { return acquireAndClose(p, ctx) })
}

func TestPool_AWaitForAPermitAllocatesOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		p := newAllocPool(t, 1, &PoolOptions[*thing]{Fair: fair})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin, served := make(chan struct{}), make(chan bool)
		go func() {
			for range begin {
				served <- acquireAndClose(p, ctx)
			}
		}()
		defer close(begin)
		requireAllocs(t, 1, func() bool {
			l, err := p.Acquire(ctx)
			begin <- struct{}{}
			for p.Stats().Waiters == 0 {
				runtime.Gosched()
			}
			return err == nil && l.Close() == nil && <-served
		})
	})
}

func TestLease_IsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Lease[int]{}), uintptr(24))
	require.LessOrEqual(t, unsafe.Sizeof(Lease[[100]int]{}), uintptr(24))
}

func TestPool_TheTableGrowsWithTheLeasesNotWithTheCapacity(t *testing.T) {
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	bytes := bytesPerRun(t, 10, func() bool {
		p, err := NewPermitPool(1_000_000, nil)
		return err == nil && acquireAndClose(p, context.Background())
	})
	require.Less(t, bytes, 8192.0)
}
