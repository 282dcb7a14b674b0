// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Formats of NVIDIA's ModelOpt.
var (
	fp8Tensor = Values{Format: E4M3, Scale: tensor.F32}
	nvfp4     = Values{Format: E2M1, Group: [2]int64{1, 16}, Scale: tensor.E4M3, Global: true}
	mxfp8     = Values{Format: E4M3, Group: [2]int64{1, 32}, Scale: tensor.E8M0}
)

// algorithms are the values of quant_algo. MIXED_PRECISION, which is none of them, leaves all to quantized_layers.
var algorithms = map[string]Scheme{
	"FP8":         {"modelopt", fp8Tensor, fp8Tensor},
	"NVFP4":       {"modelopt", nvfp4, nvfp4},
	"W4A16_NVFP4": {"modelopt", nvfp4, Values{}},
	"MXFP8":       {"modelopt", mxfp8, Values{Format: E4M3, Group: [2]int64{1, 32}, Scale: tensor.E8M0, Dynamic: true}},
}

const mixed = "MIXED_PRECISION"

// readHFQuant reads an hf_quant_config.json.
func readHFQuant(root *Node) (*Quant, error) {
	top := readFields(root)
	top.skip("producer")
	top.str("quant_method", "modelopt")
	n := top.get("quantization")
	if n == nil {
		top.fail(root.Errorf("quantization is missing").For("quantization"))
	}
	q := &Quant{Method: "modelopt"}
	f := readFields(n)
	f.str("quant_method", "modelopt")
	q.modelopt(f)
	for _, err := range []error{top.done(), f.done()} {
		if err != nil {
			return nil, err
		}
	}
	if err := q.compile(); err != nil {
		return nil, root.Errorf("a pattern is no regular expression: %v", err)
	}
	return q, nil
}

// modelopt reads ModelOpt's keys, which differ a little between config.json and hf_quant_config.json.
func (q *Quant) modelopt(f *fields) {
	f.skip("producer")
	algo := f.get("quant_algo")
	rest, err := algorithm(f.n, algo, f.integer("group_size", 0), true)
	if err != nil {
		f.fail(err)
		return
	}
	layers := q.quantizedLayers(f)
	for _, key := range []string{"ignore", "exclude_modules"} {
		for _, n := range f.texts(key) {
			if over := overlap(layers, n.text); over != "" {
				f.fail(n.Errorf("%s excludes %s, which quantized_layers quantises", n.text, over))
			}
			r := Rule{Pattern: n.text, Kind: Within, Pos: n.pos}
			if strings.ContainsAny(n.text, "*?") {
				r.Kind = Glob
			}
			q.Rules = append(q.Rules, r)
		}
	}
	switch {
	case algo.Literal() != mixed:
		q.everyLinear(f, rest)
	case len(layers) == 0:
		f.fail(algo.Errorf("%s without quantized_layers says nothing", mixed))
	}
	groups := f.get("config_groups")
	checkGroups(f, groups, rest, layers)
	q.KV = kvScheme(f)
}

// algorithm is the scheme of a quant_algo; group is group_size, 0 if not given.
func algorithm(under, algo *Node, group int64, top bool) (Scheme, error) {
	name, _ := algo.Str()
	if name == mixed && top {
		return Scheme{}, nil
	}
	s, ok := algorithms[name]
	if !ok {
		n := at(algo, under)
		e := n.Errorf("quant_algo %s is not supported (FP8, NVFP4, W4A16_NVFP4, MXFP8 and, for the whole checkpoint, %s are)", algo.Literal(), mixed)
		e.Code = diag.Unsupported
		return s, e
	}
	if want := s.Weight.Group[1]; group != 0 && group != want {
		v, _ := under.Child("group_size")
		return s, at(v, under).Errorf("group_size %d contradicts %s, whose groups have %d elements", group, name, want)
	}
	return s, nil
}

// quantizedLayers adds a rule for each module that quantized_layers lists, in the order of the file.
func (q *Quant) quantizedLayers(f *fields) map[string]Scheme {
	n := f.get("quantized_layers")
	if n == nil {
		return nil
	}
	if n.Kind() != Object {
		f.wrong(n, Object)
		return nil
	}
	layers := make(map[string]Scheme, n.Len())
	for i, name := range n.Keys() {
		g := readFields(n.Items()[i])
		s, err := algorithm(g.n, g.get("quant_algo"), g.integer("group_size", 0), false)
		if err == nil {
			err = g.done()
		}
		if err != nil {
			f.fail(err)
			return nil
		}
		layers[name] = s
		q.Rules = append(q.Rules, Rule{name, Under, s, g.n.pos})
	}
	return layers
}

// overlap is a layer that the pattern would exclude although it is listed; empty if there is none.
func overlap(layers map[string]Scheme, pattern string) string {
	if len(layers) == 0 {
		return ""
	}
	if !strings.ContainsAny(pattern, "*?") {
		if _, listed := layers[pattern]; listed {
			return pattern
		}
		return ""
	}
	for name := range layers {
		if glob(pattern, name) {
			return name
		}
	}
	return ""
}

