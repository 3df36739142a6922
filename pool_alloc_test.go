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

func must(ok bool) {
	if !ok {
		panic("not what was to be measured")
	}
}

func TestPool_AllocatesNothingWhenNothingWaits(t *testing.T) {
	eachMode(t, func(t *testing.T, fair bool) {
		for name, opts := range map[string]PoolOptions[*thing]{
			"plain":    {},
			"expiring": {MaxIdleTime: 1 << 40, MaxLifetime: 1 << 40, MaxUses: math.MaxInt32},
			"minidle":  {MinIdle: 1},
			"observed": {Observer: Observer{Acquired: func(AcquireEvent) {}, Returned: func(ReturnEvent) {}}},
		} {
			t.Run(name, func(t *testing.T) {
				opts.Fair = fair
				p := newAllocPool(t, 2, &opts)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tests := map[string]func(){
					"Acquire": func() {
						l, err := p.Acquire(ctx)
						must(err == nil)
						l.Close()
					},
					"AcquireWith": func() {
						l, err := p.AcquireWith(ctx, AcquireOptions{Owner: "me", Weight: 2})
						must(err == nil)
						l.Close()
					},
					"TryAcquire": func() {
						l, ok := p.TryAcquire()
						must(ok)
						l.Close()
					},
					"Stats": func() { must(p.Stats().Idle == 2) },
				}
				if name == "observed" {
					delete(tests, "Stats")
					for name, f := range tests {
						t.Run(name, func(t *testing.T) { requireAllocs(t, 4, f) }) // two closures for each event
					}
					return
				}
				for name, f := range tests {
					t.Run(name, func(t *testing.T) { requireAllocs(t, 0, f) })
				}
			})
		}
	})
}

func TestPool_DoAllocatesNothing(t *testing.T) {
	p := newAllocPool(t, 1, nil)
	nothing := func(context.Context, *thing) error { return nil }
	requireAllocs(t, 0, func() { must(p.Do(t.Context(), nothing) == nil) })
}

func TestPool_AFailedTryAcquireAllocatesNothing(t *testing.T) {
	p := newAllocPool(t, 1, nil)
	l, ok := p.TryAcquire()
	require.True(t, ok)
	requireAllocsThen(t, func() { l.Close() }, func() {
		_, ok := p.TryAcquire()
		must(!ok)
	})

	q, err := NewPool(1, func(context.Context) (*thing, error) { return &thing{}, nil }, nil)
	require.NoError(t, err)
	requireAllocsThen(t, func() { q.Close(endless()) }, func() {
		_, ok := q.TryAcquire()
		must(!ok) // a permit, but nothing idle
	})
}

// requireAllocsThen wants f to allocate nothing, and cleans up also where
// nothing is counted.
func requireAllocsThen(t *testing.T, cleanup, f func()) {
	t.Helper()
	defer cleanup()
	if !raceEnabled {
		requireAllocs(t, 0, f)
	}
}

func TestLease_MethodsAllocateNothing(t *testing.T) {
	p := newAllocPool(t, 1, &PoolOptions[*thing]{Name: "db"})
	l, err := p.Acquire(t.Context())
	require.NoError(t, err)
	stale := l
	require.NoError(t, stale.Close())
	l, err = p.Acquire(t.Context())
	require.NoError(t, err)
	requireAllocsThen(t, func() { l.Close() }, func() {
		must(l.Value() != nil)
		must(l.Err() == nil)
		l.Touch()
		must(l.Info().ID == l.id)
		must(stale.Err() == ErrLeaseClosed)
		stale.Close()
	})
}

func TestNewPermitPool_AllocatesNothing(t *testing.T) {
	p, err := NewPermitPool(2, nil)
	require.NoError(t, err)
	ctx := t.Context()
	requireAllocsThen(t, func() { p.Close(endless()) }, func() {
		l, err := p.Acquire(ctx)
		must(err == nil)
		l.Close()
	})
}

func TestPool_AWaitForAPermitAllocatesOnce(t *testing.T) {
	if raceEnabled {
		t.Skip("not counted under the race detector")
	}
	eachMode(t, func(t *testing.T, fair bool) {
		p := newAllocPool(t, 1, &PoolOptions[*thing]{Fair: fair})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin, parked := make(chan struct{}), make(chan struct{})
		go func() {
			for range begin {
				l, err := p.Acquire(ctx)
				must(err == nil)
				l.Close()
				parked <- struct{}{}
			}
		}()
		defer close(begin)
		requireAllocs(t, 1, func() {
			l, err := p.Acquire(ctx)
			must(err == nil)
			begin <- struct{}{}
			for p.Stats().Waiters == 0 {
				runtime.Gosched()
			}
			l.Close()
			<-parked
		})
	})
}

func TestLease_IsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Lease[int]{}), uintptr(24))
	require.LessOrEqual(t, unsafe.Sizeof(Lease[[100]int]{}), uintptr(24))
}

func TestPool_TheTableGrowsWithTheLeasesNotWithTheCapacity(t *testing.T) {
	bytes := bytesPerRun(10, func() {
		p, err := NewPermitPool(1_000_000, nil)
		must(err == nil)
		l, err := p.Acquire(context.Background())
		must(err == nil)
		l.Close()
	})
	if !raceEnabled {
		require.Less(t, bytes, 8192.0)
	}
}
