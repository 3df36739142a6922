package ration

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Random operations on token buckets against an obvious model of them, in exact
// fractions. One operation at a time, and everything comes to rest before the
// next, so that every answer and every moment can be foretold.

const (
	bucketModelSteps = 12_000

	// Beyond so many reservations since the bucket was full, a Cancel may give
	// back less than the model's.
	bucketModelPromises = maxNoted - 2

	// Time in a bubble starts in 2000 and ends in 2262.
	bucketModelYears = 100
)

// A bucketModel is what a token bucket is, said as simply as possible.
type bucketModel struct {
	rate     Rate
	per      int64 // levels are multiples of 1/per, as they were at the last rate but 0
	burst    int64
	level    *big.Rat
	queue    []*modelPlace
	promises []*modelPromise
	rooms    []modelRoom // all there have been since it was full
	serial   int         // of the last reservation
	number   int         // of reservations since it was full
}

// A modelRoom is how much more there was room for at some time, were it not for
// the reservations that have been canceled since: they had never been made.
type modelRoom struct {
	serial int // of the last reservation then
	*big.Rat
}

// A modelWait is a Wait or WaitAll in progress, and its places.
type modelWait struct {
	*call
	places   []*modelPlace
	deadline time.Time // zero: none
	cancel   context.CancelFunc
	over     bool
	want     error // once over
}

type modelPlace struct {
	bucket *bucketModel
	wait   *modelWait
	n      int64
	behind int64 // what was promised since it came
}

type modelPromise struct {
	Reservation
	n       int64
	at      time.Time
	serial  int
	ahead   []*modelPlace // who had been waiting already
	settled bool          // canceled
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor returns r rounded down, as an int64 if it fits.
func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, which is down for a positive denominator
}

// onGrid returns r rounded down to a multiple of 1/per.
func onGrid(r *big.Rat, per int64) *big.Rat {
	scaled := new(big.Rat).Mul(r, rat(per))
	whole := new(big.Int).Div(scaled.Num(), scaled.Denom())
	return new(big.Rat).SetFrac(whole, big.NewInt(per))
}

func newBucketModel(r Rate, burst int64) *bucketModel {
	return &bucketModel{rate: r, per: max(1, int64(r.per)), burst: burst, level: rat(burst)}
}

// flow lets tokens flow in for d.
func (m *bucketModel) flow(d time.Duration) {
	if m.rate.tokens > 0 && d > 0 {
		m.put(new(big.Rat).Mul(big.NewRat(m.rate.tokens, int64(m.rate.per)), rat(int64(d))))
	}
}

// put puts tokens in, as far as there is room, and remembers how much there is
// left.
func (m *bucketModel) put(n *big.Rat) {
	m.level = new(big.Rat).Add(m.level, n)
	if m.level.Cmp(rat(m.burst)) >= 0 {
		m.level = rat(m.burst)
		m.number = 0
		m.rooms = nil // whatever there was, there is none
	}
	m.rooms = append(m.rooms, modelRoom{m.serial, new(big.Rat).Sub(rat(m.burst), m.level)})
}

// back is what a Cancel of p gives back: never more than there has been room for
// since.
func (m *bucketModel) back(p *modelPromise) *big.Rat {
	back := rat(p.n)
	for _, r := range m.rooms {
		if r.serial >= p.serial && r.Cmp(back) < 0 {
			back = r.Rat
		}
	}
	return back
}

func (m *bucketModel) take(n int64) { m.level = new(big.Rat).Sub(m.level, rat(n)) }

func (m *bucketModel) holds(n int64) bool { return m.level.Cmp(rat(n)) >= 0 }

func (m *bucketModel) allow(n int64) bool {
	if n == 0 {
		return true
	}
	if len(m.queue) > 0 || !m.holds(n) {
		return false
	}
	m.take(n)
	return true
}

