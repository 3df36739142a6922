package main

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// states is one of the numbers of a scene over time.
func (d *data) states(scene, unit string) (points plotter.XYs) {
	for _, r := range d.all("State", "scene", scene) {
		points = append(points, plotter.XY{X: r.vals["at-ms"], Y: r.vals[unit]})
	}
	return points
}

// event is when something happened.
func (d *data) event(scene, event string) float64 {
	for _, at := range d.values("at-ms", "Event", "scene", scene, "event", event) {
		return at
	}
	return 0
}

var (
	lightRed = color.RGBA{0xf8, 0xd9, 0xc4, 0xff}
	grey     = color.RGBA{0xbb, 0xc4, 0xcc, 0xff}
)

// shrink is a pool that goes into debt and gets out of it.
func (d *data) shrink() figure {
	p := newPlot("", "", "permits")
	capacity, held, available := d.states("shrink", "capacity"), d.states("shrink", "held"), d.states("shrink", "available")
	debt := -1.0
	for i, a := range available {
		if a.Y < 0 && i+1 < len(available) {
			addBox(p, a.X, a.Y, available[i+1].X, 0, lightRed)
		}
		debt = min(debt, a.Y)
	}
	dashed := lineStyle(ink, 1.2)
	dashed.Dashes = []vg.Length{4, 3}
	addSteps(p, available, lineStyle(green, 1.6))
	addSteps(p, held, lineStyle(blue, 1.8))
	addSteps(p, capacity, dashed)
	down, up := d.event("shrink", "shrink"), d.event("shrink", "grow")
	p.Y.Min, p.Y.Max = debt-0.6, 14
	p.Y.Tick.Marker = commaTicks(-8, -4, 0, 4, 8, 12)
	addText(p, down+15, 13.2, "Resize(4), at once", ink, text.XLeft)
	addText(p, up+15, 13.2, "Resize(12)", ink, text.XLeft)
	addText(p, down+120, debt+1, "debt, repaid by what comes back", red, text.XLeft)

	w := newPlot("", "milliseconds", "waiters")
	waiters := d.states("shrink", "waiters")
	addSteps(w, waiters, lineStyle(red, 1.4))
	w.Y.Min, w.Y.Max = 0, 12
	w.Y.Tick.Marker = commaTicks(0, 5, 10)
	sameTime(capacity, p, w)
	return figure{
		name:  "shrink",
		title: "A limit lowered while everything is out: 14 borrowers, 12 permits, then 4, then 12 again",
		legend: []entry{
			{"capacity", dashed}, {"held", lineStyle(blue, 1.8)}, {"available", lineStyle(green, 1.6)}, {"waiters", lineStyle(red, 1.4)},
		},
		plots: [][]*plot.Plot{{p}, {w}}, heights: []float64{0.68, 0.32}, height: 4.3 * vg.Inch, foot: d.where(),
	}
}

// leak is how one is found: who has borrowed when, and what is available.
func (d *data) leak() figure {
	p := newPlot("", "", "")
	owners := []string{"newsletter", "report", "worker5", "worker4", "worker3", "worker2", "worker1"}
	suspect, revoke := d.event("leak", "suspect"), d.event("leak", "revoke")
	threshold := float64(leakThreshold / time.Millisecond)
	for i, owner := range owners {
		y := float64(i)
		for _, r := range d.all("Loan", "scene", "leak", "owner", owner) {
			from, until := r.vals["from-ms"], r.vals["until-ms"]
			bar := func(from, until float64, c color.Color) { addBox(p, from, y-0.3, until, y+0.3, c) }
			switch owner {
			case "newsletter":
				bar(from, suspect, orange)
				bar(suspect, until, red)
				addText(p, suspect+8, y, fmt.Sprintf("LEAK-SUSPECT held=%.0fms", suspect-from), color.White, text.XLeft)
				addText(p, until+8, y, "Revoke", ink, text.XLeft)
				addText(p, from+threshold, y+0.56, "threshold", faint, text.XCenter)
				addLine(p, plotter.XYs{{X: from + threshold, Y: y - 0.42}, {X: from + threshold, Y: y + 0.42}}, lineStyle(ink, 1))
			case "report":
				bar(from, until, sky)
				addText(p, from+8, y, "said beforehand that it takes long: MaxHold", ink, text.XLeft)
			default:
				bar(from, until, grey)
			}
		}
	}
	p.Y.Min, p.Y.Max = -0.6, float64(len(owners))-0.4
	var names plot.ConstantTicks
	for i, owner := range owners {
		names = append(names, plot.Tick{Value: float64(i), Label: owner})
	}
	p.Y.Tick.Marker = names

	a := newPlot("", "milliseconds", "available")
	available := d.states("leak", "available")
	addSteps(a, available, lineStyle(green, 1.6))
	top := slices.MaxFunc(available, func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) }).Y
	a.Y.Min, a.Y.Max = 0, top+0.5
	a.Y.Tick.Marker = commaTicks(0, 2, 4, 6)
	dashed := lineStyle(ink, 0.8)
	dashed.Dashes = []vg.Length{3, 3}
	addLine(a, plotter.XYs{{X: revoke, Y: 0}, {X: revoke, Y: top + 0.5}}, dashed)
	sameTime(available, p, a)
	return figure{
		name:  "leak",
		title: "A leak being found: of six permits one does not come back",
		legend: []entry{
			{"lent", lineStyle(grey, 6)}, {"lent for long, as announced", lineStyle(sky, 6)},
			{"forgotten", lineStyle(orange, 6)}, {"suspected", lineStyle(red, 6)}, {"available", lineStyle(green, 1.6)},
		},
		plots: [][]*plot.Plot{{p}, {a}}, heights: []float64{0.7, 0.3}, height: 4.3 * vg.Inch, foot: d.where(),
	}
}

// sameTime gives plots the same axis of time.
func sameTime(points plotter.XYs, plots ...*plot.Plot) {
	for _, p := range plots {
		p.X.Min, p.X.Max = 0, points[len(points)-1].X
		var at []float64
		for v := 0.0; v <= p.X.Max; v += 400 {
			at = append(at, v)
		}
		p.X.Tick.Marker = commaTicks(at...)
	}
}
