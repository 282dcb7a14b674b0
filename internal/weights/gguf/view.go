// SPDX-License-Identifier: MIT OR Apache-2.0

package gguf

import (
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Swap is a permutation that exchanges two axes: from Start on, positions are read as [A, B, Inner] groups, one after the
// other, and stored as [B, A, Inner] groups.
//
//	rotary q, k of the llama architectures   A = 2, B = head/2, Inner = 1: halves (HF) against pairs (GGUF)
//	value heads of a gated delta rule        A = key heads, B = value heads per key head, Inner = head: grouped against tiled
type Swap struct{ Start, A, B, Inner int64 }

// Stored is the stored position of position i.
func (s *Swap) Stored(i int64) int64 {
	if s == nil || i < s.Start {
		return i
	}
	x, i := (i-s.Start)%s.Inner, (i-s.Start)/s.Inner
	b, i := i%s.B, i/s.B
	a, group := i%s.A, i/s.A
	return s.Start + ((group*s.B+b)*s.A+a)*s.Inner + x
}

// View is a tensor as a Hugging Face checkpoint has it, over a stored tensor or a part of one. Rows run over all axes but
// the last (of a tensor with one axis, each element is a row).
type View struct {
	Name   string       // Hugging Face's
	DType  tensor.DType // Source's, or F32 if elements are computed (Computed)
	Shape  tensor.Shape
	Source Tensor                  // what is stored; Begin and End are those of the part that the view shows
	Rows   *Swap                   // order of the rows; nil: as stored
	Cols   *Swap                   // order of the elements in a row; nil: as stored
	Value  func(x float32) float32 // what undoes a converter's arithmetic; nil: nothing
}

// Plain says that the view's bytes are the stored bytes.
func (v *View) Plain() bool { return v.Rows == nil && v.Cols == nil && v.Value == nil }

// Computed says that the view's elements are float32 computed from decoded ones.
func (v *View) Computed() bool { return v.Value != nil || v.Cols != nil && v.DType != v.Source.DType }

// rule says what a stored name, without "blk.N." and ".weight", becomes.
type rule struct {
	name   string // after "model.layers.N." (".weight" is added, but for names that end in "!")
	change change // zero: only the name
}

type change uint8

const (
	same      change = iota
	rotary           // rows of a rotary projection: pairs to halves
	valueRows        // rows per value head: tiled to grouped
	convRows         // rows of q, k and v channels: those of v tiled to grouped
	valueCols        // columns per value head: tiled to grouped
	minusOne         // a norm weight around 0 that was stored around 1
	logNeg           // A_log that was stored as -exp(A_log), per value head
	experts          // the first axis counts experts
	gateUp           // experts, each with gate rows before up rows
	gateRow          // [1, hidden], which some files store as [hidden]
)

// dense are the block tensors that the transformer families share.
var dense = map[string]rule{
	"attn_norm": {"input_layernorm", same}, "ffn_norm": {"post_attention_layernorm", same},
	"attn_q": {"self_attn.q_proj", same}, "attn_k": {"self_attn.k_proj", same}, "attn_v": {"self_attn.v_proj", same},
	"attn_output": {"self_attn.o_proj", same},
	"attn_q_norm": {"self_attn.q_norm", same}, "attn_k_norm": {"self_attn.k_norm", same},
	"ffn_gate": {"mlp.gate_proj", same}, "ffn_up": {"mlp.up_proj", same}, "ffn_down": {"mlp.down_proj", same},
	"ffn_gate_inp": {"mlp.gate", same}, "ffn_gate_exps": {"mlp.experts.#.gate_proj", experts},
	"ffn_up_exps": {"mlp.experts.#.up_proj", experts}, "ffn_down_exps": {"mlp.experts.#.down_proj", experts},
	"ffn_gate_up_exps": {"mlp.experts.#.", gateUp},
}

// llama are the exceptions of the families whose converter reorders q and k.
var llama = map[string]rule{"attn_q": {"self_attn.q_proj", rotary}, "attn_k": {"self_attn.k_proj", rotary}}

// hybrid are the exceptions of qwen35 and qwen35moe.
var hybrid = map[string]rule{
	"attn_norm": {"input_layernorm", minusOne}, "post_attention_norm": {"post_attention_layernorm", minusOne},
	"attn_q_norm": {"self_attn.q_norm", minusOne}, "attn_k_norm": {"self_attn.k_norm", minusOne},
	"attn_qkv": {"linear_attn.in_proj_qkv", convRows}, "attn_gate": {"linear_attn.in_proj_z", valueRows},
	"ssm_conv1d": {"linear_attn.conv1d", convRows}, "ssm_norm": {"linear_attn.norm", same},
	"ssm_beta": {"linear_attn.in_proj_b", valueRows}, "ssm_alpha": {"linear_attn.in_proj_a", valueRows},
	"ssm_a": {"linear_attn.A_log!", logNeg}, "ssm_dt.bias": {"linear_attn.dt_bias!", valueRows},
	"ssm_out":            {"linear_attn.out_proj", valueCols},
	"ffn_gate_inp_shexp": {"mlp.shared_expert_gate", gateRow}, "ffn_gate_shexp": {"mlp.shared_expert.gate_proj", same},
	"ffn_up_shexp": {"mlp.shared_expert.up_proj", same}, "ffn_down_shexp": {"mlp.shared_expert.down_proj", same},
}

// mtp are the tensors of a block that predicts further tokens, outside of its layer.
var mtp = map[string]rule{
	"nextn.eh_proj": {"mtp.fc", same}, "nextn.enorm": {"mtp.pre_fc_norm_embedding", minusOne},
	"nextn.hnorm": {"mtp.pre_fc_norm_hidden", minusOne}, "nextn.shared_head_norm": {"mtp.norm", minusOne},
}

// exceptions are each architecture's rules beside dense.
var exceptions = map[string]map[string]rule{
	"llama": llama, "mistral3": llama, "qwen2": nil, "qwen3": nil, "qwen3moe": nil, "qwen35": hybrid, "qwen35moe": hybrid,
}

// viewer builds the views of one file.
type viewer struct {
	m                    *modelconf.Metadata
	special              map[string]rule
	hybrid               bool
	layers               int64 // without those that predict further tokens
	heads, kvHeads       int64
	keyHeads, valueHeads int64
	keyDim, valueDim     int64
	out                  []View
}

// Views lists the tensors as a Hugging Face checkpoint has them. rope_freqs.weight, which is configuration, is not among
// them. An architecture or tensor that is not known is refused by name (Unsupported); a shape that does not fit the
// metadata too (Format).
func Views(ts []Tensor, m *modelconf.Metadata) ([]View, error) {
	v, err := newViewer(m)
	if err != nil {
		return nil, err
	}
	for _, t := range ts {
		if err := v.tensor(t); err != nil {
			return nil, err.At(diag.Pos{File: m.File}).For(t.Name)
		}
	}
	sort.Slice(v.out, func(i, j int) bool { return v.out[i].Name < v.out[j].Name })
	for i := 1; i < len(v.out); i++ {
		if a, b := &v.out[i-1], &v.out[i]; a.Name == b.Name {
			return nil, diag.Errorf(diag.Format, "tensors %s and %s are both %s", a.Source.Name, b.Source.Name, a.Name).At(diag.Pos{File: m.File}).For(b.Source.Name)
		}
	}
	return v.out, nil
}

func newViewer(m *modelconf.Metadata) (*viewer, error) {
	arch := m.Arch()
	special, ok := exceptions[arch]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "general.architecture %q is not supported (%s are)", arch, strings.Join(modelconf.GGUFArchitectures(), ", ")).
			At(diag.Pos{File: m.File}).For("general.architecture")
	}
	v := &viewer{m: m, special: special, hybrid: arch == "qwen35" || arch == "qwen35moe"}
	number := func(key string) int64 { n, _ := m.Uniform(arch + "." + key); return n }
	v.layers = number("block_count") - number("nextn_predict_layers")
	v.heads, v.kvHeads = number("attention.head_count"), number("attention.head_count_kv")
	if v.kvHeads == 0 {
		v.kvHeads = v.heads
	}
	if v.hybrid {
		v.keyHeads, v.valueHeads = number("ssm.group_count"), number("ssm.time_step_rank")
		v.keyDim = number("ssm.state_size")
		if v.keyHeads <= 0 || v.valueHeads <= 0 || v.valueHeads%v.keyHeads != 0 {
			return nil, diag.Errorf(diag.Format, "%d value heads are no multiple of %d key heads", v.valueHeads, v.keyHeads).At(diag.Pos{File: m.File}).For(arch + ".ssm.time_step_rank")
		}
		v.valueDim = number("ssm.inner_size") / v.valueHeads
		if v.valueDim <= 0 || v.keyDim <= 0 || v.keyDim > 1<<24 || v.keyHeads > 1<<24 {
			return nil, diag.Errorf(diag.Format, "head sizes %d and %d of linear attention make no sense", v.keyDim, v.valueDim).At(diag.Pos{File: m.File}).For(arch + ".ssm.inner_size")
		}
	}
	return v, nil
}

