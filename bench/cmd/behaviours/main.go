// Behaviours shows what ration and what one would use instead do when something
// goes wrong: each cell of its tables is the outcome of a check that has just
// run.
//
// A check runs in a process of its own, since some libraries crash it and some
// never return.
//
//	go run ./cmd/behaviours
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/ration-go/ration/bench/internal/markdown"
)

func main() {
	doc := flag.String("o", "../docs/behaviours.md", "`file` for the tables and what is checked")
	readme := flag.String("readme", "../README.md", "`file` that gets the tables, between two comments")
	only := flag.String("check", "", "run one check, such as semaphore/over-release/x/sync, in this process")
	flag.Parse()
	if *only != "" {
		fmt.Println(runHere(*only))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *doc, *readme, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "behaviours:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, doc, readme string, out, progress io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cells, err := runAll(ctx, []string{self, "-check"}, progress)
	if err != nil {
		return err
	}
	tables := cells.tables()
	fmt.Fprint(out, tables)
	if err := os.WriteFile(doc, []byte(document(tables)), 0o644); err != nil {
		return err
	}
	return markdown.ReplaceSection(readme, "behaviours", tables)
}
