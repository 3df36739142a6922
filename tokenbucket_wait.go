package ration

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// How waiters line up at token buckets and are served.

// errTooLate is for a context that is not done yet. One that is gives its own,
// bare error.
var errTooLate = fmt.Errorf("ration: the wait would outlast the context: %w", context.DeadlineExceeded)

// Wait takes n tokens, waiting for them in order of arrival.
//
// It fails, having taken nothing, with the bare ctx.Err() if ctx is done before the
// tokens are there, with [ErrTooLarge] if n exceeds the burst, now or after a
// [TokenBucket.SetBurst], and at once with an error that is
// [context.DeadlineExceeded], but not ctx.Err(), if the wait could not end before
// the deadline of ctx. If the rate is 0, it waits until that changes.
//
// It panics if n is negative or ctx is nil.
func (b *TokenBucket) Wait(ctx context.Context, n int64) error {
	checkTokens("TokenBucket.Wait", n)
	if ctx == nil {
		panic("ration: TokenBucket.Wait: nil context")
	}
	if err := ctx.Err(); err != nil || n == 0 {
		return err
	}
	left := timeLeft(ctx)
	now := b.clock.now()
	var wake bucketWakes
	b.mu.Lock()
	b.advance(now)
	switch {
	case n > b.burst:
		b.mu.Unlock()
		return ErrTooLarge
	case b.queue.head == nil && n <= b.have.whole:
		b.have.whole -= n
		b.mu.Unlock()
		return nil
	case b.outlasts(n, left):
		b.mu.Unlock()
		return errTooLate
	}
	w := newWaiter(n, int64(b.rooms.number))
	b.queue.pushBack(w)
	b.settle(&wake)
	b.mu.Unlock()
	wake.wake()

	woken, _ := w.sleep(ctx.Done(), nil)
	err := ctx.Err()
	if !woken && err == nil {
		err = context.Canceled // a foreign context that does not keep its word
	}
	if err == nil { // it was called, and for good
		err = w.err
		w.recycle(false)
		return err
	}
	var state waiterState
	b.update(func(*bucketWakes) {
		switch state = w.state; state {
		case waiting:
			b.queue.remove(w)
		case granted:
			b.add(level{whole: n}) // ctx may have been done before
		}
	})
	w.recycle(!woken && state != waiting)
	return err
}

// timeLeft returns how long it is until the deadline of ctx.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return time.Until(deadline)
}

// outlasts reports whether a wait for n tokens cannot end while there is time
// left. At the zero rate that cannot be known.
func (b *TokenBucket) outlasts(n int64, left time.Duration) bool {
	if left == math.MaxInt64 || b.rate.tokens == 0 {
		return false
	}
	d, ok := b.delay(n)
	return !ok || d > left
}

// ready reports whether the tokens of w, the head of the queue, are there. What
// was promised after it came is not missing to it.
func (b *TokenBucket) ready(w *waiter) bool { return w.n <= b.have.whole+w.behind }

// bucketWakes is a wakeList, and the beds of joint waiters to be called. Those
// may be called once too often, so they are not linked.
type bucketWakes struct {
	wakeList
	joint []*waiter
}

func (l *bucketWakes) wake() {
	l.wakeList.wake()
	for _, bed := range l.joint {
		bed.call(called)
	}
}

// settle serves the head of the queue for as long as its tokens are there, and
// sets the timer for when the next one's will be. It runs after every event that
// can change when that is, and looks only at how things stand. mu is held.
func (b *TokenBucket) settle(wake *bucketWakes) {
	head := b.queue.head
	for head != nil && b.ready(head) {
		if bed, joint := head.tag.(*waiter); joint {
			if head.state == waiting {
				head.state = invited
				wake.joint = append(wake.joint, bed)
			}
			break // it has to see about its other buckets; its place here is kept
		}
		b.have.whole -= head.n
		b.queue.remove(head)
		head.state = granted
		wake.add(head, true)
		head = b.queue.head
	}
	if head == nil || b.ready(head) {
		b.stopTimer()
		return
	}
	d, ok := b.have.until(head.n-head.behind, b.rate)
	if !ok {
		b.stopTimer()
		return
	}
	due := b.asOf + int64(d)
	if b.timer != nil && due == b.due && due > b.asOf {
		return
	}
	b.due = due
	d = time.Duration(due - b.clock.now()) // asOf may be ahead of the clock, and must be caught up with
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.fire)
	} else {
		b.timer.Reset(d)
	}
}

