package debug

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/ration-go/ration/leasepprof"
)

// ServeHTTP answers with the page, or with what ?format= asks for.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // "no-referrer" would make browsers hide the Origin of our own forms
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	if !p.opts.Authorize(r) {
		http.Error(w, "Forbidden: this page is for requests from the machine itself, unless Options.Authorize says otherwise.", http.StatusForbidden)
		return
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		p.show(w, r)
	case r.Method == http.MethodPost && p.opts.Revoke:
		p.revoke(w, r)
	default:
		h.Set("Allow", "GET, HEAD")
		if p.opts.Revoke {
			h.Set("Allow", "GET, HEAD, POST")
		}
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	}
}

func (p *Page) show(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	order := parseOrder(query.Get("sort"), query.Get("order"))
	var body bytes.Buffer // so that a slow reader holds nothing, and an error is not half a page
	var contentType string
	var err error
	switch query.Get("format") {
	case "", "html":
		contentType = "text/html; charset=utf-8"
		err = pageTemplate.Execute(&body, p.view(order))
	case "json":
		contentType = "application/json"
		err = p.writeJSON(&body, order)
	case "pprof":
		contentType = "application/octet-stream"
		w.Header().Set("Content-Disposition", `attachment; filename="leases.pb.gz"`)
		err = leasepprof.Write(&body, p.lenders()...)
	default:
		http.Error(w, "Bad Request: format is none of html, json and pprof", http.StatusBadRequest)
		return
	}
	if err != nil {
		http.Error(w, "Internal Server Error: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.Write(body.Bytes())
}

func (p *Page) writeJSON(body *bytes.Buffer, order order) error {
	r := p.report(order)
	for i := range r.Pools {
		r.Pools[i].History = r.Pools[i].points()
	}
	for i := range r.Semaphores {
		r.Semaphores[i].History = r.Semaphores[i].points()
	}
	for i := range r.Buckets {
		r.Buckets[i].History = r.Buckets[i].points()
	}
	e := json.NewEncoder(body)
	e.SetIndent("", "\t")
	return e.Encode(r)
}

func (p *Page) lenders() []leasepprof.Lender {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lenders []leasepprof.Lender
	for _, e := range p.entries {
		if e.source.lender == nil {
			continue
		}
		if l := e.source.lender(); l != nil {
			lenders = append(lenders, l)
		}
	}
	return lenders
}

// revoke takes back the lease that the form names, and sends the browser back to
// the page. That the lease has ended meanwhile, or the pool is gone, is no error:
// the page shows it.
func (p *Page) revoke(w http.ResponseWriter, r *http.Request) {
	// Two locks. The token alone would do, as long as no other site can read the
	// page; the headers alone would do, if every browser sent them.
	if err := new(http.CrossOriginProtection).Check(r); err != nil {
		http.Error(w, "Forbidden: "+err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	form := r.PostForm // not what is in the URL, which gets into logs
	if subtle.ConstantTimeCompare([]byte(form.Get("token")), []byte(p.token)) != 1 {
		http.Error(w, "Forbidden: the request is not from a page of this process. It may have been restarted; load the page again.", http.StatusForbidden)
		return
	}
	key, err := strconv.Atoi(form.Get("pool"))
	id, err2 := strconv.ParseUint(form.Get("lease"), 10, 64)
	if err != nil || err2 != nil {
		http.Error(w, "Bad Request: pool and lease have to be numbers", http.StatusBadRequest)
		return
	}
	if lender := p.lender(key); lender != nil {
		lender.Revoke(id)
	}
	// Relative to the URL the browser knows, whatever prefixes have been stripped.
	w.Header().Set("Location", parseOrder(form.Get("sort"), form.Get("order")).link()+"#source-"+strconv.Itoa(key))
	w.WriteHeader(http.StatusSeeOther)
}
