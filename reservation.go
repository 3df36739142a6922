package ration

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Reservation is a promise of [TokenBucket.Reserve]: whoever holds it may act
// once [Reservation.Delay] is 0, or cancel it. It is a small value whose copies are
// the same reservation. The zero Reservation is one that could not be made.
type Reservation struct {
	// A pointer, because copies have to agree on what was cancelled, and nobody but
	// the reservation could remember that: the bucket does not get to know when a
	// holder acts, so a table of its own would only ever grow.
	promise *promise
}

type promise struct {
	bucket *TokenBucket
	n      int64
	at     int64  // by the bucket's clock
	number uint64 // in the order of the bucket's reservations

	canceled bool // guarded by bucket.mu
}

// minLevel bounds how deep reservations may put a bucket in debt.
const minLevel = math.MinInt64 / 2

// Reserve takes n tokens now for use later, behind all that wait. If that can
// never be, because n exceeds the burst or the rate is 0, nothing is taken and
// the reservation is not OK. It panics if n is negative.
//
// It allocates nothing unless the reservation outlives the function that made it;
// then it allocates once.
func (b *TokenBucket) Reserve(n int64) Reservation {
	// This much is inlined into the caller, so that the promise can be on its stack.
	p := &promise{n: n}
	if !b.reserve(p) {
		return Reservation{}
	}
	return Reservation{p}
}

func (b *TokenBucket) reserve(p *promise) bool {
	checkTokens("TokenBucket.Reserve", p.n)
	b.lock()
	defer b.mu.Unlock()
	p.bucket, p.at = b, b.asOf
	if p.n == 0 {
		return true
	}
	d, ok := b.delay(p.n)
	if !ok || b.have.whole < minLevel+p.n || !b.promisable(p.n) {
		return false
	}
	b.have.whole -= p.n
	b.promised += uint64(p.n)
	b.calm = 0
	p.at += int64(d)
	p.number = b.rooms.open()
	return true
}

// promisable reports whether n more can be promised behind the head of the queue
// so that what it wants still fits into an int64. Nobody has more behind it.
func (b *TokenBucket) promisable(n int64) bool {
	head := b.queue.head
	return head == nil || b.promised-uint64(head.behind)+uint64(n) <= 1<<63
}

// OK reports whether the reservation could be made.
func (r Reservation) OK() bool { return r.promise != nil }

// Delay returns how long it still is until the holder may act, 0 if it may now,
// and the largest Duration if the reservation is not OK.
func (r Reservation) Delay() time.Duration {
	if r.promise == nil {
		return math.MaxInt64
	}
	return time.Duration(max(0, r.promise.at-r.promise.bucket.clock.now()))
}

// Cancel says that the holder will not act. The first Cancel gives the tokens
// back, as far as they would be there if the reservation had never been made, so
// not those for which the bucket has been too full since, and moves the waiters
// up. It may come after the reservation's time as well. Reservations made later
// keep their time.
func (r Reservation) Cancel() {
	if r.promise != nil {
		r.promise.bucket.cancel(r.promise)
	}
}

func (b *TokenBucket) cancel(p *promise) {
	b.lock()
	if !p.canceled && p.n > 0 {
		p.canceled = true
		b.add(b.rooms.undo(p.number, p.n, b.rate).level())
		for w := b.queue.head; w != nil && uint64(w.since) < p.number; w = w.next {
			// It has stood before the promise, which was nothing to it. While a head that
			// stood there cannot be served, there is room for more than burst - n, so all
			// of n came back (but for what compact has forgotten). If it is a joint
			// waiter that could be, less may have, and it still can.
			w.behind += p.n
		}
	}
	b.unlock()
}

// A room is how many tokens a bucket could hold more: whole ones and a part of
// one, as in a level.
type room struct {
	whole uint64
	part  int64
}

func (r room) less(s room) bool {
	return r.whole < s.whole || r.whole == s.whole && r.part < s.part
}

func (r room) atMost(n int64) room {
	if r.whole >= uint64(n) {
		return room{whole: uint64(n)}
	}
	return r
}

func (r room) level() level { return level{whole: int64(r.whole), part: r.part} }

// minus returns r - s, at the rate rate. s must not be more than r.
func (r room) minus(s room, rate Rate) room {
	d := room{whole: r.whole - s.whole, part: r.part - s.part}
	if d.part < 0 {
		d.whole, d.part = d.whole-1, d.part+int64(rate.per)
	}
	return d
}

// rooms remembers how full a bucket has been since each of its reservations.
//
// Without a reservation of n the bucket would hold n more than it does, but
// never more than its burst: the most it can be given back is the least room
// there has been since. So of all the rooms noted, each with the number of the
// last reservation before it, only those are kept that are less than all that
// were noted later. They are in order, of number and of size, and the first with
// a reservation's number or a later one is the least since that reservation.
//
// Once a reservation is canceled, the rooms since are those of a bucket in which
// it was never made: less by what it is given back. Otherwise the same room would
// be given back to each of several reservations.
type rooms struct {
	number   uint64 // of the last reservation
	void     uint64 // up to this number nothing can be given back: the bucket has been full since
	tracking bool   // there are later ones
	least    []noted
}

type noted struct {
	number uint64
	room
}

// maxNoted bounds the memory. It is reached only by a bucket that owes as many
// reservations at once, or is never full.
const maxNoted = 1024

// open returns the number of a new reservation.
func (r *rooms) open() uint64 {
	r.number++
	r.tracking = true
	return r.number
}

func (r *rooms) note(now room) {
	if now == (room{}) {
		r.void, r.tracking, r.least = r.number, false, r.least[:0]
		return
	}
	for len(r.least) > 0 && !r.least[len(r.least)-1].room.less(now) {
		r.least = r.least[:len(r.least)-1]
	}
	if n := len(r.least); n > 0 && r.least[n-1].number == r.number {
		return
	}
	if len(r.least) == maxNoted {
		r.compact()
	}
	r.least = append(r.least, noted{r.number, now})
}

// compact leaves at most half of the entries: of those that are close to each
// other, the one with the least room stands for all. A reservation is given back
// less than it might then, by at most a five-hundredth of what is owed.
func (r *rooms) compact() {
	from, to := r.least[0].whole, r.least[len(r.least)-1].whole
	step := max(1, (to-from)/(maxNoted/2-1))
	kept := 0
	for _, n := range r.least[1:] {
		if n.whole-r.least[kept].whole < step {
			r.least[kept].number = n.number
		} else {
			kept++
			r.least[kept] = n
		}
	}
	r.least = r.least[:kept+1]
}

// undo makes the reservation of n with the given number one that was never made,
// and returns what that gives back: the least room since, or n. There must have
// been a note since.
func (r *rooms) undo(number uint64, n int64, rate Rate) room {
	if number <= r.void {
		return room{}
	}
	i, _ := slices.BinarySearchFunc(r.least, number, func(n noted, number uint64) int {
		return cmp.Compare(n.number, number)
	})
	back := r.least[i].room.atMost(n)
	for j := range r.least[i:] {
		r.least[i+j].room = r.least[i+j].room.minus(back, rate)
	}
	first := i // of those that earlier entries are not less than any more
	for first > 0 && !r.least[first-1].room.less(r.least[i].room) {
		first--
	}
	if r.least[i].room == (room{}) {
		r.void, i = r.least[i].number, i+1
		r.tracking = r.void < r.number
	}
	r.least = slices.Delete(r.least, first, i)
	return back
}

func (r *rooms) rescale(from, to Rate) {
	for i := range r.least {
		r.least[i].part = rescale(r.least[i].part, from, to)
	}
}
