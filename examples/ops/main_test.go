package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A page is what a program prints, while it does.
type page struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start runs the service on a free port. Stop ends it and returns what it printed.
func start(t *testing.T, c config) (url string, stop func() string) {
	c.addr = "127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	var out page
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, c) }()
	stop = sync.OnceValue(func() string {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return out.String()
	})
	t.Cleanup(func() { stop() })
	address := regexp.MustCompile(`http://[\d.:]+`)
	require.Eventually(t, func() bool {
		url = address.FindString(out.String())
		return url != ""
	}, 10*time.Second, time.Millisecond, "no address: %s", &out)
	return url, stop
}

func get(t testing.TB, url string) (status int, body string) {
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// leaking returns what /metrics shows once the leak has been found.
func leaking(t *testing.T) (url, metrics string, stop func() string) {
	url, stop = start(t, config{leakAfter: 50 * time.Millisecond, threshold: 300 * time.Millisecond})
	require.Eventually(t, func() bool {
		_, metrics = get(t, url+"/metrics")
		return strings.Contains(metrics, `ration_pool_suspects{pool="mail"} 1`)
	}, 20*time.Second, 20*time.Millisecond)
	return url, metrics, stop
}

func TestOps_FindsTheLeak(t *testing.T) {
	url, metrics, stop := leaking(t)
	require.Contains(t, metrics, `ration_pool_leaks_total{kind="suspect",pool="mail"} 1`)
	require.Contains(t, metrics, `ration_semaphore_capacity{semaphore="renders"} 8`)
	require.Contains(t, metrics, `ration_bucket_rate_per_second{bucket="mails"} 60`)
	_, page := get(t, url+"/debug/ration")
	require.Contains(t, page, "newsletter")
	require.Contains(t, page, "sendNewsletter", "the stack of who borrowed it")
	out := stop()
	require.Regexp(t, `SUSPECT: lease \d+ of "newsletter", held \S+, acquired by \S+sendNewsletter at service.go:\d+`, out)
	require.Regexp(t, `1 leases still out.*lease \d+ of "newsletter"`, out, "Close says so too")
}

func TestOps_SuspectsNobodyWithoutALeak(t *testing.T) {
	url, stop := start(t, config{leakAfter: -1, threshold: 2 * time.Second})
	require.Eventually(t, func() bool {
		_, metrics := get(t, url+"/metrics")
		require.Contains(t, metrics, `ration_pool_suspects{pool="mail"} 0`)
		return !strings.Contains(metrics, `ration_pool_held_seconds_count{pool="mail"} 0`)
	}, 20*time.Second, 10*time.Millisecond, "no mail was sent")
	require.NotContains(t, stop(), "newsletter")
}

func TestOps_IsHealthyUntilAllSessionsAreLost(t *testing.T) {
	url, stop := start(t, config{leakAfter: -1, threshold: time.Second})
	status, body := get(t, url+"/healthz")
	require.Equal(t, 200, status)
	require.Equal(t, "ok\n", body)
	stop()

	mails, err := startMailServer()
	require.NoError(t, err)
	defer mails.stop()
	s, err := newService(mails.addr(), 100*time.Millisecond, io.Discard)
	require.NoError(t, err)
	for range 4 {
		require.Equal(t, 200, asked(s))
		_, err := s.pool.Acquire(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 200, asked(s), "all are busy")
	require.Eventually(t, func() bool {
		s.detector.Scan()
		return asked(s) == 503
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, s.close(t.Context(), io.Discard))
}

func asked(s *service) int {
	answer := httptest.NewRecorder()
	s.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/healthz", nil))
	return answer.Code
}

func TestOps_EndsByItself(t *testing.T) {
	var out page
	require.NoError(t, run(t.Context(), &out, config{addr: "127.0.0.1:0", length: 1200 * time.Millisecond, leakAfter: -1, threshold: time.Second}))
	require.Regexp(t, `  1 s +\d+ mails sent`, out.String())
}

func TestOps_FailsWhereItCannotServe(t *testing.T) {
	err := run(t.Context(), io.Discard, config{addr: "nowhere:-1", threshold: time.Second})
	require.Error(t, err)
}
