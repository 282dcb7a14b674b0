// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"

	"maps"
	"math"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
)

// ropeKeys are the keys that each kind of rotation reads; every kind also reads those of "".
var ropeKeys = map[string][]string{
	"":             {"rope_type", "type", "rope_theta", "partial_rotary_factor"},
	"default":      nil,
	"proportional": {"factor"},
	"linear":       {"factor"},
	"llama3":       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
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

// rope reads the rotation in either spelling (rope_parameters, or rope_scaling and rope_theta beside it), of the model or of
// each kind of layers, and computes the table "rope", the dim rot, the params rope_scale and attention_mscale and, where the
// variant scales queries by position, position_*.
func (p *point) rope(v *Variant, tree *modelconf.Node) error {
	params, scaling := p.ropeAt["rope_parameters"], p.ropeAt["rope_scaling"]
	if params != nil && scaling != nil {
		return scaling.Errorf("%s and %s are both given", scaling.Path(), params.Path())
	}
	if params == nil {
		params = scaling
	}
	p.dims["position_scale"], p.dims["position_period"], p.params["position_beta"] = 0, 1, 0
	if v.Rope.Theta == 0 && v.Rope.Kind == nil {
		return nil // nothing rotates
	}
	kinds := v.circuit.kindsBefore()
	if kinds == nil {
		return p.rotation(v, params, "", tree)
	}
	nested := v.nested(params)
	for _, kind := range kinds {
		if !p.occurs(kind) {
			continue
		}
		obj := params
		switch {
		case nested:
			obj, _ = params.Child(cmp.Or(v.Rope.Kind[kind].Object, kind))
		case v.Rope.Kind[kind].Plain:
			obj = nil
		}
		if err := p.rotation(v, obj, kind, tree); err != nil {
			return err
		}
	}
	return nil
}

// kindsBefore are the kinds of layers for which something stands before the layers.
func (c *Circuit) kindsBefore() (kinds []string) {
	for _, u := range c.Begin {
		for _, k := range u.Kinds {
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// nested says whether an object's keys are layer kinds, or what stands for them.
func (v *Variant) nested(n *modelconf.Node) bool {
	names := slices.Collect(maps.Keys(v.circuit.Layers.Kind))
	for _, k := range v.Rope.Kind {
		names = append(names, k.Object)
	}
	return n != nil && n.Kind() == modelconf.Object && n.Len() > 0 &&
		!slices.ContainsFunc(n.Keys(), func(k string) bool { return !slices.Contains(names, k) })
}

// entry is what a key beside the object says of a kind's layers: of a list with an entry per layer, theirs, which must agree.
func (r *ropeReader) entry(key string) *modelconf.Node {
	n := r.p.ropeAt[key]
	if n == nil || n.Kind() != modelconf.Array {
		return n
	}
	var first *modelconf.Node
	for i, kinds := range r.p.kinds {
		if r.layers != "" && !slices.Contains(kinds, r.layers) {
			continue
		}
		if i >= n.Len() {
			r.fail(n.Errorf("%s has %d entries for %d layers", n.Path(), n.Len(), len(r.p.kinds)))
			return nil
		}
		e := n.Items()[i]
		if first == nil {
			first = e
		}
		a, _ := first.Float()
		if b, _ := e.Float(); a != b {
			r.fail(refuse(e, "%s is %s, but %s is %s; layers of one kind rotate alike", e.Path(), literal(e), first.Path(), literal(first)))
		}
	}
	return first
}

func (r *ropeReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// rotation is that of a kind, or of the model ("").
func (p *point) rotation(v *Variant, params *modelconf.Node, kind string, tree *modelconf.Node) error {
	rule := v.Rope.Kind[kind]
	r := ropeReader{p: p, obj: params, kind: cmp.Or(rule.Type, "default"), layers: kind}
	if params != nil {
		if err := r.kindAndKeys(v); err != nil {
			return err
		}
	}
	if rule.Theta == 0 {
		rule.Theta = v.Rope.Theta
	}
	if rule.ThetaKey == "" {
		rule.ThetaKey = "rope_theta"
	}
	s := ropeSpec{kind: r.kind, truncate: true}
	s.theta = r.or("rope_theta", r.read(r.entry(rule.ThetaKey), rule.Theta))
	at := p.inKind(kind)
	head, ok := at.dims[cmp.Or(v.Rope.Dim, "head_dim")]
	if !ok {
		return v.circuit.file.Errorf("dims", "there is no dim %s to rotate", cmp.Or(v.Rope.Dim, "head_dim"))
	}
	share := cmp.Or(rule.Partial, v.Rope.Partial)
	if n := p.ropeAt["rotary_dim"]; n != nil {
		share = r.read(n, 0) / float64(head)
	}
	if n, ok := at.dims[v.Rope.Rot]; ok {
		share = float64(n) / float64(head)
	}
	s.partial = r.beside("partial_rotary_factor", share)
	switch {
	case s.partial == 0:
		s.partial = 1
	case v.Rope.Rot != "" && math.Abs(s.partial-share) > 1e-6 && r.err == nil:
		n := r.at("partial_rotary_factor")
		r.err = refuse(n, "%s is %s; %d of a head's %d dims are rotated", n.Path(), literal(n), at.dims[v.Rope.Rot], head)
	case v.Rope.Partial == 0 && v.Rope.Rot == "" && s.partial != 1 && r.err == nil:
		n := r.at("partial_rotary_factor")
		r.err = refuse(n, "%s is %s; model_type %s rotates whole heads", n.Path(), literal(n), v.ModelType)
	}
	into := p.kindValues(kind)
	context := float64(p.dims["context"])
	switch r.kind {
	case "linear":
		s.factor = r.need("factor")
	case "proportional":
		s.factor = r.or("factor", 1)
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
	if beta := r.or("llama_4_scaling_beta", 0); v.Rope.PositionScale && beta != 0 {
		into.dims["position_scale"], into.dims["position_period"], into.params["position_beta"] = 1, int64(s.original), beta
	}
	if r.err != nil {
		return r.err
	}
	rot, n := s.dims(head)
	if rot < 2 || rot%2 != 0 || rot > head || rot > mostTurned {
		return tree.Errorf("a head of %d with partial_rotary_factor %v rotates %d dims; an even number of them is needed", head, s.partial, rot)
	}
	table, scale := s.table(int(rot), int(n))
	if v.Rope.Unscaled {
		scale = 1
	}
	into.dims["rot"], into.params["rope_scale"], into.tables["rope"] = rot, scale, len(p.consts)
	into.params["attention_mscale"] = s.attentionScale()
	name := "rope"
	if kind != "" {
		name += "." + kind
	}
	p.consts = append(p.consts, plan.Const{Name: name, Values: table})
	if v.Rope.Sections != nil {
		axis, err := sections(v.Rope.Sections, params, len(table))
		if err != nil {
			return err
		}
		into.tables["rope_axis"] = len(p.consts)
		p.consts = append(p.consts, plan.Const{Name: strings.Replace(name, "rope", "rope_axis", 1), Values: axis})
	}
	return nil
}

// sections says along which axis (time 0, height 1, width 2) each frequency turns: of three in a row one is of each, height and
// width as far as their sections go, and time takes the rest.
func sections(dflt []int64, params *modelconf.Node, n int) ([]float32, error) {
	list := slices.Clone(dflt)
	if s, ok := params.Child("mrope_section"); ok && !s.IsNull() {
		list = list[:0]
		for _, e := range s.Items() {
			if x, ok := e.Int(); ok && x >= 0 {
				list = append(list, x)
			}
		}
		if s.Kind() != modelconf.Array || len(list) != 3 || s.Len() != 3 {
			return nil, s.Errorf("%s must be three sizes of sections", s.Path())
		}
	}
	if s, ok := params.Child("mrope_interleaved"); ok && !s.IsNull() {
		if on, ok := s.Bool(); !ok || !on {
			return nil, refuse(s, "%s is %s; supported is true (sections one after the other have no table)", s.Path(), literal(s))
		}
	}
	axis := make([]float32, n)
	for i := range axis {
		if a := i % 3; a > 0 && int64(i) < 3*list[a] {
			axis[i] = float32(a)
		}
	}
	return axis, nil
}

// mostTurned bounds the dims of a head that turn: there is a table of their frequencies.
const mostTurned = 1 << 16

// axialRope makes the tables of a vision tower, and checks the sizes that only it knows: half of a head's frequencies turn along height, the other half, which are the
// same, along width.
func (p *point) axialRope(tree *modelconf.Node) error {
	if p.dims["vis_layers"] == 0 {
		return nil
	}
	head := p.dims["vis_hidden"] / p.dims["vis_heads"]
	if p.dims["vis_hidden"]%p.dims["vis_heads"] != 0 || head%4 != 0 || head > mostTurned {
		return tree.Errorf("vision_config: %d dims over %d heads do not rotate along two axes", p.dims["vis_hidden"], p.dims["vis_heads"])
	}
	if side := int64(math.Sqrt(float64(p.dims["vis_positions"]))); side*side != p.dims["vis_positions"] {
		return tree.Errorf("vision_config: %d position embeddings make no square", p.dims["vis_positions"])
	}
	s := ropeSpec{kind: "default", theta: p.params["vis_theta"]}
	inv, _ := s.table(int(head/2), int(head/2))
	axis := make([]float32, 2*len(inv))
	for i := range axis {
		axis[i] = float32(1 + i/len(inv))
	}
	p.tables["vis_rope"], p.tables["vis_axis"] = len(p.consts), len(p.consts)+1
	p.consts = append(p.consts, plan.Const{Name: "vis_rope", Values: slices.Concat(inv, inv)}, plan.Const{Name: "vis_axis", Values: axis})
	return nil
}

// dims are the dims of a head that a rotation spans, and for how many of these there is an angle that moves: where the type
// is proportional, it spans the head.
func (s *ropeSpec) dims(head int64) (rot, moving int64) {
	if s.kind == "proportional" {
		return head, 2 * (int64(s.partial*float64(head)) / 2)
	}
	rot = int64(float64(head)*s.partial + 1e-6)
	return rot, rot
}

// ropeReader reads numbers and keeps the first error.
type ropeReader struct {
	p    *point
	obj  *modelconf.Node // nil: no object
	kind string

	layers string // the kind of layers; "": all
	err    error
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
			return refuse(n, "%s is %s; supported is default, linear, llama3, proportional, yarn", n.Path(), literal(n))
		}
		r.kind = kind
	}
	known := slices.Concat(ropeKeys[""], ropeKeys[r.kind])
	if v.Rope.Sections != nil {
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
	return r.entry(key)
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
func (s *ropeSpec) table(rot, moving int) ([]float32, float64) {
	inv := make([]float32, rot/2) // 0 where nothing moves
	pow := make([]float32, rot/2)
	for i := range moving / 2 {
		x := float32(2*i) / float32(rot)
		pow[i] = float32(math.Pow(float64(float32(s.theta)), float64(x)))
		inv[i] = 1 / pow[i]
	}
	switch s.kind {
	case "linear", "proportional":
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

// attentionScale is by how much scores of latent attention grow with a longer context.
func (s *ropeSpec) attentionScale() float64 {
	if s.mscaleAllDim == 0 || s.factor <= 1 {
		return 1
	}
	m := 0.1*s.mscaleAllDim*math.Log(s.factor) + 1
	return m * m
}
