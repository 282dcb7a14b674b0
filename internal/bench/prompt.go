// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
)

// PromptKernel is a kernel at one place of a layer, in the step of a whole prompt.
type PromptKernel struct {
	Model  string  `json:"model"`
	Rows   int     `json:"rows"`
	Kernel string  `json:"kernel"` // "step" for all launches together, in their order
	Launch string  `json:"launch"` // the first of those
	Shapes string  `json:"shapes"` // of its weights and states
	Count  int     `json:"count"`  // in the step
	Starts int     `json:"starts"` // what the driver starts for each
	Each   float64 `json:"us"`     // median of those that were measured
	Flops  int64   `json:"flops"`
	Bytes  int64   `json:"bytes"`    // that one moves at least
	Floor  float64 `json:"floor_us"` // the longer of both at the ceiling and at the sweep; 0: neither is known
}

// Of each kernel at a place so many launches are measured, each as often one behind the other.
const (
	promptSamples = 3
	promptCopies  = 4
)

// layer is what names of launches begin with, one or several layers'.
var layer = regexp.MustCompile(`L\d+\.`)

// PromptKernels times the kernels of a step that is all of a prompt. Each is measured in its place of the step, where its
// inputs are what the step makes of them; what it adds to is put back. ceiling is in flops per second, 0 if it is not known.
func (s *Subject) PromptKernels(ctx context.Context, tokens int, ceiling float64) ([]*PromptKernel, error) {
	p := s.Model.Plan(tokens)
	if p == nil {
		return nil, diag.Errorf(diag.Internal, "no plan holds %d rows", tokens)
	}
	costs, err := s.Instance.Costs(p, circuit.Load{Rows: int64(tokens), Seqs: 1, Outs: 1, Context: int64((tokens + 1) / 2)})
	if err != nil {
		return nil, err
	}
	step := promptStep(s.Model.Limits(), 0, tokens, true)
	for range 2 {
		if _, err := s.Model.Run(step); err != nil {
			return nil, err
		}
	}
	probe, err := s.Model.Probe(step)
	if err != nil {
		return nil, err
	}
	all, err := s.replay(probe, span(len(p.Launches)))
	if err != nil {
		return nil, err
	}
	floor := func(flops, bytes int64) (us float64) {
		if ceiling > 0 {
			us = float64(flops) / ceiling * 1e6
		}
		if s.Sweep > 0 {
			us = max(us, float64(bytes)/s.Sweep/1000)
		}
		return us
	}
	whole := &PromptKernel{Model: s.Name, Rows: tokens, Kernel: "step", Count: 1, Starts: launches(p), Each: all}
	out := []*PromptKernel{whole}
	places, times := map[string]*PromptKernel{}, map[*PromptKernel][]float64{}
	for i := range p.Launches {
		if err := interrupted(ctx); err != nil {
			return nil, err
		}
		l := &p.Launches[i]
		key := strings.Join([]string{l.Kernel, layer.ReplaceAllString(l.Name, ""), shapes(p, i)}, " ")
		k := places[key]
		if k == nil {
			k = &PromptKernel{Model: s.Name, Rows: tokens, Kernel: l.Kernel, Launch: l.Name, Shapes: shapes(p, i), Starts: max(1, len(l.Grid)/5),
				Flops: costs[i].Flops, Bytes: costs[i].Bytes, Floor: floor(costs[i].Flops, costs[i].Bytes)}
			places[key] = k
			out = append(out, k)
		}
		k.Count, whole.Flops, whole.Bytes, whole.Floor = k.Count+1, whole.Flops+costs[i].Flops, whole.Bytes+costs[i].Bytes, whole.Floor+k.Floor
		if k.Count <= promptSamples {
			us, err := s.inPlace(probe, i)
			if err != nil {
				return nil, err
			}
			times[k] = append(times[k], us)
		}
		if err := probe.Run(i); err != nil {
			return nil, err
		}
	}
	for k, list := range times {
		k.Each = median(list)
	}
	slices.SortFunc(out[1:], func(a, b *PromptKernel) int {
		return cmp.Or(cmp.Compare(b.Each*float64(b.Count), a.Each*float64(a.Count)), cmp.Compare(a.Launch, b.Launch))
	})
	return out, nil
}

// inPlace times a launch and puts back the buffers that it adds to.
func (s *Subject) inPlace(probe *exec.Probe, launch int) (us float64, err error) {
	p := probe.Plan()
	before := map[int][]byte{}
	for _, a := range p.Launches[launch].Args {
		if a.Kind == plan.ArgBuffer && a.Access == plan.InOut && before[a.Index] == nil {
			before[a.Index] = make([]byte, p.Buffers[a.Index].DType.Bytes(p.Buffers[a.Index].Axes.Shape().Elems()))
			if err := probe.Read(a.Index, before[a.Index]); err != nil {
				return 0, err
			}
		}
	}
	us, err = s.replay(probe, slices.Repeat([]int{launch}, promptCopies))
	for i, raw := range before {
		if err == nil {
			err = probe.Write(i, raw)
		}
	}
	return us / promptCopies, err
}

// replay times launches that are started together.
func (s *Subject) replay(probe *exec.Probe, list []int) (us float64, err error) {
	rec, err := probe.Record(list)
	if err != nil {
		return 0, err
	}
	defer rec.Free()
	return repeat(s.Device, 3, 1, rec.Start)
}

// PrintPromptKernels writes the times as a table, the kernel that takes most of a step first.
func PrintPromptKernels(w io.Writer, list []*PromptKernel) error {
	rows := [][]string{{"MODEL", "ROWS", "KERNEL", "LAUNCH", "SHAPES", "COUNT", "STARTS", "µS", "FLOOR µS", "OF FLOOR", "µS OF STEP", "OF STEP"}}
	sum, step := 0.0, 0.0
	for i, k := range list {
		of := k.Each * float64(k.Count)
		if sum += of; k.Kernel == "step" {
			sum, step = 0, k.Each
		}
		floor := "-"
		if k.Floor > 0 {
			floor = fmt.Sprintf("%.1f", k.Floor)
		}
		rows = append(rows, []string{k.Model, fmt.Sprint(k.Rows), k.Kernel, k.Launch, k.Shapes, fmt.Sprint(k.Count), fmt.Sprint(k.Starts),
			fmt.Sprintf("%.1f", k.Each), floor, percent(k.Floor / k.Each), fmt.Sprintf("%.0f", of), percent(of / step)})
		if i+1 == len(list) || list[i+1].Kernel == "step" {
			rows = append(rows, []string{k.Model, fmt.Sprint(k.Rows), "sum", "", "", "", "", "", "", "", fmt.Sprintf("%.0f", sum), percent(sum / step)})
		}
	}
	return table(w, rows)
}
