// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Catalog is what a checkpoint holds; weights.Store is one. Beside a tensor there may be others that it does not name: the scales
// of its rows, and the tensor itself in float32.
type Catalog interface {
	Lookup(name string) (tensor.Info, bool)
	Names() []string
}

// stored is a weight as the checkpoint has it.
type stored struct {
	dtype   tensor.DType
	sources []string
	scales  []string // of the sources' rows; nil: none
	floats  []string // the sources in float32; nil: the catalog has nothing beside tensors
}

// asFloats is the weight in float32, ofScales are its rows' scales.
func (s stored) asFloats() stored { return stored{dtype: tensor.F32, sources: s.floats} }
func (s stored) ofScales() stored { return stored{dtype: tensor.F32, sources: s.scales} }

// most is how many names of one kind an error lists.
const most = 64

// preflight finds every weight in the catalog. Its error lists all missing, mis-shaped and unexpected tensors.
type preflight struct {
	in         *Instance
	cat        Catalog
	prefix     string
	used       map[string]bool
	missing    []string
	wrong      []string
	unexpected []string
}

// resolve looks at the whole checkpoint, whichever part is to be lowered: a part that it has must be complete.
func (in *Instance) resolve(cat Catalog) (out []stored, err error) {
	whole := in.all()
	p := &preflight{in: whole[0], cat: cat, prefix: whole[0].prefix(cat), used: map[string]bool{}}
	for _, part := range whole {
		if !part.Stored(cat) {
			if part == in {
				return nil, diag.Errorf(diag.Unsupported, "the checkpoint has no tensors of its part %s (%s)", in.Part, strings.Join(in.own, ", "))
			}
			continue
		}
		found := make([]stored, len(part.Weights))
		for i := range part.Weights {
			found[i] = p.weight(&part.Weights[i])
		}
		if part == in {
			out = found
		}
	}
	for _, name := range cat.Names() {
		if !p.used[name] && !p.ignored(name) {
			p.unexpected = append(p.unexpected, name)
		}
	}
	return out, p.err()
}

// prefix is the first one under which the first weight is found, or simply the first.
func (in *Instance) prefix(cat Catalog) string {
	if len(in.Weights) == 0 {
		return in.Prefixes[0]
	}
	for _, prefix := range in.Prefixes {
		for _, alt := range in.Weights[0].From {
			if _, ok := cat.Lookup(place(alt[0], prefix, 0)); ok {
				return prefix
			}
		}
	}
	return in.Prefixes[0]
}

// place fills in the prefix and the expert.
func place(name, prefix string, e int64) string {
	if !strings.Contains(name, "{") {
		return name
	}
	root := strings.TrimSuffix(prefix, ".")
	root = root[:strings.LastIndexByte(root, '.')+1]
	name = strings.ReplaceAll(strings.ReplaceAll(name, "{P}", prefix), "{R}", root)
	return strings.ReplaceAll(name, "{e}", strconv.FormatInt(e, 10))
}

func (p *preflight) weight(w *Weight) stored {
	var there []string
	for _, alt := range w.From {
		first, _ := plan.ParsePiece(place(alt[0], p.prefix, 0))
		t, ok := p.cat.Lookup(first.Tensor)
		if !ok {
			continue
		}
		if shape := sourceShapes(w, alt, p.prefix)[0].shape; shape != nil && fits(t.Shape, shape) {
			return p.alternative(w, alt)
		}
		if there == nil {
			there = alt
		}
	}
	if there != nil {
		return p.alternative(w, there)
	}
	for _, name := range w.From[0] {
		if part := strings.IndexAny(name, "#^["); part >= 0 {
			name = name[:part]
		}
		p.missing = append(p.missing, strings.ReplaceAll(place(strings.ReplaceAll(name, "{e}", "\x00"), p.prefix, 0), "\x00", "*"))
	}
	return stored{}
}

