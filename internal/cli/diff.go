// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// diffFlags are those of `met circuit diff`.
type diffFlags struct {
	deviceFlags
	format, compute, kv string
	tokens              int
	summary             bool
}

func newCircuitDiffCmd(env environment) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff <model> --device cuda",
		Short: "Compare a device with the CPU launch by launch, fused with unfused, recorded with not",
		Long: `Runs three steps (two prompts, one more token of each, one more of the first alone) and compares:
  every launch of the device with the CPU's float32 values, each fed with the CPU's inputs, within the tolerance of its manifest;
  fused launches with the ops one by one, on the device, bit for bit where the rule is tagged so;
  steps that are replayed from a recording with the same steps started launch by launch, bit for bit.
An error is a multiple of what the tolerance allows: abs (times the root mean square of the reference, when that is above 1)
plus rel times the reference. Another choice of experts is right where the scores are equal but for that, and a NaN never is. The status is not 0 when one is above 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.tokens < 4 || f.tokens > 4096 {
				return diag.Errorf(diag.Invalid, "--tokens %d: want 4 to 4096", f.tokens).For("tokens")
			}
			if err := cmp.Or(f.deviceFlags.check(), checkLoadFormat(f.format), checkCompute(f.compute)); err != nil {
				return err
			}
			return f.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	f.deviceFlags.add(fl, env, "cuda")
	fl.StringVar(&f.format, "load-format", "auto", "auto: the checkpoint's weights; dummy: random ones, made from config.json alone")
	fl.StringVar(&f.compute, "compute", circuit.Float32, "float32, or declared: the precision that serving uses")
	fl.StringVar(&f.kv, "kv", "f32", "element type of K and V: f32, bf16, f16")
	fl.IntVar(&f.tokens, "tokens", 24, "tokens of the two prompts together")
	fl.BoolVar(&f.summary, "summary", false, "print the worst launch of each kernel only")
	return cmd
}

func (f *diffFlags) run(ctx context.Context, path string, out, log io.Writer) error {
	kv, err := parseKV(f.kv)
	if err != nil {
		return err
	}
	dev, err := f.open(log)
	if err != nil {
		return err
	}
	defer dev.Close()
	c, err := openAs(path, f.format)
	if err != nil {
		return err
	}
	defer c.store.Close()
	if err := c.target(dev, &f.deviceFlags, log, path); err != nil {
		return err
	}
	ref, err := cpu.Open(cpu.Options{Threads: f.threads, Path: f.cpuPath})
	if err != nil {
		return err
	}
	defer ref.Close()
	d := &differ{c: c, ctx: ctx, kv: kv, rows: int64(f.tokens), out: out, summary: f.summary}
	exact := circuit.Float32
	if dev.Info().Class == ref.Info().Class {
		exact = f.compute // the same kernels, whose bits are compared
	}
	host, err := d.open(ref, exact, true)
	if err != nil {
		return err
	}
	defer host.Close()
	want, err := d.record(host)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s against the CPU\n", dev.Info().Name)
	fused, err := d.open(dev, f.compute, false)
	if err != nil {
		return err
	}
	worst, err := d.compare(fused, want, host, func(pl *plan.Plan, l *plan.Launch, k *kernel.Kernel) (kernel.Tolerance, bool) {
		t := k.ToleranceOf(rowsOf(pl, l, k))
		if t == nil {
			return kernel.Tolerance{}, dev.Info().Class == "cpu" // bits
		}
		return *t, true
	})
	if _, ok := dev.(gpu.Grapher); ok && err == nil && !f.eager {
		err = d.replay(fused)
	}
	fused.Close()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "fused against unfused\n")
	unfused, err := d.open(dev, f.compute, true)
	if err != nil {
		return err
	}
	want, err = d.record(unfused)
	unfused.Close()
	if err != nil {
		return err
	}
	if fused, err = d.open(dev, f.compute, false); err != nil {
		return err
	}
	defer fused.Close()
	bits, err := d.compare(fused, want, nil, func(_ *plan.Plan, l *plan.Launch, _ *kernel.Kernel) (kernel.Tolerance, bool) {
		return kernel.Tolerance{}, l.Numerics == plan.BitIdentical && len(l.Ops) > 1
	})
	if err == nil && (worst > 1 || bits > 1) {
		err = diag.Errorf(diag.Internal, "launches are outside of their tolerance")
	}
	return err
}

// differ compares runs of the same three steps.
type differ struct {
	c       *checkpoint
	ctx     context.Context
	kv      tensor.DType
	rows    int64
	out     io.Writer
	summary bool
}

// interrupted is an error once the command is to end.
func (d *differ) interrupted() error {
	if err := d.ctx.Err(); err != nil {
		return diag.Errorf(diag.Canceled, "the comparison was interrupted: %w", err)
	}
	return nil
}

// diffModel is a model with the wires of its plans.
type diffModel struct {
	*exec.Model
	class string
	wires map[*plan.Plan][]map[string]circuit.Wire
}

// values are the edges' values in each step, real rows only.
type values [3]map[string][]byte

// open loads the model for steps of one row, of two and of all.
func (d *differ) open(dev gpu.Device, compute string, noFusion bool) (*diffModel, error) {
	m := &diffModel{class: dev.Info().Class, wires: map[*plan.Plan][]map[string]circuit.Wire{}}
	size := d.c.pageSize(m.class)
	var plans []*plan.Plan
	for _, rows := range []int64{1, 2, d.rows} {
		seqs := min(rows, 2)
		limits := plan.Limits{Rows: rows, Seqs: seqs, Outs: seqs, PageSize: size, Pages: (d.rows + size) / size}
		p, wires, err := d.c.instance.LowerWired(d.c.library, d.c.store, circuit.Options{Class: m.class, Compute: compute, KV: d.kv, Limits: limits, NoFusion: noFusion})
		if err != nil {
			return nil, err
		}
		plans, m.wires[p] = append(plans, p), wires
	}
	var err error
	m.Model, err = exec.Load(d.ctx, exec.Options{Device: dev, Plans: plans, Store: d.c.store, NumPages: 2 * int(plans[0].Limits.Pages), NumSlots: 2})
	return m, err
}

// step is the first step, of prompts, the second, of a token behind each, or the third, of one more behind the first.
func (d *differ) step(m *diffModel, number int) *exec.Step {
	l := m.Limits()
	a := d.rows - d.rows/3
	s := &exec.Step{CuRows: []int32{0}}
	for q, n := range []int64{a, d.rows - a} {
		first, fresh := int64(0), int32(1)
		if number > 0 {
			first, n, fresh = n+int64(number)-1, 1, 0
		}
		if number == 2 && q > 0 {
			break
		}
		var pages []int32
		for i := range (first+n-1)/l.PageSize + 1 {
			pages = append(pages, int32(int64(q)*l.Pages+i))
		}
		for pos := first; pos < first+n; pos++ {
			token := int32((uint64(pos+1)*2654435761 + uint64(q)*40503) % uint64(l.Vocab))
			s.Tokens, s.Positions, s.RowSeq = append(s.Tokens, token), append(s.Positions, int32(pos)), append(s.RowSeq, int32(q))
			s.Slots = append(s.Slots, int32(int64(pages[pos/l.PageSize])*l.PageSize+pos%l.PageSize))
		}
		s.CuRows, s.Pages = append(s.CuRows, int32(len(s.Tokens))), append(s.Pages, pages)
		s.StateSlot, s.Fresh, s.OutRows = append(s.StateSlot, int32(q)), append(s.Fresh, fresh), append(s.OutRows, int32(len(s.Tokens)-1))
	}
	return s
}

// bytesOf is the size of a buffer's real rows in a step.
func bytesOf(b *plan.Buffer, s *exec.Step) int64 {
	n := int64(1)
	for _, a := range b.Axes {
		switch a.Name {
		case plan.Rows:
			n *= int64(len(s.Tokens))
		case plan.Seqs:
			n *= int64(len(s.Pages))
		case plan.Outs:
			n *= int64(len(s.OutRows))
		default:
			n *= a.Size
		}
	}
	return b.DType.Bytes(n)
}

// run runs a launch and keeps what it writes in v.
func (m *diffModel) run(p *exec.Probe, launch int, s *exec.Step, v map[string][]byte) error {
	pl := p.Plan()
	l := &pl.Launches[launch]
	if err := p.Run(launch); err != nil {
		return diag.Errorf(diag.CodeOf(err), "launch %s (%s): %w", l.Name, l.Kernel, err)
	}
	got, err := outputs(p, l, m.wires[pl][launch], s)
	maps.Copy(v, got)
	return err
}

// outputs are the edges that a launch has written, real rows only.
func outputs(p *exec.Probe, l *plan.Launch, wires map[string]circuit.Wire, s *exec.Step) (map[string][]byte, error) {
	v := map[string][]byte{}
	for _, a := range l.Args {
		if edge := wires[a.Param].Out; edge != "" {
			v[edge] = make([]byte, bytesOf(&p.Plan().Buffers[a.Index], s))
			if err := p.Read(a.Index, v[edge]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// record runs the steps and keeps every edge's value.
func (d *differ) record(m *diffModel) (values, error) {
	v := values{{}, {}, {}}
	for i := range v {
		s := d.step(m, i)
		p, err := m.Probe(s)
		if err != nil {
			return v, err
		}
		for j := range p.Plan().Launches {
			if err := d.interrupted(); err != nil {
				return v, err
			}
			if err := m.run(p, j, s, v[i]); err != nil {
				return v, err
			}
		}
	}
	return v, nil
}

// compare runs each launch on the recorded inputs and prints how far its outputs are from the recorded ones. tolerance says
// what a launch may err by, and whether it is judged; from is the model that computes anew what wants rounded inputs. The result is the
// worst multiple of a tolerance.
func (d *differ) compare(m *diffModel, want values, from *diffModel, tolerance func(*plan.Plan, *plan.Launch, *kernel.Kernel) (kernel.Tolerance, bool)) (worst float64, err error) {
	t := newDiffTable(d.out, d.summary)
	kernels := d.c.library.Tree.Classes[m.class].Kernels
	for i := range want {
		s := d.step(m, i)
		p, err := m.Probe(s)
		if err != nil {
			return 0, err
		}
		pl := p.Plan()
		for j := range pl.Launches {
			l := &pl.Launches[j]
			if err := d.interrupted(); err != nil {
				return 0, err
			}
			if err := feed(p, j, m.wires[pl][j], want[i]); err != nil {
				return 0, err
			}
			if err := p.Run(j); err != nil {
				return 0, diag.Errorf(diag.CodeOf(err), "launch %s (%s): %w", l.Name, l.Kernel, err)
			}
			got, err := outputs(p, l, m.wires[pl][j], s)
			if err != nil {
				return 0, err
			}
			tol, judged := tolerance(pl, l, kernels[l.Kernel])
			ref := want[i]
			if judged && from != nil {
				if len(tol.Rounded) > 0 {
					ref, err = d.again(from, i, l, ref, rounded(m.wires[pl][j], tol.Rounded, ref))
				}
				if err == nil {
					ref, tol, err = d.choose(from, i, l, got, ref, tol)
				}
				if err != nil {
					return 0, err
				}
			}
			row := diffRow{step: i, launch: l.Name, kernel: l.Kernel, judged: judged}
			for _, a := range l.Args {
				edge := m.wires[pl][j][a.Param].Out
				if value, there := ref[edge]; edge != "" && there {
					row.add(pl.Buffers[a.Index].DType, got[edge], value, tol)
				}
			}
			worst = max(worst, t.add(row))
		}
	}
	return worst, t.flush()
}

// rowsOf are the rows that a launch's outputs have at most.
func rowsOf(p *plan.Plan, l *plan.Launch, k *kernel.Kernel) (rows int64) {
	for i := range l.Args {
		a := &l.Args[i]
		if m := k.Arg(a.Param); m != nil && m.Kind == kernel.BufferArg && m.Access != "in" && len(p.Buffers[a.Index].Axes) > 0 {
			rows = max(rows, p.Buffers[a.Index].Axes[0].Size)
		}
	}
	return rows
}

// feed writes a launch's inputs and fills its other outputs with NaN, so that a value that it does not write is seen.
func feed(p *exec.Probe, launch int, wires map[string]circuit.Wire, v map[string][]byte) error {
	pl := p.Plan()
	read := map[int]bool{}
	for _, a := range pl.Launches[launch].Args {
		w := wires[a.Param]
		if w.In == "" {
			continue
		}
		raw, ok := v[w.In]
		if !ok {
			return diag.Errorf(diag.Internal, "launch %s reads %s, which the reference does not compute", pl.Launches[launch].Name, w.In)
		}
		read[a.Index] = true
		if err := p.Write(a.Index, raw); err != nil {
			return err
		}
	}
	for _, a := range pl.Launches[launch].Args {
		if w := wires[a.Param]; w.Out == "" || read[a.Index] {
			continue
		}
		poison := make([]byte, len(v[wires[a.Param].Out]))
		for i := range poison {
			poison[i] = 0xff // a NaN in every float type
		}
		if err := p.Write(a.Index, poison); err != nil {
			return err
		}
	}
	return nil
}

// replay runs the steps three times: the first time launches are started one by one, later ones from the recording.
func (d *differ) replay(m *diffModel) error {
	var first [3][]float32
	for round := range 3 {
		for i := range first {
			rows, err := m.Run(d.step(m, i))
			if err != nil {
				return err
			}
			var all []float32
			for _, r := range rows {
				all = append(all, r...)
			}
			if round == 0 {
				first[i] = all
				continue
			}
			for j, x := range all {
				if math.Float32bits(x) != math.Float32bits(first[i][j]) {
					return diag.Errorf(diag.Internal, "step %d, logit %d: %g replayed, %g launch by launch", i, j, x, first[i][j])
				}
			}
		}
	}
	_, err := fmt.Fprintf(d.out, "recorded against launch by launch: %d logits, the same bits\n", len(first[0])+len(first[1])+len(first[2]))
	return err
}

// diffRow is how far a launch is off.
type diffRow struct {
	step           int
	launch, kernel string
	abs, rel       float64
	ratio          float64 // of the error to the tolerance
	judged         bool
	count          int // launches that the row stands for
}

// add holds an output against its reference. The same infinity on both sides is right. A NaN never is, not even of both: it shows nothing, and
// what a launch does not write is one. What is not finite has no part in the scale.
func (r *diffRow) add(d tensor.DType, raw, ref []byte, tol kernel.Tolerance) {
	if len(raw) != len(ref) {
		r.ratio = math.Inf(1)
		return
	}
	value := func(b []byte, i int) float64 {
		bits := binary.LittleEndian.Uint32(b[4*i:])
		if d == tensor.I32 {
			return float64(int32(bits))
		}
		return float64(math.Float32frombits(bits))
	}
	n, finite, square := len(raw)/4, 0, 0.0
	for i := range n {
		if y := value(ref, i); !math.IsNaN(y) && !math.IsInf(y, 0) {
			finite++
			square += y * y
		}
	}
	scale := max(1, math.Sqrt(square/float64(max(finite, 1))))
	if d == tensor.I32 {
		tol = kernel.Tolerance{}
	}
	for i := range n {
		x, y := value(raw, i), value(ref, i)
		e := math.Abs(x - y)
		switch {
		case x == y:
		case math.IsNaN(e) || math.IsInf(e, 0):
			r.abs, r.rel, r.ratio = math.Inf(1), math.Inf(1), math.Inf(1)
		default:
			r.abs = max(r.abs, e)
			r.rel = max(r.rel, e/max(math.Abs(y), 1e-30))
			r.ratio = max(r.ratio, e/(tol.Abs*scale+tol.Rel*math.Abs(y))) // infinite where nothing is allowed
		}
	}
}

// diffTable prints rows, or the worst of each kernel.
type diffTable struct {
	w       *tabwriter.Writer
	summary bool
	worst   map[string]*diffRow
	order   []string
}

func newDiffTable(out io.Writer, summary bool) *diffTable {
	t := &diffTable{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), summary: summary, worst: map[string]*diffRow{}}
	fmt.Fprintln(t.w, "\tKERNEL\tLAUNCH\tSTEP\tMAX ABS\tMAX REL\tOF TOLERANCE")
	return t
}

// add takes a row and gives its multiple of the tolerance, 0 when it is not judged.
func (t *diffTable) add(r diffRow) float64 {
	if !t.summary {
		t.print(&r)
	} else if w := t.worst[r.kernel]; w == nil {
		r.count = 1
		t.worst[r.kernel], t.order = &r, append(t.order, r.kernel)
	} else {
		r.count = w.count + 1
		if !r.judged && w.judged || r.ratio <= w.ratio {
			w.count = r.count
		} else {
			*w = r
		}
	}
	if !r.judged {
		return 0
	}
	return r.ratio
}

func (t *diffTable) print(r *diffRow) {
	mark, ratio := "ok", fmt.Sprintf("%.2g", r.ratio)
	switch {
	case !r.judged:
		mark, ratio = "-", "not judged"
	case r.ratio > 1:
		mark = "FAIL"
	}
	launch := r.launch
	if t.summary {
		launch = fmt.Sprintf("%s, of %d", launch, r.count)
	}
	fmt.Fprintf(t.w, "%s\t%s\t%s\t%d\t%.2g\t%.2g\t%s\n", mark, r.kernel, launch, r.step, r.abs, r.rel, ratio)
}

func (t *diffTable) flush() error {
	for _, k := range t.order {
		t.print(t.worst[k])
	}
	return t.w.Flush()
}