// tensor adds the views of one stored tensor.
func (v *viewer) tensor(t Tensor) *diag.Error {
	switch t.Name {
	case "rope_freqs.weight":
		return nil
	case "token_embd.weight":
		return v.add(t, "model.embed_tokens.weight", same)
	case "output.weight":
		return v.add(t, "lm_head.weight", same)
	case "output_norm.weight":
		if v.hybrid {
			return v.add(t, "model.norm.weight", minusOne)
		}
		return v.add(t, "model.norm.weight", same)
	}
	parts := strings.SplitN(t.Name, ".", 3)
	layer, err := int64(0), error(nil)
	if len(parts) == 3 {
		layer, err = strconv.ParseInt(parts[1], 10, 32)
	}
	if len(parts) != 3 || parts[0] != "blk" || err != nil || layer < 0 || strconv.FormatInt(layer, 10) != parts[1] {
		return unknown(t)
	}
	prefix := "model.layers." + parts[1] + "."
	base, suffix := parts[2], ""
	for _, s := range []string{".weight", ".bias"} {
		if b, ok := strings.CutSuffix(base, s); ok {
			base, suffix = b, s
		}
	}
	if layer >= v.layers {
		prefix = "mtp.layers." + strconv.FormatInt(layer-v.layers, 10) + "."
		if r, ok := mtp[base]; ok && v.hybrid && suffix == ".weight" {
			return v.add(t, r.name+suffix, r.change)
		}
		if !v.hybrid {
			return diag.Errorf(diag.Format, "tensor %s: the model has only %d blocks", t.Name, v.layers)
		}
	}
	for _, rules := range []map[string]rule{v.special, dense} {
		for _, key := range []string{base, base + suffix} { // some names are known only with their suffix
			r, ok := rules[key]
			if !ok {
				continue
			}
			if name, whole := strings.CutSuffix(r.name, "!"); whole {
				return v.add(t, prefix+name, r.change)
			}
			if suffix == "" || r.change == gateUp && suffix != ".weight" {
				return unknown(t)
			}
			return v.add(t, prefix+r.name+suffix, r.change)
		}
	}
	return unknown(t)
}

