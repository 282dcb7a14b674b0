// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"

	"github.com/metrale/metrale/internal/seq"
)

// greedyBelow is the temperature under which the likeliest token is taken.
const greedyBelow = 1e-5

// Policy is a seq.Sampling made ready to draw by. What needs a division or a logarithm is computed here, once and on the host;
// a device that draws takes the same fields.
type Policy struct {
	Greedy     bool    // the largest logit
	Scale      float32 // x = (logit - max) * Scale
	Low        float32 // least x that may be drawn: the cutoff, or min-p's
	Sigmas     float32 // of top-n-sigma; 0: all
	TopK       uint32  // 0: all
	TopP       uint64  // share of the mass in units of 2^-64; 0: all
	Repetition float32 // 1: none
	Frequency  float32
	Presence   float32
	Seed       uint64
}

// NewPolicy prepares a policy, which must have passed Check.
func NewPolicy(p *seq.Sampling) Policy {
	out := Policy{
		Greedy: p.Temperature < greedyBelow, Scale: 1, Low: cutoff, Sigmas: p.TopNSigma, TopK: uint32(min(p.TopK, maxVocab)),
		Repetition: p.RepetitionPenalty, Frequency: p.FrequencyPenalty, Presence: p.PresencePenalty, Seed: p.Seed,
	}
	if !out.Greedy {
		out.Scale = 1 / p.Temperature
	}
	if p.MinP > 0 {
		out.Low = max(out.Low, float32(math.Log(float64(p.MinP))))
	}
	if p.TopP < 1 {
		out.TopP = max(1, uint64(float64(p.TopP)*(1<<64)))
	}
	return out
}

// Penalizes says whether it matters which tokens were seen.
func (p *Policy) Penalizes() bool {
	return p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0
}
