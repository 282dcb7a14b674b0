// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Reads refuses a scheme that Quantised cannot read (Unsupported); the message goes on behind a tensor's or a checkpoint's name.
func Reads(s modelconf.Scheme) error {
	w := s.Weight
	if w.Format == modelconf.Int8 || w.Format == modelconf.Int4 && w.Zero && s.Method == "compressed-tensors" {
		return diag.Errorf(diag.Unsupported, "is quantised by %s (%v), which is not read", s.Method, w)
	}
	return nil
}

// pack adds the tensor that is shown as name, with the values of t.
func (f *finder) pack(name, module string, t tensor.Info) {
	s, ok := f.scheme(t.Name, module, t)
	if !ok {
		return
	}
	if _, both := f.out.by[name]; both {
		f.fault(diag.Format, t.Name, "is there beside other values of %s", name)
		return
	}
	p := &packed{store: f.store, values: t, Info: tensor.Info{Name: name, Shape: slices.Clone(t.Shape)}}
	f.out.by[name] = p
	w := s.Weight
	if err := Reads(s); err != nil {
		f.fault(diag.Unsupported, t.Name, "%s", err)
		return
	}
	if s.Method == "awq" || strings.HasPrefix(s.Method, "gptq") {
		if f.byColumns(p, module, s) {
			p.DType = p.shows()
		}
		return
	}
	last := len(t.Shape) - 1
	if last < 1 {
		f.fault(diag.Format, t.Name, "is %v, quantised weights are matrices", t.Shape)
		return
	}
	switch {
	case w.Format == modelconf.E4M3 && t.DType == tensor.E4M3:
		p.codes = codesE4M3
	case w.Format == modelconf.E2M1 && strings.HasSuffix(t.Name, "_blocks") && t.DType == tensor.U8 && last >= 2 && t.Shape[last] == 16:
		p.codes, p.Shape = codesE2M1, append(p.Shape[:last-1], 32*t.Shape[last-1])
	case w.Format == modelconf.E2M1 && (t.DType == tensor.U8 || t.DType == tensor.I8):
		p.codes = codesE2M1
		p.Shape[last] *= 2
	case w.Format == modelconf.E2M1 && t.DType == tensor.E2M1:
		p.codes = codesE2M1
	case w.Format == modelconf.Int4 && t.DType == tensor.I32:
		p.codes = codesInt4
		p.Shape[last] *= 8
	default:
		f.fault(diag.Format, t.Name, "is %v %v, but the config says %v", t.DType, t.Shape, w)
		return
	}
	last = len(p.Shape) - 1
	p.shape = [3]int64{p.Shape[:last-1].Elems(), p.Shape[last-1], p.Shape[last]}
	if p.shape[0]*p.shape[1]*p.shape[2] == 0 {
		f.fault(diag.Format, t.Name, "is %v, it has no values", t.Shape)
		return
	}
	if f.scales(p, module, s) {
		p.DType = p.shows()
	}
}

// scales finds what belongs to the values.
func (f *finder) scales(p *packed, module string, s modelconf.Scheme) bool {
	w := s.Weight
	p.group = [2]int64{p.shape[1], p.shape[2]}
	var names []string
	switch s.Method {
	case "fp8":
		names = []string{p.values.Name + "_scale_inv", module + ".scale"}
	case "mxfp4":
		names = []string{module + "_scales"}
	default:
		names = []string{module + ".weight_scale"}
	}
	scale, ok := f.one(p, names)
	if !ok {
		return false
	}
	if w.Global && !f.global(p, module, s) {
		return false
	}
	switch w.Group {
	case [2]int64{0, 0}:
		p.rows = &rowScale{values: f.scalars(scale.Name, p.shape[0])}
		return p.rows.values != nil
	case [2]int64{1, 0}:
		if w.Format != modelconf.Int4 {
			p.rows = &rowScale{stored: scale}
			return f.fits(p, scale, p.Shape[:len(p.Shape)-1], tensor.F32, tensor.BF16, tensor.F16)
		}
	}
	for i, n := range w.Group {
		if n > 0 {
			p.group[i] = min(n, p.group[i]) // a larger one is all there is
		}
	}
	if w.Scale == tensor.E8M0 && scale.DType == tensor.U8 {
		scale.DType = tensor.E8M0 // its bytes are exponents
	}
	p.scale = scale
	want := slices.Clone(p.Shape)
	last := len(want) - 1
	want[last-1], want[last] = ceil(want[last-1], p.group[0]), ceil(want[last], p.group[1])
	types := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.E8M0}
	switch {
	case w.Format == modelconf.E2M1:
		types = []tensor.DType{w.Scale}
	case w.Format == modelconf.Int4:
		types = types[:3]
	}
	return f.fits(p, scale, want, types...) && f.shapeBeside(p, module)
}

