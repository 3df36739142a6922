package ration

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// What makes user code safe to call: open, Check, Reset, Close, Broken,
// observers and log handlers may return, panic, call runtime.Goexit or never
// come back, and nothing is lost by any of it.

// runHook calls fn and then, exactly once, over: with what fn returned, or with
// an error that tells of its panic or Goexit. If fn takes longer than limit (0:
// no limit), over is called while fn is still running, late, on a goroutine of
// its own, with an error that is context.DeadlineExceeded; and when fn comes back
// after all, straggler, if there is one, is called with what it returned.
//
// A panic ends here. A Goexit goes on, after over. Done is called once when all
// of this is over, on whichever goroutine it ends.
func runHook(name string, limit time.Duration, fn func() error, over func(err error, late bool), straggler func(error), done func()) {
	var decided atomic.Bool
	var parts atomic.Int32 // this goroutine and the timer's
	leave := func() {
		if parts.Add(-1) == 0 {
			done()
		}
	}
	parts.Store(2)
	stop := leave
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			defer leave()
			if decided.CompareAndSwap(false, true) {
				over(fmt.Errorf("ration: %s took longer than %v: %w", name, limit, context.DeadlineExceeded), true)
			}
		})
		stop = func() {
			if timer.Stop() {
				leave() // in its place
			}
		}
	}
	err := fmt.Errorf("ration: %s called runtime.Goexit", name) // unless fn gets to its end
	defer leave()
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{name, r}
		}
		switch {
		case decided.CompareAndSwap(false, true):
			over(err, false)
		case straggler != nil:
			straggler(err)
		}
	}()
	err = fn()
}

// call is runHook for a hook of the pool, within OpenTimeout. Close waits for all
// of it.
func (p *Pool[T]) call(name string, fn func() error, over func(err error, late bool), straggler func(error)) {
	p.calls.Add(1)
	runHook(name, p.opts.OpenTimeout, fn, over, straggler, func() {
		if p.calls.Add(-1) == 0 {
			p.tidy() // it may be what Close waits for
		}
	})
}

// A panicError is the panic of a hook. Its text is made when it is asked for,
// since the value may be user code too.
type panicError struct {
	name  string
	value any
}

func (e *panicError) Error() string { return fmt.Sprintf("ration: %s panicked: %v", e.name, e.value) }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// tell calls an observer or logger, whose panics are nobody's business. If it
// calls Goexit, undo is called on the way out.
func tell(fn, undo func()) {
	exiting := true
	defer func() {
		if recover() == nil && exiting && undo != nil {
			undo()
		}
	}()
	fn()
	exiting = false
}

// logTo logs, if there is a logger.
func logTo(logger *slog.Logger, level slog.Level, what string, attrs []slog.Attr) {
	if logger != nil {
		tell(func() { logger.LogAttrs(context.Background(), level, "ration: "+what, attrs...) }, nil)
	}
}
