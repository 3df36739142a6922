package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A progress is a line that tells how far we are: one that changes on a terminal,
// one every ten seconds elsewhere.
type progress struct {
	w           io.Writer
	what        string
	done, total int
	began, last time.Time
	every       time.Duration
	head, tail  string
}

func startProgress(w io.Writer, what string, total int) *progress {
	p := &progress{w: w, what: what, total: total, began: time.Now(), every: 10 * time.Second, tail: "\n"}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.every, p.head, p.tail = 100*time.Millisecond, "\r\x1b[K", ""
		}
	}
	return p
}

// step says what comes next.
func (p *progress) step(name string) {
	now := time.Now()
	if now.Sub(p.last) >= p.every {
		p.last = now
		left := "?"
		if took := now.Sub(p.began); p.done > 0 {
			left = (took * time.Duration(max(0, p.total-p.done)) / time.Duration(p.done)).Round(time.Second).String()
		}
		fmt.Fprintf(p.w, "%s%s: %3d %%, %s left, now %s%s", p.head, p.what, 100*p.done/p.total, left, name, p.tail)
	}
	p.done++
}

func (p *progress) end() {
	fmt.Fprintf(p.w, "%s%s: done in %v\n", p.head, p.what, time.Since(p.began).Round(time.Second))
}
