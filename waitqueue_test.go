package ration

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A waiter that was woken by a timer and called at the same time must have taken
// the token before anything else: whoever calls it still uses the channel until
// then, and a token left there would block the caller after.
func TestWaiter_RisesWithoutATokenLeftBehind(t *testing.T) {
	asleepUntilTick := func(t *testing.T) *waiter {
		w := newWaiter(1, 0)
		woken, _ := w.sleep(nil, time.After(time.Second))
		require.False(t, woken)
		return w
	}
	synctest.Test(t, func(t *testing.T) {
		for _, final := range []bool{false, true} {
			w := asleepUntilTick(t)
			w.call(map[bool]uint32{false: called, true: dismissed}[final])
			w.rise()
			require.Empty(t, w.ready)
			woken, last := w.sleep(nil, nil)
			require.True(t, woken, "the next sleep says that it was called")
			require.Equal(t, final, last)
			w.recycle(false)
		}

		w := asleepUntilTick(t)
		w.rise()
		w.call(called)
		require.Empty(t, w.ready, "one that is up needs no token")
		woken, _ := w.sleep(nil, nil)
		require.True(t, woken)
		w.recycle(false)
	})
}
