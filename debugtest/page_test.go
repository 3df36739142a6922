package debugtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// fast makes the page refresh as often as it can.
var fast = debug.Options{Refresh: 100 * time.Millisecond, Interval: 100 * time.Millisecond, History: 10 * time.Second}

func revocable() *debug.Options {
	opts := fast
	opts.Revoke = true
	return &opts
}

// owners are those of the listed leases, from above.
const owners = `Array.from(document.querySelectorAll('.leases tbody td.owner'), td => td.firstChild.textContent.trim())`

func (t *tab) owners() []string { return eval[[]string](t, owners) }

// untilRefreshed waits until the main part is another one than now.
func (t *tab) untilRefreshed() {
	t.Helper()
	eval[bool](t, `(window.before = document.getElementById('main'), true)`)
	t.until(`document.getElementById('main') !== window.before`)
}

func TestPage_ShowsTheTable(t *testing.T) {
	page, pool := debug.New(nil), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	borrow(t, pool, "invoice run", 2)
	borrow(t, pool, "password reset", 1)
	tab := open(t, serve(t, page))
	require.Equal(t, []string{"invoice run", "password reset"}, tab.owners())
	require.Contains(t, eval[string](tab, `document.querySelector('.tiles').innerText`), "3 of 5")
	require.Contains(t, eval[string](tab, `document.querySelector('.leases').innerText`), "no stack")
}

func TestPage_SortsByAClick(t *testing.T) {
	page, pool := debug.New(nil), newPool(t, 20)
	page.Add("mail", debug.Pool(pool, nil))
	for i, owner := range []string{"bob", "carol", "alice"} {
		borrow(t, pool, owner, int64(1+i*i))
	}
	tab := open(t, serve(t, page))
	require.Equal(t, []string{"bob", "carol", "alice"}, tab.owners(), "the oldest first")
	tab.run(chromedp.Click(css("th.owner a")))
	tab.until(`document.querySelector('th.owner').getAttribute('aria-sort') === 'ascending'`)
	require.Equal(t, []string{"alice", "bob", "carol"}, tab.owners())
	tab.run(chromedp.Click(css("th.owner a")))
	tab.until(`document.querySelector('th.owner').getAttribute('aria-sort') === 'descending'`)
	require.Equal(t, []string{"carol", "bob", "alice"}, tab.owners())
	tab.run(chromedp.Click(css("th.weight a")))
	tab.until(`document.querySelector('th.weight').getAttribute('aria-sort') === 'descending'`)
	require.Equal(t, []string{"alice", "carol", "bob"}, tab.owners())
}

func TestPage_OpensAStackAndKeepsItOpen(t *testing.T) {
	page := debug.New(&fast)
	detector, err := ration.NewDetector(&ration.DetectorOptions{StackEvery: 1})
	require.NoError(t, err)
	pool := newPool(t, 5)
	detector.Watch(pool)
	page.Add("mail", debug.Pool(pool, nil))
	borrow(t, pool, "leaky", 1)
	tab := open(t, serve(t, page))
	const shown = `document.querySelector('td.by pre').checkVisibility()`
	require.False(t, eval[bool](tab, shown))
	tab.run(chromedp.Click(css("td.by summary")))
	tab.until(shown)
	require.Contains(t, eval[string](tab, `document.querySelector('td.by pre').innerText`), "debugtest.borrow")
	tab.untilRefreshed()
	require.True(t, eval[bool](tab, shown), "a refresh closes nothing")
}

func TestPage_RefreshMovesTheChart(t *testing.T) {
	page, pool := debug.New(&fast), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	tab := open(t, serve(t, page))
	const level = `document.querySelector('path.level').getAttribute('d')`
	before := eval[string](tab, level)
	borrow(t, pool, "late", 4)
	tab.until(fmt.Sprintf("%s !== %q", level, before))
	tab.until(owners + `.join() === 'late'`)
	require.Contains(t, eval[string](tab, `document.querySelector('.tiles').innerText`), "4 of 5")
	require.Equal(t, "Pause", eval[string](tab, `document.getElementById('pause').innerText`))
}

