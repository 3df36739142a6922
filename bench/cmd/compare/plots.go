package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ration-go/ration/bench"
)

// draw draws all pictures.
func (d *data) draw(dir string) error {
	var all error
	for _, f := range []figure{d.waits(), d.crowds(), d.fairness(), d.shrink(), d.leak()} {
		all = errors.Join(all, f.save(dir))
	}
	return all
}

func implLegend() (legend []entry) {
	for _, impl := range bench.Semaphores() {
		legend = append(legend, entry{fullNames[impl.Name], implLine(impl.Name)})
	}
	return legend
}

// waits is how long who waits, and how long the unlucky ones do.
func (d *data) waits() figure {
	most := newPlot("Most of them", "waited no longer than", "part of all acquires")
	tail := newPlot("The unlucky ones", "waited longer than", "part of all acquires")
	lo, hi := math.Inf(1), 0.0
	for _, impl := range slices.Backward(bench.Semaphores()) { // ours on top
		var below, above plotter.XYs
		for _, q := range quantiles {
			wait := max(10, median(d.values(quantileUnit(q), "Waits", "impl", impl.Name, "workers", strconv.Itoa(cdfWorkers))))
			lo, hi = min(lo, wait), max(hi, wait)
			below = append(below, plotter.XY{X: wait, Y: q})
			if q < 1 {
				above = append(above, plotter.XY{X: wait, Y: 1 - q})
			}
		}
		addLine(most, below, implLine(impl.Name))
		addLine(tail, above, implLine(impl.Name))
	}
	for _, p := range []*plot.Plot{most, tail} {
		p.X.Scale = plot.LogScale{}
		p.X.Min, p.X.Max = lo/1.2, hi*1.2
		p.X.Tick.Marker = timeTicks(p.X.Min, p.X.Max)
	}
	most.Y.Min, most.Y.Max = 0, 1
	most.Y.Tick.Marker = ticks(percent, 0, 0.25, 0.5, 0.75, 1)
	tail.Y.Scale = plot.LogScale{}
	tail.Y.Min, tail.Y.Max = 1e-4, 1
	tail.Y.Tick.Marker = ticks(percent, 1e-4, 1e-3, 1e-2, 1e-1, 1)
	return figure{
		name:   "waits",
		title:  fmt.Sprintf("How long an Acquire waits: %d goroutines, %d permits, held for %v", cdfWorkers, waitPermits, waitHold),
		legend: implLegend(), plots: [][]*plot.Plot{{most, tail}}, height: 3.9 * vg.Inch, foot: d.where(),
	}
}

// crowds is how much gets through when more and more want to.
func (d *data) crowds() figure {
	p := newPlot("", "goroutines", "million acquires a second")
	p.X.Scale = plot.LogScale{}
	top := 0.0
	for _, impl := range slices.Backward(bench.Semaphores()) {
		var points plotter.XYs
		for _, n := range crowds {
			rate := 1e3 / median(d.values("ns/op", "Semaphore", "op", "crowd", "impl", impl.Name, "workers", strconv.Itoa(n)))
			top = max(top, rate)
			points = append(points, plotter.XY{X: float64(n), Y: rate})
		}
		addLine(p, points, implLine(impl.Name))
		dots, err := plotter.NewScatter(points)
		if err != nil {
			panic(err)
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: implInk[impl.Name], Radius: 2, Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	p.X.Min, p.X.Max = 0.9, 1150
	var counts []float64
	for _, n := range crowds {
		counts = append(counts, float64(n))
	}
	p.X.Tick.Marker = commaTicks(counts...)
	p.Y.Min, p.Y.Max = 0, top*1.05
	return figure{
		name:   "throughput",
		title:  "What gets through 8 permits, with a Gosched as work",
		legend: implLegend(), plots: [][]*plot.Plot{{p}}, height: 3.9 * vg.Inch, foot: d.where(),
	}
}

// fairness is what is paid for an even share.
func (d *data) fairness() figure {
	even := fmt.Sprintf("evenness of the shares in %v (Jain's index)", waitWindow)
	through := newPlot("Throughput", even, "thousand acquires a second")
	late := newPlot("The longest wait of 99 %", even, "p99")
	late.Y.Scale = plot.LogScale{}
	least, fastest, lo, hi := 1.0, 0.0, math.Inf(1), 0.0
	for _, impl := range slices.Backward(bench.Semaphores()) {
		var rates, p99s plotter.XYs
		for _, n := range waitWorkers {
			keys := []string{"impl", impl.Name, "workers", strconv.Itoa(n)}
			jain := median(d.values("jain", "Waits", keys...))
			rate := 1e6 / median(d.values("ns/op", "Waits", keys...))
			p99 := median(d.values(quantileUnit(0.99), "Waits", keys...))
			least, fastest, lo, hi = min(least, jain), max(fastest, rate), min(lo, p99), max(hi, p99)
			rates = append(rates, plotter.XY{X: jain, Y: rate})
			p99s = append(p99s, plotter.XY{X: jain, Y: p99})
		}
		addSizes(through, rates, impl.Name)
		addSizes(late, p99s, impl.Name)
	}
	for _, p := range []*plot.Plot{through, late} {
		p.X.Min, p.X.Max = least-0.04, 1.04
	}
	through.Y.Min, through.Y.Max = 0, fastest*1.08
	late.Y.Min, late.Y.Max = lo/1.5, hi*1.5
	late.Y.Tick.Marker = timeTicks(late.Y.Min, late.Y.Max)
	return figure{
		name: "fairness",
		title: fmt.Sprintf("The price of fairness: %d, %d, %d and %d goroutines (larger and larger dots), %d permits, held for %v",
			waitWorkers[0], waitWorkers[1], waitWorkers[2], waitWorkers[3], waitPermits, waitHold),
		legend: implLegend(), plots: [][]*plot.Plot{{through, late}}, height: 3.9 * vg.Inch, foot: d.where(),
	}
}

// addSizes draws a way from dot to dot, which get larger.
func addSizes(p *plot.Plot, points plotter.XYs, impl string) {
	s := implLine(impl)
	s.Width = 0.8
	addLine(p, points, s)
	dots, err := plotter.NewScatter(points)
	if err != nil {
		panic(err)
	}
	dots.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: implInk[impl], Radius: vg.Length(2 + 1.2*float64(i)), Shape: draw.RingGlyph{}}
	}
	p.Add(dots)
}

func percent(v float64) string { return fmt.Sprintf("%g %%", math.Round(v*1e6)/1e4) }
