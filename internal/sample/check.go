// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

// Check refuses a policy that cannot be followed, with diag.Invalid for the field in the API's spelling.
func Check(p *seq.Sampling, vocab int) error {
	if vocab > maxVocab {
		return diag.Errorf(diag.Unsupported, "a vocabulary of %d tokens; at most %d can be sampled from", vocab, maxVocab)
	}
	for _, f := range []struct {
		param  string
		v      float32
		lo, hi float64
	}{
		{"temperature", p.Temperature, 0, math.MaxFloat32},
		{"top_p", p.TopP, math.SmallestNonzeroFloat32, 1},
		{"min_p", p.MinP, 0, 1},
		{"top_n_sigma", p.TopNSigma, 0, math.MaxFloat32},
		{"repetition_penalty", p.RepetitionPenalty, math.SmallestNonzeroFloat32, math.MaxFloat32},
		{"presence_penalty", p.PresencePenalty, -2, 2},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2},
	} {
		v := float64(f.v)
		switch {
		case v >= f.lo && v <= f.hi:
		case f.hi == 1 && f.lo > 0:
			return invalid(f.param, "%s is %v, it must be above 0 and at most 1", f.param, f.v)
		case f.hi == 1:
			return invalid(f.param, "%s is %v, it must be from 0 to 1", f.param, f.v)
		case f.lo > 0:
			return invalid(f.param, "%s is %v, it must be finite and above 0", f.param, f.v)
		case f.lo == 0:
			return invalid(f.param, "%s is %v, it must be finite and not negative", f.param, f.v)
		default:
			return invalid(f.param, "%s is %v, it must be from %v to %v", f.param, f.v, f.lo, f.hi)
		}
	}
	if p.TopK < 0 {
		return invalid("top_k", "top_k is %d, it must be 0 (all) or more", p.TopK)
	}
	for i, b := range p.LogitBias {
		switch {
		case b.Token < 0 || int(b.Token) >= vocab:
			return invalid("logit_bias", "logit_bias names token %d; this model's ids are 0 to %d", b.Token, vocab-1)
		case math.IsNaN(float64(b.Value)) || math.IsInf(float64(b.Value), 0):
			return invalid("logit_bias", "logit_bias of token %d is %v, it must be finite", b.Token, b.Value)
		case i > 0 && b.Token <= p.LogitBias[i-1].Token:
			return diag.Errorf(diag.Internal, "logit_bias is not ascending at token %d", b.Token)
		}
	}
	return nil
}

func invalid(param, format string, args ...any) error {
	return diag.Errorf(diag.Invalid, format, args...).For(param)
}
