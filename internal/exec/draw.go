// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"math"

	"github.com/metrale/metrale/internal/seq"
)

// Policy is how a token is drawn, ready for the device: sample.Policy, field by field.
type Policy struct {
	Greedy     bool    // the largest logit
	Scale      float32 // x = (logit - max) * Scale
	Low        float32 // least x that may be drawn
	Sigmas     float32 // of top-n-sigma; 0: all
	TopK       uint32  // 0: all
	TopP       uint64  // share of the mass in units of 2^-64; 0: all
	Repetition float32 // 1: none
	Frequency  float32
	Presence   float32
	Seed       uint64
}

func (p *Policy) penalizes() bool { return p.Repetition != 1 || p.Frequency != 0 || p.Presence != 0 }

// Draw is what the device does with a row of logits.
type Draw struct {
	Out      int32          // index into the step's OutRows
	Seat     int32          // keeps the token, for Feed; -1: none
	Token    int32          // not drawn, but given: only its log-probability is wanted; -1: draw
	Policy   Policy         // of a drawn one
	Index    uint64         // how many tokens its sequence has generated before
	Banned   bool           // the seat's banned tokens may not come
	Mask     func([]uint32) // sets bit t%32 of word t/32 of each token t that may come, while the step runs; nil: all. For grammars, which nothing asks for yet
	Logprobs int            // -1: none; how many of the likeliest tokens are wanted, at most MaxBest
}

// MaxBest is how many of the likeliest tokens a Draw may ask for.
const MaxBest = 64

// MaxEdits is how many tokens a seat may bias and ban.
const MaxEdits = 1024

// Drawn is the outcome of a Draw. The log-probability of a logit l is l - Top - log(Total), Total in units of 2^-44, as
// sample.Norm and sample.Logprob compute it.
type Drawn struct {
	Token int32
	Err   error         // why there is none: the logits are no numbers, or nothing is allowed
	Logit float32       // of Token, as the model gave it
	Top   float32       // with Logprobs: the largest logit
	Total uint64        // with Logprobs: the sum of masses
	Best  []seq.Logprob // with Logprobs: logits of the likeliest tokens, falling; valid until the second Start from now
}

// Seating is what a sequence brings to its seat beside its policy.
type Seating struct {
	Bias   []seq.Bias
	Banned []int32
	Counts []seq.Count // of prompt and text; nil when its policy has no penalties
}

// drawRow is a row of the sampler, as the kernels read it (kernels/cuda/common/sample/row.cuh).
type drawRow [drawWords]int32

const drawWords = 20

// Flags of a drawRow.
const (
	drawGreedy = 1 << iota
	drawRank
	drawCounts
)

func (r *drawRow) long(at int, v uint64) { r[at], r[at+1] = int32(v), int32(v>>32) }

func (r *drawRow) float(at int, v float32) { r[at] = int32(math.Float32bits(v)) }

// draw writes a row that draws a token.
func (r *drawRow) draw(d *Draw, s *seat, mask int32) {
	p := &d.Policy
	flags := int32(0)
	if p.Greedy {
		flags |= drawGreedy
	}
	if p.penalizes() {
		flags |= drawCounts
	}
	bans := int32(0)
	if d.Banned {
		bans = s.bans
	}
	*r = drawRow{0: d.Out, 1: flags, 2: d.Seat, 3: -1, 13: int32(p.TopK), 17: mask, 18: s.biases, 19: bans}
	r.long(4, d.Index)
	r.long(6, p.Seed)
	r.long(8, p.TopP)
	r.float(10, p.Scale)
	r.float(11, p.Low)
	r.float(12, p.Sigmas)
	r.float(14, p.Repetition)
	r.float(15, p.Frequency)
	r.float(16, p.Presence)
}

// rank writes a row that finds the likeliest tokens and the sum of masses.
func (r *drawRow) rank(d *Draw) {
	*r = drawRow{0: d.Out, 1: drawRank, 2: -1, 3: d.Token, 13: int32(d.Logprobs), 17: -1}
	r.float(10, 1)
	r.float(11, float32(math.Inf(-1)))
	r.float(14, 1)
}
