package ration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P5: whatever a hook does, nothing is lost by it.

// misbehaviours are what a hook may do instead of returning an error.
var misbehaviours = map[string]func(){
	"panic":            func() { panic("boo") },
	"panic with nil":   func() { panic(nil) },
	"panic with error": func() { panic(errTest) },
	"goexit":           goexit,
}

func eachMisbehaviour(t *testing.T, f func(t *testing.T, misbehave func())) {
	for name, misbehave := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { f(t, misbehave) })
		})
	}
}

// elsewhere runs f on a goroutine of its own, since a hook may end that, and
// recovers what it panics with.
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		f()
	}()
	<-done
}

func TestPool_AMisbehavingOpenLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		bad := true
		p := newTestPool(t, 2, func(context.Context) error {
			if bad {
				misbehave()
			}
			return nil
		}, nil)
		for range 5 {
			_, err := p.Acquire(t.Context())
			var ae *AcquireError
			require.ErrorAs(t, err, &ae)
			require.Equal(t, "open", ae.Op)
			require.Contains(t, err.Error(), ": open: open ")
		}
		p.requireGauges(gauges{})
		require.EqualValues(t, 5, p.Stats().OpenFailed)
		bad = false
		p.requireWhole(2)
	})
}

func TestPool_APanicWithAnErrorStaysReachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, func(context.Context) error { panic(errTest) }, nil)
		_, err := p.Acquire(t.Context())
		requireAcquireError(t, err, "open", errTest)
		require.Contains(t, err.Error(), "open panicked")
	})
}

func TestPool_AMisbehavingCheckLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		p := newTestPool(t, 2, nil, &thingOptions{Check: func(context.Context, *thing) error {
			misbehave()
			return nil
		}})
		p.fill(2)
		l := p.lease()
		require.EqualValues(t, 3, l.Value().id, "both were found broken")
		p.requireDestroyed(1, 2)
		require.EqualValues(t, 2, p.Stats().DestroyedBroken)
		closeAll(t, l)
		p.requireWhole(2)
	})
}

func TestPool_AMisbehavingResetLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		p := newTestPool(t, 2, nil, &thingOptions{Reset: func(r *thing) error {
			if r.id <= 2 {
				misbehave()
			}
			return nil
		}})
		for range 2 {
			l := p.lease()
			elsewhere(func() { require.ErrorContains(t, l.Close(), "ration: Reset ") })
		}
		p.requireDestroyed(1, 2)
		require.EqualValues(t, 2, p.Stats().DestroyedBroken)
		p.requireWhole(2)
	})
}

func TestPool_AMisbehavingCloseLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		p := newTestPool(t, 2, nil, &thingOptions{Close: func(*thing) error {
			misbehave()
			return nil
		}})
		l := p.lease()
		elsewhere(func() { require.ErrorContains(t, l.Discard(), "ration: Close ") })
		l = p.lease()
		require.True(t, p.Revoke(l.Info().ID))
		p.requireDestroyed(1, 2)
		elsewhere(func() { p.Do(context.Background(), func(context.Context, *thing) error { return Broken(errTest) }) })
		p.fill(2)
		p.Clear()
		p.requireDestroyed(1, 2, 3, 4, 5)
		p.requireWhole(2)
	})
}

func TestPool_AMisbehavingBrokenLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		p := newTestPool(t, 2, nil, &thingOptions{Broken: func(error) bool {
			misbehave()
			return false
		}})
		elsewhere(func() { p.Do(context.Background(), func(context.Context, *thing) error { return errTest }) })
		p.requireDestroyed(1)
		p.requireWhole(2)
	})
}

func TestPool_APanicInBrokenIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 2, nil, &thingOptions{Broken: func(error) bool { panic("boo") }})
		err := p.Do(t.Context(), func(context.Context, *thing) error { return errTest })
		require.ErrorIs(t, err, errTest)
		require.ErrorContains(t, err, "ration: Broken panicked: boo")
		p.requireDestroyed(1)
	})
}

func TestPool_AMisbehavingDoLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		p := newTestPool(t, 2, nil, nil)
		elsewhere(func() {
			p.Do(context.Background(), func(context.Context, *thing) error {
				misbehave()
				return nil
			})
		})
		p.requireDestroyed(1)
		p.requireWhole(2)
	})
}

