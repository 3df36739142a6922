package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// A kind is a table: its rows are behaviours, its columns libraries.
type kind struct {
	name, title string
	impls       []string
	rows        []row
}

// A row is something that should be so.
type row struct {
	id, title string
	checked   string // how
	check     func(impl string) outcome
}

// An outcome is what came of a check: "yes", "no: " and why, or "–" if the library
// has no such thing.
type outcome string

const (
	yes     outcome = "yes"
	nothing outcome = "–"
)

func no(format string, args ...any) outcome { return outcome("no: " + fmt.Sprintf(format, args...)) }

var kinds = []kind{semaphoreKind, poolKind, bucketKind}

// cells are the outcomes, by kind/row/impl.
type cells map[string]outcome

// patience is how long a check may take before it hangs.
const patience = 10 * time.Second

// runAll runs every check, each in a process that the command starts with the
// name of the check as its last argument.
func runAll(ctx context.Context, command []string, progress io.Writer) (cells, error) {
	c := make(cells)
	for _, k := range kinds {
		for _, r := range k.rows {
			for _, impl := range k.impls {
				id := k.name + "/" + r.id + "/" + impl
				fmt.Fprintln(progress, id)
				c[id] = runThere(ctx, command, id)
				if err := ctx.Err(); err != nil {
					return nil, err
				}
			}
		}
	}
	return c, nil
}

func runThere(ctx context.Context, command []string, id string) outcome {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], append(command[1:], id)...).Output()
	switch o := outcome(strings.TrimSpace(string(out))); {
	case ctx.Err() != nil:
		return no("hangs")
	case err != nil:
		return no("crashes the program")
	case o == yes || o == nothing || strings.HasPrefix(string(o), "no: "):
		return o
	default:
		return no("says %q", o)
	}
}

// runHere runs one check in this process.
func runHere(id string) outcome {
	kindName, rest, _ := strings.Cut(id, "/")
	rowID, impl, _ := strings.Cut(rest, "/")
	for _, k := range kinds {
		for _, r := range k.rows {
			if k.name == kindName && r.id == rowID {
				return r.check(impl)
			}
		}
	}
	return no("there is no check %q", id)
}

// The times of the checks: what is at once, what takes a while, and what will not
// happen any more.
const (
	soon  = 30 * time.Millisecond
	later = 300 * time.Millisecond
	never = 2 * time.Second
)

var errPanic = errors.New("panic")

// recovered turns a panic into an error.
func recovered(f func()) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanic
		}
	}()
	f()
	return nil
}

// within reports whether f returns in time. If not, it is left running.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done) // also if f panics or ends its goroutine
		recovered(f)
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// timeout is a context that ends after d.
func timeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	time.AfterFunc(d+time.Second, cancel)
	return ctx
}
