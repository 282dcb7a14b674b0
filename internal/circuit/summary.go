// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Summary is what the library makes of one model's config.
type Summary struct {
	Name      string
	ModelType string
	Circuit   string // "" if none computes it
	Parts     []PartSize
	Layers    int
	Params    int64   // of the decoder, each stored number once
	Active    int64   // those that one token passes: all but the experts that are not chosen
	Formats   []Share // of the decoder's numbers, most first
	Bytes     int64   // stored, of the decoder, scales included
	Refused   string  // why it does not run; "" if it does
	Lacks     []Lack  // what the refusal is for, where it is known
}

// PartSize is a part beside the decoder.
type PartSize struct {
	Name   string
	Params int64 // that the decoder does not have
}

// Share is how many numbers are stored in a format.
type Share struct {
	Format string
	Params int64
}

// probe are the limits of the plan by which Summarise holds that a model runs.
var probe = plan.Limits{Rows: 16, Seqs: 16, Outs: 16, PageSize: 16, Pages: 16}

// Target is what models are to run on.
type Target struct {
	Class string                       // of hardware
	Reads func(modelconf.Scheme) error // what a checkpoint's weights may be quantised by: weights.Reads
}

// Summarise instantiates a config and lowers it, its weights unquantised. What refuses it is in the summary; sizes are there as
// far as the model has a circuit.
func Summarise(lib *Library, m Model, on Target) Summary {
	s := Summary{Name: m.Name, ModelType: m.ModelType()}
	if m.Err != nil {
		s.Refused = message(m.Err)
		return s
	}
	if r := lib.Refused[s.ModelType]; r != nil {
		s.Refused, s.Lacks = "lacks "+r.names(), r.Lacks
		return s
	}
	if lib.Variants[s.ModelType] == nil {
		s.Refused = fmt.Sprintf("no circuit maps model_type %q", s.ModelType)
		return s
	}
	in, err := Instantiate(lib, m.Config)
	if err != nil {
		s.Refused = message(err)
		return s
	}
	s.Circuit, s.Layers = in.Circuit, len(in.Kinds)
	if err = in.measure(&s, m.Config, on.Reads); err == nil {
		_, err = in.Lower(lib, in.SyntheticCatalog(storedType(m.Config.Tree)), Options{Class: on.Class, Compute: Declared, Limits: probe})
	}
	if err != nil {
		s.Refused = message(err)
	}
	return s
}

// Whole is a model's instance with all parts served.
func Whole(lib *Library, cfg *modelconf.Config) (*Instance, error) {
	in, err := Instantiate(lib, cfg)
	if err != nil {
		return nil, err
	}
	return Instantiate(lib, cfg, in.PartNames()...)
}

// message is an error's text without its place and notes.
func message(err error) string {
	if e, ok := diag.As(err); ok {
		return e.Msg
	}
	return err.Error()
}

// storedType is the element type of what is not quantised.
func storedType(tree *modelconf.Node) tensor.DType {
	for _, key := range []string{"dtype", "torch_dtype", "text_config.dtype", "text_config.torch_dtype"} {
		n, _ := tree.Get(key)
		switch s, _ := n.Str(); s {
		case "float32":
			return tensor.F32
		case "float16":
			return tensor.F16
		case "bfloat16":
			return tensor.BF16
		}
	}
	return tensor.BF16
}

// measure counts the numbers of the decoder and its parts. The error is the first of a scheme that cannot be read.
func (in *Instance) measure(s *Summary, cfg *modelconf.Config, reads func(modelconf.Scheme) error) (unread error) {
	quant, stored := in.scheme(cfg.Quant), storedType(cfg.Tree)
	seen, formats := map[string]bool{}, map[string]int64{}
	for _, n := range in.Nodes {
		for i, w := range n.Weights {
			if w < 0 || seen[in.Weights[w].key()] {
				continue
			}
			weight := &in.Weights[w]
			seen[weight.key()] = true
			elems := elemsOf(weight)
			if weight.DType == tensor.I32 { // a table of numbers of experts, no parameters
				s.Bytes += weight.DType.Bytes(elems)
				continue
			}
			s.Params += elems
			s.Active += n.passed(weight)
			format, bytes := stored.String(), stored.Bytes(elems)
			if q := quant.of(n, i, weight); q.Weight.Format != "" {
				format, bytes = label(q.Weight), bytesOf(q.Weight, weight)
				if err := reads(q); err != nil && unread == nil {
					unread = diag.Errorf(diag.Unsupported, "the checkpoint %w", err)
				}
			}
			formats[format] += elems
			s.Bytes += bytes
		}
	}
	for name, n := range formats {
		s.Formats = append(s.Formats, Share{name, n})
	}
	slices.SortFunc(s.Formats, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Params, a.Params), cmp.Compare(a.Format, b.Format)) })
	for _, part := range in.parts {
		p := PartSize{Name: part.Part}
		for i := range part.Weights {
			if w := &part.Weights[i]; !seen[w.key()] {
				seen[w.key()] = true
				p.Params += elemsOf(w)
			}
		}
		s.Parts = append(s.Parts, p)
	}
	return unread
}

