// Compare runs ration and what one would use instead side by side, writes down
// what came out, and draws it.
//
// It measures in rounds. A round runs every case once, for some milliseconds,
// and those that are to be compared one after the other in random order, so that
// whatever else the machine does hits all of them alike. What it prints are
// ratios within a round: their median, and the interval in which that lies with
// 95 % confidence.
//
// Everything that has been measured is in one file in the format of Go's
// benchmarks, which benchstat reads as well, and everything that is printed and
// drawn is made from that file alone:
//
//	go run ./cmd/compare           measures, prints and draws
//	go run ./cmd/compare -report   prints and draws again
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/ration-go/ration/bench/internal/markdown"
)

type config struct {
	rounds  int
	slice   time.Duration // of a case in a round
	raw     string        // file
	images  string        // directory
	doc     string        // file
	reports bool          // without measuring
}

func main() {
	var c config
	flag.IntVar(&c.rounds, "rounds", 30, "how often each case is run")
	flag.DurationVar(&c.slice, "time", 20*time.Millisecond, "for how long a case is run in a round")
	flag.StringVar(&c.raw, "raw", "results/compare.txt", "`file` for what has been measured")
	flag.StringVar(&c.images, "img", "../docs/img", "`directory` for the pictures")
	flag.StringVar(&c.doc, "doc", "../docs/performance.md", "`file` that gets the tables, between two comments")
	flag.BoolVar(&c.reports, "report", false, "measure nothing, report what has been measured")
	flag.Parse()
	if flag.NArg() > 0 || c.rounds < 6 || c.slice <= 0 {
		fmt.Fprintln(os.Stderr, "usage: compare [flags], with at least 6 rounds, below which there is no confidence in anything")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, out, progress io.Writer) error {
	if !c.reports {
		if err := measure(ctx, c, progress); err != nil {
			return err
		}
	}
	d, err := read(c.raw)
	if err != nil {
		return err
	}
	tables := d.tables()
	fmt.Fprintln(out, tables)
	if err := markdown.ReplaceSection(c.doc, "compare", tables); err != nil {
		return err
	}
	return d.draw(c.images)
}
