// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/seq"
)

// A job is what one request generates: sequences on the engine, one per choice, and the sink that takes their text.
type job struct {
	x       *exchange
	m       *Model
	params  *openai.Params
	echo    bool // texts begin with their prompts
	choices []*choice
	seed    uint64
	stops   *text.Stops // these two are of all choices
	stopIDs []int32

	mu    sync.Mutex // of what follows: choices are followed by goroutines of their own
	sink  sink
	usage openai.Usage
	first time.Time // of the first token
}

// choice is one sequence.
type choice struct {
	index    int
	request  seq.Request
	stream   *engine.Stream
	text     *text.Stream
	finish   seq.Finish // how its text ended
	verbatim string     // the prompt as the client wrote it, for echo; "" when it gave ids
}

// sink takes what the choices say. All of it is called with the job's lock held.
type sink interface {
	// prompt takes a choice's echoed prompt, scored takes its log-probabilities.
	prompt(index int, tokens []seq.Token)
	piece(index int, p text.Piece, usage *openai.Usage)
	finish(index int, f openai.Finish, usage *openai.Usage)
	// flush ends an event of the engine; idle says that none has come for a while.
	flush() error
	idle() error
	// close ends the answer; err is what went wrong, if anything did.
	close(usage *openai.Usage, err error) error
}

// newJob begins a job of so many prompts. Nothing is made of any before it is known that their choices are not too many.
func (x *exchange) newJob(m *Model, p *openai.Params, prompts int, echo bool) (*job, error) {
	if n := prompts * p.N; n > m.MaxSequences {
		return nil, diag.Errorf(diag.Invalid, "n: %d choices in all, this server takes %d", n, m.MaxSequences).For("n")
	}
	j := &job{x: x, m: m, params: p, echo: echo, seed: rand.Uint64(), stops: text.NewStops(p.Stop), stopIDs: p.StopIDs(m.EOS)}
	if p.Seed != nil {
		j.seed = uint64(*p.Seed)
	}
	x.job = j
	return j, nil
}

// add makes the choices of one prompt. field is what the client calls it.
func (j *job) add(ids []int32, images []*seq.Image, verbatim, field string) error {
	context := j.m.Engine.Context()
	for n := range j.params.N {
		r := j.params.Request(ids, n, j.seed, j.stopIDs, j.echo)
		r.Images = images
		if r.MaxTokens < 0 {
			r.MaxTokens = max(context-len(ids), 1)
		}
		r.MinTokens = min(r.MinTokens, r.MaxTokens)
		if n == 0 {
			if err := j.m.Engine.Check(&r); err != nil {
				return rename(err, field)
			}
		}
		c := &choice{index: len(j.choices), request: r, verbatim: verbatim}
		c.text = text.New(text.Options{
			Decoder: j.m.decoder(ids, j.echo, j.params.SkipSpecial), Stop: j.stops,
			IncludeStop: j.params.IncludeStop, MinTokens: j.params.MinTokens,
		})
		j.choices = append(j.choices, c)
	}
	j.usage.Prompt += len(ids)
	return nil
}

// rename gives an error of the prompt the field that the client wrote it in.
func rename(err error, field string) error {
	if e, ok := diag.As(err); ok && (e.Param == "prompt" || e.Param == "") {
		named := *e // err may be shared with other requests
		return named.For(field)
	}
	return err
}

// run submits all choices and follows them to their ends.
func (j *job) run(s sink) error {
	j.sink = s
	ctx, cancel := context.WithCancelCause(j.x.r.Context())
	defer cancel(nil)
	defer func() {
		for _, c := range j.choices {
			if c.stream != nil {
				c.stream.Close()
			}
		}
	}()
	var err error
	for i, c := range j.choices {
		if c.stream, err = j.m.Engine.Submit(ctx, c.request); err != nil {
			for _, begun := range j.choices[:i] {
				begun.finish = seq.Canceled
				j.ended(begun, nil)
			}
			return err
		}
	}
	if len(j.choices) == 1 {
		err = j.follow(ctx, j.choices[0])
	} else {
		err = j.followAll(ctx, cancel)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return s.close(&j.usage, err)
}

// followAll follows each choice in a goroutine; the first error ends the others. A panic of one goes on in the caller, who
// answers for it.
func (j *job) followAll(ctx context.Context, cancel context.CancelCauseFunc) error {
	var all sync.WaitGroup
	panics := make(chan any, len(j.choices))
	for _, c := range j.choices {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
					cancel(diag.Errorf(diag.Internal, "a choice has failed"))
				}
			}()
			if err := j.follow(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	switch err := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return gone(err)
	default:
		return err
	}
}

