// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"
	"math/bits"

	"github.com/metrale/metrale/internal/seq"
)

// Seq is what sampling keeps of one sequence: its policy and, when there are penalties, how often tokens were seen.
type Seq struct {
	policy Policy
	bias   []seq.Bias
	seen   counts
}

// Reset begins a sequence. policy must have passed Check; its LogitBias is kept.
func (s *Seq) Reset(policy *seq.Sampling, prompt []int32) {
	s.policy, s.bias = NewPolicy(policy), policy.LogitBias
	s.seen.reset()
	if s.policy.Penalizes() {
		for _, t := range prompt {
			s.seen.at(t)
		}
	}
}

// Restore begins a sequence in its middle, with what another Seq had as Policy, bias and Seen.
func (s *Seq) Restore(p Policy, bias []seq.Bias, seen []seq.Count) {
	s.policy, s.bias = p, bias
	s.seen.reset()
	for _, c := range seen {
		*s.seen.at(c.Token) = c
	}
}

// Accept appends a token to the sequence's text.
func (s *Seq) Accept(token int32) {
	if s.policy.Penalizes() {
		s.seen.at(token).Text++
	}
}

// Policy is the sequence's policy.
func (s *Seq) Policy() *Policy { return &s.policy }

// Seen is how often each token was seen, when there are penalties; valid until the next Accept.
func (s *Seq) Seen() []seq.Count { return s.seen.entries }

// Row is one row of logits from which a token is drawn.
type Row struct {
	Logits  []float32 // [vocab]; only read
	Index   uint64    // how many tokens the sequence has generated before
	Allowed []uint32  // bit t%32 of word t/32: token t may come; nil: all, tokens beyond the words may not
	Banned  []int32   // tokens that may not come; those outside the vocabulary are ignored
}

// Scratch is the work space of sampling. The zero value is ready; it grows to the vocabulary's size.
type Scratch struct {
	logits []float32  // a row that mask, bias and penalties changed
	cand   candidates // what filters left
	top    []seq.Logprob
}

// smallK is the top-k up to which a heap over the row is cheaper than selecting among all candidates.
const smallK = 512

// Sample draws the next token. Errors have code diag.Internal: the row is unusable.
func (w *Scratch) Sample(s *Seq, r Row) (int32, error) {
	l := r.Logits
	if r.Allowed != nil || len(r.Banned) > 0 || s.policy.Penalizes() || len(s.bias) > 0 {
		l = w.adjust(s, &r)
	}
	best, err := argmax(l)
	if err != nil || s.policy.Greedy {
		return best, err
	}
	return w.draw(&s.policy, l, l[best], r.Index), nil
}

// adjust copies the row and applies steps 2 to 5.
func (w *Scratch) adjust(s *Seq, r *Row) []float32 {
	l := append(w.logits[:0], r.Logits...)
	w.logits = l
	if r.Allowed != nil {
		mask(l, r.Allowed)
	}
	for _, t := range r.Banned {
		if t >= 0 && int(t) < len(l) {
			l[t] = negInf
		}
	}
	for _, b := range s.bias {
		if int(b.Token) < len(l) {
			l[b.Token] = finite(l[b.Token] + b.Value)
		}
	}
	if s.policy.Penalizes() {
		s.penalize(l)
	}
	return l
}

// mask makes every token -Inf whose bit is not set.
func mask(l []float32, allowed []uint32) {
	for i := 0; i < len(l); i += 32 {
		var word uint32
		if i/32 < len(allowed) {
			word = allowed[i/32]
		}
		if word == math.MaxUint32 {
			continue
		}
		for j := range l[i:min(i+32, len(l))] {
			if word>>j&1 == 0 {
				l[i+j] = negInf
			}
		}
	}
}

// penalize rounds every operation to float32, as a conversion demands of the compiler.
func (s *Seq) penalize(l []float32) {
	p := &s.policy
	for _, e := range s.seen.entries {
		if int(e.Token) >= len(l) {
			continue
		}
		v := l[e.Token]
		if v > 0 {
			v /= p.Repetition
		} else {
			v *= p.Repetition
		}
		if e.Text > 0 {
			v -= float32(p.Frequency * float32(e.Text))
			v -= p.Presence
		}
		l[e.Token] = finite(v)
	}
}

// finite keeps what policy made of a logit below +Inf, and -Inf what it is.
func finite(v float32) float32 { return min(v, math.MaxFloat32) }

// draw is steps 6 to 11 for a row whose largest logit is top.
func (w *Scratch) draw(p *Policy, l []float32, top float32, index uint64) int32 {
	low := p.Low
	if p.Sigmas > 0 {
		low = max(low, float32(-float64(p.Sigmas)*deviation(l)*float64(p.Scale)))
	}
	k := int(p.TopK)
	if k > 0 && k <= smallK {
		w.top = largest(l, k, w.top[:0])
		low = max(low, (w.top[len(w.top)-1].Value-top)*p.Scale)
	}
	c := &w.cand
	c.gather(l, top, p.Scale, low)
	if k > 0 && k < len(c.ids) { // equal ones at the end are one too many
		c.keep(uint64(k))
	}
	total := c.weigh()
	if p.TopP > 0 {
		_, total = c.reach(part(total, p.TopP), c.ws)
	}
	r, _ := bits.Mul64(total, Random(p.Seed, index))
	i, _ := c.reach(r+1, c.ws)
	return c.ids[i]
}
