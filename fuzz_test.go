package ration

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzSemaphoreOperations lets the fuzzer write the program that the model test
// takes from chance.
func FuzzSemaphoreOperations(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, fair := range []byte{0, 1} {
		for range 4 {
			program := []byte{fair}
			for range 200 {
				program = append(program, byte(r.Uint32()))
			}
			f.Add(program)
		}
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 || len(program) > 1<<12 {
			return // longer ones find nothing that shorter ones do not
		}
		synctest.Test(t, func(t *testing.T) {
			runSemaphoreModel(t, program[0]%2 == 1, bytesOf(program[1:]))
		})
	})
}

// FuzzSemaphoreExtremes calls everything with any int64: nothing overflows, and
// misuse panics and changes nothing.
func FuzzSemaphoreExtremes(f *testing.F) {
	extremes := []int64{
		math.MinInt64, math.MinInt64 + 1, -MaxPermits - 1, -MaxPermits, -1, 0, 1, 2, 1 << 32,
		MaxPermits - 1, MaxPermits, MaxPermits + 1, 1 << 60, 1 << 62, math.MaxInt64 - 1, math.MaxInt64,
	}
	for i, permits := range extremes {
		for j, a := range extremes {
			f.Add(permits, a, extremes[(i+j)%len(extremes)], (i+j)%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, permits, a, b int64, fair bool) {
		opts := &SemaphoreOptions{Fair: fair}
		if permits < 0 || permits > MaxPermits {
			requireMisuse(t, func() { NewSemaphore(permits, opts) })
			return
		}
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{t: t, s: newTestSemaphore(t, permits, fair), capacity: permits}
			for _, n := range []int64{a, b, a} {
				l.take(n)
				l.giveBack(n)
				l.takeUpTo(n)
				l.giveBack(l.held / 2)
				l.acquire(n)
				l.grow(n)
				l.take(n)
				l.shrink(n)
				l.giveBack(n)
				l.acquire(n)
				l.resize(n)
				l.takeUpTo(n)
			}
			l.giveBack(l.held)
			requireIdle(t, l.s, l.capacity)
		})
	})
}

// A ledger says what must come out of any call on a semaphore at which nobody
// waits. Capacity and held stay within 0 and MaxPermits, so neither their
// difference nor the distances to the ends can overflow; n is only compared.
type ledger struct {
	t              *testing.T
	s              *Semaphore
	capacity, held int64
}

func (l *ledger) free() int64       { return l.capacity - l.held }
func (l *ledger) fits(n int64) bool { return n == 0 || n > 0 && n <= l.free() }

// expect runs f, which must panic if and only if misuse is set.
func (l *ledger) expect(misuse bool, f func()) {
	l.t.Helper()
	require.Equal(l.t, misuse, misused(f), "misuse")
	requirePermits(l.t, l.s, l.capacity, l.free())
	checkInvariants(l.t, l.s)
}

func (l *ledger) take(n int64) {
	l.expect(n < 0, func() {
		fits, got := l.fits(n), l.s.TryAcquire(n)
		require.Equal(l.t, fits, got)
		if got {
			l.held += n
		}
	})
	l.expect(n < 0, func() {
		fits, got := l.fits(n), l.s.TryAcquireFor(n, time.Second)
		require.Equal(l.t, fits, got)
		if got {
			l.held += n
		}
	})
}

func (l *ledger) takeUpTo(n int64) {
	l.expect(n < 0, func() {
		want, got := max(0, min(n, l.free())), l.s.TryAcquireUpTo(n)
		require.Equal(l.t, want, got)
		l.held += got
	})
}

func (l *ledger) acquire(n int64) {
	l.expect(n < 0, func() {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		defer cancel()
		var want error
		if !l.fits(n) {
			want = context.DeadlineExceeded
			if l.capacity > 0 && n > l.capacity {
				want = ErrTooLarge
			}
		}
		require.Equal(l.t, want, l.s.Do(ctx, n, func(context.Context) error {
			require.Equal(l.t, l.held+n, l.s.Held())
			return nil
		}))
		got := l.s.Acquire(ctx, n)
		require.Equal(l.t, want, got)
		if got == nil {
			l.held += n
		}
	})
}

func (l *ledger) giveBack(n int64) {
	l.expect(n < 0 || n > l.held, func() {
		l.s.Release(n)
		l.held -= n
	})
}

func (l *ledger) grow(n int64) {
	l.expect(false, func() {
		if n < 0 || n > MaxPermits-l.capacity {
			require.Equal(l.t, ErrCapacity, l.s.Grow(n))
			return
		}
		require.NoError(l.t, l.s.Grow(n))
		l.capacity += n
	})
}

func (l *ledger) shrink(n int64) {
	l.expect(false, func() {
		if n < 0 || n > l.capacity {
			require.Equal(l.t, ErrCapacity, l.s.Shrink(n))
			return
		}
		require.NoError(l.t, l.s.Shrink(n))
		l.capacity -= n
	})
}

func (l *ledger) resize(n int64) {
	l.expect(false, func() {
		if n < 0 || n > MaxPermits {
			require.Equal(l.t, ErrCapacity, l.s.Resize(n))
			return
		}
		require.NoError(l.t, l.s.Resize(n))
		l.capacity = n
	})
}
