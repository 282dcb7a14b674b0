// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// KernelTime is a kernel at one set of shapes, as a step has it.
type KernelTime struct {
	Model  string  `json:"model"`
	Batch  int     `json:"batch"`
	Kernel string  `json:"kernel"`
	Launch string  `json:"launch"` // the first of those
	Shapes string  `json:"shapes"` // of its weights and states
	Count  int     `json:"count"`  // in a step
	Each   float64 `json:"us"`
	Bytes  int64   `json:"bytes"` // that one moves at least
	Sweep  float64 `json:"sweep_gbs"`
	Share  float64 `json:"share"` // of the sweep
}

// Kernels times each kernel of a step at each of its shapes: all its launches of the step one after the other, so that every one
// finds other weights than its predecessor. Launches that give indices to others (a router's) come along, and their time is
// taken off.
func (s *Subject) Kernels(ctx context.Context, batch, context int) ([]*KernelTime, error) {
	r := newRun(s.Model.Limits(), nil, batch, context)
	p := s.Model.Plan(batch)
	if p == nil {
		return nil, diag.Errorf(diag.Internal, "no plan holds a batch of %d", batch)
	}
	costs, err := s.Instance.Costs(p, circuit.Load{Rows: int64(batch), Seqs: int64(batch), Outs: int64(batch), Context: int64(context)})
	if err != nil {
		return nil, err
	}
	for range 2 {
		if _, err := s.Model.Run(r.step); err != nil {
			return nil, err
		}
		clear(r.step.Fresh)
	}
	probe, err := s.Model.Probe(r.step)
	if err != nil {
		return nil, err
	}
	groups := map[string][]int{}
	for i := range p.Launches {
		key := p.Launches[i].Kernel + " " + shapes(p, i)
		groups[key] = append(groups[key], i)
	}
	var out []*KernelTime
	for _, list := range groups {
		if err := ctx.Err(); err != nil {
			return nil, diag.Errorf(diag.Canceled, "the benchmark was interrupted: %w", err)
		}
		with, alone := companions(p, list)
		us := 0.0
		for i, set := range [][]int{with, alone} {
			if len(set) == 0 {
				continue
			}
			rec, err := probe.Record(set)
			if err != nil {
				return nil, err
			}
			t, err := repeat(s.Device, 9, 1, rec.Start)
			rec.Free()
			if err != nil {
				return nil, err
			}
			if us += t; i == 1 {
				us -= 2 * t
			}
		}
		first := list[0]
		k := &KernelTime{Model: s.Name, Batch: batch, Kernel: p.Launches[first].Kernel, Launch: p.Launches[first].Name, Shapes: shapes(p, first),
			Count: len(list), Each: us / float64(len(list)), Bytes: costs[first].Bytes, Sweep: s.Sweep}
		k.Share = share(k.Bytes, k.Sweep, k.Each)
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b *KernelTime) int {
		return cmp.Or(cmp.Compare(b.Each*float64(b.Count), a.Each*float64(a.Count)), cmp.Compare(a.Launch, b.Launch))
	})
	return out, nil
}

// shapes describes a launch's weights and states: "w [4096 4096] bf16".
func shapes(p *plan.Plan, i int) string {
	var words []string
	for j := range p.Launches[i].Args {
		a := &p.Launches[i].Args[j]
		if a.Kind != plan.ArgWeight && a.Kind != plan.ArgState {
			continue
		}
		_, d, axes := p.Array(a)
		if shape := axes.Shape(); a.Kind == plan.ArgState || len(shape) > 1 {
			words = append(words, fmt.Sprintf("%s %v %v", a.Param, []int64(shape), d))
		}
	}
	return strings.Join(words, ", ")
}

// companions are the launches with those that write the indices which they read, and the latter alone.
func companions(p *plan.Plan, list []int) (with, alone []int) {
	for _, i := range list {
		for _, a := range p.Launches[i].Args {
			if a.Kind != plan.ArgBuffer || a.Access == plan.Out || p.Buffers[a.Index].DType != tensor.I32 {
				continue
			}
			for j := i - 1; j >= 0; j-- {
				if slices.ContainsFunc(p.Launches[j].Args, func(b plan.Arg) bool { return b.Kind == plan.ArgBuffer && b.Index == a.Index && b.Access != plan.In }) {
					with, alone = append(with, j), append(alone, j)
					break
				}
			}
		}
		with = append(with, i)
	}
	return with, alone
}

// PrintKernels writes the times as a table, with what all of a step add up to.
func PrintKernels(w io.Writer, list []*KernelTime) error {
	rows := [][]string{{"MODEL", "BATCH", "KERNEL", "LAUNCH", "SHAPES", "COUNT", "µS", "FLOOR µS", "OF SWEEP", "µS OF STEP"}}
	sum := 0.0
	for i, k := range list {
		floor := "-"
		if k.Sweep > 0 {
			floor = fmt.Sprintf("%.2f", float64(k.Bytes)/k.Sweep/1000)
		}
		rows = append(rows, []string{k.Model, fmt.Sprint(k.Batch), k.Kernel, k.Launch, k.Shapes, fmt.Sprint(k.Count), fmt.Sprintf("%.2f", k.Each), floor,
			percent(k.Share), fmt.Sprintf("%.0f", k.Each*float64(k.Count))})
		sum += k.Each * float64(k.Count)
		if i+1 == len(list) || list[i+1].Model != k.Model || list[i+1].Batch != k.Batch {
			rows = append(rows, []string{k.Model, fmt.Sprint(k.Batch), "all", "", "", "", "", "", "", fmt.Sprintf("%.0f", sum)})
			sum = 0
		}
	}
	return table(w, rows)
}

func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}
