package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPools_LendDistinctResources(t *testing.T) {
	const size = 8
	for _, r := range Pools() {
		t.Run("impl="+r.Name, func(t *testing.T) {
			var o opener
			l := r.new(size, o.open)
			defer l.close()
			require.Len(t, o.opened, size, "idle resources at the start")

			for range 2 { // the second time they have been returned
				seen := make(map[*resource]bool)
				var giveBack []func()
				for range size {
					res, back, err := l.lend(t.Context())
					require.NoError(t, err)
					require.False(t, seen[res], "lent twice")
					seen[res] = true
					giveBack = append(giveBack, back)
				}
				if r.Bounded {
					soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_, _, err := l.lend(soon)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded, "one more")
					require.Len(t, o.opened, size)
				}
				for _, back := range giveBack {
					back()
				}
			}
		})
	}
}

func TestPools_OneBorrowerAtATime(t *testing.T) {
	const size, workers, turns = 8, 16, 2000
	for _, r := range Pools() {
		t.Run("impl="+r.Name, func(t *testing.T) {
			var o opener
			l := r.new(size, o.open)
			defer l.close()
			var failed atomic.Int64
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range turns {
						if l.Turn(t.Context(), true) != nil {
							failed.Add(1)
						}
					}
				})
			}
			all.Wait()
			require.Zero(t, failed.Load())
			require.Equal(t, workers*turns, o.uses())
			if r.Bounded {
				require.Len(t, o.opened, size)
			}
		})
	}
}
