package debug

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ration-go/ration/leasepprof"
)

// Options are the options of a [Page]. The zero value of each is its default;
// [New] panics if one is below the least that is allowed.
type Options struct {
	// Authorize says whether a request may be answered, also one that revokes. Nil
	// is [Local]. With it, anybody it lets in sees owners and call stacks.
	Authorize func(*http.Request) bool

	// Revoke puts a button beside each lease that takes it back, see
	// [ration.Pool.Revoke]. Default false. A request to revoke has to come from a
	// page of this process: it carries a token that no other site can know, and
	// one that a browser says comes from another site is refused as well.
	Revoke bool

	// MaxLeases is how many leases of a pool are listed. The page says how many
	// more there are. Default 1,000, at least 1.
	MaxLeases int

	// Refresh is how often the page fetches itself. Default 2 s, at least 100 ms.
	Refresh time.Duration

	// Interval is the least time between two samples of the history, and how often
	// Run takes one. Default 1 s, at least 100 ms.
	Interval time.Duration

	// History is how far back the charts go. Default 5 min, at least 10 Intervals
	// and at most 10,000, since a sample takes 80 bytes.
	History time.Duration
}

// fill puts in the defaults.
func (o *Options) fill() {
	if o.Authorize == nil {
		o.Authorize = Local
	}
	if o.MaxLeases == 0 {
		o.MaxLeases = 1000
	}
	if o.Refresh == 0 {
		o.Refresh = 2 * time.Second
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.History == 0 {
		o.History = max(5*time.Minute, 10*o.Interval)
	}
}

func (o *Options) validate() {
	const shortest = 100 * time.Millisecond
	switch {
	case o.MaxLeases < 1:
		panic(fmt.Sprintf("debug: Options.MaxLeases is negative: %d", o.MaxLeases))
	case o.Refresh < shortest:
		panic(fmt.Sprintf("debug: Options.Refresh is below %v: %v", shortest, o.Refresh))
	case o.Interval < shortest:
		panic(fmt.Sprintf("debug: Options.Interval is below %v: %v", shortest, o.Interval))
	case o.History/10 < o.Interval:
		panic(fmt.Sprintf("debug: Options.History is below 10 intervals: %v", o.History))
	case o.History/10_000 > o.Interval:
		panic(fmt.Sprintf("debug: Options.History is above 10,000 intervals: %v", o.History))
	}
}

// Local reports whether a request comes from the machine itself and was not
// forwarded, as [leasepprof.Local] says in detail: what a page serves unless
// [Options].Authorize says otherwise. A proxy on the same machine can make every
// request look so; behind one, set Authorize.
func Local(r *http.Request) bool { return leasepprof.Local(r) }

// A Page shows what has been added to it. It is an [http.Handler] that may be
// mounted at any path, and is safe for concurrent use. It has no goroutine,
// unless the program runs Run.
type Page struct {
	opts    Options
	token   string // proves that a request to revoke was made by a page of ours
	started time.Time

	mu      sync.Mutex // guards the rest; the locks of the sources are taken under it
	entries []*entry
	lastKey int
}

// An entry is a source on a page. Guarded by Page.mu, but for what never changes.
type entry struct {
	key     int // unique on the page, unlike the name
	name    string
	source  Source
	history history
	waits   recentWaits
}

// New returns a page that shows nothing yet. Nil options are the defaults.
func New(opts *Options) *Page {
	p := &Page{token: rand.Text(), started: time.Now()}
	if opts != nil {
		p.opts = *opts
	}
	p.opts.fill()
	p.opts.validate()
	return p
}

// Add shows a source under a name, below those that are there. Two may have the
// same name. The source stays until remove is called or the program has dropped
// what it stands for. Add panics on the zero Source. It is O(sources).
func (p *Page) Add(name string, s Source) (remove func()) {
	if s.lender == nil && s.semaphore == (Source{}).semaphore && s.bucket == (Source{}).bucket {
		panic("debug: Page.Add: the source is none of Pool, Semaphore and Bucket")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Those that come and go leave nothing behind, though nobody looks.
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool { return !e.source.isThere() })
	p.lastKey++
	e := &entry{key: p.lastKey, name: name, source: s}
	e.observe(time.Now(), &p.opts) // what has been before is not of the last minutes
	p.entries = append(p.entries, e)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.entries = slices.DeleteFunc(p.entries, func(other *entry) bool { return other == e })
	}
}

// Run samples what the page shows every Interval until ctx ends, and returns
// ctx.Err(). Without it, the history has the instants at which somebody looked.
func (p *Page) Run(ctx context.Context) error {
	ticker := time.NewTicker(p.opts.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			p.readAll(now)
		}
	}
}

// An observation is what an entry told at one instant, beside its history.
type observation struct {
	key     int
	name    string
	reading reading
	now     sample
	history history // shared with the entry, which only appends to it
	waits   *waitPercentiles
}

// readAll reads every source, keeps samples and forgets sources that are gone.
func (p *Page) readAll(now time.Time) []observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]observation, 0, len(p.entries))
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool {
		o, ok := e.observe(now, &p.opts)
		if ok {
			all = append(all, o)
		}
		return !ok
	})
	return all
}

func (e *entry) observe(now time.Time, opts *Options) (o observation, ok bool) {
	r, ok := e.source.read()
	if !ok {
		return o, false
	}
	o = observation{key: e.key, name: e.name, reading: r, now: r.sample(now)}
	// A tick is late by a little now and then; it is not to be lost for that.
	e.history = e.history.add(o.now, opts.History, opts.Interval-opts.Interval/10)
	o.history = e.history
	if w := e.source.waits.Value(); w != nil {
		c := w.count(now)
		e.waits = e.waits.add(c, opts.History)
		o.waits = percentiles(e.waits[0], c)
	}
	return o, true
}

// lender returns the pool of an entry, or nil.
func (p *Page) lender(key int) Lender {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.key == key && e.source.lender != nil {
			return e.source.lender()
		}
	}
	return nil
}
