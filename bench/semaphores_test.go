package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSemaphores_LimitConcurrency(t *testing.T) {
	const permits, workers, turns = 3, 16, 500
	for _, impl := range Semaphores() {
		t.Run("impl="+impl.Name, func(t *testing.T) {
			s := impl.New(permits)
			for range permits {
				require.NoError(t, s.Acquire(t.Context()))
			}
			soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, s.Acquire(soon), context.DeadlineExceeded, "one more")
			for range permits {
				s.Release()
			}

			var held, over, failed atomic.Int64
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range turns {
						if s.Acquire(t.Context()) != nil {
							failed.Add(1)
							continue
						}
						if held.Add(1) > permits {
							over.Add(1)
						}
						held.Add(-1)
						s.Release()
						if s.Turn(t.Context(), true) != nil {
							failed.Add(1)
						}
					}
				})
			}
			all.Wait()
			require.Zero(t, failed.Load())
			require.Zero(t, over.Load(), "more than there are permits")
		})
	}
}
