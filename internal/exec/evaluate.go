// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

// Sequence says what is to be evaluated.
type Sequence struct {
	Prompt []int32
	Images []*seq.Image // of the prompt, rising by First
	Chunk  int          // most rows of a step; 0: as large as fit
	Greedy int          // continue greedily by so many tokens
	Draft  bool         // run the draft head over the prompt
}

// Numbers are what a model says of a sequence.
type Numbers struct {
	Logits [][]float32 // of every prompt row
	Greedy []int32
	Drafts [][]float32 // logits of the draft head: row t, which knows the prompt's token t+1, about token t+2
}

// Evaluate runs one sequence alone on a runner with an empty cache: the prompt in chunks of at most chunk rows (0: as large
// as fit), then greedy single steps. It gives the logits of every prompt row and the greedy ids. Pages and slot 0 are used from the start.
func Evaluate(r Runner, prompt []int32, chunk, greedy int) (logits [][]float32, ids []int32, err error) {
	n, err := evaluate(context.Background(), r, nil, Sequence{Prompt: prompt, Chunk: chunk, Greedy: greedy})
	if err != nil {
		return nil, nil, err
	}
	return n.Logits, n.Greedy, nil
}

// Evaluate is the function, with images and drafts. When ctx ends, it gives diag.Canceled before the next step.
func (m *Model) Evaluate(ctx context.Context, s Sequence) (*Numbers, error) {
	return evaluate(ctx, m, m, s)
}

// check refuses what a model of these limits cannot run.
func (q *Sequence) check(l *Limits) error {
	if need, room := int64(len(q.Prompt)+max(q.Greedy-1, 0)), l.PageSize*min(l.Pages, int64(l.NumPages)); need > room {
		return diag.Errorf(diag.TooLong, "%d tokens, the cache holds %d", need, room)
	}
	for _, t := range q.Prompt {
		if t < 0 || int(t) >= l.Vocab {
			return diag.Errorf(diag.Invalid, "token %d is not in the vocabulary of %d", t, l.Vocab).For("ids")
		}
	}
	if len(q.Prompt) == 0 {
		return diag.Errorf(diag.Invalid, "no tokens").For("ids")
	}
	return nil
}

// evaluate runs a sequence; m is the runner where parts beside the decoder are wanted.
func evaluate(ctx context.Context, r Runner, m *Model, q Sequence) (*Numbers, error) {
	l := r.Limits()
	chunk := q.Chunk
	if most := int(min(l.Rows, l.Outs)); chunk <= 0 || chunk > most {
		chunk = most
	}
	if err := q.check(&l); err != nil {
		return nil, err
	}
	s := single{ctx: ctx, runner: r, model: m, limits: l, images: q.Images}
	for _, im := range q.Images {
		f, err := m.Encode(im)
		if err != nil {
			return nil, err
		}
		s.features = append(s.features, f)
	}
	n := &Numbers{}
	for at := 0; at < len(q.Prompt); at += chunk {
		tokens := q.Prompt[at:min(at+chunk, len(q.Prompt))]
		rows, err := s.run("", tokens, at)
		if err != nil {
			return nil, err
		}
		n.Logits = appendRows(n.Logits, rows)
		if !q.Draft {
			continue
		}
		next := append([]int32(nil), q.Prompt[at+1:min(at+1+len(tokens), len(q.Prompt))]...)
		if len(next) < len(tokens) {
			next = append(next, argmax(n.Logits[len(n.Logits)-1]))
		}
		if rows, err = s.run(Draft, next, at); err != nil {
			return nil, err
		}
		n.Drafts = appendRows(n.Drafts, rows)
	}
	next := n.Logits[len(n.Logits)-1]
	for at := len(q.Prompt); len(n.Greedy) < q.Greedy; at++ {
		n.Greedy = append(n.Greedy, argmax(next))
		if len(n.Greedy) == q.Greedy {
			break
		}
		rows, err := s.run("", n.Greedy[len(n.Greedy)-1:], at)
		if err != nil {
			return nil, err
		}
		next = rows[0]
	}
	return n, nil
}

// appendRows adds copies.
func appendRows(to, rows [][]float32) [][]float32 {
	for _, row := range rows {
		to = append(to, append([]float32(nil), row...))
	}
	return to
}

// single is one sequence that owns the whole cache.
type single struct {
	ctx      context.Context
	runner   Runner
	model    *Model
	limits   Limits
	images   []*seq.Image
	features []*Features
}

// run computes rows at the positions from at on and gives the logits of each. A draft head's rows are those of the decoder's
// last step, each with the token behind it.
func (s *single) run(part string, tokens []int32, at int) ([][]float32, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, diag.Errorf(diag.Canceled, "evaluation was interrupted: %w", err)
	}
	n := len(tokens)
	step := Step{Part: part, Tokens: tokens, CuRows: []int32{0, int32(n)}, StateSlot: []int32{0}, Fresh: []int32{0}}
	if at == 0 {
		step.Fresh[0] = 1
	}
	for i := range n {
		step.Positions = append(step.Positions, int32(at+i))
		step.Slots = append(step.Slots, int32(at+i))
		step.RowSeq = append(step.RowSeq, 0)
		step.OutRows = append(step.OutRows, int32(i))
	}
	pages := make([]int32, (int64(at+n)+s.limits.PageSize-1)/s.limits.PageSize)
	for i := range pages {
		pages[i] = int32(i)
	}
	step.Pages = [][]int32{pages}
	if s.images != nil {
		step.Coords = make([][3]int32, n)
		seq.Coords(s.images, at, step.Coords)
	}
	first := at // the token of the first row
	if part == Draft {
		first++
		step.HiddenRow = step.OutRows
	}
	s.putFeatures(&step, first, n)
	return s.runner.Run(&step)
}

// putFeatures gives rows whose tokens are of images their features. The first row has token first.
func (s *single) putFeatures(step *Step, first, n int) {
	pool := 0
	for i, im := range s.images {
		lo, hi := max(im.First, first), min(im.First+im.Tokens(), first+n)
		if lo >= hi {
			continue
		}
		for len(step.FeatureRow) < lo-first {
			step.FeatureRow = append(step.FeatureRow, -1)
		}
		pool = s.model.PutFeatures(step, s.features[i], lo-im.First, hi-lo, pool)
	}
	for step.FeatureRow != nil && len(step.FeatureRow) < n {
		step.FeatureRow = append(step.FeatureRow, -1)
	}
}

// argmax is the first of the largest values.
func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}