// everything makes every kind of event happen in p, on goroutines that may be
// ended by the hooks that hear of it.
func everything(p *testPool) {
	use := func(end func(l Lease[*thing])) {
		elsewhere(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if l, err := p.Acquire(ctx); err == nil {
				end(l)
			}
		})
		synctest.Wait()
	}
	use(func(l Lease[*thing]) { l.Close() })
	use(func(l Lease[*thing]) { l.Discard() })
	use(func(l Lease[*thing]) {
		p.takesAway(l.Value()) // now: Detach may not come back
		l.Detach()
	})
	use(func(l Lease[*thing]) { p.Revoke(l.id) })
	use(func(l Lease[*thing]) { p.Clear(); l.Close() })
	use(func(l Lease[*thing]) { l.Close() })
	elsewhere(func() { p.Clear() })
	elsewhere(func() { p.Warm(context.Background(), 2) })
	elsewhere(func() { p.Acquire(canceled()) })
	elsewhere(func() { p.AcquireWith(context.Background(), AcquireOptions{Weight: 100}) })
	elsewhere(func() { p.TryAcquire() }) // if it gets one and Acquired lets it: leaked, and revoked below
	elsewhere(func() { p.Shrink(1) })
	elsewhere(func() { p.Grow(1) })
	for _, l := range p.Leases() {
		elsewhere(func() { p.Revoke(l.ID) })
	}
	synctest.Wait()
}

func TestPool_MisbehavingObserversLoseNothing(t *testing.T) {
	for event := range 4 {
		t.Run([]string{"Acquired", "Returned", "Opened", "Destroyed"}[event], func(t *testing.T) {
			for _, hooks := range []bool{true, false} {
				eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
					var good atomic.Bool
					var told atomic.Int32
					hear := func() {
						told.Add(1)
						if !good.Load() {
							misbehave()
						}
					}
					opts := &thingOptions{}
					switch event {
					case 0:
						opts.Observer.Acquired = func(AcquireEvent) { hear() }
					case 1:
						opts.Observer.Returned = func(ReturnEvent) { hear() }
					case 2:
						opts.Observer.Opened = func(OpenEvent) { hear() }
					case 3:
						opts.Observer.Destroyed = func(DestroyEvent) { hear() }
					}
					p := newTestPool(t, 2, nil, opts)
					if !hooks {
						p.opts.Close = nil // what is destroyed then is just dropped, in the goroutine that finds it
						p.leaveOpen = true
						p.limit.Store(0)
					}
					everything(p)
					require.Positive(t, told.Load())
					good.Store(true)
					p.requireWhole(2)
					if !hooks {
						require.NoError(t, p.Pool.Close(endless()))
					}
				})
			}
		})
	}
}

// A badHandler is a slog.Handler that misbehaves.
type badHandler struct {
	slog.Handler
	told      *atomic.Int32
	misbehave func()
}

func (h badHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h badHandler) Handle(context.Context, slog.Record) error {
	h.told.Add(1)
	h.misbehave()
	return nil
}

func TestPool_AMisbehavingLoggerLosesNothing(t *testing.T) {
	eachMisbehaviour(t, func(t *testing.T, misbehave func()) {
		var told, n atomic.Int32
		p := newTestPool(t, 2, func(context.Context) error {
			if n.Add(1)%2 == 0 {
				return errTest
			}
			return nil
		}, &thingOptions{
			Close:  func(*thing) error { return errTest },
			Logger: slog.New(badHandler{told: &told, misbehave: misbehave}),
		})
		for range 3 {
			everything(p)
		}
		require.Positive(t, told.Load())
		require.EqualValues(t, 2, p.Stats().Available)
		p.requireGauges(gauges{idle: p.Stats().Idle})
	})
}

func TestPool_AnObserverThatEndsTheBorrowerEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{Observer: Observer{Acquired: func(AcquireEvent) { goexit() }}})
		require.False(t, goexits(func() { p.Acquire(context.Background()) }))
		p.requireGauges(gauges{idle: 1})
		require.EqualValues(t, 1, p.Stats().Available)
	})
}

