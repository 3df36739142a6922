package bench

import (
	"fmt"
	"slices"
	"time"
)

// A Case is one implementation at one kind of work.
type Case struct {
	Kind, Op, Impl string
	Workers        int    // goroutines
	Of             string // what Size counts: permits or resources, or empty
	Size           int

	Start func() Run
}

// Name is the case's name as a benchmark.
func (c Case) Name() string {
	name := fmt.Sprintf("%s/op=%s/impl=%s/workers=%d", c.Kind, c.Op, c.Impl, c.Workers)
	if c.Of != "" {
		name += fmt.Sprintf("/%s=%d", c.Of, c.Size)
	}
	return name
}

// A Run is a case that has been set up.
type Run struct {
	Do     func(n int) time.Duration // does it n times, and tells how long that took
	Finish func() error              // takes all down, and tells if it was not what was to be measured
}

// Cases are all cases. Those of one op stand together, with ours at the head, so
// that who runs them in order runs rivals side by side.
func Cases() []Case {
	return slices.Concat(semaphoreCases(), poolCases(), bucketCases(), floorCases())
}
