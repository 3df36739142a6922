package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// A table compares some of ours with rivals, an op a line.
type table struct {
	kind   string
	ours   []string
	rivals []string
	ops    []tableOp
}

type tableOp struct {
	op, workers string
	unit        string
	title       string
}

var comparisons = []table{
	{"Semaphore", []string{"nonfair", "fair"}, []string{"xsync", "chan", "fifo", "marusama"}, []tableOp{
		{"uncontended", "1", "ns/op", "uncontended: 1 goroutine, 1 permit"},
		{"slack", "2", "ns/op", "slack: 2 goroutines, 8 permits"},
		{"handoff", "2", "ns/op", "handoff: 2 goroutines, 1 permit"},
		{"contended", "16", "ns/op", "contended: 16 goroutines, 8 permits, a `Gosched` as work"},
		{"heavy", "1024", "ns/op", "heavy: 1,024 goroutines, 4 permits, the same work"},
	}},
	{"Pool", []string{"nonfair", "fair"}, []string{"puddle", "chan", "sql", "syncpool"}, []tableOp{
		{"uncontended", "1", "ns/op", "uncontended: 1 borrower, 8 resources"},
		{"contended", "16", "ns/op", "contended: 16 borrowers, 8 resources, a `Gosched` as work"},
		{"heavy", "1024", "ns/op", "heavy: 1,024 borrowers, 4 resources, the same work"},
	}},
	{"TokenBucket", []string{"ration"}, []string{"xtime", "juju", "uber"}, []tableOp{
		{"allow", "1", "ns/op", "allow, 1 goroutine"},
		{"allow", "64", "ns/op", "allow, 64 goroutines"},
		{"denied", "1", "ns/op", "denied, 1 goroutine"},
		{"denied", "64", "ns/op", "denied, 64 goroutines"},
		{"take", "1", "ns/op", "wait for what is there, 1 goroutine"},
		{"queue", "1000", "cpu-ns/op", "wait in a queue of 1,000: processor time"},
	}},
}

var floors = []struct{ op, title string }{
	{"two-cas", "two compare-and-swaps"},
	{"mutex", "a mutex locked and unlocked"},
	{"clock", "a reading of the clock"},
	{"goroutine-switch", "a hand-off to another goroutine"},
}

var fullNames = map[string]string{
	"nonfair": "ration", "fair": "ration, fair", "ration": "ration",
	"xsync": "x/sync", "chan": "channel", "fifo": "crlib fifo", "marusama": "marusama",
	"puddle": "puddle", "sql": "database/sql", "syncpool": "sync.Pool",
	"xtime": "x/time/rate", "juju": "juju/ratelimit", "uber": "uber ratelimit",
}

// tables makes all tables, in Markdown.
func (d *data) tables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds on %s. Ratios are ours to theirs, within a round: the median, and in brackets where it lies with 95 %% confidence. Below 1 we are faster; **bold** is where we lose; ≈ is where nobody can tell. Below each, the medians themselves.\n",
		len(d.all("Floor", "op", "clock")), d.where())
	for _, t := range comparisons {
		d.ratios(&b, t)
		d.medians(&b, t)
	}
	b.WriteString("\n| The floor of this machine | ns |\n|---|---|\n")
	for _, f := range floors {
		fmt.Fprintf(&b, "| %s | %s |\n", f.title, number(median(d.values("ns/op", "Floor", "op", f.op))))
	}
	return b.String()
}

func (d *data) ratios(b *strings.Builder, t table) {
	fmt.Fprintf(b, "\n| %s | |", t.kind)
	for _, r := range t.rivals {
		fmt.Fprintf(b, " / %s |", fullNames[r])
	}
	fmt.Fprintf(b, "\n|---|---|%s\n", strings.Repeat("---|", len(t.rivals)))
	for _, o := range t.ops {
		for i, our := range t.ours {
			title := o.title
			if i > 0 {
				title = ""
			}
			fmt.Fprintf(b, "| %s | %s |", title, fullNames[our])
			for _, r := range t.rivals {
				fmt.Fprintf(b, " %s |", ratio(d.of(t, o, our, o.unit), d.of(t, o, r, o.unit)))
			}
			b.WriteByte('\n')
		}
	}
}

func (d *data) medians(b *strings.Builder, t table) {
	all := slices.Concat(t.ours, t.rivals)
	fmt.Fprintf(b, "\n| ns, allocations |")
	for _, impl := range all {
		fmt.Fprintf(b, " %s |", fullNames[impl])
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(all)))
	for _, o := range t.ops {
		name, _, _ := strings.Cut(o.title, ":")
		fmt.Fprintf(b, "| %s |", name)
		for _, impl := range all {
			times := d.of(t, o, impl, o.unit)
			if len(times) == 0 {
				b.WriteString(" – |")
				continue
			}
			s := benchmath.AssumeNothing.Summary(benchmath.NewSample(times, &benchmath.DefaultThresholds), 0.95)
			fmt.Fprintf(b, " %s ±%s, %s |", number(s.Center), s.PctRangeString(), number(median(d.of(t, o, impl, "allocs/op"))))
		}
		b.WriteByte('\n')
	}
}

func (d *data) of(t table, o tableOp, impl, unit string) []float64 {
	return d.values(unit, t.kind, "op", o.op, "impl", impl, "workers", o.workers)
}

// ratio compares two within the rounds.
func ratio(ours, theirs []float64) string {
	if len(ours) == 0 || len(ours) != len(theirs) {
		return "–"
	}
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(ratios, &benchmath.DefaultThresholds), 0.95)
	interval := fmt.Sprintf("[%.2f–%.2f]", s.Lo, s.Hi)
	switch {
	case s.Lo > 1:
		return fmt.Sprintf("**%.2f** %s", s.Center, interval)
	case s.Hi >= 1:
		return fmt.Sprintf("≈ %.2f %s", s.Center, interval)
	default:
		return fmt.Sprintf("%.2f %s", s.Center, interval)
	}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95).Center
}

// number writes a number with two or three digits that count.
func number(v float64) string {
	switch {
	case v >= 99.5:
		return commas(fmt.Sprintf("%.0f", v))
	case v >= 9.95:
		return fmt.Sprintf("%.0f", v)
	default:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
}

func commas(digits string) string {
	if len(digits) <= 3 {
		return digits
	}
	return commas(digits[:len(digits)-3]) + "," + digits[len(digits)-3:]
}
