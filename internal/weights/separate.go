// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Separate turns a list of a checkpoint's bfloat16 tensors into those that it has if it is quantised as q says: values and
// scales of each matrix that a rule of q names. Quantised over a store of them shows the matrices again. Embeddings, and matrices
// whose rows are no whole groups, stay as they are.
func Separate(plain []tensor.Info, q *modelconf.Quant) (out []tensor.Info) {
	for _, t := range plain {
		module := strings.TrimSuffix(strings.TrimSuffix(t.Name, ".weight"), "_blocks")
		s := q.For(module)
		parts := []tensor.Info{t}
		if t.DType == tensor.BF16 && s.Method != "" && len(t.Shape) > 1 {
			parts = separate(t, module, s)
		}
		out = append(out, parts...)
	}
	return out
}

// separate is what a scheme makes of a matrix; itself if it cannot be.
func separate(t tensor.Info, module string, s modelconf.Scheme) []tensor.Info {
	last := len(t.Shape) - 1
	rows, k := t.Shape[:last], t.Shape[last]
	w := s.Weight
	with := func(width int64) tensor.Shape { return append(slices.Clone(rows), width) }
	part := func(name string, d tensor.DType, shape tensor.Shape) tensor.Info {
		return tensor.Info{Name: name, DType: d, Shape: shape}
	}
	if k < 32 || k%max(w.Group[1], 2) != 0 && w.Format != modelconf.E4M3 || strings.Contains(t.Name, "norm") || strings.Contains(t.Name, "embed") {
		return []tensor.Info{t}
	}
	scales := with(1)
	if w.Group[1] > 0 {
		scales = with(ceil(k, w.Group[1]))
		if last > 0 && w.Group[0] > 0 {
			scales[last-1] = ceil(scales[last-1], w.Group[0])
		}
	} else if w.Group[0] == 0 {
		scales = slices.Clone(rows[:last-1])
	}
	inputs := func(name string) []tensor.Info {
		if s.Act.Format == "" || s.Act.Dynamic {
			return nil
		}
		return []tensor.Info{part(name, tensor.F32, nil)}
	}
	switch s.Method + " " + w.Format {
	case "fp8 " + modelconf.E4M3:
		return append(inputs(module+".activation_scale"), part(t.Name, tensor.E4M3, t.Shape), part(t.Name+"_scale_inv", tensor.F32, scales))
	case "fp8 " + modelconf.E2M1:
		return []tensor.Info{part(t.Name, tensor.I8, with(k/2)), part(module+".scale", tensor.E8M0, scales)}
	case "modelopt " + modelconf.E4M3:
		d := tensor.F32
		if w.Scale == tensor.E8M0 {
			d = tensor.U8
		}
		return append(inputs(module+".input_scale"), part(t.Name, tensor.E4M3, t.Shape), part(module+".weight_scale", d, scales))
	case "modelopt " + modelconf.E2M1:
		return append(inputs(module+".input_scale"), part(t.Name, tensor.U8, with(k/2)), part(module+".weight_scale", tensor.E4M3, scales),
			part(module+".weight_scale_2", tensor.F32, nil))
	case "compressed-tensors " + modelconf.E4M3:
		return []tensor.Info{part(t.Name, tensor.E4M3, t.Shape), part(module+".weight_scale", tensor.F32, scales)}
	case "compressed-tensors " + modelconf.E2M1:
		if !w.Global {
			return []tensor.Info{part(module+".weight_packed", tensor.U8, with(k/2)), part(module+".weight_scale", tensor.U8, scales)}
		}
		return append(inputs(module+".input_global_scale"), part(module+".weight_packed", tensor.U8, with(k/2)), part(module+".weight_scale", tensor.E4M3, scales),
			part(module+".weight_global_scale", tensor.F32, tensor.Shape{1}))
	case "compressed-tensors " + modelconf.Int4:
		return []tensor.Info{part(module+".weight_packed", tensor.I32, with(k/8)), part(module+".weight_scale", tensor.BF16, scales)}
	case "mxfp4 " + modelconf.E2M1:
		if strings.HasSuffix(t.Name, "_blocks") {
			return []tensor.Info{part(t.Name, tensor.U8, append(with(k/32), 16)), part(module+"_scales", tensor.U8, with(k/32))}
		}
	}
	return []tensor.Info{t}
}
