// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"io"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/sched"
	"github.com/metrale/metrale/internal/seq"
)

// Stream is a running sequence. One goroutine reads it; Close may come from another.
type Stream struct {
	engine    *Engine
	id        seq.ID
	request   seq.Request
	unwatch   func() bool   // stops watching the context of Submit
	submitted int64         // engine time
	notify    chan struct{} // holds one: there is something to read

	// Of the device thread alone.
	sampler sample.Seq
	joined  bool        // the router knows it
	seat    int32       // on a device that draws, while joined
	gone    bool        // it has ended
	past    int         // images whose tokens are computed
	prompt  []seq.Token // echoed so far
	drawn   seq.Token   // by the last step
	hold    bool        // drawn is a stop token, which nobody sees
	text    int         // tokens generated
	last    int64       // when the last token came; 0: none yet

	mu       sync.Mutex
	ready    seq.Event   // what Next will give; its Finish is the end
	spare    []seq.Token // the tokens of the event before, to be used again
	hasEvent bool
	over     bool // the last event was given, or nobody will read
}

// ID names the sequence in logs.
func (s *Stream) ID() seq.ID { return s.id }

// Next gives everything that came since the last call: it waits for at least one token or the end. After the event with
// Finish set, and after Close, it gives io.EOF; when ctx ends, diag.Canceled, and the sequence goes on.
//
// Tokens of the event are valid until the next call (what their Top points to stays).
func (s *Stream) Next(ctx context.Context) (seq.Event, error) {
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return seq.Event{}, io.EOF
		}
		if s.hasEvent {
			ev := s.ready
			s.ready = seq.Event{Tokens: s.spare[:0], StopToken: -1}
			s.spare = ev.Tokens
			s.hasEvent, s.over = false, ev.Finish != seq.Running
			s.mu.Unlock()
			return ev, nil
		}
		s.mu.Unlock()
		select {
		case <-s.notify:
		case <-ctx.Done():
			return seq.Event{}, diag.Errorf(diag.Canceled, "waiting for tokens was interrupted: %w", ctx.Err())
		}
	}
}

// Close says that nobody reads any more: the sequence is canceled unless it has ended. It may be called more than once.
func (s *Stream) Close() {
	s.cancel()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.signal()
}

// cancel asks the device thread to end the sequence.
func (s *Stream) cancel() {
	s.mu.Lock()
	ended := s.over || s.hasEvent && s.ready.Finish != seq.Running
	s.mu.Unlock()
	if ended {
		return
	}
	s.engine.mu.Lock()
	s.engine.post(message{sched.Event{Kind: sched.Cancel, ID: s.id}, s})
	s.engine.mu.Unlock()
}

// signal wakes the reader without ever waiting for it.
func (s *Stream) signal() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// push adds a token to what Next will give.
func (s *Stream) push(t seq.Token) {
	s.mu.Lock()
	if !s.over {
		s.begin()
		s.ready.Tokens = append(s.ready.Tokens, t)
	}
	s.mu.Unlock()
	s.signal()
}

// finish adds the end.
func (s *Stream) finish(end *sched.End) {
	s.mu.Lock()
	if !s.over {
		if len(s.prompt) < len(s.request.Prompt) {
			s.prompt = nil // it ended before the echo was whole
		}
		s.begin()
		s.ready.Finish, s.ready.StopToken, s.ready.Err = end.Finish, end.StopToken, end.Err
	}
	s.mu.Unlock()
	s.signal()
}

// begin makes an event ready; the first one carries the echoed prompt. mu is held.
func (s *Stream) begin() {
	if s.hasEvent {
		return
	}
	s.hasEvent = true
	s.ready.StopToken = -1
	s.ready.Prompt, s.prompt = s.prompt, nil
}
