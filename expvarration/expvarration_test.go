package expvarration_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ration-go/ration"
	"github.com/ration-go/ration/expvarration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A number is not of size zero, so that no two are at one address.
type number struct{ _ int }

func newPool(t testing.TB, capacity int64) *ration.Pool[*number] {
	p, err := ration.NewPool(capacity, func(context.Context) (*number, error) { return new(number), nil }, nil)
	require.NoError(t, err)
	return p
}

// names are never used again, since expvar never forgets one.
var names atomic.Int64

func newName() string { return fmt.Sprintf("test.%d", names.Add(1)) }

func read(t testing.TB, name string, into any) {
	require.NoError(t, json.Unmarshal([]byte(expvar.Get(name).String()), into))
}

func TestPublish_ShowsTheStats(t *testing.T) {
	pool, name := newPool(t, 3), newName()
	require.NoError(t, expvarration.Publish(name, pool))
	l, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	var got ration.PoolStats
	read(t, name, &got)
	require.Equal(t, pool.Stats(), got)
	require.Equal(t, 1, got.Leased)
	require.NoError(t, l.Close())
	read(t, name, &got)
	require.Equal(t, pool.Stats(), got)
	require.Equal(t, 0, got.Leased)

	semaphore, name := ration.NewSemaphore(5, nil), newName()
	require.NoError(t, expvarration.Publish(name, semaphore))
	require.True(t, semaphore.TryAcquire(2))
	var permits ration.SemaphoreStats
	read(t, name, &permits)
	require.Equal(t, semaphore.Stats(), permits)
	require.Equal(t, int64(2), permits.Held)

	detector, name := watch(t, pool), newName()
	require.NoError(t, expvarration.Publish(name, detector))
	detector.Scan()
	var seen ration.DetectorStats
	read(t, name, &seen)
	require.Equal(t, detector.Stats(), seen)
	runtime.KeepAlive([]any{pool, semaphore, detector})
}

func watch(t testing.TB, p ration.Watchable) *ration.Detector {
	d, err := ration.NewDetector(nil)
	require.NoError(t, err)
	d.Watch(p)
	return d
}

func TestPublishBucket_ShowsTheBucket(t *testing.T) {
	b, err := ration.NewTokenBucket(ration.Per(7, time.Hour), 9)
	require.NoError(t, err)
	name := newName()
	require.NoError(t, expvarration.PublishBucket(name, b))
	require.True(t, b.Allow(4))
	require.JSONEq(t, `{"Tokens": 5, "Burst": 9, "Rate": "7/1h0m0s"}`, expvar.Get(name).String())
	runtime.KeepAlive(b)
}

func TestPublish_ReturnsAnErrorWhereExpvarPanics(t *testing.T) {
	pool, semaphore, name := newPool(t, 3), ration.NewSemaphore(1, nil), newName()
	bucket, err := ration.NewTokenBucket(ration.PerSecond(1), 1)
	require.NoError(t, err)
	require.NoError(t, expvarration.Publish(name, pool))
	err = expvarration.Publish(name, pool)
	require.ErrorIs(t, err, expvarration.ErrNameTaken)
	require.ErrorContains(t, err, name)
	require.ErrorIs(t, expvarration.Publish(name, semaphore), expvarration.ErrNameTaken)
	require.ErrorIs(t, expvarration.PublishBucket(name, bucket), expvarration.ErrNameTaken)
	var got ration.PoolStats
	read(t, name, &got)
	require.Equal(t, int64(3), got.Capacity)

	require.ErrorIs(t, expvarration.Publish("memstats", pool), expvarration.ErrNameTaken, "expvar's own")
	runtime.KeepAlive([]any{pool, semaphore, bucket})
}

func TestPublish_RefusesWhatItCannotShow(t *testing.T) {
	require.ErrorContains(t, expvarration.Publish("", newPool(t, 1)), "needs a name")
	require.ErrorContains(t, expvarration.Publish(newName(), (*ration.Semaphore)(nil)), "nil object")
	require.ErrorContains(t, expvarration.PublishBucket(newName(), nil), "nil bucket")
}

func TestPublish_DroppedObjectsAreNullAndFreeTheirNames(t *testing.T) {
	name, bucketName := newName(), newName()
	func() {
		pool := newPool(t, 1)
		bucket, err := ration.NewTokenBucket(ration.PerSecond(1), 1)
		require.NoError(t, err)
		require.NoError(t, expvarration.Publish(name, pool))
		require.NoError(t, expvarration.PublishBucket(bucketName, bucket))
		runtime.GC()
		require.NotEqual(t, "null", expvar.Get(name).String(), "held by the program")
		runtime.KeepAlive([]any{pool, bucket})
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return expvar.Get(name).String() == "null" && expvar.Get(bucketName).String() == "null"
	}, 10*time.Second, time.Millisecond)
	pool := newPool(t, 2)
	require.NoError(t, expvarration.Publish(name, pool))
	require.ErrorIs(t, expvarration.Publish(name, pool), expvarration.ErrNameTaken)
	var got ration.PoolStats
	read(t, name, &got)
	require.Equal(t, int64(2), got.Capacity)
	runtime.KeepAlive(pool)
}

// odd has Stats that are no JSON.
type odd struct{ _ int }

func (*odd) Stats() func() { return func() {} }

func TestPublish_IsValidJSONWhateverTheStats(t *testing.T) {
	var o odd
	name := newName()
	require.NoError(t, expvarration.Publish(name, &o))
	require.True(t, json.Valid([]byte(expvar.Get(name).String())))
	runtime.KeepAlive(&o)
}

func TestPublish_OneOfManyAtOnceWins(t *testing.T) {
	pool, name := newPool(t, 1), newName()
	var won, lost atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch err := expvarration.Publish(name, pool); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, expvarration.ErrNameTaken):
				lost.Add(1)
			}
			_ = expvar.Get(name).String()
		})
	}
	all.Wait()
	require.Equal(t, int64(1), won.Load())
	require.Equal(t, int64(7), lost.Load())
	runtime.KeepAlive(pool)
}

func TestPublish_MayMeetExpvarItself(t *testing.T) {
	log.SetOutput(io.Discard) // expvar logs before it panics
	defer log.SetOutput(os.Stderr)
	pool := newPool(t, 1)
	for range 300 {
		name := newName()
		var theirs bool
		var ours error
		var both sync.WaitGroup
		both.Go(func() {
			defer func() { theirs = recover() == nil }()
			expvar.Publish(name, new(expvar.Int))
		})
		both.Go(func() { ours = expvarration.Publish(name, pool) })
		both.Wait()
		require.Equal(t, theirs, ours != nil, "one of them has the name")
		if ours != nil {
			require.ErrorIs(t, ours, expvarration.ErrNameTaken)
			require.Equal(t, "0", expvar.Get(name).String())
		}
	}
	runtime.KeepAlive(pool)
}
