// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
)

// Prefilling is one prompt's figures.
type Prefilling struct {
	Model    string  `json:"model"`
	Tokens   int     `json:"tokens"`
	Chunk    int     `json:"chunk"` // tokens of a step at most
	Millis   float64 `json:"ms"`    // median from the first step to the first token
	TokS     float64 `json:"tok_s"`
	Launches int     `json:"launches"` // of the largest step
	Flops    float64 `json:"flops"`
	Ceiling  float64 `json:"ceiling_flops_s"` // 0: none
	Share    float64 `json:"share"`           // of the ceiling
}

// timed is how many prefills count, after warmPrefills: a step's first run loads code, its second records.
const (
	timed        = 5
	warmPrefills = 2
)

// Chunks are the rows of each step of a prompt.
func Chunks(tokens, chunk int) (list []int) {
	for at := 0; at < tokens; at += chunk {
		list = append(list, min(chunk, tokens-at))
	}
	return list
}

// Prefill runs one prompt of so many tokens through steps of at most chunk rows, up to its first token. ceiling is in flops per
// second.
func (s *Subject) Prefill(ctx context.Context, tokens, chunk int, ceiling float64) (*Prefilling, error) {
	p := &Prefilling{Model: s.Name, Tokens: tokens, Chunk: chunk, Ceiling: ceiling}
	var steps []*exec.Step
	behind := 0
	for _, rows := range Chunks(tokens, chunk) {
		plan := s.Model.Plan(rows)
		if plan == nil {
			return nil, diag.Errorf(diag.Internal, "no plan holds %d rows", rows)
		}
		costs, err := s.Instance.Costs(plan, circuit.Load{Rows: int64(rows), Seqs: 1, Outs: 1, Context: int64(behind + (rows+1)/2)})
		if err != nil {
			return nil, err
		}
		for _, c := range costs {
			p.Flops += float64(c.Flops)
		}
		p.Launches = max(p.Launches, launches(plan))
		steps = append(steps, promptStep(s.Model.Limits(), behind, rows, behind+rows == tokens))
		behind += rows
	}
	policy := seq.Greedy()
	var state sample.Seq
	var scratch sample.Scratch
	var all []time.Duration
	for i := range warmPrefills + timed {
		if err := ctx.Err(); err != nil {
			return nil, diag.Errorf(diag.Canceled, "the benchmark was interrupted: %w", err)
		}
		state.Reset(&policy, nil)
		began := time.Now()
		var logits [][]float32
		for _, step := range steps {
			var err error
			if logits, err = s.Model.Run(step); err != nil {
				return nil, err
			}
		}
		if _, err := scratch.Sample(&state, sample.Row{Logits: logits[0]}); err != nil {
			return nil, err
		}
		if i >= warmPrefills {
			all = append(all, time.Since(began))
		}
	}
	p.Millis = micros(median(all)) / 1000
	p.TokS = 1000 * float64(tokens) / p.Millis
	if ceiling > 0 {
		p.Share = p.Flops / ceiling / p.Millis * 1000
	}
	return p, nil
}

// promptStep is rows of the only sequence behind others; the last one's logits are wanted if it ends the prompt.
func promptStep(l exec.Limits, behind, rows int, last bool) *exec.Step {
	s := &exec.Step{CuRows: []int32{0, int32(rows)}, StateSlot: []int32{0}, Fresh: []int32{0}, Pages: [][]int32{make([]int32, l.Pages)}}
	if behind == 0 {
		s.Fresh[0] = 1
	}
	if last {
		s.OutRows = []int32{int32(rows - 1)}
	}
	for i := range s.Pages[0] {
		s.Pages[0][i] = int32(i)
	}
	for i := range rows {
		pos := int32(behind + i)
		s.Tokens, s.Positions = append(s.Tokens, (pos*7919+1)%int32(l.Vocab)), append(s.Positions, pos)
		s.RowSeq, s.Slots = append(s.RowSeq, 0), append(s.Slots, pos)
	}
	return s
}

// Ceiling is what the device's kernels reach on a large product of bf16 matrices, in flops per second.
func Ceiling(dev gpu.Device, lib *circuit.Library) (float64, error) {
	n := 8192
	if dev.Info().Class == "cpu" {
		n = 512
	}
	return ceiling(dev, lib, n)
}

func ceiling(dev gpu.Device, lib *circuit.Library, n int) (float64, error) {
	m := &Micro{Device: dev, Library: lib}
	v := matmul(n, n, tensor.BF16)
	t, err := m.measure(&shape{name: "ceiling", rows: n}, &v)
	if err != nil {
		return 0, err
	}
	return 2 * float64(n) * float64(n) * float64(n) / t.Times["met"] * 1e6, nil
}

// PrintPrefilling writes prompts as a table.
func PrintPrefilling(w io.Writer, list []*Prefilling) error {
	rows := [][]string{{"MODEL", "TOKENS", "CHUNK", "MS", "TOK/S", "TFLOP", "TFLOP/S", "CEILING", "OF CEILING", "LAUNCHES"}}
	for _, p := range list {
		rows = append(rows, []string{p.Model, fmt.Sprint(p.Tokens), fmt.Sprint(p.Chunk), fmt.Sprintf("%.2f", p.Millis), fmt.Sprintf("%.0f", p.TokS), fmt.Sprintf("%.3f", p.Flops/1e12),
			fmt.Sprintf("%.1f", p.Flops/p.Millis/1e9), fmt.Sprintf("%.1f", p.Ceiling/1e12), percent(p.Share), fmt.Sprint(p.Launches)})
	}
	return table(w, rows)
}