// until returns how long it is until the level is n, and false if that is never.
func (m *bucketModel) until(n *big.Int) (time.Duration, bool) {
	missing := new(big.Rat).Sub(new(big.Rat).SetInt(n), m.level)
	if missing.Sign() <= 0 {
		return 0, true
	}
	if m.rate.tokens == 0 {
		return 0, false
	}
	missing.Mul(missing, big.NewRat(int64(m.rate.per), m.rate.tokens))
	d, rest := new(big.Int).DivMod(missing.Num(), missing.Denom(), new(big.Int))
	if d.Cmp(big.NewInt(int64(maxDelay))) > 0 {
		return 0, false
	}
	if rest.Sign() > 0 {
		d.Add(d, big.NewInt(1))
	}
	return time.Duration(d.Int64()), true
}

// delay returns how long it is until n can be had behind all that wait.
func (m *bucketModel) delay(n int64) (time.Duration, bool) {
	ahead := big.NewInt(n)
	for _, p := range m.queue {
		ahead.Add(ahead, big.NewInt(p.n))
	}
	if n > m.burst || !ahead.IsInt64() {
		return 0, false
	}
	return m.until(ahead)
}

func (m *bucketModel) reserve(n int64) (p *modelPromise, at time.Duration, ok bool) {
	if n > 0 {
		at, ok = m.delay(n)
	} else {
		ok = true
	}
	if !ok || floor(m.level) < minLevel+n {
		return nil, 0, false
	}
	m.take(n)
	m.serial++
	p = &modelPromise{n: n, at: time.Now().Add(at), serial: m.serial, ahead: slices.Clone(m.queue)}
	for _, place := range m.queue {
		place.behind += n
	}
	m.promises = append(m.promises, p)
	m.number++
	return p, at, true
}

func (m *bucketModel) cancel(p *modelPromise) {
	if p.settled {
		return
	}
	p.settled = true
	m.promises = slices.DeleteFunc(m.promises, func(o *modelPromise) bool { return o == p })
	for _, place := range p.ahead {
		place.behind -= p.n
	}
	m.put(new(big.Rat)) // remembers how it is now
	back := m.back(p)
	for i, r := range m.rooms {
		if r.serial >= p.serial {
			m.rooms[i].Rat = new(big.Rat).Sub(r.Rat, back)
		}
	}
	m.put(back)
}

func (m *bucketModel) setRate(r Rate) {
	m.rate = r
	if r.tokens == 0 {
		return // a pause loses nothing
	}
	m.per = int64(r.per)
	m.level = onGrid(m.level, m.per)
	for i, r := range m.rooms {
		m.rooms[i].Rat = onGrid(r.Rat, m.per)
	}
}

func (p *modelPlace) ready() bool {
	return p.bucket.queue[0] == p && p.bucket.holds(p.n-p.behind)
}

func (w *modelWait) leave(err error) {
	for _, p := range w.places {
		p.bucket.queue = slices.DeleteFunc(p.bucket.queue, func(o *modelPlace) bool { return o == p })
	}
	w.over, w.want = true, err
}

// tooLarge returns whether w asks for more than a burst.
func (w *modelWait) tooLarge() bool {
	return slices.ContainsFunc(w.places, func(p *modelPlace) bool { return p.n > p.bucket.burst })
}

func (w *modelWait) ready() bool {
	return !slices.ContainsFunc(w.places, func(p *modelPlace) bool { return !p.ready() })
}

// settle is the one rule: whoever is at the head wherever it waits, and finds its
// tokens there, gets them.
func settleModels(models []*bucketModel) {
	for served := true; served; {
		served = false
		for _, m := range models {
			for _, p := range slices.Clone(m.queue) {
				if p.wait.tooLarge() {
					p.wait.leave(ErrTooLarge)
				}
			}
			if len(m.queue) == 0 || !m.queue[0].wait.ready() {
				continue
			}
			w := m.queue[0].wait
			w.leave(nil)
			for _, p := range w.places {
				p.bucket.take(p.n)
			}
			served = true
		}
	}
}

// A bucketDriver turns bytes into operations on buckets and their models.
type bucketDriver struct {
	t       *testing.T
	buckets []*TokenBucket
	models  []*bucketModel
	source  byteSource
	waits   []*modelWait // not yet known to have ended
	end     time.Time    // of the time there is
	ctx     context.Context
	log     []string
	steps   int
}