// alternative looks up each tensor of a weight's form.
func (p *preflight) alternative(w *Weight, alt []string) stored {
	s := stored{}
	odd := false // the sources are not alike, or not as a kernel could take them
	for _, src := range sourceShapes(w, alt, p.prefix) {
		name := src.Tensor
		t, ok := p.cat.Lookup(name)
		_, scaled := p.cat.Lookup(name + scaleOf)
		_, plain := p.cat.Lookup(name + floatOf)
		p.used[name] = true
		elems, _ := t.DType.Block()
		odd = odd || src.Transposed && (scaled || elems > 1) || s.dtype != tensor.None && scaled != (s.scales != nil)
		switch {
		case !ok:
			p.missing = append(p.missing, name)
		case src.shape == nil:
			p.wrong = append(p.wrong, fmt.Sprintf("%s is %v, and weight %s cannot be cut from it", name, t.Shape, w.Name))
		case !fits(t.Shape, src.shape):
			p.wrong = append(p.wrong, fmt.Sprintf("%s is %v, expected %s", name, t.Shape, axesText(w.Axes, src.shape, src.Transposed)))
		case s.dtype != tensor.None && t.DType != s.dtype && plain:
			odd = true
		case s.dtype != tensor.None && t.DType != s.dtype:
			p.wrong = append(p.wrong, fmt.Sprintf("%s is %v, but %s is %v", name, t.DType, s.sources[0], s.dtype))
		default:
			if s.dtype == tensor.None {
				s.dtype = t.DType
			}
		}
		s.sources = append(s.sources, src.String())
		if plain {
			s.floats = append(s.floats, src.of(floatOf))
		}
		if scaled {
			s.scales = append(s.scales, src.of(scaleOf))
		}
	}
	if odd {
		return s.asFloats()
	}
	return s
}

// source is a tensor of a weight's form, with the shape that it must have; nil if the form cannot make the weight.
type source struct {
	plan.Piece
	shape tensor.Shape
}

// of is the same piece of what is beside the tensor.
func (s source) of(end string) string {
	s.Tensor += end
	return s.Piece.String()
}

// sourceShapes lists an alternative's tensors, expert by expert. Whole tensors have equally many rows; pieces take rows out
// of equally many groups.
func sourceShapes(w *Weight, alt []string, prefix string) []source {
	var want tensor.Shape
	for _, a := range w.Axes {
		want = append(want, a.Size)
	}
	experts := int64(1)
	if strings.Contains(alt[0], "{e}") {
		experts, want = want[0], want[1:]
	}
	per := int64(0)
	for _, s := range alt {
		p, _ := plan.ParsePiece(place(s, prefix, 0)) // the builder made sure that it parses
		if per += p.Hi - p.Lo; p.Of == 0 {
			per++
		}
		if p.Of > 0 && len(want) == 3 { // the rows of all matrices, one after the other
			want = tensor.Shape{want[0] * want[1], want[2]}
		}
	}
	var out []source
	for e := range experts {
		for _, s := range alt {
			p, _ := plan.ParsePiece(place(s, prefix, e))
			src := source{Piece: p}
			if last := len(want) - 1; want[0]%per == 0 && (last > 0 || !p.Transposed) {
				src.shape = slices.Clone(want)
				src.shape[0] = want[0] / per * max(p.Of, 1)
				if p.Transposed {
					src.shape[last], src.shape[last-1] = src.shape[last-1], src.shape[last]
				}
				if p.Picked {
					src.shape = slices.Insert(src.shape, 0, experts)
				}
			}
			out = append(out, src)
		}
	}
	return out
}

// fits compares shapes but for axes of one element. A stack of matrices may be stored as one.
func fits(stored, want tensor.Shape) bool {
	if len(stored) == 2 && len(want) == 3 {
		want = tensor.Shape{want[0] * want[1], want[2]}
	}
	return squeeze(stored).Equal(squeeze(want)) || flattens(stored, want)
}

// flattens says whether a shape is want but for its last axis, which is several: a patch embedding is stored as a convolution.
func flattens(stored, want tensor.Shape) bool {
	last := len(want) - 1
	return last >= 1 && len(stored) > len(want) && stored[:last].Equal(want[:last]) && stored[last:].Elems() == want[last]
}

// squeeze drops axes of one element: a depthwise kernel is stored as [channels, 1, taps].
func squeeze(s tensor.Shape) tensor.Shape {
	return slices.DeleteFunc(slices.Clone(s), func(n int64) bool { return n == 1 })
}

func axesText(axes []kernel.Axis, want tensor.Shape, transposed bool) string {
	var names []string
	for _, a := range axes[len(axes)-len(want):] {
		names = append(names, a.Name)
	}
	if last := len(names) - 1; transposed && last > 0 {
		names[last], names[last-1] = names[last-1], names[last]
	}
	return fmt.Sprintf("%v (%s)", want, strings.Join(names, ", "))
}