// one finds the one of the names that is there, and takes it.
func (f *finder) one(p *packed, names []string) (tensor.Info, bool) {
	var found []tensor.Info
	for _, name := range names {
		if t, ok := f.store.Lookup(name); ok {
			f.taken[name] = true
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], true
	case 0:
		f.fault(diag.Format, p.values.Name, "has no scale: %s is missing", names[0])
	default:
		f.fault(diag.Format, p.values.Name, "has two scales: %s and %s", found[0].Name, found[1].Name)
	}
	return tensor.Info{}, false
}

// global reads the scale of the whole tensor that is over those of groups.
func (f *finder) global(p *packed, module string, s modelconf.Scheme) bool {
	name, divides := module+".weight_scale_2", s.Method == "compressed-tensors"
	if divides {
		name = module + ".weight_global_scale"
	}
	if _, ok := f.one(p, []string{name}); !ok {
		return false
	}
	values := f.scalars(name, p.shape[0])
	if divides {
		for i, v := range values {
			if values[i] = 1 / v; badNumber(values[i]) != "" {
				f.fault(diag.Format, name, "is %g, whose inverse is no number", v)
				return false
			}
		}
	}
	p.rows = &rowScale{values: values}
	return values != nil
}

// fits checks a scale's type and shape, but for axes of one element.
func (f *finder) fits(p *packed, scale tensor.Info, want tensor.Shape, types ...tensor.DType) bool {
	if !slices.Contains(types, scale.DType) {
		f.fault(diag.Format, scale.Name, "is %v, the scale of %s must be one of %v", scale.DType, p.values.Name, types)
		return false
	}
	one := func(n int64) bool { return n == 1 }
	if !slices.Equal(slices.DeleteFunc(slices.Clone(scale.Shape), one), slices.DeleteFunc(slices.Clone(want), one)) {
		f.fault(diag.Format, scale.Name, "is %v, the scale of %s %v must be %v", scale.Shape, p.values.Name, p.values.Shape, want)
		return false
	}
	return true
}

// shapeBeside holds the weight's shape, if it is given, against that of the values.
func (f *finder) shapeBeside(p *packed, module string) bool {
	name := module + ".weight_shape"
	t, ok := f.store.Lookup(name)
	if !ok {
		return true
	}
	f.taken[name] = true
	raw, x := make([]byte, t.Size()), make([]float32, t.Shape.Elems())
	if err := f.store.Read(name, 0, raw); err != nil || tensor.Decode(x, t.DType, raw) != nil {
		f.fault(diag.Format, name, "cannot be read")
		return false
	}
	same := len(x) == len(p.Shape)
	for i := range x {
		same = same && int64(x[i]) == p.Shape[i]
	}
	if !same {
		f.fault(diag.Format, name, "says %v, the values are those of %v", x, p.Shape)
	}
	return same
}

// shows chooses the format: one whose blocks are whole in a row and have one scale, or float32 if there is none, which is rare.
func (p *packed) shows() tensor.DType {
	whole := func(elems int64) bool {
		return p.shape[2]%elems == 0 && (p.group[1] == p.shape[2] || p.group[1]%elems == 0)
	}
	switch {
	case p.codes.bits == 8 && p.scale.Name == "":
		return tensor.E4M3
	case p.codes.bits == 8 && whole(128):
		return tensor.E4M3_B128
	case p.codes.bits == 8 && whole(32):
		return tensor.E4M3_B32
	case p.scale.DType == tensor.E4M3 && p.shape[2]%32 == 0 && whole(16):
		return tensor.NVFP4
	case p.scale.DType == tensor.E8M0 && whole(32):
		return tensor.MXFP4
	case p.columns != nil && !p.columns.symmetric && p.scale.DType == tensor.F16 && whole(32):
		return tensor.Q5_0
	case p.columns != nil && !p.columns.symmetric:
		return tensor.F32
	case p.scale.DType == tensor.BF16 && whole(32):
		return tensor.INT4_B32
	case p.scale.DType == tensor.F16 && whole(32):
		return tensor.Q4_0
	}
	return tensor.F32
}
