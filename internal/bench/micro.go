// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// Reading is the times of shapes on a device, by one program or another.
type Reading struct {
	Program string       `json:"program"` // "met", or whose it is
	Device  string       `json:"device"`
	Rotate  int          `json:"rotate_mib"` // repetitions go over sets of arrays of so many MiB together; 0: over one set
	Shapes  []*ShapeTime `json:"shapes"`
}

// ShapeTime is one shape.
type ShapeTime struct {
	Shape   string             `json:"shape"`
	Further bool               `json:"further,omitempty"` // not one of the 32
	Times   map[string]float64 `json:"us"`                // by way: "met"; "eager", "graph", "compiled" and others of PyTorch
	Kernels []string           `json:"kernels,omitempty"`
	Does    string             `json:"does,omitempty"`    // beyond the shape
	Missing string             `json:"missing,omitempty"` // why there is no time
	Sets    int                `json:"sets,omitempty"`
	Bytes   int64              `json:"bytes,omitempty"` // that must be moved at least
	Sweep   float64            `json:"sweep_gbs,omitempty"`
}

// Micro is what measures shapes.
type Micro struct {
	Device  gpu.Device
	Library *circuit.Library
	Sweep   float64
	Rotate  int            // as in Reading
	Only    *regexp.Regexp // shapes; nil: all
}

// most bounds the repetitions of a shape that are recorded together, and about how long they take.
const (
	mostCopies = 64
	copiesUS   = 2000
)

// Shapes are the names of all shapes, in order.
func Shapes() (names []string) {
	for _, s := range shapes32() {
		names = append(names, s.name)
	}
	return names
}

// Run measures the shapes, each by the launches that the device's class lowers it to.
func (m *Micro) Run(ctx context.Context) (*Reading, error) {
	out := &Reading{Program: "met", Device: m.Device.Info().Name, Rotate: m.Rotate}
	for _, s := range shapes32() {
		if m.Only != nil && !m.Only.MatchString(s.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, diag.Errorf(diag.Canceled, "the benchmark was interrupted: %w", err)
		}
		best := &ShapeTime{Shape: s.name, Further: s.further}
		for i := range s.variants {
			t, err := m.measure(&s, &s.variants[i])
			switch {
			case err == nil && (best.Times == nil || t.Times["met"] < best.Times["met"]):
				best = t
			case err == nil:
			case diag.CodeOf(err) == diag.DeviceLost:
				return nil, err
			case best.Times == nil && best.Missing == "":
				best.Missing = err.Error()
			}
		}
		if best.Times != nil {
			best.Missing = ""
		}
		out.Shapes = append(out.Shapes, best)
	}
	return out, nil
}

// measure times a variant.
func (m *Micro) measure(s *shape, v *variant) (*ShapeTime, error) {
	in, p, err := m.lower(s, v)
	if err != nil {
		return nil, err
	}
	t := &ShapeTime{Shape: s.name, Further: s.further, Does: v.note, Sweep: m.Sweep}
	costs, err := in.Costs(p, circuit.Load{Rows: int64(s.rows), Seqs: 1, Outs: 1, Context: int64(s.behind) + int64(s.rows+1)/2})
	if err != nil {
		return nil, err
	}
	for i, c := range costs {
		if measured(&p.Launches[i]) {
			t.Bytes += c.Bytes
			t.Kernels = append(t.Kernels, p.Launches[i].Kernel)
		}
	}
	sets, err := m.sets(p, s, v)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range sets {
			f.free()
		}
	}()
	t.Sets = len(sets)
	us, err := m.time(sets)
	t.Times = map[string]float64{"met": us}
	return t, err
}

// lower compiles a variant, and refuses plans that read matrices in another form than the shape is about.
func (m *Micro) lower(s *shape, v *variant) (*circuit.Instance, *plan.Plan, error) {
	in, err := v.fragment.Instance()
	if err != nil {
		return nil, nil, err
	}
	class := m.Device.Info().Class
	size := max(1, m.Library.Tree.Classes[class].Defaults.PageSize)
	p, err := in.Lower(m.Library, in.SyntheticCatalog(v.matrices()), circuit.Options{Class: class, Compute: circuit.Declared,
		Limits: plan.Limits{Rows: int64(s.rows), Seqs: 1, Outs: 1, PageSize: size, Pages: (int64(s.behind+s.rows) + size - 1) / size}})
	if err != nil {
		return nil, nil, err
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		layout, err := m.Device.Layout(w.Layout)
		if err != nil {
			return nil, nil, err
		}
		packed, err := layout.Size(w.DType, w.Axes.Shape())
		if err != nil {
			return nil, nil, err
		}
		if len(w.Axes) > 1 && w.DType == v.matrices() && packed > 2*w.DType.Bytes(w.Axes.Shape().Elems()) {
			return nil, nil, diag.Errorf(diag.Unsupported, "no kernel of class %s reads %v weights: %s would read them as %v", class, w.DType, p.Launches[0].Kernel, layout.DType(w.DType))
		}
	}
	return in, p, nil
}

