package ration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T3: Wait is a queue with one timer.

func TestTokenBucket_WaitTakesWhatIsThereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 10)
		began := time.Now()
		require.NoError(t, b.Wait(briefly(t), 4))
		require.NoError(t, b.Wait(briefly(t), 6))
		require.Zero(t, time.Since(began))
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_WaitEndsAtItsNanosecond(t *testing.T) {
	for _, r := range oddRates {
		inBubble(t, r.String(), func(t *testing.T) {
			b := newDrainedBucket(t, r, 1<<40)
			began := time.Now()
			sum := int64(0)
			for _, n := range []int64{1, 1, 1, 2, 3, 50, 1, 1} {
				require.NoError(t, b.Wait(t.Context(), n))
				sum += n
				require.Equal(t, arrival(r, sum), time.Since(began), "%d tokens", sum)
			}
		})
	}
}

func TestTokenBucket_WaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		large := parkWait(t, b, 10)
		small := []*call{parkWait(t, b, 1), parkWait(t, b, 2), parkWait(t, b, 1)}
		require.Equal(t, 16*time.Second, b.RetryAfter(2))
		requireServedAfter(t, 10*time.Second, large) // the small ones do not pass it
		requireParked(t, small...)
		requireServedAfter(t, time.Second, small[0])
		requireServedAfter(t, 2*time.Second, small[1])
		requireServedAfter(t, time.Second, small[2])
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_NewcomersDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		waiter := parkWait(t, b, 5)
		time.Sleep(4 * time.Second)
		requireTokens(t, 4, b)
		require.False(t, b.Allow(1), "there are 4, but not for it")
		require.False(t, AllowAll(1, b))
		require.Equal(t, 2*time.Second, b.RetryAfter(1))
		newcomer := parkWait(t, b, 1)
		joint := parkWaitAll(t, 1, b)
		r := reserve(t, 4*time.Second, b, 1)
		requireServedAfter(t, time.Second, waiter)
		requireServedAfter(t, time.Second, newcomer)
		requireServedAfter(t, time.Second, joint)
		require.Equal(t, time.Second, r.Delay())
	})
}

func TestTokenBucket_SeveralAreServedAtOnceWhenTheirTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		calls := []*call{parkWait(t, b, 1), parkWait(t, b, 2), parkWait(t, b, 3)}
		last := parkWait(t, b, 5)
		b.Return(6)
		requireGranted(t, calls...)
		requireServedAfter(t, 5*time.Second, last)
	})
}

func TestTokenBucket_CancelOfTheHeadMovesEverybodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		head, cancel := parkWaitCancelable(t, b, 5)
		one, two, three := parkWait(t, b, 1), parkWait(t, b, 2), parkWait(t, b, 1)
		time.Sleep(3500 * time.Millisecond)
		cancel()
		requireFailed(t, context.Canceled, head)
		requireGranted(t, one, two) // 3.5 tokens were there
		requireServedAfter(t, 500*time.Millisecond, three)
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_CancelInTheMiddleMovesThoseBehindUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		head := parkWait(t, b, 2)
		middle, cancel := parkWaitCancelable(t, b, 7)
		tail := parkWait(t, b, 1)
		cancel()
		requireFailed(t, context.Canceled, middle)
		requireServedAfter(t, 2*time.Second, head)
		requireServedAfter(t, time.Second, tail)
	})
}

func TestTokenBucket_ACanceledWaitTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		for range 100 {
			c, cancel := parkWaitCancelable(t, b, 3)
			cancel()
			requireFailed(t, context.Canceled, c)
		}
		time.Sleep(2 * time.Second)
		requireHolds(t, 2, b)
		require.Nil(t, b.queue.head)
		require.Nil(t, b.timer)
	})
}

