package debug

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

func TestPage_ShowsPoolsSemaphoresAndBuckets(t *testing.T) {
	p := New(nil)
	pool := newPool(t, 12_345, nil)
	borrow(t, pool, "nightly export", 3)
	semaphore := ration.NewSemaphore(10, nil)
	require.True(t, semaphore.TryAcquire(7))
	bucket, err := ration.NewTokenBucket(ration.PerSecond(50), 20)
	require.NoError(t, err)
	require.True(t, bucket.Allow(5))
	p.Add("mail", Pool(pool, nil))
	p.Add("uploads", Semaphore(semaphore))
	p.Add("partner API", Bucket(bucket))

	page := html(t, p, "")
	inOrder(t, page, "mail", "uploads", "partner API", // the table of all
		"mail <small>pool", "3 <small>of 12,345", "nightly export",
		"uploads <small>semaphore", "7 <small>of 10",
		"partner API <small>token bucket", "1 per 20ms")

	r := decoded(t, p)
	require.Len(t, r.Pools, 1)
	require.Equal(t, "mail", r.Pools[0]["name"])
	require.EqualValues(t, 3, r.Pools[0]["held"])
	require.EqualValues(t, 12_345, r.Pools[0]["capacity"])
	require.EqualValues(t, 7, r.Semaphores[0]["held"])
	require.EqualValues(t, 20, r.Buckets[0]["burst"])
	require.Equal(t, "1/20ms", r.Buckets[0]["rate"])
	runtime.KeepAlive(semaphore)
	runtime.KeepAlive(bucket)
}

func TestPage_IsThereWithNothingToSee(t *testing.T) {
	p := New(nil)
	require.Contains(t, html(t, p, ""), "Nothing to see")
	w := serve(p, request("GET", "/?format=json", nil))
	require.Contains(t, w.Body.String(), `"pools": []`, "a list, not null")
}

func TestPage_SaysWhatStatsSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(nil)
		pool := newPool(t, 2, &ration.PoolOptions[struct{}]{MaxWaiters: 1})
		p.Add("mail", Pool(pool, nil))
		a, b := borrow(t, pool, "a", 1), borrow(t, pool, "b", 1)
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			pool.Acquire(ctx)
		}()
		synctest.Wait()
		_, err := pool.Acquire(t.Context())
		require.ErrorIs(t, err, ration.ErrQueueFull)
		require.NoError(t, pool.Resize(1))

		r := decoded(t, p).Pools[0]
		require.EqualValues(t, -1, r["available"])
		require.EqualValues(t, 1, r["waiters"])
		require.EqualValues(t, 2, r["leases_total"])
		require.EqualValues(t, 1, r["outcomes"].(map[string]any)["queue_full"])
		inOrder(t, html(t, p, ""), "Debt", `class="debt">1<`, "Waiting", ">1<")

		time.Sleep(3 * time.Second)
		cancel()
		<-waited
		require.EqualValues(t, 3, decoded(t, p).Pools[0]["longest_wait_seconds"])
		a.Close()
		b.Close()
		require.NoError(t, pool.Close(t.Context()))
	})
}

func TestPage_SortsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(nil)
		pool := newPool(t, 100, nil)
		p.Add("mail", Pool(pool, nil))
		for _, l := range []struct {
			owner  string
			weight int64
		}{{"bob", 2}, {"alice", 9}, {"carol", 2}} {
			borrow(t, pool, l.owner, l.weight)
			time.Sleep(time.Second)
		}
		for query, want := range map[string][]string{
			"":                         {"bob", "alice", "carol"}, // the oldest first
			"?sort=age&order=asc":      {"carol", "alice", "bob"},
			"?sort=owner":              {"alice", "bob", "carol"},
			"?sort=owner&order=desc":   {"carol", "bob", "alice"},
			"?sort=weight":             {"alice", "bob", "carol"},
			"?sort=weight&order=asc":   {"bob", "carol", "alice"}, // of equal ones the older first
			"?sort=id":                 {"bob", "alice", "carol"},
			"?sort=id&order=desc":      {"carol", "alice", "bob"},
			"?sort=<script>&order=oh?": {"bob", "alice", "carol"},
		} {
			page := html(t, p, strings.NewReplacer("<", "%3C", ">", "%3E").Replace(query))
			inOrder(t, page, want...)
			require.NotContains(t, page, "<script>&", "what was asked for")
		}
		inOrder(t, html(t, p, "?sort=owner"), `aria-sort="ascending"`, "?sort=owner&amp;order=desc")
	})
}

