package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// writeMachine writes the lines that say where and when it was.
func writeMachine(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "goos: %s\n", runtime.GOOS)
	fmt.Fprintf(w, "goarch: %s\n", runtime.GOARCH)
	fmt.Fprintf(w, "pkg: github.com/ration-go/ration/bench\n")
	fmt.Fprintf(w, "cpu: %s\n", processor())
	fmt.Fprintf(w, "cores: %d\n", runtime.GOMAXPROCS(0))
	fmt.Fprintf(w, "go: %s\n", strings.TrimPrefix(runtime.Version(), "go"))
	fmt.Fprintf(w, "commit: %s\n", commit())
	fmt.Fprintf(w, "date: %s\n", now.UTC().Format(time.DateOnly))
	fmt.Fprintln(w)
}

// processor is its name, if the system tells.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(info) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// commit is what was measured, as git has it. What has only been measured and
// drawn anew does not count as a change.
func commit() string {
	hash, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":/*.go", ":/**/*.go").Output()
	if err != nil || len(bytes.TrimSpace(changed)) > 0 {
		return strings.TrimSpace(string(hash)) + "-changed"
	}
	return strings.TrimSpace(string(hash))
}