func TestTokenBucket_AWaitTimesOutWhenItsTurnIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		c := start(func() error { return b.Wait(ctx, 3) })
		behind := start(func() error { return b.Wait(t.Context(), 1) })
		requireParked(t, c, behind)
		require.NoError(t, b.SetRate(Every(4*time.Second)))
		time.Sleep(4 * time.Second)
		requireFailed(t, context.DeadlineExceeded, c)
		require.Equal(t, 4*time.Second, c.took)
		requireGranted(t, behind)
	})
}

func TestTokenBucket_ANewRateRetimesTheWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		first, second := parkWait(t, b, 4), parkWait(t, b, 6)
		time.Sleep(2 * time.Second)
		require.NoError(t, b.SetRate(PerSecond(4)))
		require.Equal(t, 2250*time.Millisecond, b.RetryAfter(1))
		requireServedAfter(t, 500*time.Millisecond, first)
		require.NoError(t, b.SetRate(Every(time.Minute)))
		require.NoError(t, b.SetRate(Per(1, 10*time.Second)))
		require.Equal(t, time.Minute, b.RetryAfter(6)-time.Minute)
		requireServedAfter(t, time.Minute, second)
	})
}

func TestTokenBucket_ANewRateServesThoseWhoseTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, Every(time.Hour), 10)
		w := parkWait(t, b, 1)
		require.NoError(t, b.SetRate(PerSecond(1_000_000_000)))
		requireServedAfter(t, time.Nanosecond, w)
	})
}

func TestTokenBucket_RateZeroIsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		w, cancel := parkWaitCancelable(t, b, 2)
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, b.SetRate(Rate{}))
		require.Equal(t, dueNever, b.due)
		other := parkWait(t, b, 1)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		timed := start(func() error { return b.Wait(ctx, 1) })
		requireParked(t, timed)
		require.False(t, b.Allow(1), "one is there, but others wait")
		require.Equal(t, never, b.RetryAfter(1))
		require.False(t, b.Reserve(1).OK())
		time.Sleep(time.Hour)
		requireFailed(t, context.DeadlineExceeded, timed)
		require.Equal(t, time.Hour, timed.took)

		cancel()
		requireFailed(t, context.Canceled, w)
		requireGranted(t, other)
		last := parkWait(t, b, 1)
		require.NoError(t, b.SetRate(PerSecond(1)))
		requireServedAfter(t, 500*time.Millisecond, last) // of 1.5 tokens
	})
}

func TestTokenBucket_AReturnServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		first, second := parkWait(t, b, 3), parkWait(t, b, 3)
		b.Return(2)
		require.Equal(t, 5*time.Second, b.RetryAfter(1))
		b.Return(2)
		requireGranted(t, first)
		requireServedAfter(t, 2*time.Second, second)
	})
}

func TestTokenBucket_ASmallerBurstFailsWaitersAboveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		large, small, larger, other := parkWait(t, b, 6), parkWait(t, b, 3), parkWait(t, b, 10), parkWait(t, b, 5)
		require.NoError(t, b.SetBurst(5))
		requireFailed(t, ErrTooLarge, large, larger)
		requireServedAfter(t, 3*time.Second, small)
		requireServedAfter(t, 5*time.Second, other)
		require.NoError(t, b.SetBurst(5))
		requireTokens(t, 0, b)
	})
}

func TestTokenBucket_ASmallerBurstServesThoseBehindAnotherThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		large, small := parkWait(t, b, 6), parkWait(t, b, 2)
		time.Sleep(4 * time.Second)
		require.NoError(t, b.SetBurst(3))
		requireFailed(t, ErrTooLarge, large)
		requireGranted(t, small)
		requireHolds(t, 1, b)
	})
}

func TestTokenBucket_ALargerBurstLetsTheBucketFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 1)
		require.Equal(t, ErrTooLarge, b.Wait(t.Context(), 3))
		require.NoError(t, b.SetBurst(3))
		w := parkWait(t, b, 3)
		requireServedAfter(t, 2*time.Second, w)
	})
}

