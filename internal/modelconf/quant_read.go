// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// notLinear are modules that "every linear layer" does not mean, by the components of their names: the output head and
// routers, which quantisers leave alone unless they are told by name, and which files of some makers do not list.
var notLinear = []string{"lm_head", "head", "embed_tokens", "gate", "router", "shared_expert_gate"}

// readQuant finds the quantisation of a checkpoint in config.json (at the top or under text_config) and in
// hf_quant_config.json; where both speak, they must agree.
func readQuant(tree *Node, files map[string][]byte) (*Quant, error) {
	var q *Quant
	where, err := quantNode(tree)
	if err != nil {
		return nil, err
	}
	if where != nil {
		if q, err = readQuantConfig(where, tree); err != nil {
			return nil, err
		}
	}
	const name = "hf_quant_config.json"
	data, ok := files[name]
	if !ok {
		return q, nil
	}
	root, err := ParseJSON(name, data)
	if err != nil {
		return nil, err
	}
	hf, err := readHFQuant(root)
	if err != nil {
		return nil, err
	}
	if q == nil {
		return hf, nil
	}
	return q, q.agree(hf, where, root)
}

// quantNode is the quantisation config of config.json, nil if there is none.
func quantNode(tree *Node) (*Node, error) {
	var found *Node
	for _, path := range []string{"quantization_config", "compression_config", "text_config.quantization_config", "text_config.compression_config"} {
		n, _ := tree.Get(path)
		switch {
		case n.IsNull():
		case n.Kind() != Object:
			return nil, n.Errorf("%s is %v; it must be an object", n.Path(), n.Kind())
		case n.Len() == 0:
		case found != nil:
			return nil, n.Errorf("quantisation is described twice").Note(found.Pos(), "first here")
		default:
			found = n
		}
	}
	return found, nil
}

