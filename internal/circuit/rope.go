// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"math"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
)

// ropeKeys are the keys that each kind of rotation reads; every kind also reads those of "".
var ropeKeys = map[string][]string{
	"":        {"rope_type", "type", "rope_theta", "partial_rotary_factor"},
	"default": nil,
	"linear":  {"factor"},
	"llama3":  {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
	"yarn": {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
		"attention_factor", "truncate", "llama_4_scaling_beta", "max_position_embeddings"},
}

// ropeSpec is a rotation as the config gives it, with defaults filled in.
type ropeSpec struct {
	kind                            string
	theta, partial                  float64
	factor, lowFreq, highFreq       float64
	original                        float64 // positions that the model was first trained on
	betaFast, betaSlow              float64
	mscale, mscaleAllDim, attention float64 // 0 = not given
	truncate                        bool
}

// rope reads the rotation in either spelling (rope_parameters, or rope_scaling and rope_theta beside it) and computes the
// table "rope", the dim rot, the param rope_scale and, where the variant scales queries by position, position_*.
func (p *point) rope(v *Variant, tree *modelconf.Node) error {
	params, scaling := p.ropeAt["rope_parameters"], p.ropeAt["rope_scaling"]
	if params != nil && scaling != nil {
		return scaling.Errorf("%s and %s are both given", scaling.Path(), params.Path())
	}
	if params == nil {
		params = scaling
	}
	r := ropeReader{p: p, obj: params, kind: "default"}
	if params != nil {
		if err := r.kindAndKeys(v); err != nil {
			return err
		}
	}
	s := ropeSpec{kind: r.kind, truncate: true}
	s.theta = r.beside("rope_theta", v.Rope.Theta)
	s.partial = r.beside("partial_rotary_factor", max(v.Rope.Partial, 0))
	switch {
	case s.partial == 0:
		s.partial = 1
	case v.Rope.Partial == 0 && s.partial != 1 && r.err == nil:
		n := r.at("partial_rotary_factor")
		r.err = refuse(n, "%s is %s; model_type %s rotates whole heads", n.Path(), literal(n), v.ModelType)
	}
	context := float64(p.dims["context"])
	switch r.kind {
	case "linear":
		s.factor = r.need("factor")
	case "llama3":
		s.factor, s.lowFreq, s.highFreq = r.need("factor"), r.need("low_freq_factor"), r.need("high_freq_factor")
		s.original = r.or("original_max_position_embeddings", context)
	case "yarn":
		s.original = r.or("original_max_position_embeddings", context)
		s.factor = r.or("factor", context/s.original)
		s.betaFast, s.betaSlow = r.or("beta_fast", 32), r.or("beta_slow", 1)
		s.mscale, s.mscaleAllDim, s.attention = r.or("mscale", 0), r.or("mscale_all_dim", 0), r.or("attention_factor", 0)
		if n, ok := params.Child("truncate"); ok && r.err == nil {
			if s.truncate, ok = n.Bool(); !ok {
				r.err = n.Errorf("%s is %s; it must be true or false", n.Path(), literal(n))
			}
		}
	}
	p.dims["position_scale"], p.dims["position_period"], p.params["position_beta"] = 0, 1, 0
	if beta := r.or("llama_4_scaling_beta", 0); v.Rope.PositionScale && beta != 0 {
		p.dims["position_scale"], p.dims["position_period"], p.params["position_beta"] = 1, int64(s.original), beta
	}
	if r.err != nil {
		return r.err
	}
	rot := int64(float64(p.dims["head_dim"]) * s.partial)
	if rot < 2 || rot%2 != 0 || rot > p.dims["head_dim"] || rot > 1<<16 {
		return tree.Errorf("a head of %d with partial_rotary_factor %v rotates %d dims; an even number of them is needed", p.dims["head_dim"], s.partial, rot)
	}
	p.dims["rot"] = rot
	p.tables["rope"], p.params["rope_scale"] = s.table(int(rot))
	return nil
}

// ropeReader reads numbers and keeps the first error.
type ropeReader struct {
	p    *point
	obj  *modelconf.Node // nil: no object
	kind string
	err  error
}

// kindAndKeys finds the kind and refuses keys that it does not read.
func (r *ropeReader) kindAndKeys(v *Variant) error {
	if r.obj.Kind() != modelconf.Object {
		return r.obj.Errorf("%s is %s; it must be an object", r.obj.Path(), r.obj.Kind())
	}
	for _, key := range []string{"type", "rope_type"} {
		n, ok := r.obj.Child(key)
		if !ok || n.IsNull() {
			continue
		}
		kind, _ := n.Str()
		if _, ok := ropeKeys[kind]; !ok || kind == "" {
			return refuse(n, "%s is %s; supported is default, linear, llama3, yarn", n.Path(), literal(n))
		}
		r.kind = kind
	}
	known := slices.Concat(ropeKeys[""], ropeKeys[r.kind])
	if v.Rope.MRope {
		known = append(known, "mrope_section", "mrope_interleaved")
	}
	for i, key := range r.obj.Keys() {
		n := r.obj.Items()[i]
		if n.IsNull() {
			continue
		}
		if !slices.Contains(known, key) || key == "llama_4_scaling_beta" && !v.Rope.PositionScale {
			return refuse(n, "key %s is not known for rope type %s of model_type %s", n.Path(), r.kind, v.ModelType)
		}
	}
	return nil
}

// at is the node of a key in the object, or beside it.
func (r *ropeReader) at(key string) *modelconf.Node {
	if n, ok := r.obj.Child(key); ok && !n.IsNull() {
		return n
	}
	return r.p.ropeAt[key]
}

// beside reads a key that may stand in the object or beside it.
func (r *ropeReader) beside(key string, dflt float64) float64 { return r.read(r.at(key), dflt) }

// or reads a key of the object.
func (r *ropeReader) or(key string, dflt float64) float64 {
	n, _ := r.obj.Child(key)
	return r.read(n, dflt)
}

func (r *ropeReader) need(key string) float64 {
	n, _ := r.obj.Child(key)
	if n.IsNull() && r.err == nil {
		r.err = r.obj.Errorf("%s has no %s, which rope type %s needs", r.obj.Path(), key, r.kind)
	}
	return r.read(n, 1)
}

func (r *ropeReader) read(n *modelconf.Node, dflt float64) float64 {
	if n.IsNull() {
		return dflt
	}
	f, ok := n.Float()
	if (!ok || math.IsNaN(f) || math.IsInf(f, 0) || f < 0) && r.err == nil {
		r.err = n.Errorf("%s is %s; it must be a number of at least 0", n.Path(), literal(n))
	}
	// Zero is no base, no factor and no length; for the optional ones it means "not given".
	if f == 0 && !strings.HasPrefix(n.Key(), "mscale") && n.Key() != "llama_4_scaling_beta" && n.Key() != "attention_factor" && r.err == nil {
		r.err = n.Errorf("%s must not be 0", n.Path())
	}
	return f
}

// table computes the inverse frequencies and the factor on cos and sin, in float32 and in the order of transformers'
// modeling_rope_utils.py. Powers are rounded correctly; PyTorch's vector powf is one unit off in about one of 80.
func (s *ropeSpec) table(rot int) ([]float32, float64) {
	inv := make([]float32, rot/2)
	pow := make([]float32, rot/2)
	for i := range inv {
		x := float32(2*i) / float32(rot)
		pow[i] = float32(math.Pow(float64(float32(s.theta)), float64(x)))
		inv[i] = 1 / pow[i]
	}
	switch s.kind {
	case "linear":
		for i := range inv {
			inv[i] /= float32(s.factor)
		}
	case "llama3":
		s.llama3(inv)
	case "yarn":
		return s.yarn(inv, pow, rot), s.yarnScale()
	}
	return inv, 1
}

// llama3 divides long wavelengths by the factor, keeps short ones, and blends in between.
func (s *ropeSpec) llama3(inv []float32) {
	low, high := float32(s.original/s.lowFreq), float32(s.original/s.highFreq)
	for i, f := range inv {
		// number / tensor is reciprocal * number in PyTorch, here and below.
		wave := float32(1/f) * float32(2*math.Pi)
		if wave > low {
			inv[i] = f / float32(s.factor)
		}
		if !(wave < high) && !(wave > low) {
			smooth := float32(float32(float32(1/wave)*float32(s.original))-float32(s.lowFreq)) / float32(s.highFreq-s.lowFreq)
			inv[i] = float32(float32(1-smooth)*f/float32(s.factor)) + float32(smooth*f)
		}
	}
}

// yarn blends interpolated and original frequencies along a ramp over the dims.
func (s *ropeSpec) yarn(inv, pow []float32, rot int) []float32 {
	turn := func(rotations float64) float64 {
		return float64(rot) * math.Log(s.original/(rotations*2*math.Pi)) / (2 * math.Log(s.theta))
	}
	low, high := turn(s.betaFast), turn(s.betaSlow)
	if s.truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(rot-1))
	if low == high {
		high += 0.001
	}
	out := make([]float32, len(inv))
	for i := range inv {
		ramp := min(max(float32(float32(i)-float32(low))/float32(high-low), 0), 1)
		extra := 1 - ramp
		inter := 1 / float32(float32(s.factor)*pow[i])
		out[i] = float32(inter*float32(1-extra)) + float32(inv[i]*extra)
	}
	return out
}

// yarnScale is what cos and sin are multiplied with.
func (s *ropeSpec) yarnScale() float64 {
	m := func(mscale float64) float64 {
		if s.factor <= 1 {
			return 1
		}
		return 0.1*mscale*math.Log(s.factor) + 1
	}
	switch {
	case s.attention != 0:
		return s.attention
	case s.mscale != 0 && s.mscaleAllDim != 0:
		return m(s.mscale) / m(s.mscaleAllDim)
	}
	return m(1)
}