// ignored says whether the circuit names a tensor as not used.
func (p *preflight) ignored(name string) bool {
	return slices.ContainsFunc(p.in.Unused, func(u Unused) bool { return wildcard(place(u.Match, p.prefix, 0), name) })
}

// wildcard matches * as any text.
func wildcard(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

func (p *preflight) err() error {
	var parts []string
	for _, l := range []struct {
		what  string
		names []string
	}{{"missing", p.missing}, {"mis-shaped", p.wrong}, {"unexpected", p.unexpected}} {
		if len(l.names) == 0 {
			continue
		}
		slices.Sort(l.names)
		names := slices.Compact(l.names)
		more := ""
		if n := len(names) - most; n > 0 {
			names, more = names[:most], fmt.Sprintf("\n  … and %d more", n)
		}
		parts = append(parts, fmt.Sprintf("%s (%d):\n  %s%s", l.what, len(l.names), strings.Join(names, "\n  "), more))
	}
	if parts == nil {
		return nil
	}
	return diag.Errorf(diag.Format, "the checkpoint's tensors do not fit circuit %s\n%s", p.in.Name(), strings.Join(parts, "\n"))
}

// Synthetic is a catalog made from the circuit itself: every weight in its first form, as if such a checkpoint existed.
type Synthetic struct {
	names  []string
	dtypes map[string]tensor.DType
	shapes map[string]tensor.Shape
}

// SyntheticCatalog invents the checkpoint that the instance asks for: matrices as d, vectors as F32. It serves plans of
// models that are not at hand, and loading of dummy weights.
func (in *Instance) SyntheticCatalog(d tensor.DType) *Synthetic { return in.synthetic(d) }

// QuantisedCatalog is SyntheticCatalog in bfloat16, with experts one by one or in blocks, as quantised checkpoints have them:
// weights.Separate makes values and scales of it.
func (in *Instance) QuantisedCatalog() *Synthetic {
	if in.Dim("gated") == 0 {
		return in.synthetic(tensor.BF16, "_blocks", ".{e}.up_proj", ".{e}.")
	}
	return in.synthetic(tensor.BF16, "_blocks", ".{e}.")
}

// synthetic takes of each weight's forms the first with the first of the words that any has, or simply the first.
func (in *Instance) synthetic(d tensor.DType, words ...string) *Synthetic {
	s := &Synthetic{dtypes: map[string]tensor.DType{}, shapes: map[string]tensor.Shape{}}
	var all []Weight
	for _, part := range in.all() {
		all = append(all, part.Weights...)
	}
	for i := range all {
		w := &all[i]
		for _, src := range sourceShapes(w, w.form(words), in.Prefixes[0]) {
			name := src.Tensor
			if _, ok := s.shapes[name]; ok {
				continue
			}
			s.names = append(s.names, name)
			s.shapes[name], s.dtypes[name] = src.shape, d
			if elems, _ := d.Block(); len(src.shape) < 2 || src.shape[len(src.shape)-1]%int64(elems) != 0 {
				s.dtypes[name] = tensor.F32
			}
			if w.DType == tensor.I32 {
				s.dtypes[name] = tensor.I32
			}
		}
	}
	slices.Sort(s.names)
	return s
}

// form chooses one for synthetic.
func (w *Weight) form(words []string) []string {
	for _, word := range words {
		for _, form := range w.From {
			if strings.Contains(form[0], word) {
				return form
			}
		}
	}
	return w.From[0]
}

// Lookup gives a tensor's element type and shape.
func (s *Synthetic) Lookup(name string) (tensor.Info, bool) {
	shape, ok := s.shapes[name]
	return tensor.Info{Name: name, DType: s.dtypes[name], Shape: shape}, ok
}

// Names are all tensors, sorted.
func (s *Synthetic) Names() []string { return s.names }

// toPlanAxes replaces varying extents by limits.
func toPlanAxes(axes []kernel.Axis, l plan.Limits) plan.Axes {
	out := make(plan.Axes, len(axes))
	for i, a := range axes {
		out[i] = plan.Axis(a)
		switch a.Size {
		case varying[plan.Rows], varying[plan.Pool]:
			out[i].Size = l.Rows
		case varying[plan.Seqs]:
			out[i].Size = l.Seqs
		case varying[plan.Outs]:
			out[i].Size = l.Outs
		}
	}
	return out
}