func TestTokenBucket_TooLargeFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		for _, b := range []*TokenBucket{
			newTestBucket(t, PerSecond(1), 10),
			newDrainedBucket(t, Rate{}, 10),
			newTestBucket(t, PerSecond(1), 0),
		} {
			requireUnchanged(t, b, func() {
				require.Equal(t, ErrTooLarge, b.Wait(t.Context(), 11))
				require.Equal(t, ErrTooLarge, b.Wait(soon, 11))
				require.Equal(t, ErrTooLarge, WaitAll(t.Context(), 11, b))
				require.Equal(t, context.Canceled, b.Wait(canceled(), 11))
				require.Equal(t, context.Canceled, WaitAll(canceled(), 11, b))
				require.False(t, b.Allow(11))
			})
		}
	})
}

func TestTokenBucket_ADoneContextComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBucket(t, PerSecond(1), 10)
		cause := errors.New("a cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		late, stop := context.WithTimeout(t.Context(), -time.Second)
		defer stop()
		requireUnchanged(t, b, func() {
			require.Equal(t, context.Canceled, b.Wait(canceled(), 1), "tokens are there, and it gets none")
			require.Equal(t, context.Canceled, b.Wait(ctx, 1), "bare, not the cause")
			require.Equal(t, context.DeadlineExceeded, b.Wait(late, 1))
			require.Equal(t, context.Canceled, WaitAll(canceled(), 1, b))
		})
	})
}

func TestTokenBucket_ADeadlineTooNearFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		w := parkWait(t, b, 2)
		began := time.Now()
		requireUnchanged(t, b, func() {
			for _, wait := range []func(ctx context.Context) error{
				func(ctx context.Context) error { return b.Wait(ctx, 1) },
				func(ctx context.Context) error { return WaitAll(ctx, 1, b) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second-1)
				err := wait(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, ErrTooLarge)
				require.NoError(t, ctx.Err(), "at once")
				cancel()
			}
		})
		require.Zero(t, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second+1)
		defer cancel()
		enough := start(func() error { return b.Wait(ctx, 1) })
		requireParked(t, enough)
		requireServedAfter(t, 2*time.Second, w)
		requireServedAfter(t, time.Second, enough)
	})
}

func TestTokenBucket_ADeadlineThatIsPromisedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		r := reserve(t, 5*time.Second, b, 5)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, 1), context.DeadlineExceeded, "the promise counts")
		r.Cancel()
		require.NoError(t, b.Wait(ctx, 1))
	})
}

// There is one timer, whatever the number of waiters, and none without them.
func TestTokenBucket_HasOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		require.Nil(t, b.timer)
		calls := []*call{parkWait(t, b, 1)}
		timer := b.timer
		require.NotNil(t, timer)
		for range 50 {
			calls = append(calls, parkWait(t, b, 1))
			checkBucketInvariants(t, b)
		}
		require.Same(t, timer, b.timer)
		for _, c := range calls {
			requireServedAfter(t, time.Second, c)
			checkBucketInvariants(t, b)
		}
		require.Nil(t, b.timer)
	})
}

// A bucket may be used in one bubble after another, and outside of any.
func TestTokenBucket_NothingOutlivesABubble(t *testing.T) {
	for range 3 {
		inBubble(t, "", func(t *testing.T) {
			b := newDrainedBucket(t, PerSecond(1000), 10)
			requireServedAfter(t, time.Millisecond, parkWait(t, b, 1))
			c, cancel := parkWaitCancelable(t, b, 1)
			cancel()
			requireFailed(t, context.Canceled, c)
			requireServedAfter(t, 2*time.Millisecond, parkWaitAll(t, 2, b))
		})
		b := newDrainedBucket(t, PerSecond(1000), 10)
		require.NoError(t, b.Wait(watchdog(t), 1))
	}
}

func TestTokenBucket_AForeignContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		ctx := &switchedContext{context.Background(), make(chan struct{})}
		c := start(func() error { return b.Wait(ctx, 1) })
		requireParked(t, c)
		close(ctx.done)
		requireFailed(t, context.Canceled, c)
		requireServedAfter(t, time.Second, parkWait(t, b, 1))
	})
}

