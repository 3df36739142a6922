package debug

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

func TestServe_AnswersOnlyTheMachineItself(t *testing.T) {
	p := New(nil)
	for name, change := range map[string]func(*http.Request){
		"another machine":         func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" },
		"a name that points here": func(r *http.Request) { r.Host = "evil.example" },
		"a proxy on the machine":  func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
		"nobody knows who":        func(r *http.Request) { r.RemoteAddr = "" },
	} {
		r := request("GET", "/", nil)
		change(r)
		w := serve(p, r)
		require.Equal(t, 403, w.Code, name)
		require.NotContains(t, w.Body.String(), "<html", name)
	}
	for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "app.localhost"} {
		r := request("GET", "/", nil)
		r.Host = host
		require.Equal(t, 200, serve(p, r).Code, host)
	}
}

func TestServe_AuthorizeDecides(t *testing.T) {
	p := New(&Options{Authorize: func(r *http.Request) bool { return r.Header.Get("Authorization") == "yes" }})
	require.Equal(t, 403, serve(p, request("GET", "/", nil)).Code, "also for the machine itself")
	r := request("GET", "/", nil)
	r.RemoteAddr = "192.0.2.1:40000"
	r.Header.Set("Authorization", "yes")
	require.Equal(t, 200, serve(p, r).Code)
}

func TestServe_OnlyGetAndHead(t *testing.T) {
	p := New(nil)
	w := serve(p, request("HEAD", "/", nil))
	require.Equal(t, 200, w.Code)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		w := serve(p, request(method, "/", nil))
		require.Equal(t, 405, w.Code, method)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
}

// revoking is a page with a lease, and the form that takes it back.
func revoking(t *testing.T, opts *Options) (p *Page, pool *ration.Pool[struct{}], form url.Values) {
	p = New(opts)
	pool = newPool(t, 2, nil)
	p.Add("mail", Pool(pool, nil))
	lease := borrow(t, pool, "leaky", 1)
	return p, pool, url.Values{
		"token": {p.token}, "pool": {"1"}, "lease": {strconv.FormatUint(lease.Info().ID, 10)},
		"sort": {"owner"}, "order": {"desc"},
	}
}

func TestServe_RevokesALease(t *testing.T) {
	p, pool, form := revoking(t, &Options{Revoke: true})
	page := html(t, p, "")
	for name := range form { // what the browser sends is what is on the page
		require.Regexp(t, regexp.MustCompile(`<input type="hidden" name="`+name+`"`), page)
	}
	require.Contains(t, page, p.token)

	w := serve(p, request("POST", "/", form))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "?sort=owner&order=desc#source-1", w.Header().Get("Location"))
	require.EqualValues(t, 0, pool.Stats().Held)
	require.EqualValues(t, 1, pool.Stats().Revoked)

	require.Equal(t, http.StatusSeeOther, serve(p, request("POST", "/", form)).Code, "it has ended, which is no error")
	require.EqualValues(t, 1, pool.Stats().Revoked)
	form.Set("pool", "99")
	require.Equal(t, http.StatusSeeOther, serve(p, request("POST", "/", form)).Code, "nor is a pool that is gone")
}

func TestServe_RevokesNothingUnlessItIsAllowed(t *testing.T) {
	changed := func(key, value string) func(*http.Request, url.Values) {
		return func(_ *http.Request, form url.Values) { form.Set(key, value) }
	}
	header := func(key, value string) func(*http.Request, url.Values) {
		return func(r *http.Request, _ url.Values) { r.Header.Set(key, value) }
	}
	for _, test := range []struct {
		name   string
		opts   Options
		change func(*http.Request, url.Values)
		want   int
	}{
		{"off by default", Options{}, nil, 405},
		{"no token", Options{Revoke: true}, changed("token", ""), 403},
		{"another process's token", Options{Revoke: true}, changed("token", New(nil).token), 403},
		{"another site", Options{Revoke: true}, header("Sec-Fetch-Site", "cross-site"), 403},
		{"another origin", Options{Revoke: true}, header("Origin", "https://evil.example"), 403},
		{"another machine", Options{Revoke: true}, func(r *http.Request, _ url.Values) { r.RemoteAddr = "192.0.2.1:1" }, 403},
		{"not authorized", Options{Revoke: true, Authorize: func(*http.Request) bool { return false }}, nil, 403},
		{"no number", Options{Revoke: true}, changed("lease", "x"), 400},
		{"no pool", Options{Revoke: true}, changed("pool", ""), 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, pool, form := revoking(t, &test.opts)
			first := request("POST", "/", form)
			if test.change != nil {
				test.change(first, form)
			}
			r := request("POST", "/", form)
			r.Header, r.RemoteAddr = first.Header, first.RemoteAddr
			require.Equal(t, test.want, serve(p, r).Code)
			require.EqualValues(t, 1, pool.Stats().Held)
		})
	}
	t.Run("token in the URL", func(t *testing.T) {
		p, pool, form := revoking(t, &Options{Revoke: true})
		require.Equal(t, 403, serve(p, request("POST", "/?"+form.Encode(), url.Values{})).Code)
		require.EqualValues(t, 1, pool.Stats().Held)
	})
	t.Run("a body without end", func(t *testing.T) {
		p, pool, form := revoking(t, &Options{Revoke: true})
		form.Set("sort", string(make([]byte, 5000)))
		require.Equal(t, 400, serve(p, request("POST", "/", form)).Code)
		require.EqualValues(t, 1, pool.Stats().Held)
	})
}

func TestServe_ShowsNoButtonUnlessItWorks(t *testing.T) {
	p, _, _ := revoking(t, nil)
	page := html(t, p, "")
	require.NotContains(t, page, "<form")
	require.NotContains(t, page, p.token)
}

func TestServe_WorksUnderAnyPrefix(t *testing.T) {
	p, _, form := revoking(t, &Options{Revoke: true})
	mux := http.NewServeMux()
	mux.Handle("/deep/down/", http.StripPrefix("/deep/down", p))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, request("POST", "/deep/down/", form))
	require.Equal(t, "?sort=owner&order=desc#source-1", w.Header().Get("Location"), "relative to what the browser knows")
}
