// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/metrale/metrale/internal/diag"
)

// Limits of connections.
const (
	HeaderTimeout = 10 * time.Second  // for a request's headers
	BodyTimeout   = 30 * time.Second  // for the next part of its body
	WriteTimeout  = 60 * time.Second  // for a client to take the next part of an answer
	IdleTimeout   = 120 * time.Second // between requests
	headerBytes   = 64 << 10
)

// DefaultMaxBody is the longest body that is read, when Options do not say.
const DefaultMaxBody = 32 << 20

// Bounds of all requests together.
const (
	maxRequests = 1024    // that are decoded, rendered and answered at a time
	maxBodies   = 1 << 30 // bytes of their bodies, and of those that are being read
	firstRead   = 4 << 10 // bytes of a body that are made room for before any came
)

// Options of New.
type Options struct {
	Version string
	Tokens  []string     // credentials that are accepted; none: everybody is
	MaxBody int64        // bytes; 0: DefaultMaxBody
	Log     *slog.Logger // nil: none
}

// Server answers requests. It starts in the state loading.
type Server struct {
	opts     Options
	log      *slog.Logger
	tokens   [][sha256.Size]byte
	http     *http.Server
	model    atomic.Pointer[Model]
	draining atomic.Bool
	started  time.Time
	inFlight atomic.Int64
	decoding chan struct{} // holds one for each image file that is decoded
	pixels   atomic.Int64  // bytes of the images of all requests
	bodies   atomic.Int64  // and of their bodies
	metrics  *metrics

	handlers sync.WaitGroup
	gate     sync.RWMutex // of closed
	closed   bool         // no handler begins any more
}

// New makes a server.
func New(o Options) *Server {
	s := &Server{opts: o, log: o.Log, started: time.Now(), decoding: make(chan struct{}, maxDecoding)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.MaxBody == 0 {
		s.opts.MaxBody = DefaultMaxBody
	}
	for _, t := range o.Tokens {
		s.tokens = append(s.tokens, sha256.Sum256([]byte(t)))
	}
	s.metrics = newMetrics(s, prometheus.NewRegistry())
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: HeaderTimeout, IdleTimeout: IdleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers on a listener until Shutdown; it gives nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return diag.Errorf(diag.IO, "the listener on %s failed", l.Addr()).Because(err)
	}
	return nil
}

// Ready begins to answer with a model, which must not change any more.
func (s *Server) Ready(m *Model) {
	m.prepare()
	s.model.Store(m)
}

// Shutdown refuses new work, waits until what runs has ended or ctx has, and ends the server with whatever is left: it closes all
// connections and waits for their handlers, which then come to their ends by themselves. The model's engine stays open, but
// takes nothing any more.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	var err error
	if m := s.model.Load(); m != nil {
		err = m.Engine.Drain(ctx)
	}
	if err == nil {
		err = s.http.Shutdown(ctx)
	}
	err = errors.Join(err, s.http.Close())
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.handlers.Wait()
	return err
}

// enter counts a handler that begins, unless the server has ended.
func (s *Server) enter() bool {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if !s.closed {
		s.handlers.Add(1)
	}
	return !s.closed
}

// current is the model, or the reason why there is none.
func (s *Server) current() (*Model, error) {
	m := s.model.Load()
	switch {
	case s.draining.Load():
		return nil, diag.Errorf(diag.Overloaded, "the server is shutting down")
	case m == nil:
		return nil, diag.Errorf(diag.Overloaded, "the model is still loading")
	}
	return m, nil
}