func TestPage_ListsNoMoreLeasesThanItShould(t *testing.T) {
	p := New(&Options{MaxLeases: 3})
	pool := newPool(t, 1000, nil)
	p.Add("mail", Pool(pool, nil))
	for i := range 1000 {
		borrow(t, pool, fmt.Sprintf("owner-%d.", i), 1)
	}
	page := html(t, p, "?sort=id")
	inOrder(t, page, "owner-0.", "owner-1.", "owner-2.", "997 more leases are not listed, of 1,000")
	require.NotContains(t, page, "owner-3.")
	r := decoded(t, p).Pools[0]
	require.Len(t, r["leases"], 3)
	require.EqualValues(t, 1000, r["leases_total"])
}

const hostile = `</td><script>alert(1)</script><img src=x onerror=alert(2)>"'&` + "\x00\xff"

func TestPage_EscapesNamesAndOwners(t *testing.T) {
	p := New(&Options{Revoke: true})
	pool := newPool(t, 3, nil)
	borrow(t, pool, hostile, 1)
	semaphore := ration.NewSemaphore(1, nil)
	p.Add(hostile, Pool(pool, nil))
	p.Add(hostile, Semaphore(semaphore))
	page := html(t, p, "")
	require.NotContains(t, page, "<script>alert")
	require.NotContains(t, page, "<img")
	require.Equal(t, 1, strings.Count(page, "<script"), "ours")
	require.Contains(t, page, "&lt;script&gt;alert(1)")
	r := decoded(t, p)
	require.Contains(t, r.Pools[0]["name"], "<script>alert(1)", "text is text")
	runtime.KeepAlive(semaphore)
}

func TestPage_AllowsOnlyItsOwnScript(t *testing.T) {
	w := serve(New(nil), request("GET", "/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	// The hash is of what is on the page: html/template must not have changed it.
	_, rest, _ := strings.Cut(w.Body.String(), "<script>")
	script, _, _ := strings.Cut(rest, "</script>")
	require.Contains(t, policy, sourceHash(script))
	_, rest, _ = strings.Cut(w.Body.String(), "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	require.Contains(t, policy, sourceHash(style))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
}

func TestPage_MarksSuspectsAndThoseThatAreNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(nil)
		detector, err := ration.NewDetector(&ration.DetectorOptions{Threshold: 10 * time.Second, StackEvery: 1})
		require.NoError(t, err)
		pool := newPool(t, 10, &ration.PoolOptions[struct{}]{Detector: detector})
		p.Add("mail", Pool(pool, nil))
		borrow(t, pool, "leaky", 1)
		time.Sleep(2 * time.Second)
		borrow(t, pool, "slow", 1)
		time.Sleep(8500 * time.Millisecond)
		borrow(t, pool, "young", 1)
		detector.Scan()

		page := html(t, p, "")
		inOrder(t, page, `<title>(1 suspect) `, `class="suspect"`, "leaky", `class="near"`, "slow", "young")
		require.Contains(t, page, "debug.borrow", "the stack of the borrower")
		require.NotContains(t, page, "ration.(*Pool", "not ours")
		var leases []map[string]any
		for _, l := range decoded(t, p).Pools[0]["leases"].([]any) {
			leases = append(leases, l.(map[string]any))
		}
		require.Equal(t, true, leases[0]["suspect"])
		require.Equal(t, true, leases[1]["near"])
		require.Equal(t, false, leases[2]["near"])
		require.NotEmpty(t, leases[0]["stack"])
	})
}

