// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
)

// exchange is one request and what became of it.
type exchange struct {
	s       *Server
	r       *http.Request
	w       http.ResponseWriter
	control *http.ResponseController
	id      string
	route   string // as the metrics call it
	status  int    // 0: nothing was written
	begun   time.Time
	job     *job      // nil: nothing was generated
	counted bool      // in the server's inFlight
	pixels  int64     // bytes of images, counted in the server's
	bytes   int64     // of the body, counted in the server's bodies
	pushed  time.Time // when the client was last given time to take something
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler) // its connection is closed
	}
	defer s.handlers.Done()
	x := &exchange{s: s, r: r, w: w, control: http.NewResponseController(w), id: requestID(r), begun: time.Now()}
	w.Header().Set("X-Request-Id", x.id)
	x.push()
	defer x.done()
	handle, err := x.find()
	if err == nil {
		err = handle(x)
	}
	if err != nil {
		x.fail(err)
	}
}

// done ends the exchange: a panic becomes an error, and the log and the metrics hear of it. When the answer has begun by then,
// nobody knows how far it came: the connection is cut, so that the client does not take it for whole.
func (x *exchange) done() {
	if x.counted {
		x.s.inFlight.Add(-1)
	}
	x.s.pixels.Add(-x.pixels)
	x.s.bodies.Add(-x.bytes)
	cut := false
	if p := recover(); p != nil {
		cut = x.status != 0
		x.s.log.Error("a handler has panicked", "id", x.id, "path", x.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		x.fail(diag.Errorf(diag.Internal, "the handler failed"))
	}
	took := time.Since(x.begun)
	x.s.metrics.request(x.route, x.status)
	level := slog.LevelInfo
	if x.route == routeHealth || x.route == routeMetrics {
		level = slog.LevelDebug
	}
	attrs := []any{"id", x.id, "method", x.r.Method, "path", x.r.URL.Path, "status", x.status, "ms", took.Milliseconds()}
	if x.job != nil {
		attrs = append(attrs, x.job.logged()...)
	}
	x.s.log.Log(x.r.Context(), level, "request", attrs...)
	if cut {
		panic(http.ErrAbortHandler)
	}
}

// requestID is the client's, when it is short and plain, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if len(id) == 0 || len(id) > 128 {
		return newID()
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return newID()
		}
	}
	return id
}

// newID is 26 random letters and digits.
func newID() string { return rand.Text() }

// header writes the status line once.
func (x *exchange) header(status int, contentType string) {
	x.status = status
	x.w.Header().Set("Content-Type", contentType)
	x.w.WriteHeader(status)
}

// json answers with a JSON text.
func (x *exchange) json(status int, body []byte) error {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.header(status, "application/json")
	x.push()
	if _, err := x.w.Write(body); err != nil {
		return gone(err)
	}
	return nil
}

// push gives the client time to take what is written next.
func (x *exchange) push() {
	if now := time.Now(); now.Sub(x.pushed) > WriteTimeout/10 {
		x.pushed = now
		_ = x.control.SetWriteDeadline(now.Add(WriteTimeout)) // a recorder in tests has none
	}
}

// gone is the error for a connection that has ended.
func gone(err error) error { return diag.Errorf(diag.Canceled, "the client went away").Because(err) }

// fail answers with an error, unless an answer has begun.
func (x *exchange) fail(err error) {
	status := diag.HTTPStatus(err)
	if status >= 500 && !diag.Is(err, diag.Overloaded) {
		x.s.log.Error("request failed", "id", x.id, "error", detail(err))
	} else {
		x.s.log.Debug("request refused", "id", x.id, "error", detail(err))
	}
	if x.status != 0 {
		return
	}
	if diag.Is(err, diag.Canceled) {
		x.status = status // nobody reads it
		return
	}
	if status == http.StatusServiceUnavailable {
		x.w.Header().Set("Retry-After", "1")
	}
	if e := (*http.MaxBytesError)(nil); errors.As(err, &e) {
		status = http.StatusRequestEntityTooLarge
	}
	if e := (*methodError)(nil); errors.As(err, &e) {
		status = http.StatusMethodNotAllowed
		x.w.Header().Set("Allow", e.allowed)
	}
	if status == http.StatusUnauthorized {
		x.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = x.json(status, openai.AppendError(nil, err)) // the client may be gone
}

func detail(err error) string {
	if e, ok := diag.As(err); ok {
		return e.Detail()
	}
	return err.Error()
}

// body reads the request's body. A client that stops sending is cut off. Its memory counts until the exchange ends, for the
// conversation is a part of it.
func (x *exchange) body() ([]byte, error) {
	if n := x.r.ContentLength; n > x.s.opts.MaxBody {
		return nil, x.tooLarge(nil)
	}
	in := &patient{x.control, http.MaxBytesReader(x.w, x.r.Body, x.s.opts.MaxBody)}
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			var err error
			if buf, err = x.roomFor(buf); err != nil {
				return nil, err
			}
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			_ = x.control.SetReadDeadline(time.Time{})
			return buf, nil
		case errors.As(err, new(*http.MaxBytesError)):
			return nil, x.tooLarge(err)
		case err != nil:
			return nil, diag.Errorf(diag.Invalid, "the request body ended early").Because(err)
		}
	}
}

// roomFor gives a body that is read twice the room, and no more than it says that it has. What it only promises takes none.
func (x *exchange) roomFor(buf []byte) ([]byte, error) {
	size := max(2*cap(buf), firstRead)
	if n := x.r.ContentLength; n >= int64(len(buf)) {
		size = min(size, int(n)+1) // one more, to find the end
	}
	more := int64(size - cap(buf))
	x.bytes += more
	if x.s.bodies.Add(more) > maxBodies {
		return nil, diag.Errorf(diag.Overloaded, "the bodies of all requests take more than %d bytes", int64(maxBodies))
	}
	return append(make([]byte, 0, size), buf...), nil
}

func (x *exchange) tooLarge(err error) error {
	if err == nil {
		err = &http.MaxBytesError{Limit: x.s.opts.MaxBody}
	}
	return diag.Errorf(diag.Invalid, "the request body is larger than %d bytes", x.s.opts.MaxBody).Because(err)
}

// patient reads a body, giving the client BodyTimeout for each part.
type patient struct {
	control *http.ResponseController
	in      io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(BodyTimeout)) // a recorder in tests has none
	return p.in.Read(b)
}
