package ration

import "time"

// A clock counts nanoseconds since it was started. Every object that needs the
// time owns one: a clock shared at package level would be started outside a
// testing/synctest bubble and read inside it, where time is another.
//
// Reading it costs about half of [time.Now], since only the monotonic clock is
// read.
type clock struct {
	start time.Time
}

func startClock() clock { return clock{start: time.Now()} }

func (c clock) now() int64 { return int64(time.Since(c.start)) }