// sets makes as many sets of arrays as it takes for Rotate.
func (m *Micro) sets(p *plan.Plan, s *shape, v *variant) (list []*fragment, err error) {
	for bytes := int64(0); len(list) == 0 || bytes < int64(m.Rotate)<<20 && len(list) < mostCopies; {
		f, err := newFragment(m.Device, p, s, v.ranges)
		if err != nil {
			for _, f := range list {
				f.free()
			}
			return nil, err
		}
		list, bytes = append(list, f), bytes+f.bytes
	}
	return list, nil
}

// time is the median over replays of a recording that runs the sets in turn, often enough that its start does not count.
func (m *Micro) time(sets []*fragment) (float64, error) {
	dev := m.Device
	run := func(launches []gpu.Launch) func() error {
		return func() error {
			for _, l := range launches {
				if err := dev.Stream().Launch(l); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var round []gpu.Launch
	for _, f := range sets {
		round = append(round, f.launches...)
	}
	us, err := repeat(dev, 1, 1, run(round))
	if err != nil {
		return 0, err
	}
	rounds := max(1, min(mostCopies/len(sets), int(copiesUS/us)))
	var all []gpu.Launch
	for range rounds {
		all = append(all, round...)
	}
	start := run(all)
	if g, ok := dev.(gpu.Grapher); ok {
		graph, err := g.Graph("repetitions", all)
		if err != nil {
			return 0, err
		}
		if x, ok := graph.(interface{ Free() }); ok {
			defer x.Free()
		}
		start = func() error { return dev.Stream().Launch(graph) }
	}
	us, err = repeat(dev, 11, 1, start)
	return us / float64(rounds*len(sets)), err
}

// Compare prints our times beside others', shape by shape, and how many are ahead of PyTorch's eager one and of the best of
// eager, graph and compiled.
func Compare(w io.Writer, ours *Reading, others ...*Reading) error {
	ways := []string{"eager", "graph", "compiled"}
	theirs := map[string]map[string]float64{}
	for _, r := range others {
		if r.Rotate != ours.Rotate {
			return diag.Errorf(diag.Invalid, "the readings do not compare: rotate_mib is %d in one and %d in another", ours.Rotate, r.Rotate)
		}
		for _, s := range r.Shapes {
			if theirs[s.Shape] == nil {
				theirs[s.Shape] = map[string]float64{}
			}
			for way, us := range s.Times {
				theirs[s.Shape][way] = us
			}
		}
	}
	rows := [][]string{{"SHAPE", "MET µS", "EAGER", "GRAPH", "COMPILED", "OTHERS", "× EAGER", "× BEST OF 3", "KERNELS"}}
	n, eager, best, lacking := 0, 0, 0, 0
	for _, s := range ours.Shapes {
		row := []string{s.Shape, "-"}
		mine, measured := s.Times["met"], s.Times != nil
		if measured {
			row[1] = fmt.Sprintf("%.2f", mine)
		}
		t, least := theirs[s.Shape], 0.0
		for _, way := range ways {
			if us, ok := t[way]; ok {
				row = append(row, fmt.Sprintf("%.2f", us))
				if least == 0 || us < least {
					least = us
				}
			} else {
				row = append(row, "-")
			}
		}
		row = append(row, further(t, ways), ratio(t["eager"], mine), ratio(least, mine), strings.Join(append(s.Kernels, s.Does, s.Missing), " "))
		rows = append(rows, row)
		if s.Further {
			continue
		}
		n++
		switch {
		case !measured:
			lacking++
		default:
			if t["eager"] > mine {
				eager++
			}
			if least > mine {
				best++
			}
		}
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "of %d shapes: ahead of eager on %d, of the best of three on %d; without a kernel of ours: %d\n", n, eager, best, lacking)
	return err
}

// further lists the times of other ways.
func further(t map[string]float64, ways []string) string {
	var words []string
	for _, way := range slices.Sorted(maps.Keys(t)) {
		if !slices.Contains(ways, way) {
			words = append(words, fmt.Sprintf("%s %.2f", way, t[way]))
		}
	}
	if words == nil {
		return "-"
	}
	return strings.Join(words, ", ")
}

func ratio(theirs, mine float64) string {
	if theirs == 0 || mine == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", theirs/mine)
}

// PrintReading writes our times as a table.
func PrintReading(w io.Writer, r *Reading) error {
	rows := [][]string{{"SHAPE", "µS", "FLOOR µS", "SETS", "KERNELS"}}
	for _, s := range r.Shapes {
		if s.Times == nil {
			rows = append(rows, []string{s.Shape, "-", "-", "-", s.Missing})
			continue
		}
		floor := "-"
		if s.Sweep > 0 {
			floor = fmt.Sprintf("%.2f", float64(s.Bytes)/s.Sweep/1000)
		}
		rows = append(rows, []string{s.Shape, fmt.Sprintf("%.2f", s.Times["met"]), floor, fmt.Sprint(s.Sets), strings.TrimSpace(strings.Join(s.Kernels, " ") + " " + s.Does)})
	}
	return table(w, rows)
}
