// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// packings are the storage formats of compressed-tensors, with the weight format that each stores; empty: several.
var packings = map[string]string{
	"nvfp4-pack-quantized": E2M1, "mxfp4-pack-quantized": E2M1, "float-quantized": E4M3, "naive-quantized": "", "pack-quantized": "",
	"int-quantized": Int8, "mixed-precision": "",
}

// compressed reads the keys of compressed-tensors (llm-compressor).
func (q *Quant) compressed(f *fields) {
	f.str("quantization_status", "compressed")
	f.skip("global_compression_ratio", "version", "run_compressed")
	f.only("sparsity_config")
	f.only("transform_config")
	packing := f.get("format")
	q.KV = kvScheme(f)
	for _, n := range f.texts("ignore") {
		q.pattern(f, n, Scheme{})
	}
	groups := f.get("config_groups")
	if groups.Len() == 0 {
		f.fail(f.n.Errorf("config_groups is missing or empty"))
	}
	var every []Scheme // of groups that target the class Linear: names come first
	for _, g := range groups.Items() {
		gf := readFields(g)
		own := gf.get("format")
		s := Scheme{Method: "compressed-tensors", Weight: quantArgs(gf, "weights"), Act: quantArgs(gf, "input_activations")}
		gf.only("output_activations")
		if s.Weight.Format == "" {
			gf.fail(g.Errorf("%s quantises no weights", g.Path()))
		}
		s.Weight.Dynamic = false
		checkPacking(gf, at(own, packing), s)
		targets := gf.texts("targets")
		if len(targets) == 0 {
			gf.fail(g.Errorf("%s has no targets", g.Path()))
		}
		if err := gf.done(); err != nil {
			f.fail(err)
			return
		}
		for _, t := range targets {
			if t.text == "Linear" {
				every = append(every, s)
			} else {
				q.pattern(f, t, s)
			}
		}
	}
	if len(every) > 1 {
		f.fail(groups.Errorf("%s: several groups target every linear layer", groups.Path()))
	}
	for _, s := range every {
		q.everyLinear(f, s)
	}
}

// pattern adds the rule of a target or an ignored name: "re:" and a regular expression, or a module's name.
func (q *Quant) pattern(f *fields, n *Node, s Scheme) {
	r := Rule{n.text, Within, s, n.pos}
	if re, ok := strings.CutPrefix(n.text, "re:"); ok {
		r.Pattern, r.Kind = re, Regex
		if err := (&Quant{Rules: []Rule{r}}).compile(); err != nil {
			f.fail(n.Errorf("%s: %q is no regular expression of the supported syntax (RE2)", n.Path(), re))
		}
	} else if n.text == "Linear" {
		f.refuse(n, " as a name to ignore")
	}
	q.Rules = append(q.Rules, r)
}

// quantArgs reads a group's weights or input_activations.
func quantArgs(group *fields, key string) Values {
	n := group.get(key)
	if n == nil {
		return Values{}
	}
	f := readFields(n)
	v := Values{Scale: tensor.None}
	typ, bits := f.str("type", "int", "float"), f.integer("num_bits", 0)
	switch fmt.Sprint(typ, bits) {
	case "float4":
		v.Format = E2M1
	case "float8":
		v.Format = E4M3
	case "int4":
		v.Format = Int4
	case "int8":
		v.Format = Int8
	default:
		f.fail(unsupported(n, "%s of %d bits and type %q are not supported", key, bits, typ))
	}
	size := f.integer("group_size", 0)
	switch f.str("strategy", "tensor", "channel", "token", "group", "tensor_group", "block") {
	case "tensor", "":
	case "channel", "token":
		v.Group = [2]int64{1, 0}
	case "group":
		v.Group = groupOf(f, size)
	case "tensor_group":
		v.Group, v.Global, v.Scale = groupOf(f, size), true, tensor.E4M3
		if size == -1 {
			f.fail(f.n.Errorf("%s: the strategy tensor_group needs a group_size of at least 1", f.n.Path()))
		}
	case "block":
		v.Group = blockOf(f)
	}
	if b := f.get("block_structure"); b != nil && v.Group[0] <= 1 {
		f.fail(b.Errorf("%s without the strategy block", b.Path()))
	}
	switch d := f.get("dynamic"); d.Literal() {
	case "true":
		v.Dynamic = true
	case "false", "null":
	case "local": // group scales at run time, the tensor's from the checkpoint
		if !v.Global {
			f.fail(d.Errorf("%s is local, which only the strategy tensor_group can be", d.Path()))
		}
	default:
		f.refuse(d, " (true, false, local)")
	}
	v.Zero = !f.boolean("symmetric", true)
	switch s := f.get("scale_dtype"); s.Literal() {
	case "null":
		if v.Format == E2M1 && v.Group == [2]int64{1, 32} {
			v.Scale = tensor.E8M0
		}
	case "torch.uint8":
		v.Scale = tensor.E8M0
	case "torch.float8_e4m3fn":
		v.Scale = tensor.E4M3
	case "torch.float32", "torch.bfloat16", "torch.float16":
	default:
		f.refuse(s, "")
	}
	switch a := f.get("actorder"); a.Literal() {
	case "null", "static", "weight", "false":
	default:
		f.refuse(a, " (static, weight)") // group order needs an index tensor
	}
	f.skip("observer", "observer_kwargs", "zp_dtype")
	if err := f.done(); err != nil {
		group.fail(err)
	}
	return v
}

// blockOf reads block_structure: [128, 128] or "128x128".
func blockOf(f *fields) [2]int64 {
	b := f.get("block_structure")
	rows, cols := pair(b)
	if s, ok := b.Str(); ok {
		fmt.Sscanf(s, "%dx%d", &rows, &cols)
	}
	if rows < 1 || cols < 1 {
		f.fail(at(b, f.n).Errorf("%s: the strategy block needs a block_structure of two positive integers", f.n.Path()))
	}
	return [2]int64{rows, cols}
}

// checkPacking holds the storage format against the numbers that it stores.
func checkPacking(f *fields, n *Node, s Scheme) {
	name, ok := n.Str()
	want, known := packings[name]
	switch {
	case n == nil:
		f.fail(f.n.Errorf("%s: no format is given", f.n.Path()))
	case !ok || !known:
		f.refuse(n, "")
	case want != "" && want != s.Weight.Format,
		name == "nvfp4-pack-quantized" && !s.Weight.Global, name == "mxfp4-pack-quantized" && s.Weight.Scale != tensor.E8M0,
		name == "pack-quantized" && s.Weight.Format != Int4 && s.Weight.Format != Int8:
		f.fail(n.Errorf("the format %s contradicts weights of %v", name, s.Weight).Note(f.n.Pos(), "of this group"))
	}
}

func unsupported(n *Node, format string, args ...any) error {
	e := n.Errorf(format, args...)
	e.Code = diag.Unsupported
	return e
}
