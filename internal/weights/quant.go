// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Quantised shows a checkpoint that keeps values and scales apart as one whose tensors are complete: each weight in a block
// format (see Dequantize) or in e4m3, put together while it is read, under the name of its values without what only says that
// they are packed. Where rows have a scale that the format cannot hold, ScaleOf gives it; FloatOf gives any tensor in float32.
//
//	fp8                    X.weight e4m3, X.weight_scale_inv (DeepSeek V4: X.scale); Y, Y_scale_inv of stacked experts
//	modelopt               X.weight e4m3 or u8, X.weight_scale, X.weight_scale_2, which multiplies
//	compressed-tensors     X.weight e4m3, or X.weight_packed u8 or i32; X.weight_scale, X.weight_global_scale, which divides
//	mxfp4                  Y_blocks, Y_scales
//
// Scales of inputs and of the KV cache are checked and not shown. The error (Format or Unsupported) lists everything that names,
// types, shapes and scales of whole tensors contradict, against each other and against q, by tensor; q is nil for a checkpoint
// that is not quantised. Scales of rows and groups are checked when they are read.
func Quantised(s Store, q *modelconf.Quant) (Store, error) {
	if q != nil && q.Method == "gguf" {
		return s, nil
	}
	f := &finder{store: s, quant: q, taken: map[string]bool{}, out: &quantised{Store: s, by: map[string]*packed{}}}
	for _, name := range s.Names() {
		f.visit(name)
	}
	for _, name := range s.Names() {
		f.leftover(name)
	}
	if q != nil && len(f.out.by) == 0 && len(f.faults) == 0 {
		return nil, diag.Errorf(diag.Format, "the config says that weights are quantised (%s), but no tensor is", q.Method).For("quantization_config")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if len(f.out.by) == 0 {
		return s, nil
	}
	return f.finish(), nil
}

// finder takes a checkpoint's tensors apart.
type finder struct {
	store  Store
	quant  *modelconf.Quant
	taken  map[string]bool // tensors that belong to another
	out    *quantised
	faults []string
	code   diag.Code
	first  string // tensor at fault
}

// most is how many faults an error lists.
const most = 64

func (f *finder) fault(code diag.Code, name, format string, args ...any) {
	if len(f.faults) == 0 {
		f.code, f.first = code, name
	}
	f.faults = append(f.faults, name+" "+fmt.Sprintf(format, args...))
}

func (f *finder) err() error {
	n := len(f.faults)
	if n == 0 {
		return nil
	}
	slices.Sort(f.faults)
	text := strings.Join(f.faults[:min(n, most)], "\n  ")
	if n > most {
		text += fmt.Sprintf("\n  … and %d more", n-most)
	}
	return diag.Errorf(f.code, "the checkpoint's quantised tensors do not fit (%d):\n  %s", n, text).For(f.first)
}

// finish lists what is shown.
func (f *finder) finish() Store {
	q := f.out
	for _, name := range f.store.Names() {
		if !f.taken[name] && q.by[name] == nil {
			q.names = append(q.names, name)
			t, _ := f.store.Lookup(name)
			q.total += t.Size()
		}
	}
	for name, p := range q.by {
		q.names = append(q.names, name)
		q.total += p.Size()
	}
	slices.Sort(q.names)
	return q
}

// Names of tensors that stand beside values, by their ends; those of beside are seen to when the values are.
var (
	besides = []string{".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", ".weight_shape", ".weight_zero_point",
		".weight_g_idx", ".qzeros", ".g_idx", "_scale_inv", "_scales"}
	inputs = []string{".input_scale", ".input_global_scale", ".activation_scale", "_activation_scale"}
	caches = []string{".k_scale", ".v_scale", ".q_scale"}
)

func endsIn(name string, ends []string) bool {
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
}

// visit looks at a tensor: if it holds values, it takes what belongs to them.
func (f *finder) visit(name string) {
	t, _ := f.store.Lookup(name)
	has := func(name string) bool { _, ok := f.store.Lookup(name); return ok }
	module, isWeight := strings.CutSuffix(name, ".weight")
	switch {
	case endsIn(name, besides) || endsIn(name, inputs) || endsIn(name, caches):
	case strings.HasSuffix(name, ".scale") && has(strings.TrimSuffix(name, "scale")+"weight"):
	case strings.HasSuffix(name, "_blocks") && has(strings.TrimSuffix(name, "blocks")+"scales"):
		f.pack(name, strings.TrimSuffix(name, "_blocks"), t)
	case strings.HasSuffix(name, ".weight_packed"):
		f.taken[name] = true
		f.pack(strings.TrimSuffix(name, "_packed"), strings.TrimSuffix(name, ".weight_packed"), t)
	case strings.HasSuffix(name, ".qweight"):
		f.taken[name] = true
		f.pack(strings.TrimSuffix(name, "qweight")+"weight", strings.TrimSuffix(name, ".qweight"), t)
	case t.DType == tensor.E4M3 || t.DType == tensor.E5M2 || t.DType == tensor.E2M1 || t.DType == tensor.E8M0,
		(t.DType == tensor.U8 || t.DType == tensor.I8) && (has(name+"_scale") || has(name+"_scale_inv") || isWeight && has(module+".scale")):
		f.pack(name, module, t)
	default:
		f.plain(name, module, t)
	}
}

// plain looks at a tensor that is not quantised, which the config may not name as one that is.
func (f *finder) plain(name, module string, t tensor.Info) {
	if f.quant == nil || len(t.Shape) < 2 {
		return
	}
	if r := f.quant.Rule(module); r.Kind == modelconf.Under && r.Scheme.Method != "" {
		f.fault(diag.Format, name, "is %v, but the config says that %s is quantised (%v)", t.DType, r.Pattern, r.Scheme.Weight)
	}
}

// leftover refuses what should stand beside values and does not.
func (f *finder) leftover(name string) {
	if f.taken[name] {
		return
	}
	switch {
	case f.quant == nil:
	case endsIn(name, caches), endsIn(name, inputs) && f.beside(name):
		f.scalars(name, 0)
	case endsIn(name, besides), endsIn(name, inputs):
		f.fault(diag.Format, name, "belongs to no quantised tensor")
	}
}

// beside says whether a scale of an input stands beside a packed tensor.
func (f *finder) beside(name string) bool {
	base, stacked := strings.CutSuffix(name, "_activation_scale")
	if !stacked {
		base = name[:strings.LastIndexByte(name, '.')] + ".weight"
	}
	return f.out.by[base] != nil
}

// scalars reads a scale of a whole tensor, or one for each of a stack; nil if there is a fault.
func (f *finder) scalars(name string, stack int64) []float32 {
	t, _ := f.store.Lookup(name)
	n := t.Shape.Elems()
	f.taken[name] = true
	switch t.DType {
	case tensor.F32, tensor.BF16, tensor.F16:
	default:
		f.fault(diag.Format, name, "is %v, a scale must be f32, bf16 or f16", t.DType)
		return nil
	}
	if n != 1 && n != stack && stack != 0 || n < 1 || n > 1<<20 {
		f.fault(diag.Format, name, "is %v, expected one value", t.Shape)
		return nil
	}
	raw, x := make([]byte, t.Size()), make([]float32, n)
	if err := f.store.Read(name, 0, raw); err != nil {
		f.fault(diag.CodeOf(err), name, "cannot be read: %v", err)
		return nil
	}
	_ = tensor.Decode(x, t.DType, raw)
	for _, v := range x {
		if why := badNumber(v); why != "" {
			f.fault(diag.Format, name, "is %s", why)
			return nil
		}
	}
	return x
}

// scheme is what the config says of a module whose tensors are quantised. Implied exceptions give way to what is stored.
func (f *finder) scheme(name, module string, t tensor.Info) (modelconf.Scheme, bool) {
	if f.quant == nil {
		f.fault(diag.Format, name, "is quantised (%v), but config.json has no quantization_config", t.DType)
		return modelconf.Scheme{}, false
	}
	r := f.quant.Rule(module)
	if r.Scheme.Method == "" && r.Pattern != "" && r.Pos.File == "" {
		r = f.quant.Rules[len(f.quant.Rules)-1]
	}
	if r.Scheme.Method == "" {
		f.fault(diag.Format, name, "is quantised (%v), but the config leaves %s as it is", t.DType, module)
		return modelconf.Scheme{}, false
	}
	return r.Scheme, true
}
