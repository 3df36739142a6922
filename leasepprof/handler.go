package leasepprof

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"weak"
)

// Options are the options of a [Handler]. The zero value is that of a handler
// for this machine only.
type Options struct {
	// Authorize says whether a request may be answered. Nil is [Local].
	Authorize func(*http.Request) bool
}

// A Handler serves a profile of the pools that have been added to it. It has no
// hold on them: a pool that the program has dropped is no longer in the profile,
// and is not kept alive.
//
// It answers GET and HEAD, and others with 405. What it may not answer gets 403.
// It may be mounted at any path. It is safe for concurrent use.
type Handler struct {
	authorize func(*http.Request) bool

	mu    sync.Mutex // guards pools; no other lock is taken under it
	pools []func() Lender
}

// NewHandler returns a handler without pools. Nil options are the defaults.
func NewHandler(opts *Options) *Handler {
	h := &Handler{authorize: Local}
	if opts != nil && opts.Authorize != nil {
		h.authorize = opts.Authorize
	}
	return h
}

// Add adds a pool, usually a [*ration.Pool], to what h shows, and holds it
// weakly. It is a function because Go infers P and T only here; nobody has to
// write them. A nil pool panics.
func Add[T any, P interface {
	*T
	Lender
}](h *Handler, pool P) {
	if pool == nil {
		panic("leasepprof: Add: nil pool")
	}
	w := weak.Make((*T)(pool))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.liveLocked() // those that come and go leave nothing behind
	h.pools = append(h.pools, func() Lender {
		if p := w.Value(); p != nil {
			return P(p)
		}
		return nil
	})
}

// liveLocked returns the pools that are there and forgets the others.
func (h *Handler) liveLocked() []Lender {
	var live []Lender
	kept := h.pools[:0]
	for _, pool := range h.pools {
		if p := pool(); p != nil {
			live = append(live, p)
			kept = append(kept, pool)
		}
	}
	clear(h.pools[len(kept):])
	h.pools = kept
	return live
}

// ServeHTTP answers with the profile of now. See [Write].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if !h.authorize(r) {
		http.Error(w, "Forbidden: this profile is for requests from the machine itself, unless Options.Authorize says otherwise.", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	h.mu.Lock()
	pools := h.liveLocked()
	h.mu.Unlock()

	var profile bytes.Buffer
	Write(&profile, pools...) // a Buffer does not fail
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", `attachment; filename="leases.pb.gz"`)
	header.Set("Content-Length", strconv.Itoa(profile.Len()))
	w.Write(profile.Bytes())
}