func TestPage_ServesAProfile(t *testing.T) {
	p := New(nil)
	detector, err := ration.NewDetector(&ration.DetectorOptions{StackEvery: 1})
	require.NoError(t, err)
	pool := newPool(t, 10, &ration.PoolOptions[struct{}]{Detector: detector})
	p.Add("mail", Pool(pool, nil))
	borrow(t, pool, "leaky", 1)
	w := serve(p, request("GET", "/?format=pprof", nil))
	require.Equal(t, 200, w.Code)
	file := filepath.Join(t.TempDir(), "leases.pb.gz")
	require.NoError(t, os.WriteFile(file, w.Body.Bytes(), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "debug.borrow")
}

func TestPage_RefusesOtherFormats(t *testing.T) {
	require.Equal(t, 400, serve(New(nil), request("GET", "/?format=xml", nil)).Code)
}

func TestPage_KeepsNothingAlive(t *testing.T) {
	p := New(nil)
	func() {
		waits := new(Waits)
		pool, err := ration.NewPermitPool(1, &ration.PoolOptions[struct{}]{Observer: ration.Observer{Acquired: waits.Acquired}})
		require.NoError(t, err)
		p.Add("mail", Pool(pool, waits))
		p.Add("uploads", Semaphore(ration.NewSemaphore(1, nil)))
		bucket, err := ration.NewTokenBucket(ration.PerSecond(1), 1)
		require.NoError(t, err)
		p.Add("api", Bucket(bucket))
		require.Len(t, decoded(t, p).Pools, 1)
		runtime.KeepAlive(pool)
		runtime.KeepAlive(bucket)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		r := decoded(t, p)
		return len(r.Pools)+len(r.Semaphores)+len(r.Buckets) == 0
	}, 10*time.Second, time.Millisecond)
	require.Empty(t, p.entries, "forgotten, not only left out")
}

func TestPage_RemoveRemovesOne(t *testing.T) {
	p := New(nil)
	a, b := ration.NewSemaphore(1, nil), ration.NewSemaphore(2, nil)
	remove := p.Add("same", Semaphore(a))
	p.Add("same", Semaphore(b))
	remove()
	remove()
	r := decoded(t, p)
	require.Len(t, r.Semaphores, 1)
	require.EqualValues(t, 2, r.Semaphores[0]["capacity"])
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

func TestPage_RefusesBadOptions(t *testing.T) {
	for field, opts := range map[string]Options{
		"MaxLeases":                         {MaxLeases: -1},
		"Refresh":                           {Refresh: time.Millisecond},
		"Interval":                          {Interval: time.Millisecond},
		"History is below 10 intervals":     {Interval: time.Second, History: 9 * time.Second},
		"History is above 10,000 intervals": {Interval: time.Second, History: 10_001 * time.Second},
	} {
		require.PanicsWithValue(t, panicWith(func() { New(&opts) }), func() { New(&opts) })
		require.Contains(t, panicWith(func() { New(&opts) }), "debug: Options."+field)
	}
	require.Panics(t, func() { New(nil).Add("none", Source{}) })
	require.PanicsWithValue(t, "debug: Pool: nil pool", func() { Pool((*ration.Pool[int])(nil), nil) })
	require.PanicsWithValue(t, "debug: Semaphore: nil semaphore", func() { Semaphore(nil) })
	require.PanicsWithValue(t, "debug: Bucket: nil bucket", func() { Bucket(nil) })
}

func panicWith(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestPage_HasAHistoryThoughNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&Options{Interval: time.Second, History: time.Minute})
		semaphore := ration.NewSemaphore(10, nil)
		p.Add("uploads", Semaphore(semaphore))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		for range 300 {
			semaphore.TryAcquire(1)
			time.Sleep(time.Second)
		}
		points := decoded(t, p).Semaphores[0]["history"].([]any)
		require.InDelta(t, 61, len(points), 2, "a minute of it, not five")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		runtime.KeepAlive(semaphore)
	})
}

func TestPage_SamplesNoMoreOftenThanItShould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&Options{Interval: time.Second, History: time.Minute})
		semaphore := ration.NewSemaphore(10, nil)
		p.Add("uploads", Semaphore(semaphore))
		for range 1000 { // many people look
			html(t, p, "")
			time.Sleep(10 * time.Millisecond)
		}
		require.InDelta(t, 11, len(p.entries[0].history), 2)
		runtime.KeepAlive(semaphore)
	})
}

func TestPage_ConcurrentUse(t *testing.T) {
	p := New(&Options{Interval: 100 * time.Millisecond, History: time.Second})
	pool := newPool(t, 50, nil)
	p.Add("mail", Pool(pool, nil))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	for _, work := range []func(){
		func() { p.Run(ctx) },
		func() { serve(p, request("GET", "/", nil)) },
		func() { serve(p, request("GET", "/?format=json", nil)) },
		func() { p.Add("more", Semaphore(ration.NewSemaphore(1, nil)))() },
		func() {
			lease, err := pool.Acquire(ctx)
			if err == nil {
				lease.Close()
			}
		},
	} {
		go func() {
			for ctx.Err() == nil {
				work()
			}
			done <- struct{}{}
		}()
	}
	for range 5 {
		<-done
	}
	require.Len(t, decoded(t, p).Pools, 1)
}