func unknown(t Tensor) *diag.Error {
	return diag.Errorf(diag.Unsupported, "tensor %s has no known counterpart in this architecture", t.Name)
}

// add adds the view of t under name, or one view for each expert.
func (v *viewer) add(t Tensor, name string, c change) *diag.Error {
	w := View{Name: name, DType: t.DType, Shape: t.Shape, Source: t}
	rows := int64(1)
	for _, n := range t.Shape[:max(1, len(t.Shape)-1)] {
		rows *= n
	}
	last := t.Shape[len(t.Shape)-1]
	fits := true
	switch c {
	case rotary:
		heads := v.heads
		if strings.Contains(name, ".k_proj.") {
			heads = v.kvHeads
		}
		if fits = heads > 0 && rows%(2*heads) == 0; fits {
			w.Rows = &Swap{0, 2, rows / heads / 2, 1}
		}
	case valueRows:
		if fits = rows%v.valueHeads == 0; fits {
			w.Rows = v.tiled(0, rows/v.valueHeads)
		}
	case convRows:
		qk := 2 * v.keyHeads * v.keyDim
		if fits = rows == qk+v.valueHeads*v.valueDim; fits {
			w.Rows = v.tiled(qk, v.valueDim)
		}
		if strings.HasSuffix(name, "conv1d.weight") && len(t.Shape) == 2 {
			w.Shape = tensor.Shape{rows, 1, last}
		}
	case valueCols:
		if fits = len(t.Shape) == 2 && last == v.valueHeads*v.valueDim; fits {
			w.Cols = v.tiled(0, v.valueDim)
		}
		if block, _ := t.DType.Block(); w.Cols != nil && v.valueDim%int64(block) != 0 {
			w.DType = tensor.F32 // a head is no whole blocks: only decoded elements can move
		}
	case minusOne:
		w.DType, w.Value = tensor.F32, func(x float32) float32 { return x - 1 }
	case logNeg:
		if fits = rows == v.valueHeads; fits {
			w.Rows = v.tiled(0, 1)
			w.DType, w.Value = tensor.F32, func(x float32) float32 { return float32(math.Log(-float64(x))) }
		}
	case gateRow:
		if len(t.Shape) == 1 {
			w.Shape = tensor.Shape{1, last}
		}
	case experts, gateUp:
		if len(t.Shape) != 3 || c == gateUp && t.Shape[1]%2 != 0 {
			return diag.Errorf(diag.Format, "tensor %s: the shape %v is not that of experts", t.Name, t.Shape)
		}
		v.split(w, c)
		return nil
	}
	if block, _ := t.DType.Block(); len(t.Shape) == 1 && block > 1 && !w.Plain() {
		fits = false // its rows are elements, which blocks do not have
	}
	if !fits {
		return diag.Errorf(diag.Format, "tensor %s: the shape %v does not fit the heads that the metadata give", t.Name, t.Shape)
	}
	v.out = append(v.out, w)
	return nil
}

// tiled is the order of value heads of inner elements from start on; nil if there is nothing to reorder.
func (v *viewer) tiled(start, inner int64) *Swap {
	if v.keyHeads == v.valueHeads {
		return nil
	}
	return &Swap{start, v.keyHeads, v.valueHeads / v.keyHeads, inner}
}

// split adds a view for each expert, and for gate and up where they are stored together.
func (v *viewer) split(w View, c change) {
	parts, names := int64(1), []string{""}
	if c == gateUp {
		parts, names = 2, []string{"gate_proj", "up_proj"}
	}
	t, count := w.Source, w.Shape[0]
	size := (t.End - t.Begin) / count / parts
	shape := tensor.Shape{w.Shape[1] / parts, w.Shape[2]}
	for e := range count {
		for p, part := range names {
			x := w
			x.Name = strings.Replace(w.Name, "#", strconv.FormatInt(e, 10), 1)
			if part != "" {
				x.Name = strings.TrimSuffix(x.Name, ".weight") + part + ".weight"
			}
			x.Shape = shape
			x.Source.Begin = t.Begin + (e*parts+int64(p))*size
			x.Source.End = x.Source.Begin + size
			x.Source.Shape = shape
			v.out = append(v.out, x)
		}
	}
}
