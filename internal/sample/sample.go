// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"

	"github.com/metrale/metrale/internal/seq"
)

// greedyBelow is the temperature under which the likeliest token is taken.
const greedyBelow = 1e-5

// Seq is what sampling keeps of one sequence: its policy and, when there are penalties, how often tokens were seen.
type Seq struct {
	policy    *seq.Sampling
	penalized bool
	seen      counts
}

// Reset begins a sequence. policy must have passed Check and is kept.
func (s *Seq) Reset(policy *seq.Sampling, prompt []int32) {
	s.policy = policy
	s.penalized = policy.RepetitionPenalty != 1 || policy.PresencePenalty != 0 || policy.FrequencyPenalty != 0
	s.seen.reset()
	if s.penalized {
		for _, t := range prompt {
			s.seen.at(t)
		}
	}
}

// Accept appends a token to the sequence's text.
func (s *Seq) Accept(token int32) {
	if s.penalized {
		s.seen.at(token).text++
	}
}

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
	if r.Allowed != nil || len(r.Banned) > 0 || s.penalized || len(s.policy.LogitBias) > 0 {
		l = w.adjust(s, &r)
	}
	best, err := argmax(l)
	if err != nil || s.policy.Temperature < greedyBelow {
		return best, err
	}
	return w.draw(s.policy, l, l[best], r.Index), nil
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
	for _, b := range s.policy.LogitBias {
		if int(b.Token) < len(l) {
			l[b.Token] = finite(l[b.Token] + b.Value)
		}
	}
	if s.penalized {
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

func (s *Seq) penalize(l []float32) {
	p := s.policy
	for _, e := range s.seen.entries {
		if int(e.token) >= len(l) {
			continue
		}
		v := l[e.token]
		if v > 0 {
			v /= p.RepetitionPenalty
		} else {
			v *= p.RepetitionPenalty
		}
		if e.text > 0 {
			v -= p.FrequencyPenalty * float32(e.text)
			v -= p.PresencePenalty
		}
		l[e.token] = finite(v)
	}
}

// finite keeps what policy made of a logit below +Inf, and -Inf what it is.
func finite(v float32) float32 { return min(v, math.MaxFloat32) }

// draw is steps 6 to 11 for a row whose largest logit is top.
func (w *Scratch) draw(p *seq.Sampling, l []float32, top float32, index uint64) int32 {
	low := float64(cutoff)
	if p.TopNSigma > 0 {
		low = max(low, -float64(p.TopNSigma)*deviation(l, top)/float64(p.Temperature))
	}
	if p.MinP > 0 {
		low = max(low, math.Log(float64(p.MinP)))
	}
	scale := 1 / p.Temperature
	if p.TopK > 0 && p.TopK <= smallK {
		w.top = largest(l, p.TopK, w.top[:0])
		low = max(low, float64((w.top[len(w.top)-1].Value-top)*scale))
	}
	c := &w.cand
	c.gather(l, top, scale, float32(low))
	if p.TopK > 0 && p.TopK < len(c.ids) { // equal ones at the end are one too many
		c.keepCount(p.TopK)
	}
	c.weigh()
	if p.TopP < 1 {
		c.keepMass(float64(p.TopP) * c.total)
	}
	return c.pick(Uniform(p.Seed, index) * c.total)
}

// deviation is the standard deviation of the finite logits.
func deviation(l []float32, top float32) float64 {
	n := 0
	var sum, squares [2]float64 // two of each, for two additions at a time
	for i, v := range l {
		if v > negInf {
			d := float64(v) - float64(top)
			n++
			sum[i&1] += d
			squares[i&1] += d * d
		}
	}
	mean := (sum[0] + sum[1]) / float64(n)
	return math.Sqrt(max(0, (squares[0]+squares[1])/float64(n)-mean*mean))
}
