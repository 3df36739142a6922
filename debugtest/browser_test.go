package debugtest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/debug"
)

// patience bounds what should take a fraction of a second, on a machine that
// has other things to do.
const patience = 30 * time.Second

var browser context.Context // of the one browser of all tests; each has a tab of its own

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // which root cannot have
		chromedp.Flag("force-color-profile", "srgb"),
	)...)
	ctx, cancelBrowser := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "no browser, which setup.sh installs:", err)
		return 1
	}
	browser = ctx
	code := m.Run()
	cancelBrowser()
	cancel()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// A tab is a tab of the browser.
type tab struct {
	*testing.T
	ctx     context.Context
	dialogs *int
}

// open opens a tab with the page of a server.
func open(t *testing.T, url string, actions ...action) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancelTime := context.WithTimeout(ctx, patience)
	t.Cleanup(cancelTime)
	tab := &tab{T: t, ctx: ctx, dialogs: new(int)}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *page.EventJavascriptDialogOpening:
			*tab.dialogs++
		case *runtime.EventExceptionThrown:
			t.Errorf("exception in the page: %v", e.ExceptionDetails)
		}
	}))
	tab.run(append(actions, chromedp.Navigate(url), chromedp.WaitReady(css("#main")))...)
	return tab
}

func (t *tab) run(actions ...action) {
	t.Helper()
	require.NoError(t, chromedp.Do(t.ctx, actions...))
}

// eval returns the value of a JavaScript expression.
func eval[V any](t *tab, expression string) (v V) {
	t.Helper()
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[V](expression))
	require.NoError(t, err)
	return v
}

// until waits until a JavaScript expression is true.
func (t *tab) until(expression string) {
	t.Helper()
	require.Eventually(t, func() bool {
		yes, err := chromedp.Run(t.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		return err == nil && yes // it fails while the page is being loaded
	}, patience, 20*time.Millisecond, "never true: %s", expression)
}

type (
	action = chromedp.Action[chromedp.Void]
	css    = chromedp.CSS
)

func size(width, height int64) action {
	return chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1))
}

func dark(yes bool) action {
	scheme := "light"
	if yes {
		scheme = "dark"
	}
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// serve starts a server with a page at some path.
func serve(t *testing.T, p *debug.Page) (url string) {
	t.Helper()
	url, _ = serveUntil(t, p)
	return url
}

// serveUntil is serve until it is stopped, or the test is over.
func serveUntil(t *testing.T, p *debug.Page) (url string, stop func()) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/ration", p)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/debug/ration", server.Close
}

// serveHTML starts a server with a page that does not change.
func serveHTML(t *testing.T, html []byte) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(html) }))
	t.Cleanup(server.Close)
	return server.URL
}

func newPool(t *testing.T, capacity int64) *ration.Pool[struct{}] {
	t.Helper()
	pool, err := ration.NewPermitPool(capacity, nil)
	require.NoError(t, err)
	t.Cleanup(func() { goruntime.KeepAlive(pool) }) // the page does not
	return pool
}

func borrow(t *testing.T, pool *ration.Pool[struct{}], owner string, weight int64) ration.Lease[struct{}] {
	t.Helper()
	lease, err := pool.AcquireWith(t.Context(), ration.AcquireOptions{Owner: owner, Weight: weight})
	require.NoError(t, err)
	return lease
}
