package ration

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestBucket returns a bucket whose invariants are checked when the test
// ends.
func newTestBucket(t testing.TB, r Rate, burst int64) *TokenBucket {
	t.Helper()
	b, err := NewTokenBucket(r, burst)
	require.NoError(t, err)
	t.Cleanup(func() { checkBucketInvariants(t, b) })
	return b
}

// newDrainedBucket returns a bucket with nothing in it.
func newDrainedBucket(t testing.TB, r Rate, burst int64) *TokenBucket {
	t.Helper()
	b := newTestBucket(t, r, burst)
	require.True(t, b.Allow(burst), "a new bucket is full")
	return b
}

// inBubble is synctest.Test as a subtest.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// oddRates are those at which inexact arithmetic shows.
var oddRates = []Rate{
	Per(7, time.Minute),
	PerSecond(999_983),
	Per(3, 10*time.Second),
	Per(1, 24*time.Hour),
	PerSecond(1),
	Every(time.Nanosecond),
	Per(1_000_000_007, time.Second), // more than one a nanosecond
	Per(1, 9_007_199_254_740_993),   // not a float64
}

// startWait starts a Wait that the end of the test cancels.
func startWait(t *testing.T, b *TokenBucket, n int64) *call {
	return start(func() error { return b.Wait(t.Context(), n) })
}

func startWaitAll(t *testing.T, n int64, buckets ...*TokenBucket) *call {
	return start(func() error { return WaitAll(t.Context(), n, buckets...) })
}

// parkWait is startWait for a call that must end up in the queue. To be called
// in a bubble, like all of the following.
func parkWait(t *testing.T, b *TokenBucket, n int64) *call {
	t.Helper()
	c := startWait(t, b, n)
	requireParked(t, c)
	return c
}

func parkWaitCancelable(t *testing.T, b *TokenBucket, n int64) (*call, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := start(func() error { return b.Wait(ctx, n) })
	requireParked(t, c)
	return c, cancel
}

func parkWaitAll(t *testing.T, n int64, buckets ...*TokenBucket) *call {
	t.Helper()
	c := startWaitAll(t, n, buckets...)
	requireParked(t, c)
	return c
}

// requireServedAfter checks that c, which waits, is served in exactly d from
// now, and lets that time pass.
func requireServedAfter(t *testing.T, d time.Duration, c *call) {
	t.Helper()
	if d > 0 {
		requireParked(t, c)
		time.Sleep(d - time.Nanosecond)
		require.False(t, c.ended(), "a wait has ended a nanosecond before its time or earlier")
		time.Sleep(time.Nanosecond)
	}
	require.True(t, c.ended(), "a wait has not ended when its time has come, %v", d)
	require.NoError(t, c.err)
}

// requireTokens checks what the bucket says it holds.
func requireTokens(t testing.TB, want int64, b *TokenBucket) {
	t.Helper()
	require.Equal(t, want, b.Tokens(), "tokens")
}

// requireHolds checks what the bucket holds and takes all of it.
func requireHolds(t testing.TB, want int64, b *TokenBucket) {
	t.Helper()
	requireTokens(t, want, b)
	require.True(t, b.Allow(want), "what is there can be had")
	require.False(t, b.Allow(1), "and no more")
}

// reserve makes a reservation that has to wait for exactly d.
func reserve(t testing.TB, d time.Duration, b *TokenBucket, n int64) Reservation {
	t.Helper()
	r := b.Reserve(n)
	require.True(t, r.OK(), "a reservation of %d", n)
	require.Equal(t, d, r.Delay(), "delay of a reservation of %d", n)
	return r
}

// at makes it d since the bucket was made, by its own clock, be it forwards or
// backwards.
func at(b *TokenBucket, d time.Duration) { b.clock.start = time.Now().Add(-d) }

// A bucketState is everything about a bucket that a call which changes nothing
// leaves alone.
type bucketState struct {
	tokens, burst int64
	rate          Rate
	rest          level
	waiters       int
	retry         time.Duration
}

func stateOf(b *TokenBucket) bucketState {
	s := bucketState{tokens: b.Tokens(), burst: b.Burst(), rate: b.Rate(), retry: b.RetryAfter(1)}
	b.lock()
	defer b.mu.Unlock()
	s.rest, s.waiters = b.have, b.queue.len
	return s
}

// requireUnchanged checks that f changes nothing in b.
func requireUnchanged(t testing.TB, b *TokenBucket, f func()) {
	t.Helper()
	was := stateOf(b)
	f()
	require.Equal(t, was, stateOf(b))
}

// checkBucketInvariants checks the invariants at the head of TokenBucket, in a
// bucket at rest, and that the queue is one.
func checkBucketInvariants(t testing.TB, b *TokenBucket) {
	t.Helper()
	fast := b.fast.Load() != nil
	b.lock()
	defer b.mu.Unlock()
	if fast {
		require.Nil(t, b.queue.head, "a fastBucket beside waiters")
		require.False(t, b.rooms.tracking, "a fastBucket beside promises")
	}

	// 1
	require.GreaterOrEqual(t, b.burst, int64(0))
	require.LessOrEqual(t, b.have.whole, b.burst, "more than the burst")
	require.GreaterOrEqual(t, b.have.part, int64(0))
	if b.have.part > 0 {
		require.Less(t, b.have.part, int64(b.rate.per), "part of a token")
		require.Less(t, b.have.whole, b.burst, "more than the burst")
	}

	// 2 and 3
	head := b.queue.head
	if head == nil {
		require.Nil(t, b.timer, "a timer for nobody")
		require.Nil(t, b.timed, "a time for nobody")
	} else {
		_, joint := head.tag.(*waiter)
		require.True(t, joint || !b.ready(head), "the head could be served")
		require.Same(t, head, b.timed, "the head is not timed")
		if due := b.dueOf(head); b.due == dueFar {
			require.Positive(t, b.rate.tokens)
		} else if due > b.asOf {
			require.Equal(t, due, b.due, "when its time is")
		} else {
			require.LessOrEqual(t, b.due, b.asOf, "when its time is")
		}
		alone := 0
		for w := head; w != nil; w = w.next {
			if w.tag == nil {
				alone++
			}
		}
		require.True(t, alone == 0 || b.timer != nil, "nothing for %d to listen to", alone)
	}

	// 4, and the queue
	var sum wideSum
	n := 0
	for prev, w := (*waiter)(nil), head; w != nil; prev, w = w, w.next {
		require.Same(t, prev, w.prev)
		require.LessOrEqual(t, w.n, b.burst, "a waiter that can never be served")
		require.LessOrEqual(t, uint64(w.behind), b.promised)
		sum.add(w.n)
		n++
		if w.next == nil {
			require.Same(t, w, b.queue.tail)
		}
	}
	require.Equal(t, n, b.queue.len)
	require.Equal(t, sum, b.queue.requests)

	// 5
	for i, noted := range b.rooms.least {
		require.Greater(t, noted.number, b.rooms.void)
		require.LessOrEqual(t, noted.number, b.rooms.number)
		if i > 0 {
			before := b.rooms.least[i-1]
			require.Less(t, before.number, noted.number)
			require.False(t, noted.room.less(before.room)) // equal after a change of the rate
		}
	}

	// 6
	require.Zero(t, b.pending, "somebody is still to be woken")
}

const never = time.Duration(math.MaxInt64)
