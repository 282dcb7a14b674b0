// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fakeHub speaks the hub's API for one repository, org/model. Files of more than 1000 bytes are "large": the hub redirects
// to a storage on another host for them. What goes wrong is set by fields.
type fakeHub struct {
	t        *testing.T
	hub, cdn *httptest.Server

	mu       sync.Mutex
	commit   string
	files    map[string][]byte
	token    string          // if set, the hub wants it
	gated    bool            // its terms were not accepted
	cut      map[string]int  // file → how many bytes the storage sends before it cuts the connection, each time
	cuts     map[string]int  // file → how many times it cuts
	stall    map[string]bool // file → the storage sends half, once, and then nothing
	garble   map[string]int  // file → how many times the storage sends other content
	noRange  bool            // the storage ignores Range
	shifted  bool            // it answers another range than asked for
	fail     []int           // statuses of the next answers of the hub
	etag     string          // if set, that of every file
	otherSHA string          // if set, the X-Repo-Commit of files
	log      []string        // "METHOD path" of every request, with " Range" behind those that have one
	hold     chan struct{}   // if set, the storage waits for it
}

func newHub(t *testing.T, files map[string]string) *fakeHub {
	h := &fakeHub{t: t, commit: commitA, files: map[string][]byte{}, cut: map[string]int{}, cuts: map[string]int{}, stall: map[string]bool{}, garble: map[string]int{}}
	for n, c := range files {
		h.files[n] = []byte(c)
	}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.cdn = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	return h
}

// options are those of a client that waits for nothing.
func (h *fakeHub) options(cache string) Options {
	return Options{Env: Env{Endpoint: h.hub.URL, Cache: cache}, pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// requests counts the logged requests that contain s.
func (h *fakeHub) requests(s string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.log {
		if strings.Contains(l, s) {
			n++
		}
	}
	return n
}

func (h *fakeHub) note(server string, r *http.Request) {
	line := server + " " + r.Method + " " + r.URL.Path
	if r.Header.Get("Range") != "" {
		line += " Range"
	}
	h.log = append(h.log, line)
}

func etagOf(content []byte) string {
	if len(content) > 1000 {
		return fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content)))
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("hub", r)
	refuse := func(status int, code string) {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(status)
	}
	if len(h.fail) > 0 {
		status := h.fail[0]
		h.fail = h.fail[1:]
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		return
	}
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		refuse(401, "RepoNotFound")
		return
	}
	if rev, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/org/model/revision/"); ok {
		rev, _ = url.PathUnescape(rev)
		if rev != "main" && rev != "refs/pr/1" && rev != h.commit {
			refuse(404, "RevisionNotFound")
			return
		}
		type sibling struct {
			Name string `json:"rfilename"`
		}
		answer := map[string]any{"id": "org/model", "sha": h.commit}
		var siblings []sibling
		for n := range h.files {
			siblings = append(siblings, sibling{n})
		}
		answer["siblings"] = siblings
		json.NewEncoder(w).Encode(answer)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/org/model/resolve/")
	rev, rest, _ := strings.Cut(rest, "/")
	if !ok || rev != h.commit && rev != "main" {
		refuse(404, "RepoNotFound")
		return
	}
	content, ok := h.files[rest]
	switch {
	case h.gated:
		refuse(403, "GatedRepo")
		return
	case !ok:
		refuse(404, "EntryNotFound")
		return
	}
	etag := etagOf(content)
	if h.etag != "" {
		etag = h.etag
	}
	w.Header().Set("X-Repo-Commit", h.commit)
	if h.otherSHA != "" {
		w.Header().Set("X-Repo-Commit", h.otherSHA)
	}
	if len(content) > 1000 {
		w.Header().Set("X-Linked-Etag", `"`+etag+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("Location", h.cdn.URL+"/"+rest)
		w.WriteHeader(302)
		return
	}
	w.Header().Set("ETag", `W/"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.note("cdn", r)
	name := r.URL.Path[1:]
	content, cut, hold := h.files[name], 0, h.hold
	if h.cuts[name] > 0 {
		h.cuts[name]--
		cut = h.cut[name]
	}
	stall := h.stall[name]
	h.stall[name] = false
	if h.garble[name] > 0 {
		h.garble[name]--
		content = bytes.Repeat([]byte("?"), len(content))
	}
	noRange, shifted := h.noRange, h.shifted
	h.shifted = false
	h.mu.Unlock()
	if r.Header.Get("Authorization") != "" {
		h.t.Errorf("the token was sent to the storage: %s", r.URL)
	}
	if hold != nil {
		<-hold
	}
	if noRange {
		r.Header.Del("Range")
	}
	if shifted && r.Header.Get("Range") != "" {
		r.Header.Set("Range", "bytes=1-")
	}
	switch {
	case stall:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case cut > 0:
		http.ServeContent(&cutter{w, cut}, r, "", time.Time{}, bytes.NewReader(content))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// cutter sends n bytes of a body and then breaks the connection.
type cutter struct {
	http.ResponseWriter
	n int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) > c.n {
		c.ResponseWriter.Write(b[:c.n])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.n -= len(b)
	return c.ResponseWriter.Write(b)
}
