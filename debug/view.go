package debug

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"number":        number,
	"duration":      duration,
	"shortFunction": shortFunction,
	"shortFile":     shortFile,
	"item":          func(name string, value any) item { return item{name, value} },
}).Parse(pageHTML))

// contentSecurityPolicy allows the page's own style and script, by their hashes,
// and nothing else: markup that got into the page in spite of all could not run.
var contentSecurityPolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	sourceHash(pageCSS), sourceHash(pageJS))

func sourceHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A view is what the template shows.
type view struct {
	At         time.Time
	Process    string
	PID        int
	Up         seconds // since the page was made
	Refresh    int64   // in milliseconds
	Span       seconds
	CSS        template.CSS
	JS         template.JS
	Revoke     bool
	Token      string
	Order      order
	Columns    []column
	Overview   []overview // empty if there is only one thing to see
	Pools      []poolView
	Semaphores []semaphoreView
	Buckets    []bucketView
}

type poolView struct {
	poolReport
	Key    int
	Chart  chart
	Rate   string
	Lately lately
	More   int // leases that are not listed
}

// lately is what has been in the last minutes.
type lately struct {
	Over   seconds
	Waited uint64
	Mean   seconds
}

type semaphoreView struct {
	semaphoreReport
	Key    int
	Chart  chart
	Lately lately
}

type bucketView struct {
	bucketReport
	Key   int
	Chart chart
}

// An overview is a line of the table at the top.
type overview struct {
	Key            int
	Kind, Name     string
	Level, Limit   int64
	Waiters        int
	Suspects       int
	CanWait, Lends bool // whether there can be waiters and suspects
	Longest        seconds
	BarWidth       int // in thousandths
	Debt           bool
}

// A column is a head of the lease table.
type column struct {
	Name, Title string
	Link        string // that sorts by it
	Sorted      string // ascending, descending or empty
}

// An item is a line of a list of numbers.
type item struct {
	Name  string
	Value any
}

func (i item) IsZero() bool { return fmt.Sprint(i.Value) == "0" }

func (o order) link() string {
	if o.descending {
		return "?sort=" + o.by + "&order=desc"
	}
	return "?sort=" + o.by + "&order=asc"
}

func (o order) Sort() string { return o.by }

func (o order) Direction() string {
	if o.descending {
		return "desc"
	}
	return "asc"
}

func (o order) column(name, title string) column {
	c := column{Name: name, Title: title}
	to := parseOrder(name, "")
	if name == o.by {
		to.descending = !o.descending
		c.Sorted = "ascending"
		if o.descending {
			c.Sorted = "descending"
		}
	}
	c.Link = to.link()
	return c
}

func (p *Page) view(o order) view {
	r := p.report(o)
	v := view{
		At:      r.At,
		Process: filepath.Base(os.Args[0]),
		PID:     os.Getpid(),
		Up:      seconds(r.At.Sub(p.started)),
		Refresh: p.opts.Refresh.Milliseconds(),
		Span:    seconds(p.opts.History),
		CSS:     template.CSS(pageCSS),
		JS:      template.JS(pageJS),
		Revoke:  p.opts.Revoke,
		Token:   p.token,
		Order:   o,
		Columns: []column{o.column("id", "Lease"), o.column("owner", "Owner"), o.column("weight", "Weight"), o.column("age", "Age")},
	}
	for _, pool := range r.Pools {
		v.Pools = append(v.Pools, poolView{
			poolReport: pool,
			Key:        pool.key,
			Chart:      p.chart(&pool.common),
			Rate:       perSecond(pool.lately.acquired, pool.lately.over),
			Lately:     pool.lately.view(),
			More:       pool.LeasesTotal - len(pool.Leases),
		})
		v.Overview = append(v.Overview, overview{Kind: "pool", CanWait: true, Lends: true,
			Waiters: pool.Waiters, Suspects: pool.SuspectsNow, Longest: pool.LongestWait}.of(&pool.common))
	}
	for _, s := range r.Semaphores {
		v.Semaphores = append(v.Semaphores, semaphoreView{s, s.key, p.chart(&s.common), s.history.pace(s.now).view()})
		v.Overview = append(v.Overview, overview{Kind: "semaphore", CanWait: true,
			Waiters: s.Waiters, Longest: s.LongestWait}.of(&s.common))
	}
	for _, b := range r.Buckets {
		v.Buckets = append(v.Buckets, bucketView{b, b.key, p.chart(&b.common)})
		v.Overview = append(v.Overview, overview{Kind: "bucket"}.of(&b.common))
	}
	if len(v.Overview) == 1 {
		v.Overview = nil
	}
	return v
}

func (o overview) of(c *common) overview {
	o.Key, o.Name, o.Level, o.Limit = c.key, c.Name, c.now.level, c.now.limit
	if o.Limit > 0 {
		o.BarWidth = int(1000 * min(1, max(0, float64(o.Level)/float64(o.Limit))))
	} else if o.Level > 0 {
		o.BarWidth = 1000
	}
	o.Debt = o.Level > o.Limit || o.Level < 0
	return o
}

func (p *Page) chart(c *common) chart {
	// A page that is looked at takes a sample at each refresh; half as many again
	// is no gap yet.
	return draw(c.history, c.now, p.opts.History, 3*max(p.opts.Interval, p.opts.Refresh))
}

func (p pace) view() lately {
	return lately{Over: seconds(p.over), Waited: p.waited, Mean: mean(p.waitTime, p.waited)}
}

// Shortage is the debt, if there is any.
func shortage(available int64) int64 { return max(0, -available) }

func (p poolView) Debt() int64      { return shortage(p.Available) }
func (s semaphoreView) Debt() int64 { return shortage(s.Available) }
func (b bucketView) Debt() int64    { return shortage(b.Tokens) }

// RateText is the rate for people: 1 per 20ms.
func (b bucketView) RateText() string { return strings.Replace(b.Rate, "/", " per ", 1) }
