package leasepprof

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ration-go/ration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pprof is what go tool pprof makes of a profile.
func pprof(t *testing.T, profile []byte, args ...string) string {
	file := filepath.Join(t.TempDir(), "leases.pb.gz")
	require.NoError(t, os.WriteFile(file, profile, 0o600))
	out, err := exec.Command("go", append(append([]string{"tool", "pprof"}, args...), file)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func newPool(t *testing.T, name string, stackEvery int) *ration.Pool[struct{}] {
	detector, err := ration.NewDetector(&ration.DetectorOptions{StackEvery: stackEvery})
	require.NoError(t, err)
	opts := &ration.PoolOptions[struct{}]{Name: name}
	if stackEvery > 0 {
		opts.Detector = detector
	}
	pool, err := ration.NewPermitPool(100, opts)
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(pool) })
	return pool
}

//go:noinline
func nightlyExport(t *testing.T, pool *ration.Pool[struct{}], weight int64) {
	_, err := pool.AcquireWith(t.Context(), ration.AcquireOptions{Owner: "nightly", Weight: weight})
	require.NoError(t, err)
}

//go:noinline
func request(t *testing.T, pool *ration.Pool[struct{}]) ration.Lease[struct{}] {
	lease, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	return lease
}

func TestWrite_CountsByStack(t *testing.T) {
	var profile bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, "mail", 1)
		nightlyExport(t, pool, 5)
		time.Sleep(10 * time.Second)
		for range 3 {
			request(t, pool)
		}
		request(t, pool).Close() // not open, so not there
		require.NoError(t, Write(&profile, pool))
	})
	top := pprof(t, profile.Bytes(), "-top")
	require.Contains(t, top, "Type: leases")
	require.Regexp(t, `\s3 75.00%.*leasepprof\.request`, top)
	require.Regexp(t, `\s1 25.00%.*leasepprof\.nightlyExport`, top)
	require.NotContains(t, top, "ration.(*Pool", "the same for everybody")
	require.NotContains(t, top, "runtime.goexit")
	require.Regexp(t, `\s5permits 62.50%.*leasepprof\.nightlyExport`, pprof(t, profile.Bytes(), "-top", "-sample_index=weight"))
	require.Regexp(t, `\s10s\s+100%.*leasepprof\.nightlyExport`, pprof(t, profile.Bytes(), "-top", "-sample_index=age"))
	require.NotContains(t, pprof(t, profile.Bytes(), "-top", "-tagfocus=owner=nightly"), "leasepprof.request")
	tags := pprof(t, profile.Bytes(), "-tags")
	for _, want := range []string{"owner", "nightly", "pool", "mail", "id"} {
		require.Contains(t, tags, want)
	}
	lines := pprof(t, profile.Bytes(), "-top", "-lines")
	require.Contains(t, lines, "leasepprof_test.go:")
}

func TestWrite_AddsUpWithoutStacks(t *testing.T) {
	var profile bytes.Buffer
	a, b := newPool(t, "a", 0), newPool(t, "b", 1)
	nightlyExport(t, a, 1)
	request(t, b)
	require.NoError(t, Write(&profile, a, b))
	top := pprof(t, profile.Bytes(), "-top")
	require.Contains(t, top, noStack)
	require.Contains(t, top, "100% of 2 total")
}

func TestWrite_NothingIsAProfileToo(t *testing.T) {
	var profile bytes.Buffer
	require.NoError(t, Write(&profile))
	require.Contains(t, pprof(t, profile.Bytes(), "-raw"), "leases/count")
}

func TestWrite_TakesAnyName(t *testing.T) {
	var profile bytes.Buffer
	pool := newPool(t, "\x00\xff\n\"", 1)
	_, err := pool.AcquireWith(t.Context(), ration.AcquireOptions{Owner: "\xff\xfe <script>"})
	require.NoError(t, err)
	require.NoError(t, Write(&profile, pool))
	require.Contains(t, pprof(t, profile.Bytes(), "-top"), "100% of 1 total")
}

func TestWrite_ReturnsTheWritersError(t *testing.T) {
	pool := newPool(t, "mail", 1)
	request(t, pool)
	require.ErrorIs(t, Write(brokenWriter{}, pool), errBroken)
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func ask(h http.Handler, method string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost/debug/leases", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler_ServesTheProfileOfNow(t *testing.T) {
	h := NewHandler(nil)
	pool := newPool(t, "mail", 1)
	Add(h, pool)
	lease := request(t, pool)
	w := ask(h, "GET", nil)
	require.Equal(t, 200, w.Code)
	require.Contains(t, pprof(t, w.Body.Bytes(), "-top"), "100% of 1 total")
	lease.Close()
	require.NotContains(t, pprof(t, ask(h, "GET", nil).Body.Bytes(), "-top"), "leasepprof.request")
	require.Equal(t, 200, ask(h, "HEAD", nil).Code)
}

func TestHandler_RefusesOthers(t *testing.T) {
	h := NewHandler(nil)
	require.Equal(t, 405, ask(h, "POST", nil).Code)
	require.Equal(t, 403, ask(h, "GET", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }).Code)
	require.Equal(t, 403, ask(h, "GET", func(r *http.Request) { r.Host = "evil.example" }).Code)
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"} {
		require.Equal(t, 403, ask(h, "GET", func(r *http.Request) { r.Header.Set(header, "192.0.2.1") }).Code, header)
	}

	open := NewHandler(&Options{Authorize: func(*http.Request) bool { return true }})
	require.Equal(t, 200, ask(open, "GET", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }).Code)
	require.Panics(t, func() { Add(h, (*ration.Pool[int])(nil)) })
}

func TestHandler_KeepsNoPoolAlive(t *testing.T) {
	h := NewHandler(nil)
	func() {
		pool, err := ration.NewPermitPool(1, nil)
		require.NoError(t, err)
		Add(h, pool)
		require.Len(t, h.pools, 1)
		runtime.KeepAlive(pool)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		ask(h, "GET", nil)
		return len(h.pools) == 0
	}, 10*time.Second, time.Millisecond)
}

func TestHandler_ConcurrentUse(t *testing.T) {
	h := NewHandler(nil)
	pool := newPool(t, "mail", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	for _, work := range []func(){
		func() { Add(h, pool) },
		func() { ask(h, "GET", nil) },
		func() {
			if lease, err := pool.Acquire(ctx); err == nil {
				lease.Close()
			}
		},
	} {
		go func() {
			for range 200 {
				work()
			}
			done <- struct{}{}
		}()
	}
	for range 3 {
		<-done
	}
	require.Equal(t, 200, ask(h, "GET", nil).Code)
}

func TestLocal_KnowsTheMachinesOwnNames(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "a.localhost:80": true, "127.0.0.1": true, "127.1.2.3:80": true, "[::1]": true, "[::1]:80": true,
		"localhost.evil.example": false, "notlocalhost": false, "192.0.2.1": false, "[::2]:80": false, "": false,
	} {
		r := httptest.NewRequest("GET", "/", strings.NewReader(""))
		r.RemoteAddr, r.Host = "[::ffff:127.0.0.1]:40000", host
		require.Equal(t, want, Local(r), "%q", host)
	}
}