// runBucketModel makes buckets and works on them until the source is used up, and
// returns the number of operations. To be called in a bubble.
func runBucketModel(t *testing.T, source byteSource) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // a test that fails must not leave a deadlocked bubble
	d := &bucketDriver{t: t, source: source, ctx: ctx, end: time.Now().AddDate(bucketModelYears, 0, 0)}
	defer func() {
		if t.Failed() {
			t.Logf("the last operations, the failed one at the end:")
			for _, line := range d.log[max(0, len(d.log)-40):] {
				t.Log(line)
			}
		}
	}()
	for i := range 3 {
		r, burst := d.rate(), d.burst()
		b, err := NewTokenBucket(r, burst)
		require.NoError(t, err)
		d.buckets = append(d.buckets, b)
		d.models = append(d.models, newBucketModel(r, burst))
		d.note("bucket %d: rate %v, burst %d", i, r, burst)
	}
	d.check()
	for {
		op, ok := source()
		if !ok {
			break
		}
		d.step(op)
		d.steps++
		d.check()
	}
	d.finish()
	return d.steps
}

func (d *bucketDriver) byte() byte {
	b, _ := d.source()
	return b
}

func (d *bucketDriver) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

func (d *bucketDriver) rate() Rate {
	rates := []Rate{
		PerSecond(50), Per(7, time.Minute), PerSecond(999_983), Per(3, 10*time.Second), Every(24 * time.Hour),
		Every(time.Nanosecond), Per(1<<40+1, time.Second), {},
	}
	b := int(d.byte())
	if b < 192 {
		return rates[b%len(rates)]
	}
	return Per(1+int64(b-192), time.Duration(1+int(d.byte()))*time.Millisecond)
}

func (d *bucketDriver) burst() int64 {
	large := []int64{1 << 20, 1 << 40, 1<<40 - 1, 1 << 62}
	switch b := int64(d.byte()); {
	case b < 220:
		return b % 12
	case b < 240:
		return b
	default:
		return large[b%4]
	}
}

// pick chooses a bucket, mostly the first.
func (d *bucketDriver) pick() (int, *TokenBucket, *bucketModel) {
	i := [...]int{0, 0, 0, 1, 1, 2}[d.byte()%6]
	return i, d.buckets[i], d.models[i]
}

// amount is a number of tokens: mostly one that it depends on.
func (d *bucketDriver) amount(m *bucketModel) int64 {
	switch b := int64(d.byte()); {
	case b < 130:
		return 1 + b%max(1, min(m.burst, 10))
	case b < 160:
		return max(1, floor(m.level))
	case b < 180:
		return max(1, floor(m.level)+1)
	case b < 225:
		return m.burst
	case b < 235:
		return m.burst + 1
	case b < 245:
		return 0
	default:
		return math.MaxInt64 - (b - 245)
	}
}

func (d *bucketDriver) step(op byte) {
	switch op % 20 {
	case 0, 1:
		d.allow(1)
	case 2:
		d.allow(calmCalls + 10)
	case 3, 4, 5:
		d.wait(false)
	case 6:
		d.wait(true)
	case 7, 8:
		d.reserve()
	case 9, 10:
		d.cancelPromise()
	case 11:
		d.cancelWait()
	case 12:
		if d.byte()%2 == 0 {
			d.giveBack()
		} else {
			d.cancelAmidReturn()
		}
	case 13:
		d.setRate()
	case 14:
		d.setBurst()
	case 15, 16, 17:
		d.advance(d.duration())
	case 18:
		d.allowAll()
	case 19:
		if b := d.byte(); b < 32 {
			d.misuse(b)
		} else {
			d.waitAll()
		}
	}
}

func (d *bucketDriver) allow(times int) {
	i, b, m := d.pick()
	n := d.amount(m)
	d.note("Allow(%d) x %d at %d", n, times, i)
	for range times {
		require.Equal(d.t, m.allow(n), b.Allow(n))
	}
}

