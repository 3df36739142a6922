package ration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// checkInvariants checks what must hold of s at every instant: the invariants
// that semaphore.go numbers, and what its numbers say to the public.
func checkInvariants(t testing.TB, s *Semaphore) {
	t.Helper()
	st := s.Stats()
	require.Equal(t, st.Capacity, st.Available+st.Held, "available + held = capacity")
	require.GreaterOrEqual(t, st.WaitingPermits, int64(st.Waiters), "nobody queues for nothing")
	require.LessOrEqual(t, st.Canceled, st.Waited, "canceled waits are waits")
	require.LessOrEqual(t, st.LongestWait, st.WaitTime, "the longest wait is part of the total")

	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.word.Load()
	balance, capacity, head := w>>flagBits, s.capacity.Load(), s.queue.head

	require.GreaterOrEqual(t, capacity, int64(0), "1: capacity")
	require.LessOrEqual(t, capacity, MaxPermits, "1: capacity")
	require.GreaterOrEqual(t, capacity-balance, int64(0), "1: held")

	require.Equal(t, head != nil, w&hasWaiters != 0, "2: flag hasWaiters")
	if head == nil {
		require.Equal(t, s.closed, w&gated != 0, "2: flag gated")
		require.Zero(t, w&alarmed, "2: flag alarmed")
		require.Nil(t, s.invited, "4: an invitation and nobody there")
	}

	if s.fair && head != nil {
		require.Equal(t, gated|alarmed, w&(gated|alarmed), "2: a fair queue shuts the fast paths")
		require.Greater(t, head.n, balance, "3: the head fits and sleeps")
		require.Nil(t, s.invited, "4: an invitation in a fair queue")
	}
	if !s.fair && head != nil {
		require.True(t, head.n > balance || s.invited == head, "3: the head fits, and nobody is on the way")
		require.True(t, s.invited != nil || w&alarmed != 0, "2: a release would wake nobody")
	}

	n := 0
	var prev *waiter
	for q := head; q != nil; prev, q = q, q.next {
		require.Same(t, prev, q.prev, "the queue's links")
		require.Equal(t, q == s.invited, q.state == invited, "4: invited")
		require.True(t, q == head || q.state == waiting, "4: only the head is invited")
		require.True(t, capacity == 0 || q.n <= capacity, "6: a request for more than there is")
		n++
	}
	require.Same(t, prev, s.queue.tail, "the queue's end")
	require.Equal(t, n, s.queue.len, "the queue's length")
	require.True(t, !s.closed || n == 0, "5: somebody waits at a closed semaphore")
}
