package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// tables are the tables, in Markdown.
func (c cells) tables() string {
	var b strings.Builder
	for i, k := range kinds {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "| %s | %s |\n|---|%s\n", k.title, strings.Join(k.impls, " | "), strings.Repeat("---|", len(k.impls)))
		for _, r := range k.rows {
			fmt.Fprintf(&b, "| %s |", r.title)
			for _, impl := range k.impls {
				fmt.Fprintf(&b, " %s |", c[k.name+"/"+r.id+"/"+impl])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// document is a page with the tables, and how each row came about.
func document(tables string) string {
	var b strings.Builder
	b.WriteString("# What happens when something goes wrong\n\n")
	b.WriteString("Each cell is the outcome of a check that ran against the library itself, in a process of its own; none of it has been typed. To run them again:\n\n")
	b.WriteString("```bash\ncd bench\ngo run ./cmd/behaviours\n```\n\n")
	b.WriteString("A dash is where a library has no such thing. It is no fault: a channel cannot be resized, and says so.\n\n")
	b.WriteString(tables)
	b.WriteString("\n## What is checked\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n### %s\n\n", k.title)
		for _, r := range k.rows {
			fmt.Fprintf(&b, "- **%s.** %s\n", upper(r.title), r.checked)
		}
	}
	fmt.Fprintf(&b, "\n## Versions\n\n%s\n", versions())
	return b.String()
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// rivals are the modules that are checked beside ours.
var rivals = []string{
	"golang.org/x/sync", "github.com/cockroachdb/crlib", "github.com/marusama/semaphore/v2", "github.com/jackc/puddle/v2",
	"golang.org/x/time", "github.com/juju/ratelimit", "go.uber.org/ratelimit",
}

func versions() string {
	list := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go")}
	info, _ := debug.ReadBuildInfo()
	for _, rival := range rivals {
		for _, m := range info.Deps {
			if m.Path == rival {
				list = append(list, rival+" "+m.Version)
			}
		}
	}
	return strings.Join(list, ", ") + "."
}