// stopTimer drops the timer as well. It belongs to the testing/synctest bubble
// that it was made in, and who needs it next may be in another.
func (b *TokenBucket) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// refuse ends the wait of w with err.
func (b *TokenBucket) refuse(w *waiter, err error, wake *bucketWakes) {
	b.queue.remove(w)
	w.state, w.err = refused, err
	if bed, joint := w.tag.(*waiter); joint {
		wake.joint = append(wake.joint, bed)
		return
	}
	wake.add(w, true)
}

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
	defer unlockAll(claims)
	return takeAll(claims)
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
	left := timeLeft(ctx)
	claims := claimAll(nil, n, buckets)
	var wake bucketWakes
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
		c.bucket.queue.pushBack(c.place)
		c.bucket.settle(&wake)
	}
	unlockAll(claims)
	wake.wake()

	for {
		woken, _ := bed.sleep(ctx.Done(), nil)
		err := ctx.Err()
		if !woken && err == nil {
			err = context.Canceled // a foreign context that does not keep its word
		}
		if over, err := collect(claims, err); over {
			return err
		}
	}
}

// A claim is what AllowAll or WaitAll want of one bucket.
type claim struct {
	bucket *TokenBucket
	n      int64
	place  *waiter // in the queue; its tag is the bed of the joint waiter
}

// claimAll appends a claim for each bucket to claims, in the order in which the
// locks are taken. A claim too large for an int64 is too large in any case.
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
			claims[i].n = math.MaxInt64
		}
	}
	return claims
}

// lockAll locks the buckets and brings them to the present.
func lockAll(claims []claim) {
	for i := range claims {
		b := claims[i].bucket
		now := b.clock.now()
		b.mu.Lock()
		b.advance(now)
	}
}

func unlockAll(claims []claim) {
	for i := range claims {
		claims[i].bucket.mu.Unlock()
	}
}

// claimable says why the claims cannot be met before the time left is over, if
// so.
func claimable(claims []claim, left time.Duration) error {
	var err error
	for _, c := range claims {
		switch {
		case c.n > c.bucket.burst:
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
		if c.n > c.bucket.have.whole || c.bucket.queue.head != nil {
			return false
		}
	}
	for _, c := range claims {
		c.bucket.have.whole -= c.n
	}
	return true
}

// collect is what a joint waiter does after each sleep: it takes what it came
// for if all of that is there, or gives all its places up if one was refused or
// err says so. It reports whether the wait is over, and how it ended.
func collect(claims []claim, err error) (over bool, _ error) {
	var wake bucketWakes
	lockAll(claims)
	ready := true
	for _, c := range claims {
		if c.place.state == refused && err == nil {
			err = c.place.err
		}
		ready = ready && c.bucket.queue.head == c.place && c.bucket.ready(c.place)
	}
	if over = ready || err != nil; over {
		for _, c := range claims {
			if c.place.state != refused {
				c.bucket.queue.remove(c.place)
			}
			if err == nil {
				c.bucket.have.whole -= c.n
			}
		}
	} else {
		for _, c := range claims {
			if !c.bucket.ready(c.place) {
				c.place.state = waiting // to be called when it is
			}
		}
	}
	for _, c := range claims {
		c.bucket.settle(&wake)
	}
	unlockAll(claims)
	wake.wake()
	return over, err
}