// checkGroups holds config_groups, which repeats what quant_algo and quantized_layers say, against them. A layer that is
// listed as weight-only may stand in a group with activations: some exports write so, and their loaders go by the list.
func checkGroups(f *fields, groups *Node, rest Scheme, layers map[string]Scheme) {
	for _, g := range groups.Items() {
		gf := readFields(g)
		weight, act := numbers(gf, "weights"), numbers(gf, "input_activations")
		targets := gf.texts("targets")
		if err := gf.done(); err != nil {
			f.fail(err)
			return
		}
		check := func(what string, s Scheme) bool {
			if s.Weight.shorthand() == weight && (s.Act.shorthand() == act || s.Act.Format == "") {
				return true
			}
			f.fail(g.Errorf("%s (weights %s, input %s) contradicts the algorithm of %s (%v)", g.Path(), weight, act, what, s))
			return false
		}
		for _, t := range targets {
			if s, ok := layers[t.text]; ok && !check(t.text, s) {
				return
			}
		}
		if every := len(targets) == 0 || len(targets) == 1 && targets[0].text == "Linear"; every && rest.Method != "" && !check("every layer", rest) {
			return
		}
	}
}

// numbers is what a group says of weights or activations, as "float 4 16".
func numbers(group *fields, key string) string {
	n := group.get(key)
	if n == nil {
		return "none"
	}
	f := readFields(n)
	typ, bits, size := f.str("type"), f.integer("num_bits", 0), f.integer("group_size", 0)
	f.skip("dynamic")
	if err := f.done(); err != nil {
		group.fail(err)
	}
	return shorthand(typ, bits, size)
}

// shorthand is the same of a scheme's values.
func (v Values) shorthand() string {
	switch v.Format {
	case "":
		return "none"
	case E2M1:
		return shorthand("float", 4, v.Group[1])
	}
	return shorthand("float", 8, v.Group[1])
}

func shorthand(typ string, bits, group int64) string {
	return strings.TrimSuffix(strings.Join([]string{typ, decimal(bits), decimal(group)}, " "), " 0")
}

// kvScheme reads what the file recommends for the KV cache, under either of its two keys.
func kvScheme(f *fields) Values {
	var out Values
	for _, key := range []string{"kv_cache_scheme", "kv_cache_quant_algo"} {
		v := f.get(key)
		if v == nil {
			continue
		}
		if v.Kind() == Object {
			g := readFields(v)
			g.str("type", "float")
			if bits := g.integer("num_bits", 8); bits != 8 {
				g.refuse(g.get("num_bits"), " (8)")
			}
			dynamic := g.boolean("dynamic", false)
			g.str("strategy", "tensor")
			g.boolean("symmetric", true)
			g.skip("observer", "observer_kwargs", "actorder", "block_structure", "group_size", "scale_dtype", "zp_dtype")
			if err := g.done(); err != nil {
				f.fail(err)
			}
			out = fp8Tensor
			out.Dynamic = dynamic
			continue
		}
		switch v.Literal() {
		case "FP8":
			out = fp8Tensor
		case "NVFP4":
			out = nvfp4
		default:
			f.refuse(v, " (FP8, NVFP4)")
		}
	}
	return out
}

// agree refuses two files that say different things; where only the second speaks of the KV cache, it is taken over.
func (q *Quant) agree(hf *Quant, where, root *Node) error {
	fault := func(r Rule, other diag.Pos, what string) error {
		if other.File == "" {
			other = where.Pos()
		}
		e := diag.Errorf(diag.Format, "config.json and hf_quant_config.json contradict each other about %s", what)
		return e.At(r.Pos).For(r.Pattern).Note(other, "the other file")
	}
	switch {
	case q.KV.Format == "":
		q.KV = hf.KV
	case hf.KV.Format != "" && hf.KV != q.KV:
		return fault(Rule{Pos: root.Pos()}, diag.Pos{}, "the KV cache")
	}
	if q.Method != "modelopt" { // fp8 with experts of ModelOpt: the second file knows only those
		for _, r := range hf.Rules {
			if s := q.For(r.Pattern); r.Kind == Under && s != r.Scheme {
				return fault(r, diag.Pos{}, r.Pattern)
			}
		}
		return nil
	}
	first := func(rules []Rule) map[string]Rule {
		m := make(map[string]Rule, len(rules))
		for _, r := range rules {
			if _, ok := m[r.Pattern]; !ok {
				m[r.Pattern] = r
			}
		}
		return m
	}
	a, b := first(q.Rules), first(hf.Rules)
	for _, side := range []struct {
		rules      []Rule
		own, other map[string]Rule
	}{{hf.Rules, b, a}, {q.Rules, a, b}} {
		for _, r := range side.rules {
			if r != side.own[r.Pattern] {
				continue // given again, and not decisive
			}
			if o, ok := side.other[r.Pattern]; !ok || r.Scheme != o.Scheme {
				return fault(r, o.Pos, r.Pattern)
			}
		}
	}
	return nil
}