func (d *bucketDriver) reserve() {
	i, b, m := d.pick()
	n := d.amount(m)
	if m.number >= bucketModelPromises {
		return
	}
	p, delay, ok := m.reserve(n)
	d.note("Reserve(%d) at %d: %v, %v", n, i, delay, ok)
	got := b.Reserve(n)
	require.Equal(d.t, ok, got.OK())
	if !ok {
		require.Equal(d.t, never, got.Delay())
		got.Cancel()
		return
	}
	p.Reservation = got
}

func (d *bucketDriver) cancelPromise() {
	i, _, m := d.pick()
	if len(m.promises) == 0 {
		return
	}
	p := m.promises[int(d.byte())%len(m.promises)]
	if d.byte()%4 == 0 {
		d.note("the promise of %d at %d is kept", p.n, i)
		m.promises = slices.DeleteFunc(m.promises, func(o *modelPromise) bool { return o == p })
		return
	}
	d.note("cancel a promise of %d at %d", p.n, i)
	p.Cancel()
	m.cancel(p)
	settleModels(d.models)
	if d.byte()%4 == 0 {
		p.Cancel()
	}
}

// wait starts a Wait that can be cancelled, and ends by itself if timed.
func (d *bucketDriver) wait(timed bool) {
	i, b, m := d.pick()
	n := d.amount(m)
	w := new(modelWait)
	w.places = []*modelPlace{{bucket: m, wait: w, n: n}}
	d.line(w, timed, func(ctx context.Context) error { return b.Wait(ctx, n) })
	d.note("Wait(%d) at %d, until %v, call %p: over %v, %v", n, i, w.deadline, w, w.over, w.want)
}

func (d *bucketDriver) waitAll() {
	indices, n := d.several()
	var buckets []*TokenBucket
	w := new(modelWait)
	for _, i := range indices {
		buckets = append(buckets, d.buckets[i])
		m := d.models[i]
		if k := slices.IndexFunc(w.places, func(p *modelPlace) bool { return p.bucket == m }); k < 0 {
			w.places = append(w.places, &modelPlace{bucket: m, wait: w, n: n})
		} else {
			w.places[k].n = saturate(w.places[k].n, n)
		}
	}
	d.line(w, d.byte()%4 == 0, func(ctx context.Context) error { return WaitAll(ctx, n, buckets...) })
	d.note("WaitAll(%d) at %v, until %v, call %p: over %v, %v", n, indices, w.deadline, w, w.over, w.want)
}