// Re-entry

func TestPool_HooksMayUseThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p *testPool
		var calls sync.Map
		var depth atomic.Int32
		reenter := func(who string) {
			calls.Store(who, true)
			p.Stats()
			p.Leases()
			require.NoError(t, p.Audit())
			p.Revoke(1 << 60)
			p.Grow(0)
			if depth.Add(1) < 3 {
				if l, ok := p.TryAcquire(); ok {
					l.Touch()
					l.Close()
				}
				if l, err := p.AcquireWith(context.Background(), AcquireOptions{Owner: who}); err == nil {
					l.Close()
				}
				p.Warm(canceled(), 3)
			}
			depth.Add(-1)
		}
		p = newTestPool(t, 50, func(context.Context) error { reenter("open"); return nil }, &thingOptions{
			Close:      func(*thing) error { reenter("Close"); return nil },
			Check:      func(context.Context, *thing) error { reenter("Check"); return nil },
			CheckAfter: time.Second,
			Reset:      func(*thing) error { reenter("Reset"); return nil },
			Broken:     func(error) bool { reenter("Broken"); return true },
			Observer: Observer{
				Acquired:  func(AcquireEvent) { reenter("Acquired") },
				Returned:  func(ReturnEvent) { reenter("Returned") },
				Opened:    func(OpenEvent) { reenter("Opened") },
				Destroyed: func(DestroyEvent) { reenter("Destroyed") },
			},
			Logger: slog.New(badHandler{told: new(atomic.Int32), misbehave: func() { reenter("Logger") }}),
		})
		l := p.lease()
		closeAll(t, l)
		time.Sleep(time.Second)
		l = p.lease()
		p.Revoke(l.Info().ID)
		require.Error(t, p.Do(t.Context(), func(context.Context, *thing) error { return errTest }))
		synctest.Wait()
		for _, who := range []string{"open", "Close", "Check", "Reset", "Broken", "Acquired", "Returned", "Opened", "Destroyed", "Logger"} {
			_, called := calls.Load(who)
			require.True(t, called, who)
		}
	})
}

func TestPool_HooksMayCloseThePool(t *testing.T) {
	for _, who := range []string{"open", "Check", "Reset", "Close"} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var p *testPool
				closed := 0
				var err error
				closing := func(in string) error {
					if in == who && closed == 0 {
						closed++
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						err = p.Pool.Close(ctx)
					}
					return nil
				}
				p = newTestPool(t, 2, func(context.Context) error { return closing("open") }, &thingOptions{
					Close: func(*thing) error { return closing("Close") },
					Check: func(context.Context, *thing) error { return closing("Check") },
					Reset: func(*thing) error { return closing("Reset") },
				})
				for range 2 {
					if l, err := p.Acquire(context.Background()); err == nil {
						l.Close()
					}
				}
				if l, err := p.Acquire(context.Background()); err == nil {
					l.Discard()
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, closed)
				require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for itself")
				_, err = p.Acquire(context.Background())
				require.ErrorIs(t, err, ErrClosed)
			})
		})
	}
}

// Limits of time

func TestPool_AHangingOpenGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 1, func(ctx context.Context) error {
			if n.Add(1) == 1 {
				return hang(ctx)
			}
			return nil
		}, &thingOptions{OpenTimeout: time.Second})
		start := time.Now()
		_, err := p.Acquire(t.Context())
		requireAcquireError(t, err, "open", context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.EqualValues(t, 1, p.Stats().OpenFailed)
		p.requireWhole(1)
	})
}

func TestPool_AnOpenThatIgnoresItsContextGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		p := newTestPool(t, 1, func(context.Context) error {
			if n.Add(1) == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}, &thingOptions{OpenTimeout: time.Second})
		p.limit.Store(2) // the one that nobody waits for any more is beyond the pool's control
		_, err := p.Acquire(t.Context())
		requireAcquireError(t, err, "open", context.DeadlineExceeded)
		require.ErrorContains(t, err, "open took longer than 1s")
		l := p.lease()
		p.requireDestroyed()
		time.Sleep(time.Minute)
		synctest.Wait()
		late := p.things[1]
		require.NotSame(t, late, l.Value())
		require.EqualValues(t, 1, late.destroyed.Load(), "what came too late is destroyed")
		closeAll(t, l)
		p.requireWhole(1)
	})
}

