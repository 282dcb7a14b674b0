// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"net/http"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/seq"
)

// renderer writes one wire format; openai's are the renderers.
type renderer interface {
	Begin(dst []byte, index int, usage *openai.Usage) []byte
	Piece(dst []byte, index int, p text.Piece, usage *openai.Usage) []byte
	Finish(dst []byte, index int, f openai.Finish, usage *openai.Usage) []byte
	Close(dst []byte, usage *openai.Usage) []byte
	Fail(dst []byte, err error) []byte
	Whole(dst []byte, choices []openai.Choice, usage *openai.Usage) []byte
}

// newSink makes the sink that the request asks for.
func (x *exchange) newSink(r renderer, p *openai.Params, choices int) sink {
	if p.Stream {
		return &eventSink{x: x, render: r, begun: make([]bool, choices)}
	}
	s := &wholeSink{x: x, render: r, logprobs: p.Logprobs >= 0, choices: make([]openai.Choice, choices), texts: make([][]byte, choices)}
	for i := range s.choices {
		s.choices[i].Index = i
	}
	return s
}

// eventSink streams server-sent events: one write per event of the engine.
type eventSink struct {
	x      *exchange
	render renderer
	begun  []bool // by choice
	buf    []byte
}

func (s *eventSink) prompt(int, []seq.Token) {}

func (s *eventSink) begin(index int, usage *openai.Usage) {
	if !s.begun[index] {
		s.begun[index] = true
		s.buf = s.render.Begin(s.buf, index, usage)
	}
}

func (s *eventSink) piece(index int, p text.Piece, usage *openai.Usage) {
	s.begin(index, usage)
	s.buf = s.render.Piece(s.buf, index, p, usage)
}

func (s *eventSink) finish(index int, f openai.Finish, usage *openai.Usage) {
	s.begin(index, usage)
	s.buf = s.render.Finish(s.buf, index, f, usage)
}

func (s *eventSink) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	x := s.x
	if x.status == 0 {
		h := x.w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
		x.header(http.StatusOK, "text/event-stream")
	}
	x.push()
	_, err := x.w.Write(s.buf)
	if err == nil {
		err = x.control.Flush()
	}
	s.buf = s.buf[:0]
	if err != nil {
		return gone(err)
	}
	return nil
}

// idle keeps proxies and clients waiting while a long prompt is computed.
func (s *eventSink) idle() error {
	s.buf = append(s.buf, ": waiting\n\n"...)
	return s.flush()
}

func (s *eventSink) close(usage *openai.Usage, err error) error {
	switch {
	case err == nil:
		s.buf = s.render.Close(s.buf, usage)
		return s.flush()
	case s.x.status == 0:
		return err // nothing was sent: it can still be an answer of its own
	}
	s.buf = s.render.Fail(s.buf[:0], err)
	if failed := s.flush(); failed != nil {
		return failed
	}
	return err
}

// wholeSink collects an answer.
type wholeSink struct {
	x        *exchange
	render   renderer
	logprobs bool
	choices  []openai.Choice
	texts    [][]byte // by choice
}

func (s *wholeSink) prompt(index int, tokens []seq.Token) {
	s.choices[index].Prompt = append(s.choices[index].Prompt, tokens...)
}

func (s *wholeSink) piece(index int, p text.Piece, _ *openai.Usage) {
	s.texts[index] = append(s.texts[index], p.Text...)
	if s.logprobs {
		s.choices[index].Tokens = append(s.choices[index].Tokens, p.Tokens...)
	}
}

func (s *wholeSink) finish(index int, f openai.Finish, _ *openai.Usage) { s.choices[index].Finish = f }

func (s *wholeSink) flush() error { return nil }
func (s *wholeSink) idle() error  { return nil }

func (s *wholeSink) close(usage *openai.Usage, err error) error {
	if err != nil {
		return err
	}
	for i := range s.choices {
		s.choices[i].Text = string(s.texts[i])
	}
	return s.x.json(http.StatusOK, s.render.Whole(nil, s.choices, usage))
}
