package ration

import (
	"context"
	"fmt"
	"math"
	"time"
)

// How waiters line up at a token bucket and are served.

// errTooLate is for a context that is not done yet. One that is gives its own,
// bare error.
var errTooLate = fmt.Errorf("ration: the wait would outlast the context: %w", context.DeadlineExceeded)

// Wait takes n tokens, waiting for them in order of arrival.
//
// It fails, having taken nothing, with the bare ctx.Err() if ctx is done before the
// tokens are there, and with [ErrTooLarge] if n exceeds the burst, now or after a
// [TokenBucket.SetBurst]. If the wait could not end before the deadline of ctx, it
// fails at once, with an error for which [errors.Is] finds
// [context.DeadlineExceeded]; that ctx is not done yet then, and that the error is
// not ctx.Err() itself, tells it from a deadline that has passed. If the rate is
// 0, it waits until that changes.
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
	if f := b.fast.Load(); f != nil {
		if ok, _ := f.allow(n, b.clock); ok {
			return nil
		}
	}
	return b.waitSlow(ctx, n)
}

func (b *TokenBucket) waitSlow(ctx context.Context, n int64) error {
	done, left := ctx.Done(), timeLeft(ctx)
	w, tick, err := b.join(n, left)
	if w == nil {
		return err
	}
	for {
		woken, _ := w.sleep(done, tick)
		err := ctx.Err()
		if err == nil && woken { // for good
			err = w.err
			w.recycle(false)
			return err
		}
		if err == nil && !isDone(done) {
			w.rise()
			b.tick()
			continue
		}
		if err == nil {
			err = context.Canceled // a foreign context that does not keep its word
		}
		state := b.leave(w)
		w.recycle(!woken && state != waiting)
		return err
	}
}

// join takes n tokens, returning nil and nil, or refuses them, returning nil and
// the reason, or lines up for them.
func (b *TokenBucket) join(n int64, left time.Duration) (w *waiter, tick <-chan time.Time, err error) {
	b.lock()
	switch {
	case n > b.burst:
		err = ErrTooLarge
	case b.take(n):
		b.relax()
	case b.outlasts(n, left):
		err = errTooLate
	default:
		w = newWaiter(n, int64(b.rooms.number))
		b.enqueue(w)
		if b.timer == nil {
			b.timer = time.NewTimer(math.MaxInt64) // settle sets it
		}
		tick = b.timer.C
		b.unlock()
		return w, tick, nil
	}
	if err != nil {
		b.calm = 0
	}
	b.mu.Unlock()
	return nil, nil, err
}

func (b *TokenBucket) enqueue(w *waiter) {
	w.behind = int64(b.promised)
	b.queue.pushBack(w)
}

// tick serves those whose tokens are there. Its caller has heard the timer.
func (b *TokenBucket) tick() {
	b.lock()
	b.timed = nil // it is not set any more
	b.unlock()
}

// leave takes w out of the queue, or gives back what it was granted: its context
// may have been done before. It returns the state that w was in.
func (b *TokenBucket) leave(w *waiter) waiterState {
	b.lock()
	state := w.state
	switch state {
	case waiting:
		b.queue.remove(w)
	case granted:
		b.add(level{whole: w.n})
	}
	b.unlock()
	return state
}

// timeLeft returns how long it is until the deadline of ctx.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return time.Until(deadline)
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
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

// wants returns what the level has to be for w, the head of the queue, to be
// served: what it asks for, less what was promised after it came, which is nothing
// to it. (The other sum, of the level and the promises, might overflow.)
func (b *TokenBucket) wants(w *waiter) int64 { return w.n - (int64(b.promised) - w.behind) }

func (b *TokenBucket) ready(w *waiter) bool { return b.wants(w) <= b.have.whole }

// settle serves the head of the queue for as long as its tokens are there, and
// sets the timer for when the next one's will be. It runs after every event that
// can change when that is, and looks only at how things stand. mu is held.
//
// There is one timer, and every waiter listens to it: a tick wakes one of them,
// most likely the head since it has listened for longest, and whoever it is comes
// here. So nobody needs to be woken to be told that it is the head now, and no
// goroutine is needed besides those that wait. All of them would have to be
// elsewhere for a tick to be missed, and then each of them comes here anyway.
func (b *TokenBucket) settle() {
	head := b.queue.head
	for head != nil && head.tag == nil && b.ready(head) {
		b.have.whole -= head.n
		b.queue.remove(head)
		head.state = granted
		b.pending.add(head, true)
		head = b.queue.head
	}
	if head == nil {
		b.stopTimer()
		return
	}
	due := b.dueOf(head)
	if head == b.timed && (due == b.due || due <= b.asOf && b.due <= b.asOf) {
		return
	}
	b.timed, b.due = head, due
	if bed, joint := head.tag.(*waiter); joint {
		b.pending.joint = append(b.pending.joint, bed) // it has a timer of its own
		due = dueNever
	}
	if b.timer == nil {
		return // nobody else is there
	}
	if d, ok := b.lasts(due); ok {
		b.timer.Reset(d)
	} else {
		b.timer.Stop()
	}
}

// dueOf returns when the tokens of w, the head of the queue, will be there: at
// asOf if they are.
func (b *TokenBucket) dueOf(w *waiter) int64 {
	d, ok := b.have.until(b.wants(w), b.rate)
	switch {
	case ok:
		return b.asOf + int64(d)
	case b.rate.tokens == 0:
		return dueNever
	}
	return dueFar
}

// lasts returns after what time to look if due has come, and false if never.
func (b *TokenBucket) lasts(due int64) (time.Duration, bool) {
	switch due {
	case dueNever:
		return 0, false
	case dueFar:
		return maxDelay, true
	}
	return time.Duration(due - b.clock.now()), true // asOf may be ahead of the clock, which has to catch up
}

// stopTimer drops the timer as well. It belongs to the testing/synctest bubble
// that it was made in, and who needs it next may be in another.
func (b *TokenBucket) stopTimer() {
	b.timed = nil
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// refuse ends the wait of w with err.
func (b *TokenBucket) refuse(w *waiter, err error) {
	b.queue.remove(w)
	w.state, w.err = refused, err
	if bed, joint := w.tag.(*waiter); joint {
		b.pending.joint = append(b.pending.joint, bed)
		return
	}
	b.pending.add(w, true)
}

// bucketWakes is a wakeList, and the beds of joint waiters to be called. Those
// may be called once too often, so they are not linked.
type bucketWakes struct {
	wakeList
	joint []*waiter
}

func (l *bucketWakes) wake() {
	if l.head != nil {
		l.wakeList.wake()
	}
	for _, bed := range l.joint {
		bed.call(called)
	}
}