func saturate(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// line starts a call, and lines w up in the model.
func (d *bucketDriver) line(w *modelWait, timed bool, fn func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(d.ctx)
	left := time.Duration(math.MaxInt64)
	if timed {
		left = 1 + d.duration()
		w.deadline = time.Now().Add(left)
		for slices.ContainsFunc(d.waits, func(o *modelWait) bool { return o.deadline.Equal(w.deadline) }) {
			w.deadline = w.deadline.Add(1) // between two at once there is no order to foretell
			left++
		}
		ctx, cancel = context.WithDeadline(d.ctx, w.deadline)
	}
	d.t.Cleanup(cancel)
	w.cancel = cancel
	w.call = start(func() error { return fn(ctx) })
	d.waits = append(d.waits, w)

	if len(w.places) == 0 || w.places[0].n == 0 {
		w.over = true
		return
	}
	if w.tooLarge() {
		w.over, w.want = true, ErrTooLarge
		return
	}
	for _, p := range w.places {
		if delay, ok := p.bucket.delay(p.n); timed && p.bucket.rate.tokens > 0 && (!ok || delay > left) {
			w.over, w.want = true, errTooLate
		}
	}
	if w.over {
		return
	}
	for _, p := range w.places {
		p.bucket.queue = append(p.bucket.queue, p)
	}
	settleModels(d.models)
}

func (d *bucketDriver) cancelWait() {
	var waiting []*modelWait
	for _, w := range d.waits {
		if !w.over {
			waiting = append(waiting, w)
		}
	}
	if len(waiting) == 0 {
		return
	}
	w := waiting[int(d.byte())%len(waiting)]
	d.note("cancel call %p", w)
	w.cancel()
	w.leave(context.Canceled)
	settleModels(d.models)
}

func (d *bucketDriver) giveBack() {
	i, b, m := d.pick()
	n := d.amount(m)
	d.note("Return(%d) at %d", n, i)
	b.Return(n)
	m.put(rat(n))
	settleModels(d.models)
}

// cancelAmidReturn returns tokens and cancels somebody with nothing in between.
// Somebody who was served by the one may heed the other, and then has taken
// nothing; whether it is so is only known afterwards.
func (d *bucketDriver) cancelAmidReturn() {
	i, b, m := d.pick()
	if len(m.queue) == 0 {
		return
	}
	w := m.queue[int(d.byte())%len(m.queue)].wait
	n := d.amount(m)
	d.note("Return(%d) at %d, and at once cancel call %p", n, i, w)
	b.Return(n)
	w.cancel()
	require.True(d.t, w.ended(), "a cancelled call still waits")
	m.put(rat(n))
	if w.err != nil {
		w.leave(context.Canceled)
	}
	settleModels(d.models)
}

func (d *bucketDriver) setRate() {
	i, b, m := d.pick()
	r := d.rate()
	d.note("SetRate(%v) at %d", r, i)
	require.NoError(d.t, b.SetRate(r))
	m.setRate(r)
	settleModels(d.models)
}

func (d *bucketDriver) setBurst() {
	i, b, m := d.pick()
	n := d.burst()
	d.note("SetBurst(%d) at %d", n, i)
	require.NoError(d.t, b.SetBurst(n))
	m.burst = n
	m.put(rat(0)) // clips
	settleModels(d.models)
}

// several chooses some buckets, maybe one twice or none, and an amount.
func (d *bucketDriver) several() (indices []int, n int64) {
	for range [...]int{0, 1, 2, 2, 2, 2, 3, 3}[d.byte()%8] {
		i, _, _ := d.pick()
		indices = append(indices, i)
	}
	return indices, d.amount(d.models[d.byte()%3])
}

func (d *bucketDriver) allowAll() {
	indices, n := d.several()
	d.note("AllowAll(%d) at %v", n, indices)
	want := true
	need := make(map[*bucketModel]int64)
	var buckets []*TokenBucket
	for _, i := range indices {
		buckets = append(buckets, d.buckets[i])
		need[d.models[i]] = saturate(need[d.models[i]], n)
	}
	for m, n := range need {
		want = want && (n == 0 || len(m.queue) == 0 && m.holds(n))
	}
	for m, n := range need {
		if want {
			m.take(n)
		}
	}
	require.Equal(d.t, want, AllowAll(n, buckets...))
}

func (d *bucketDriver) misuse(b byte) {
	d.note("misuse %d", b)
	bucket := d.buckets[0]
	if b%8 == 7 {
		require.ErrorIs(d.t, bucket.SetBurst(-1), ErrRate)
		require.ErrorIs(d.t, bucket.SetRate(Per(-1, time.Second)), ErrRate)
		require.ErrorIs(d.t, bucket.SetRate(Per(1, 0)), ErrRate)
		require.Equal(d.t, context.Canceled, bucket.Wait(canceled(), 1))
		require.Equal(d.t, context.Canceled, WaitAll(canceled(), 1, d.buckets...))
		return
	}
	requireMisuse(d.t, func() {
		switch b % 8 {
		case 0:
			bucket.Allow(-1)
		case 1:
			_ = bucket.Wait(d.ctx, math.MinInt64)
		case 2:
			bucket.Reserve(-1)
		case 3:
			bucket.Return(-1)
		case 4:
			bucket.RetryAfter(-1)
		case 5:
			AllowAll(-1, d.buckets...)
		case 6:
			_ = WaitAll(d.ctx, -1, d.buckets...)
		}
	})
}

// duration is some time in which something happens: until shortly before, at or
// after the next event, or what it takes for some tokens.
func (d *bucketDriver) duration() time.Duration {
	b := int64(d.byte())
	if next, ok := d.next(); ok && b < 100 {
		return max(0, time.Until(next)+time.Duration(b%3)-1)
	}
	_, _, m := d.pick()
	if m.rate.tokens == 0 || b > 250 {
		return time.Duration(b) * time.Second
	}
	tokens := b % 14
	if b > 240 {
		tokens = min(m.burst, 1<<20) // fills it
	}
	takes := new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(m.rate.per)))
	if takes.Div(takes, big.NewInt(m.rate.tokens)).Cmp(big.NewInt(int64(10_000*time.Hour))) > 0 {
		return time.Hour
	}
	return time.Duration(takes.Int64() + b%3)
}