// key is equal for weights of the same tensors.
func (w *Weight) key() string { return strings.Join(w.From[0], "\x00") }

func elemsOf(w *Weight) int64 {
	n := int64(1)
	for _, a := range w.Axes {
		n *= a.Size
	}
	return n
}

// passed is how many of a weight's numbers a token passes: of experts the k chosen, those counted that only give their input.
func (n *Node) passed(w *Weight) int64 {
	if n.Op.Name != "experts" {
		return elemsOf(w)
	}
	experts := w.Axes[0].Size
	return elemsOf(w) * min(n.attr("k").Int, experts) / (experts + n.attr("identity").Int)
}

// scheme tells how a checkpoint's weights are quantised, by the names that their tensors have under one prefix.
type scheme struct {
	quant  *modelconf.Quant
	prefix string
}

// scheme takes the prefix under which the quantisation config knows most names: as many formats as can be, then numbers.
func (in *Instance) scheme(q *modelconf.Quant) scheme {
	best, formats, most := scheme{q, in.Prefixes[0]}, 0, int64(0)
	for _, prefix := range in.Prefixes {
		s, elems, seen := scheme{q, prefix}, int64(0), map[modelconf.Scheme]bool{}
		for _, n := range in.Nodes {
			for i, w := range n.Weights {
				if w < 0 {
					continue
				}
				if v := s.of(n, i, &in.Weights[w]); v.Weight.Format != "" {
					elems += elemsOf(&in.Weights[w])
					seen[v] = true
				}
			}
		}
		if len(seen) > formats || len(seen) == formats && elems > most {
			best, formats, most = s, len(seen), elems
		}
	}
	return best
}

// products are the ops whose matrices quantisers call linear layers.
var products = []string{"linear", "group_linear", "group_mul", "experts"}

// of is how a node's weight is quantised; all experts as the first of them.
func (s scheme) of(n *Node, port int, w *Weight) modelconf.Scheme {
	if s.quant == nil || !slices.Contains(products, n.Op.Name) || len(n.Op.weights[port].axes) < 2 || strings.HasSuffix(n.Op.weights[port].name, "bias") {
		return modelconf.Scheme{}
	}
	for _, alt := range w.From {
		module := place(alt[0], s.prefix, 0)
		if at := strings.IndexAny(module, "#^["); at >= 0 {
			module = module[:at]
		}
		if q := s.quant.For(strings.TrimSuffix(module, ".weight")); q.Weight.Format != "" {
			return q
		}
	}
	return modelconf.Scheme{}
}

// label is the format's word, and how many numbers share a scale where makers differ.
func label(v modelconf.Values) string {
	switch word, g := v.Word(), v.Group; {
	case g[0] > 1:
		return fmt.Sprintf("%s %dx%d", word, g[0], g[1])
	case g[0] == 1 && g[1] == 0:
		return word + " by row"
	case g[0] == 1 && v.Format != modelconf.E2M1:
		return fmt.Sprintf("%s by %d", word, g[1])
	default:
		return word
	}
}

// bits are those of a number in a format.
var bits = map[string]int64{modelconf.E4M3: 8, modelconf.E2M1: 4, modelconf.Int4: 4, modelconf.Int8: 8}

// bytesOf is a weight's size with its scales, which are bfloat16 where the checkpoint does not say.
func bytesOf(v modelconf.Values, w *Weight) int64 {
	last := len(w.Axes) - 1
	rows, cols := elemsOf(w)/w.Axes[last].Size, w.Axes[last].Size
	matrices, scale := int64(1), cmp.Or(v.Scale, tensor.BF16)
	for _, a := range w.Axes[:last-1] {
		matrices *= a.Size
	}
	scales := rows / matrices
	if v.Group[0] > 0 {
		scales = ceilDiv(scales, v.Group[0])
	} else {
		scales = 1
	}
	if v.Group[1] > 0 {
		scales *= ceilDiv(cols, v.Group[1])
	}
	n := rows*cols*bits[v.Format]/8 + matrices*scales*scale.Bytes(1)
	if v.Global {
		n += matrices * tensor.F32.Bytes(1)
	}
	if v.Zero {
		n += matrices * scales * bits[v.Format] / 8
	}
	return n
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