// readQuantConfig reads a quantization_config.
func readQuantConfig(n, tree *Node) (*Quant, error) {
	f := readFields(n)
	method := f.str("quant_method")
	if method == "" && f.has("quant_algo") {
		method = "modelopt" // its early versions leave the method out
	}
	q := &Quant{Method: method}
	switch method {
	case "fp8":
		q.fp8(f, tree)
	case "modelopt":
		q.modelopt(f)
	case "compressed-tensors":
		q.compressed(f)
	case "mxfp4":
		q.mxfp4(f)
	case "awq":
		q.awq(f)
	case "gptq":
		q.gptq(f)
	default:
		e := n.Errorf("the quantisation method %q is not supported (fp8, modelopt, compressed-tensors, mxfp4, awq and gptq are)", method).For(n.Path() + ".quant_method")
		e.Code = diag.Unsupported
		return nil, e
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := q.compile(); err != nil {
		return nil, n.Errorf("a pattern is no regular expression: %v", err)
	}
	return q, nil
}

// leave adds rules for modules, listed under key, that stay as they are.
func (q *Quant) leave(f *fields, key string) {
	for _, n := range f.texts(key) {
		q.Rules = append(q.Rules, Rule{Pattern: n.text, Kind: Within, Pos: n.pos})
	}
}

// everyLinear adds the rule for all linear layers that no rule before has decided.
func (q *Quant) everyLinear(f *fields, s Scheme) {
	for _, name := range notLinear {
		q.Rules = append(q.Rules, Rule{Pattern: name, Kind: Within})
	}
	q.Rules = append(q.Rules, Rule{"*", Glob, s, f.n.Pos()})
}

// fp8 is DeepSeek's format: blocks with a multiplier each, or one per tensor.
func (q *Quant) fp8(f *fields, tree *Node) {
	f.str("fmt", "e4m3", "float8_e4m3fn")
	dynamic := f.str("activation_scheme", "dynamic", "static") != "static"
	s := Scheme{Method: "fp8", Weight: Values{Format: E4M3, Scale: tensor.F32}}
	s.Act = Values{Format: E4M3, Scale: tensor.F32, Dynamic: dynamic}
	if b := f.get("weight_block_size"); b != nil {
		rows, cols := pair(b)
		if rows <= 0 || cols <= 0 {
			f.fail(b.Errorf("%s must be two positive integers", b.Path()))
		}
		s.Weight.Group, s.Act.Group = [2]int64{rows, cols}, [2]int64{1, cols}
		if !dynamic {
			f.fail(f.get("activation_scheme").Errorf("static activation scales contradict weight_block_size"))
		}
	} else if dynamic {
		s.Act.Group = [2]int64{1, 0}
	}
	if f.str("scale_fmt", "ue8m0") != "" {
		s.Weight.Scale, s.Act.Scale = tensor.E8M0, tensor.E8M0
	}
	if f.has("moe_quant_algo") {
		q.fp8Experts(f)
	} else if v, _ := tree.Get("expert_dtype"); v.Literal() == "fp4" {
		// DeepSeek V4: experts are MXFP4 whatever the rest is.
		q.Rules = append(q.Rules, Rule{"ffn.experts", Within,
			Scheme{Method: "fp8", Weight: Values{Format: E2M1, Group: [2]int64{1, 32}, Scale: tensor.E8M0}, Act: s.Act}, v.pos})
	}
	q.leave(f, "modules_to_not_convert")
	q.leave(f, "ignored_layers")
	q.everyLinear(f, s)
}

// fp8Experts is fp8 whose experts were quantised again by ModelOpt, whose keys stand beside: quantized_layers decides for
// the layers that it lists, and its ignore list is about nothing else.
func (q *Quant) fp8Experts(f *fields) {
	f.str("moe_quant_algo", "NVFP4")
	inner := &Quant{}
	inner.modelopt(f)
	for _, r := range inner.Rules {
		if r.Kind == Under && r.Scheme.Method != "" {
			q.Rules = append(q.Rules, r)
		}
	}
	if len(q.Rules) == 0 {
		f.fail(f.n.Errorf("moe_quant_algo is set, but quantized_layers lists no layer"))
	}
	q.KV = inner.KV
}

// mxfp4 is the format of gpt-oss: experts only.
func (q *Quant) mxfp4(f *fields) {
	q.leave(f, "modules_to_not_convert")
	f.only("dequantize")
	w := Values{Format: E2M1, Group: [2]int64{1, 32}, Scale: tensor.E8M0}
	q.Rules = append(q.Rules, Rule{Pattern: "mlp.experts", Kind: Within, Scheme: Scheme{Method: "mxfp4", Weight: w}})
}

func (q *Quant) awq(f *fields) {
	if bits := f.integer("bits", 4); bits != 4 {
		f.refuse(f.get("bits"), " (4)")
	}
	f.str("version", "gemm", "GEMM")
	q.leave(f, "modules_to_not_convert")
	f.skip("backend", "do_fuse", "exllama_config", "fuse_max_seq_len")
	w := Values{Format: Int4, Group: groupOf(f, f.integer("group_size", 128)), Scale: tensor.F16, Zero: f.boolean("zero_point", true)}
	q.everyLinear(f, Scheme{Method: "awq", Weight: w})
}

func (q *Quant) gptq(f *fields) {
	w := Values{Format: Int4, Scale: tensor.F16, Zero: !f.boolean("sym", true)}
	switch bits := f.integer("bits", 4); bits {
	case 4:
	case 8:
		w.Format = Int8
	default:
		f.refuse(f.get("bits"), " (4, 8)")
	}
	w.Group = groupOf(f, f.integer("group_size", 128))
	method := "gptq"
	if f.str("checkpoint_format", "gptq", "gptq_v2") == "gptq_v2" {
		method = "gptq_v2"
	}
	f.only("desc_act") // permuted columns
	f.only("dynamic")  // other schemes for modules by pattern
	f.only("lm_head")
	q.leave(f, "modules_to_not_convert")
	f.skip("damp_percent", "true_sequential", "static_groups", "model_name_or_path", "model_file_base_name", "dataset", "tokenizer",
		"meta", "pack_dtype", "quantizer", "modules_in_block_to_quantize", "model_seqlen", "block_name_to_quantize", "batch_size",
		"pad_token_id", "use_cuda_fp16", "max_input_length", "cache_block_outputs", "backend", "exllama_config", "use_exllama")
	q.everyLinear(f, Scheme{Method: method, Weight: w})
}

// groupOf is the extent of groups along the input: size elements, or a whole row for -1.
func groupOf(f *fields, size int64) [2]int64 {
	switch {
	case size == -1:
		return [2]int64{1, 0}
	case size < 1:
		f.fail(f.n.Errorf("%s: group_size is %d", f.n.Path(), size))
	}
	return [2]int64{1, size}
}

// pair is a list of two integers; 0, 0 if it is none.
func pair(n *Node) (a, b int64) {
	if n.Kind() != Array || n.Len() != 2 {
		return 0, 0
	}
	a, _ = n.Items()[0].Int()
	b, _ = n.Items()[1].Int()
	return a, b
}