func TestPage_CanBePaused(t *testing.T) {
	page, pool := debug.New(&fast), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	tab := open(t, serve(t, page))
	tab.run(chromedp.Click(css("#pause")))
	tab.until(`document.getElementById('status').innerText === 'paused'`)
	lease := borrow(t, pool, "unseen", 1)
	// Ten refreshes would have been, by the browser's own clock.
	waited, err := chromedp.Run(tab.ctx, chromedp.Evaluate[bool](
		`new Promise(done => setTimeout(() => done(true), 1000))`, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.True(t, waited)
	require.Empty(t, tab.owners())
	tab.run(chromedp.Reload())
	require.Equal(t, "Resume", eval[string](tab, `document.getElementById('pause').innerText`), "still paused")
	require.Equal(t, []string{"unseen"}, tab.owners())
	lease.Close()
	tab.run(chromedp.Click(css("#pause")))
	tab.until(owners + `.length === 0`)
}

func TestPage_ScriptsInNamesStayText(t *testing.T) {
	const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)><b>"'&`
	page, pool := debug.New(&fast), newPool(t, 5)
	page.Add(hostile, debug.Pool(pool, nil))
	borrow(t, pool, hostile, 1)
	tab := open(t, serve(t, page))
	for range 2 {
		require.Equal(t, []string{hostile}, tab.owners())
		require.True(t, strings.HasPrefix(eval[string](tab, `document.querySelector('h2').innerText`), hostile))
		require.Zero(t, eval[int](tab, `document.querySelectorAll('img, #main script, h2 b').length`))
		tab.untilRefreshed() // the script of ours puts text into the page too
	}
	require.Zero(t, *tab.dialogs)
}

func TestPage_IsCompleteWithoutScripts(t *testing.T) {
	page, pool := debug.New(revocable()), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	borrow(t, pool, "bob", 1)
	borrow(t, pool, "alice", 1)
	tab := open(t, serve(t, page), noScripts)
	text := func(selector string) string {
		s, err := chromedp.Run(tab.ctx, chromedp.Text(css(selector)))
		require.NoError(t, err)
		return s
	}
	require.Contains(t, text("#main"), "2 of 5")
	require.Zero(t, eval[int](tab, `document.getElementById('pause').offsetWidth`), "a button that would do nothing")
	tab.run(chromedp.Click(css("th.owner a")), chromedp.WaitReady(css(`th.owner[aria-sort]`)))
	require.Regexp(t, `(?s)alice.*bob`, text(".leases tbody"))
	tab.run(chromedp.Click(css("tbody tr:first-child td.do summary")))
	tab.run(chromedp.Click(css("tbody tr:first-child td.do button")))
	require.Eventually(t, func() bool { return pool.Stats().Revoked == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, "bob", pool.Leases()[0].Owner)
}

// noScripts keeps those of the page from running. The tests' own still do.
var noScripts = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	return err
})

func TestPage_FitsAPhone(t *testing.T) {
	page, pool := debug.New(revocable()), newPool(t, 1_000_000)
	detector, err := ration.NewDetector(&ration.DetectorOptions{StackEvery: 1})
	require.NoError(t, err)
	detector.Watch(pool)
	page.Add("mail", debug.Pool(pool, nil))
	page.Add(strings.Repeat("long", 50), debug.Pool(pool, nil))
	borrow(t, pool, strings.Repeat("owner", 60), 123_456)
	tab := open(t, serve(t, page), size(390, 844))
	tab.run(chromedp.Click(css("td.by summary")))
	require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), 390, "it scrolls sideways")
	require.Greater(t, eval[float64](tab, `parseFloat(getComputedStyle(document.body).fontSize)`), 11.0)
}

func TestPage_FollowsDarkMode(t *testing.T) {
	page := debug.New(nil)
	background := func(yes bool) string {
		tab := open(t, serve(t, page), dark(yes))
		return eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
	}
	require.Equal(t, "rgb(247, 247, 245)", background(false))
	require.Equal(t, "rgb(21, 23, 26)", background(true))
}

func TestPage_RevokesByAButton(t *testing.T) {
	page, pool := debug.New(revocable()), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	borrow(t, pool, "stays", 1)
	lease := borrow(t, pool, "leaky", 1)
	tab := open(t, serve(t, page)+"?sort=owner")
	tab.run(chromedp.Click(css("tbody tr:first-child td.do summary")))
	tab.untilRefreshed() // it stays open for whoever is slow
	tab.run(chromedp.Click(css("tbody tr:first-child td.do button")))
	tab.until(owners + `.join() === 'stays'`)
	require.ErrorIs(t, lease.Err(), ration.ErrLeaseRevoked)
	require.Contains(t, eval[string](tab, `location.search`), "sort=owner", "as it was before")
}

func TestPage_SaysThatTheServerIsGone(t *testing.T) {
	page, pool := debug.New(&fast), newPool(t, 5)
	page.Add("mail", debug.Pool(pool, nil))
	url, stop := serveUntil(t, page)
	tab := open(t, url)
	stop()
	tab.until(`document.getElementById('status').innerText.startsWith('no answer')`)
}

func TestPage_MarksASuspect(t *testing.T) {
	tab := open(t, serveHTML(t, scene(t)))
	require.Equal(t, "newsletter #4812", eval[string](tab, `document.querySelector('tr.suspect td.owner').firstChild.textContent.trim()`))
	require.Equal(t, "invoice run", eval[string](tab, `document.querySelector('tr.near td.owner').firstChild.textContent.trim()`))
	require.Equal(t, 1, eval[int](tab, `document.querySelectorAll('.leases tr.suspect').length`))
	require.Contains(t, eval[string](tab, `document.title`), "1 suspect")
	require.NotEqual(t, eval[string](tab, `getComputedStyle(document.querySelector('.leases tr.suspect td')).backgroundColor`),
		eval[string](tab, `getComputedStyle(document.querySelector('.leases tr:not(.suspect):not(.near) td')).backgroundColor`))
}