func TestPool_AHangingCheckGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{OpenTimeout: time.Second, Check: func(ctx context.Context, r *thing) error {
			if r.id == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}})
		p.fill(1)
		start := time.Now()
		l := p.lease()
		require.Equal(t, time.Second, time.Since(start))
		require.EqualValues(t, 2, l.Value().id)
		p.requireDestroyed(1)
		time.Sleep(time.Minute)
		closeAll(t, l)
		p.requireWhole(1)
	})
}

func TestPool_AHangingResetGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{OpenTimeout: time.Second, Reset: func(r *thing) error {
			if r.id == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}})
		l := p.lease()
		returning := start(l.Close)
		p.requireGauges(gauges{leased: 1})
		began := time.Now()
		l = p.lease()
		require.Equal(t, time.Second, time.Since(began))
		require.EqualValues(t, 2, l.Value().id)
		p.requireDestroyed(1)
		time.Sleep(time.Minute)
		require.True(t, returning.ended())
		closeAll(t, l)
		p.requireWhole(1)
	})
}

func TestPool_AHangingCloseGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, &thingOptions{OpenTimeout: time.Second, Close: func(r *thing) error {
			if r.id == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}})
		p.limit.Store(2)
		p.fill(1)
		p.Clear()
		p.requireGauges(gauges{destroying: 1})
		start := time.Now()
		l := p.lease()
		require.Equal(t, time.Second, time.Since(start))
		p.requireGauges(gauges{leased: 1})
		time.Sleep(time.Minute)
		closeAll(t, l)
		p.requireWhole(1)
	})
}

func TestPool_OpenTimeoutHasADefaultAndCanBeSwitchedOff(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -1: time.Hour, time.Minute: time.Minute} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newTestPool(t, 1, after(time.Hour, errTest), &thingOptions{OpenTimeout: limit})
				start := time.Now()
				_, err := p.Acquire(t.Context())
				require.Error(t, err)
				require.Equal(t, want, time.Since(start))
			})
		})
	}
}

func TestPool_CheckIsGivenATimeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		got := make(chan any, 1)
		p := newTestPool(t, 1, nil, &thingOptions{OpenTimeout: time.Second, Check: func(ctx context.Context, r *thing) error {
			got <- ctx.Value(key{})
			return hang(ctx)
		}})
		p.fill(1)
		start := time.Now()
		l, err := p.Acquire(context.WithValue(t.Context(), key{}, "v"))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, "v", <-got)
		closeAll(t, l)
	})
}

// Logger

func TestPool_LogsWhatNobodyElseIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log strings.Builder
		bad := true
		p := newTestPool(t, 2, func(context.Context) error {
			if bad {
				return errors.New("no route")
			}
			return nil
		}, &thingOptions{
			Name: "db", MinIdle: 1, Close: func(*thing) error { return errors.New("went away") },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		synctest.Wait()
		require.Contains(t, log.String(), "no route")
		require.Contains(t, log.String(), "pool=db")
		bad = false
		l := p.leaseWith(AcquireOptions{Owner: "me"})
		p.Revoke(l.Info().ID)
		synctest.Wait()
		require.Contains(t, log.String(), "revoked")
		require.Contains(t, log.String(), "went away")
	})
}

func TestPool_WithoutALoggerItIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log strings.Builder
		old := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer slog.SetDefault(old)
		p := newTestPool(t, 2, nil, &thingOptions{Close: func(*thing) error { return errTest }})
		everything(p)
		p.Clear()
		synctest.Wait()
		require.Empty(t, log.String())
	})
}

// A context may be anybody's code, too.
func TestPool_AContextThatPanicsLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTestPool(t, 1, nil, nil)
		require.PanicsWithValue(t, "Done", func() { p.Acquire(panickyContext{t.Context()}) })
		p.requireWhole(1)
	})
}

type panickyContext struct{ context.Context }

func (panickyContext) Done() <-chan struct{} { panic("Done") }