// next returns the next moment at which a call ends or the head of a queue may
// be served.
func (d *bucketDriver) next() (next time.Time, ok bool) {
	consider := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	for _, w := range d.waits {
		if !w.over && !w.deadline.IsZero() {
			consider(w.deadline)
		}
	}
	for _, m := range d.models {
		if len(m.queue) == 0 || m.queue[0].ready() {
			continue
		}
		head := m.queue[0]
		if delay, ok := m.until(big.NewInt(head.n - head.behind)); ok {
			consider(time.Now().Add(delay))
		}
	}
	return next, ok
}

// advance lets time pass, from one event to the next.
func (d *bucketDriver) advance(by time.Duration) {
	end := time.Now().Add(by)
	if end.After(d.end) {
		return
	}
	d.note("%v pass", by)
	for {
		next, ok := d.next()
		if !ok || next.After(end) {
			break
		}
		d.pass(time.Until(next))
		for _, w := range d.waits {
			// At the same instant it may go either way.
			if !w.over && w.deadline.Equal(next) && w.ended() && w.err != nil {
				d.note("call %p times out", w)
				w.leave(context.DeadlineExceeded)
			}
		}
		settleModels(d.models)
		d.check()
	}
	d.pass(time.Until(end))
}

func (d *bucketDriver) pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
	for _, m := range d.models {
		m.flow(by)
	}
}

// check compares everything there is to see, at rest.
func (d *bucketDriver) check() {
	synctest.Wait()
	d.waits = slices.DeleteFunc(d.waits, func(w *modelWait) bool {
		ended := w.ended()
		if ended != w.over {
			require.Failf(d.t, "call against model", "call %p: over %v, %v; the model says %v", w, ended, w.err, w.over)
		}
		if ended && w.err != w.want {
			require.Equal(d.t, w.want, w.err, "call %p", w)
		}
		return ended
	})
	for i, b := range d.buckets {
		d.checkBucket(i, b, d.models[i])
	}
}

func (d *bucketDriver) checkBucket(i int, b *TokenBucket, m *bucketModel) {
	for _, p := range m.promises {
		if got, want := p.Delay(), max(0, time.Until(p.at)); got != want {
			require.Equal(d.t, want, got, "the delay of a promise of %d at %d", p.n, i)
		}
	}
	if b.fast.Load() != nil && d.byte()%4 > 0 {
		return // looking would close it
	}
	if got, want := b.Tokens(), floor(m.level); got != want {
		require.Equal(d.t, want, got, "tokens at %d", i)
	}
	checkBucketInvariants(d.t, b)
	b.lock()
	have := new(big.Rat).Add(rat(b.have.whole), big.NewRat(b.have.part, m.per))
	waiters := b.queue.len
	b.mu.Unlock()
	if have.Cmp(m.level) != 0 {
		require.Equal(d.t, m.level.RatString(), have.RatString(), "the level at %d", i)
	}
	require.Equal(d.t, len(m.queue), waiters, "waiters at %d", i)
	require.Equal(d.t, m.rate, b.Rate())
	require.Equal(d.t, m.burst, b.Burst())
	for _, n := range []int64{1, m.burst, math.MaxInt64} {
		want, ok := m.delay(n)
		switch {
		case n == 0:
			want = 0
		case !ok:
			want = math.MaxInt64
		}
		require.Equal(d.t, want, b.RetryAfter(n), "RetryAfter(%d) at %d", n, i)
	}
}

