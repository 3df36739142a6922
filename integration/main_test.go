package integration

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ration-go/ration"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		work(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what should take a fraction of a second, on a machine that
// has other things to do.
const patience = 10 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// share has workers call do for each of 0 to jobs-1 and returns their errors. A
// worker stops at its first.
func share(workers, jobs int, do func(job int) error) error {
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for job := int(next.Add(1)) - 1; job < jobs && errs[w] == nil; job = int(next.Add(1)) - 1 {
				errs[w] = do(job)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// requireSettled checks the pool's books when all leases have been closed. What
// was begun for a borrower that was served by a return in the meantime, an open
// or a check, may still have to end.
func requireSettled[T any](t *testing.T, pool *ration.Pool[T]) ration.PoolStats {
	t.Helper()
	s := pool.Stats()
	require.Zero(t, s.Held, "permits held")
	require.Zero(t, s.Waiters, "waiters")
	require.Zero(t, s.DuplicateCloses, "duplicate closes")
	require.Empty(t, pool.Leases())
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		s = pool.Stats()
		assert.Zero(t, s.Leased+s.Opening+s.Destroying, "resources that are busy")
	}, patience, time.Millisecond)
	require.NoError(t, pool.Audit())
	return s
}

// requireClosed closes the pool and checks that nothing is left of it.
func requireClosed[T any](t *testing.T, pool *ration.Pool[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, pool.Close(ctx))
	require.NoError(t, pool.Audit())
	s := pool.Stats()
	require.Zero(t, s.Total+s.Opening+s.Destroying, "resources in a closed pool")
	destroyed := s.DestroyedBroken + s.DestroyedExpired + s.DestroyedIdle +
		s.DestroyedSurplus + s.DestroyedClosed + s.DestroyedRevoked
	require.Equal(t, s.Opened, destroyed, "each that was opened is destroyed")
}

// A peak is a gauge that remembers its highest value.
type peak struct{ now, highest atomic.Int64 }

func (p *peak) add(n int64) {
	now := p.now.Add(n)
	for {
		h := p.highest.Load()
		if now <= h || p.highest.CompareAndSwap(h, now) {
			return
		}
	}
}
