package debug

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ration-go/ration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is one from the machine itself.
func request(method, target string, body url.Values) *http.Request {
	r := httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(body.Encode()))
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.RemoteAddr = "127.0.0.1:40000"
	return r
}

func serve(p *Page, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// html is the page.
func html(t *testing.T, p *Page, query string) string {
	w := serve(p, request("GET", "/"+query, nil))
	require.Equal(t, 200, w.Code)
	return w.Body.String()
}

// decoded is the page in JSON.
func decoded(t *testing.T, p *Page) (r struct {
	Pools, Semaphores, Buckets []map[string]any
}) {
	w := serve(p, request("GET", "/?format=json", nil))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	return r
}

// newPool makes a pool that lives as long as the test, unlike those a page shows.
func newPool(t *testing.T, capacity int64, opts *ration.PoolOptions[struct{}]) *ration.Pool[struct{}] {
	pool, err := ration.NewPermitPool(capacity, opts)
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(pool) })
	return pool
}

func borrow(t *testing.T, pool *ration.Pool[struct{}], owner string, weight int64) ration.Lease[struct{}] {
	lease, err := pool.AcquireWith(t.Context(), ration.AcquireOptions{Owner: owner, Weight: weight})
	require.NoError(t, err)
	return lease
}

// inOrder asserts that the texts stand in this order.
func inOrder(t *testing.T, text string, parts ...string) {
	at := 0
	for _, part := range parts {
		i := strings.Index(text[at:], part)
		require.GreaterOrEqual(t, i, 0, "%q is not behind those before it", part)
		at += i + len(part)
	}
}