// Whoever is done before its turn takes nothing, and whoever has had its turn
// took exactly what it asked for.
func TestTokenBucket_CancelAndGrantRace(t *testing.T) {
	for range rounds(2000) {
		b := newDrainedBucket(t, Every(time.Hour), 10)
		ctx, cancel := context.WithCancel(context.Background())
		c := start(func() error { return b.Wait(ctx, 3) })
		yieldUntil(func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.queue.len == 1
		})
		go cancel()
		b.Return(4)
		c.wait(t)
		if c.err == nil {
			requireTokens(t, 1, b)
		} else {
			require.Equal(t, context.Canceled, c.err)
			requireTokens(t, 4, b)
		}
		cancel()
	}
}

func TestTokenBucket_CancelBeforeTheGrantWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1), 10)
		for range 200 {
			c, cancel := parkWaitCancelable(t, b, 3)
			behind := parkWait(t, b, 1)
			cancel()
			b.Return(4)
			requireFailed(t, context.Canceled, c)
			requireGranted(t, behind)
			requireHolds(t, 3, b)
		}
	})
}

// Those who come at the very moment at which the tokens do find them gone.
func TestTokenBucket_ANewcomerDoesNotOvertakeWhenTheTokensAreDue(t *testing.T) {
	for name, try := range map[string]func(b *TokenBucket) bool{
		"Allow":    func(b *TokenBucket) bool { return b.Allow(1) },
		"AllowAll": func(b *TokenBucket) bool { return AllowAll(1, b) },
		"Reserve":  func(b *TokenBucket) bool { return b.Reserve(1).Delay() == 0 },
		"Wait": func(b *TokenBucket) bool {
			ctx, cancel := context.WithTimeout(context.Background(), 1)
			defer cancel()
			return b.Wait(ctx, 1) == nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			for range 20 {
				b := newDrainedBucket(t, PerSecond(1), 1)
				w := parkWait(t, b, 1)
				time.Sleep(time.Second) // the timer fires now, before or after this goroutine goes on
				require.False(t, try(b))
				requireGranted(t, w)
			}
		})
	}
}

func TestTokenBucket_NoTokenIsLostByACancel(t *testing.T) {
	r := testRandom(t)
	synctest.Test(t, func(t *testing.T) {
		b := newDrainedBucket(t, PerSecond(1000), 20)
		began := time.Now()
		var served atomic.Int64
		var all sync.WaitGroup
		for range 500 {
			n, limit := 1+r.Int64N(10), time.Duration(r.Int64N(int64(3*time.Second)))
			arrives := time.Duration(r.Int64N(int64(time.Second)))
			all.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				time.Sleep(arrives)
				defer time.AfterFunc(limit, cancel).Stop()
				defer cancel()
				if err := b.Wait(ctx, n); err == nil {
					served.Add(n)
				} else if err != context.Canceled {
					t.Error(err)
				}
			})
		}
		keeper := start(func() error { // so that somebody always waits, and the bucket is never full
			for range 4000 {
				if err := b.Wait(endless(), 1); err != nil {
					return err
				}
				served.Add(1)
			}
			return nil
		})
		all.Wait()
		require.NoError(t, keeper.result())
		require.EqualValues(t, time.Since(began)/time.Millisecond, served.Load()+b.Tokens())
		require.Positive(t, served.Load()-4000)
	})
}

// The call is cancelled when its tokens have come already, but it has not woken:
// they go to the next.
func TestTokenBucket_WhoIsServedAndCanceledGivesItsTokensOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			b := newDrainedBucket(t, Every(time.Hour), 5)
			w, cancel := parkWaitCancelable(t, b, 3)
			next := parkWait(t, b, 3)
			b.Return(3)
			cancel()
			synctest.Wait()
			if w.result() == nil {
				requireParked(t, next)
				b.Return(3)
			} else {
				requireFailed(t, context.Canceled, w)
			}
			requireGranted(t, next)
			requireTokens(t, 0, b)
		}
	})
}