// follow carries the events of one choice to the sink.
func (j *job) follow(ctx context.Context, c *choice) (err error) {
	defer func() { j.ended(c, err) }()
	next := j.firstEvent
	for {
		ev, err := next(ctx, c)
		if err != nil {
			return err
		}
		next = nextEvent
		ended, err := j.event(c, &ev)
		if err != nil || ended {
			return err
		}
	}
}

// ended frees what a choice holds and counts how it ended.
func (j *job) ended(c *choice, err error) {
	c.stream.Close()
	why := c.finish
	switch {
	case diag.Is(err, diag.Canceled):
		why = seq.Canceled
	case err != nil, why == seq.Running: // or a panic goes through here
		why = seq.Failed
	}
	j.x.s.metrics.finish(why)
}

func nextEvent(ctx context.Context, c *choice) (seq.Event, error) { return c.stream.Next(ctx) }

// idleAfter is how long a client is left without a word.
const idleAfter = 15 * time.Second

// firstEvent waits until the prompt is computed, which may take long.
func (j *job) firstEvent(ctx context.Context, c *choice) (seq.Event, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, idleAfter)
		ev, err := c.stream.Next(wait)
		cancel()
		if !diag.Is(err, diag.Canceled) || ctx.Err() != nil {
			return ev, err
		}
		if err = j.idle(); err != nil {
			return ev, err
		}
	}
}

func (j *job) idle() error {
	j.mu.Lock()
	defer j.mu.Unlock() // also when it panics: other choices wait for it
	return j.sink.idle()
}

// event takes one event of a choice and says whether the choice has ended.
func (j *job) event(c *choice, ev *seq.Event) (ended bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(ev.Prompt) > 0 {
		j.prompt(c, ev.Prompt)
	}
	if len(ev.Tokens) > 0 && j.first.IsZero() {
		j.first = time.Now()
	}
	for _, t := range ev.Tokens {
		if j.push(c, t) {
			return true, j.sink.flush()
		}
	}
	switch ev.Finish {
	case seq.Failed:
		_ = j.sink.flush() // what came before is told
		return true, ev.Err
	case seq.Canceled:
		return true, diag.Errorf(diag.Canceled, "the sequence was canceled")
	case seq.Stopped, seq.Length:
		j.end(c, ev)
		ended = true
	}
	return ended, j.sink.flush()
}

// prompt hands on an echoed prompt.
func (j *job) prompt(c *choice, tokens []seq.Token) {
	if j.params.PromptLogprobs >= 0 {
		j.sink.prompt(c.index, tokens)
	}
	if !j.echo {
		return
	}
	var whole text.Piece
	var kept []text.Token
	for _, t := range tokens {
		p := c.text.Prompt(t)
		whole.Text += p.Text
		kept = append(kept, p.Tokens...)
	}
	if c.verbatim != "" {
		whole.Text = c.verbatim
	}
	whole.Tokens = kept
	j.sink.piece(c.index, whole, &j.usage)
}

// push hands on a token, and says whether it completed a stop string.
func (j *job) push(c *choice, t seq.Token) bool {
	j.usage.Completion++
	p, stopped := c.text.Push(t)
	j.piece(c, p)
	if stopped {
		word, _ := c.text.Stopped()
		j.finish(c, openai.Finish{Reason: seq.Stopped, Stop: word, StopToken: -1})
	}
	return stopped
}

func (j *job) piece(c *choice, p text.Piece) {
	if p.Text != "" || len(p.Tokens) > 0 {
		j.sink.piece(c.index, p, &j.usage)
	}
}

// end hands on what is left when the engine has ended the sequence.
func (j *job) end(c *choice, ev *seq.Event) {
	f := openai.Finish{Reason: ev.Finish, StopToken: -1}
	if ev.Finish == seq.Stopped && slices.Contains(j.params.StopTokenIDs, ev.StopToken) {
		f.StopToken = ev.StopToken
		unknown := float32(math.NaN()) // the engine tells no log-probability of it
		if j.params.IncludeStop && j.push(c, seq.Token{ID: ev.StopToken, Logprob: unknown}) {
			return
		}
	}
	p, stopped := c.text.End()
	j.piece(c, p)
	if stopped {
		word, _ := c.text.Stopped()
		f = openai.Finish{Reason: seq.Stopped, Stop: word, StopToken: -1}
	}
	j.finish(c, f)
}

func (j *job) finish(c *choice, f openai.Finish) {
	c.finish = f.Reason
	j.sink.finish(c.index, f, &j.usage)
}

// logged is what the access log says of the job.
func (j *job) logged() []any {
	out := []any{"prompt_tokens", j.usage.Prompt, "completion_tokens", j.usage.Completion}
	if !j.first.IsZero() {
		out = append(out, "ttft_ms", j.first.Sub(j.x.begun).Milliseconds())
	}
	return out
}
