package ration

import (
	"context"
	"math"
	"slices"
	"time"
)

// Several buckets at once: all or none.
//
// A joint waiter has a place in the queue of each bucket and one bed. It sleeps
// until it is the head everywhere and all its tokens are there; then it takes
// them itself, under all the locks. A bucket calls it when it becomes the head there
// or, while it is, when the time at which its tokens will be there changes; the
// passing of that time is its own to notice, since the bucket's timer is heard only
// by those that wait at that bucket alone.

// AllowAll takes n tokens from each of the buckets if all of them could do so
// alone, and reports whether it did. If not, nothing changes in any. A bucket
// named twice has to have 2n. With no buckets it does nothing and reports true.
// It panics if n is negative.
func AllowAll(n int64, buckets ...*TokenBucket) bool {
	checkTokens("AllowAll", n)
	if n == 0 {
		return true
	}
	var room [8]claim
	claims := claimAll(room[:0], n, buckets)
	lockAll(claims)
	ok := takeAll(claims)
	for _, c := range claims {
		c.bucket.calm = 0
		c.bucket.mu.Unlock()
	}
	return ok
}

// WaitAll takes n tokens from each of the buckets, in one step, waiting with a
// place in each one's queue until it can. A bucket that has the tokens sooner
// keeps them, and those who wait behind, until the last has. A bucket named twice
// is charged 2n. With no buckets it does nothing. For errors and panics see
// [TokenBucket.Wait]; an error takes nothing from any bucket. A wait allocates once
// for each bucket and a few times more.
func WaitAll(ctx context.Context, n int64, buckets ...*TokenBucket) error {
	checkTokens("WaitAll", n)
	if ctx == nil {
		panic("ration: WaitAll: nil context")
	}
	if err := ctx.Err(); err != nil || n == 0 || len(buckets) == 0 {
		return err
	}
	done, left := ctx.Done(), timeLeft(ctx)
	claims := claimAll(nil, n, buckets)
	lockAll(claims)
	err := claimable(claims, left)
	if err != nil || takeAll(claims) {
		unlockAll(claims)
		return err
	}
	bed := new(waiter)
	for i := range claims {
		c := &claims[i]
		c.place = &waiter{n: c.n, since: int64(c.bucket.rooms.number), tag: bed}
		c.bucket.enqueue(c.place)
	}
	wait, ok := timeAll(claims)
	unlockAll(claims)

	var alarm alarm
	defer alarm.stop()
	for {
		woken, _ := bed.sleep(done, alarm.set(wait, ok))
		err := ctx.Err()
		switch {
		case woken || err != nil:
		case isDone(done):
			err = context.Canceled // a foreign context that does not keep its word
		default:
			bed.rise()
		}
		var over bool
		if wait, ok, over, err = collect(claims, err); over {
			return err
		}
	}
}

// collect is what a joint waiter does after each sleep: it takes what it came
// for if all of that is there, or gives all its places up if one was refused or
// err says so. It reports whether the wait is over and how it ended, or else after
// what time, if any, to look again if not called before.
func collect(claims []claim, err error) (wait time.Duration, ok, over bool, _ error) {
	lockAll(claims)
	ready := true
	for _, c := range claims {
		if c.place.state == refused && err == nil {
			err = c.place.err
		}
		ready = ready && c.bucket.queue.head == c.place && c.bucket.ready(c.place)
	}
	if over = ready || err != nil; !over {
		wait, ok = timeAll(claims)
	} else {
		for _, c := range claims {
			if c.place.state != refused {
				c.bucket.queue.remove(c.place)
			}
			if err == nil {
				c.bucket.have.whole -= c.n
			}
		}
	}
	unlockAll(claims)
	return wait, ok, over, err
}

// timeAll returns how long it is until the tokens are there in all buckets where
// the joint waiter is the head, and false if that is now or cannot be known: then
// it is going to be called.
func timeAll(claims []claim) (wait time.Duration, ok bool) {
	for _, c := range claims {
		b := c.bucket
		if b.queue.head != c.place {
			continue
		}
		// It knows now, so settle need not call it. Should the bucket's timer still be
		// set for the head before it, it only wakes somebody for nothing.
		due := b.dueOf(c.place)
		b.timed, b.due = c.place, due
		if due <= b.asOf {
			continue
		}
		d, knows := b.lasts(due)
		if !knows {
			return 0, false
		}
		wait, ok = max(wait, d), true
	}
	return wait, ok
}

// A claim is what AllowAll or WaitAll want of one bucket.
type claim struct {
	bucket *TokenBucket
	n      int64
	tooBig bool    // it does not fit into n, so that no bucket holds it
	place  *waiter // in the queue; its tag is the bed of the joint waiter
	wake   bucketWakes
}

// claimAll appends a claim for each bucket to claims, in the order in which the
// locks are taken.
func claimAll(claims []claim, n int64, buckets []*TokenBucket) []claim {
	for _, b := range buckets {
		i, named := slices.BinarySearchFunc(claims, b.id, func(c claim, id uint64) int {
			switch {
			case c.bucket.id < id:
				return -1
			case c.bucket.id > id:
				return 1
			}
			return 0
		})
		if !named {
			claims = slices.Insert(claims, i, claim{bucket: b, n: n})
		} else if claims[i].n <= math.MaxInt64-n {
			claims[i].n += n
		} else {
			claims[i].tooBig = true
		}
	}
	return claims
}

// lockAll locks the buckets and brings them to the present.
func lockAll(claims []claim) {
	for _, c := range claims {
		c.bucket.lock()
	}
}

// unlockAll ends the critical section that lockAll began.
func unlockAll(claims []claim) {
	for i := range claims {
		c := &claims[i]
		c.wake = c.bucket.finish()
	}
	for i := range claims {
		claims[i].bucket.mu.Unlock()
	}
	for i := range claims {
		claims[i].wake.wake()
	}
}

// claimable says why the claims cannot be met before the time left is over, if
// so.
func claimable(claims []claim, left time.Duration) error {
	var err error
	for _, c := range claims {
		switch {
		case c.tooBig || c.n > c.bucket.burst:
			return ErrTooLarge
		case c.bucket.outlasts(c.n, left):
			err = errTooLate
		}
	}
	return err
}

// takeAll takes the tokens of all claims, or none, past nobody.
func takeAll(claims []claim) bool {
	for _, c := range claims {
		if c.tooBig || c.n > c.bucket.have.whole || c.bucket.queue.head != nil {
			return false
		}
	}
	for _, c := range claims {
		c.bucket.have.whole -= c.n
	}
	return true
}

// An alarm is a timer that is made when it is needed first.
type alarm struct{ timer *time.Timer }

// set returns the channel that ticks after d, or never.
func (a *alarm) set(d time.Duration, ok bool) <-chan time.Time {
	switch {
	case !ok:
		a.stop()
		return nil
	case a.timer == nil:
		a.timer = time.NewTimer(d)
	default:
		a.timer.Reset(d)
	}
	return a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
