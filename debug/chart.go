package debug

import (
	"strconv"
	"time"
)

// A chart is what the template draws: two bands above each other with one time
// axis. Coordinates are in a box of chartWidth to bandHeight, which is stretched
// to the size it is shown at; the text around it is not part of it.
type chart struct {
	Level, Area string // paths: held, or tokens
	Limit       string // capacity, or burst; empty if it is off the scale
	Gaps        string // where nobody has looked
	Top         int64  // the level at the upper edge

	Waiters    string // an area; empty if nobody waited, as always at a bucket
	WaitersTop int64
}

const (
	chartWidth = 1000
	bandHeight = 100
)

// draw draws the samples of the time before now. Levels are steps: what was seen
// is taken to have stayed until it was seen to be different, unless that took
// longer than gap.
func draw(h history, now sample, span, gap time.Duration) chart {
	if n := len(h); n == 0 || now.at.After(h[n-1].at) {
		h = append(h[:len(h):len(h)], now)
	}
	var c chart
	var limit int64
	for _, s := range h {
		c.Top = max(c.Top, s.level)
		c.WaitersTop = max(c.WaitersTop, s.waiters)
		limit = max(limit, s.limit)
	}
	// A limit far beyond what is in use would press the rest to the ground.
	showLimit := limit/20 <= max(c.Top, 5)
	if showLimit {
		c.Top = max(c.Top, limit)
	}
	c.Top = max(c.Top, 1)

	x := func(s sample) int {
		return int(chartWidth * max(0, 1-now.at.Sub(s.at).Seconds()/span.Seconds()))
	}
	y := func(v, top int64) int {
		return bandHeight - int(float64(max(v, 0))/float64(max(top, 1))*bandHeight)
	}
	held := func(s sample) int { return y(s.level, c.Top) }
	limitOf := func(s sample) int { return y(s.limit, c.Top) }
	waiting := func(s sample) int { return y(s.waiters, c.WaitersTop) }

	var level, area, limits, gaps, waiters path
	for from := 0; from < len(h); {
		to := from + 1 // one past the last sample of this piece
		for to < len(h) && h[to].at.Sub(h[to-1].at) <= gap {
			to++
		}
		piece := h[from:to]
		level.steps(piece, x, held)
		area.area(piece, x, held)
		limits.steps(piece, x, limitOf)
		if c.WaitersTop > 0 {
			waiters.area(piece, x, waiting)
		}
		if to < len(h) {
			gaps.command('M', x(h[to-1]), held(h[to-1]))
			gaps.command('L', x(h[to]), held(h[to]))
		}
		from = to
	}
	c.Level, c.Area, c.Gaps, c.Waiters = string(level), string(area), string(gaps), string(waiters)
	if showLimit {
		c.Limit = string(limits)
	}
	return c
}

// A path is the d attribute of an SVG path in the making.
type path []byte

func (p *path) command(c byte, numbers ...int) {
	*p = append(*p, c)
	for i, n := range numbers {
		if i > 0 {
			*p = append(*p, ' ')
		}
		*p = strconv.AppendInt(*p, int64(n), 10)
	}
}

// steps goes along the samples, each level to the right until the next.
func (p *path) steps(samples []sample, x, y func(sample) int) {
	last := y(samples[0])
	p.command('M', x(samples[0]), last)
	for _, s := range samples[1:] {
		if level := y(s); level != last {
			p.command('H', x(s))
			p.command('V', level)
			last = level
		}
	}
	// At least a dot, so that a lonely sample is seen.
	p.command('H', max(x(samples[len(samples)-1]), x(samples[0])+2))
}

// area is steps with what is below them.
func (p *path) area(samples []sample, x, y func(sample) int) {
	p.steps(samples, x, y)
	p.command('V', bandHeight)
	p.command('H', x(samples[0]))
	p.command('Z')
}
