// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import "github.com/metrale/metrale/internal/diag"

// Evaluate runs one sequence alone on a runner with an empty cache: the prompt in chunks of at most chunk rows (0: as large
// as fit), then greedy single steps. It gives the logits of every prompt row and the greedy ids. Pages and slot 0 are used from the start.
func Evaluate(r Runner, prompt []int32, chunk, greedy int) (logits [][]float32, ids []int32, err error) {
	l := r.Limits()
	if most := int(min(l.Rows, l.Outs)); chunk <= 0 || chunk > most {
		chunk = most
	}
	if need := len(prompt) + max(greedy-1, 0); int64(need) > l.PageSize*min(l.Pages, int64(l.NumPages)) {
		return nil, nil, diag.Errorf(diag.TooLong, "%d tokens, the cache holds %d", need, l.PageSize*min(l.Pages, int64(l.NumPages)))
	}
	for _, t := range prompt {
		if t < 0 || int(t) >= l.Vocab {
			return nil, nil, diag.Errorf(diag.Invalid, "token %d is not in the vocabulary of %d", t, l.Vocab).For("ids")
		}
	}
	s := single{runner: r, limits: l}
	for len(prompt) > 0 {
		n := min(chunk, len(prompt))
		rows, err := s.run(prompt[:n])
		if err != nil {
			return nil, nil, err
		}
		for _, row := range rows {
			logits = append(logits, append([]float32(nil), row...))
		}
		prompt = prompt[n:]
	}
	if len(logits) == 0 {
		return nil, nil, diag.Errorf(diag.Invalid, "no tokens").For("ids")
	}
	next := logits[len(logits)-1]
	for len(ids) < greedy {
		ids = append(ids, argmax(next))
		if len(ids) == greedy {
			break
		}
		rows, err := s.run(ids[len(ids)-1:])
		if err != nil {
			return nil, nil, err
		}
		next = rows[0]
	}
	return logits, ids, nil
}

// single is one sequence that owns the whole cache.
type single struct {
	runner Runner
	limits Limits
	pos    int32
}

// run appends tokens to the sequence and gives the logits of each.
func (s *single) run(tokens []int32) ([][]float32, error) {
	n := int32(len(tokens))
	step := Step{Tokens: tokens, CuRows: []int32{0, n}, StateSlot: []int32{0}, Fresh: []int32{0}}
	if s.pos == 0 {
		step.Fresh[0] = 1
	}
	for i := range n {
		step.Positions = append(step.Positions, s.pos+i)
		step.Slots = append(step.Slots, s.pos+i)
		step.RowSeq = append(step.RowSeq, 0)
		step.OutRows = append(step.OutRows, i)
	}
	s.pos += n
	pages := make([]int32, (int64(s.pos)+s.limits.PageSize-1)/s.limits.PageSize)
	for i := range pages {
		pages[i] = int32(i)
	}
	step.Pages = [][]int32{pages}
	return s.runner.Run(&step)
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