// finish lets everybody have what they wait for, and looks at the end.
func (d *bucketDriver) finish() {
	d.end = d.end.AddDate(10, 0, 0) // there is always time for that
	for i, b := range d.buckets {
		d.note("the end of bucket %d", i)
		require.NoError(d.t, b.SetRate(Every(time.Nanosecond)))
		d.models[i].setRate(Every(time.Nanosecond))
		b.Return(math.MaxInt64) // what is promised may be more than comes in a century
		d.models[i].put(rat(math.MaxInt64))
		settleModels(d.models)
		d.check()
	}
	for len(d.waits) > 0 {
		next, ok := d.next()
		if !ok || time.Until(next) > 1000*time.Hour { // 1<<62 tokens
			require.True(d.t, slices.ContainsFunc(d.waits, func(w *modelWait) bool { return w.places[0].n > 1<<51 }),
				"somebody waits for nothing")
			d.cancelWait()
			d.check()
			continue
		}
		d.advance(time.Until(next))
		d.check()
	}
	for _, b := range d.buckets {
		require.Nil(d.t, b.queue.head)
		require.Nil(d.t, b.timer)
	}
}

func TestTokenBucket_DoesWhatTheModelDoes(t *testing.T) {
	r := testRandom(t)
	for steps := 0; steps < bucketModelSteps; {
		synctest.Test(t, func(t *testing.T) {
			steps += runBucketModel(t, randomBytes(r, 1000))
		})
		if t.Failed() {
			return
		}
	}
}

// Taking at random times what is there leads, to the token, to what the rate
// and the time say.
func TestTokenBucket_ExactOverTenYears(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for _, rate := range []Rate{Per(7, time.Minute), PerSecond(999_983), Per(3, 10*time.Second), Every(24 * time.Hour)} {
		for _, burst := range []int64{1, 1000, 1 << 20, 1 << 40} {
			for _, looking := range []bool{false, true} {
				t.Run(fmt.Sprintf("rate=%v/burst=%d/looking=%v", rate, burst, looking), func(t *testing.T) {
					r := testRandom(t)
					synctest.Test(t, func(t *testing.T) { exactOver(t, r, years, rate, burst, looking) })
				})
			}
		}
	}
}

// exactOver takes tokens for so long. If looking, Tokens keeps the bucket on its
// slow path.
func exactOver(t *testing.T, r *rand.Rand, total time.Duration, rate Rate, burst int64, looking bool) {
	const steps = 4000 // so many that the largest of the buckets is never full
	b, err := NewTokenBucket(rate, burst)
	require.NoError(t, err)
	m := newBucketModel(rate, burst)
	began := time.Now()
	require.True(t, b.Allow(burst))
	m.take(burst)
	lost, taken := new(big.Rat), rat(burst) // lost: to a bucket that was full
	for i := range steps {
		left := total - time.Since(began)
		d := 1 + time.Duration(r.Int64N(max(1, int64(left)/int64(steps-i)*2-1)))
		if i == steps-1 {
			d = left
		}
		time.Sleep(d)
		in := new(big.Rat).Mul(big.NewRat(rate.tokens, int64(rate.per)), rat(int64(d)))
		was := m.level
		m.flow(d)
		lost.Add(lost, in.Sub(in.Add(in, was), m.level))

		there := floor(m.level)
		if looking {
			require.Equal(t, there, b.Tokens())
		}
		if b.Allow(there + 1) {
			require.Fail(t, "made a token", "step %d", i)
		}
		if there > 0 && i%3 > 0 {
			n := 1 + r.Int64N(there)
			if i%3 == 1 {
				n = there // to the last
			}
			if !b.Allow(n) {
				require.Fail(t, "lost a token", "step %d", i)
			}
			m.take(n)
			taken.Add(taken, rat(n))
		}
	}
	require.Equal(t, total, time.Since(began))
	if !looking && burst <= maxUnits/int64(rate.per) {
		require.NotNil(t, b.fast.Load(), "must have been on the fast path")
	}
	end := new(big.Rat).Mul(big.NewRat(rate.tokens, int64(rate.per)), rat(int64(total)))
	end.Add(end, rat(burst)).Sub(end, lost).Sub(end, taken)
	require.Equal(t, floor(end), b.Tokens(), "burst + rate x time - what was taken or found no room")
	if burst == 1<<40 {
		require.Zero(t, lost.Sign(), "the large bucket is never full")
	}
}
