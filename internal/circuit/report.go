// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
)

// Roofline reports each launch's flops, bytes and the least time that the device needs for them, and what fits its memory.
func (in *Instance) Roofline(p *plan.Plan, d *kernel.Device, load Load) (string, error) {
	costs, err := in.Costs(p, load)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: %d rows of %d sequences, %d keys each, %d with logits\n\n", in.Name(), d.Name, load.Rows, load.Seqs, load.Context, load.Outs)
	rows := [][]string{{"launch", "kernel", "type", "flops", "bytes", "least time", "bound"}}
	var total Cost
	var time float64
	for i, c := range costs {
		l := &p.Launches[i]
		t, bound := c.least(d)
		rows = append(rows, []string{l.Name, l.Kernel, c.Operands, count(float64(c.Flops)), size(c.Bytes), seconds(t), bound})
		total.Flops += c.Flops
		total.Bytes += c.Bytes
		total.WeightBytes += c.WeightBytes
		time += t
	}
	rows = append(rows, []string{"all", fmt.Sprint(len(costs)), "", count(float64(total.Flops)), size(total.Bytes), seconds(time), ""})
	columns(&b, rows)
	fmt.Fprintf(&b, "\nweights read %s; at most %.4g steps/s, %.4g tokens/s, if every launch reached its bound\n", size(total.WeightBytes), 1/time, float64(load.Rows)/time)
	m := MemoryOf(p)
	if n := m.Concurrency(d.Memory, load.Context, p.Limits.PageSize); n < 0 {
		fmt.Fprintf(&b, "memory: weights %s and arena %s do not fit %s\n", size(m.Weights), size(m.Arena), size(d.Memory))
	} else {
		fmt.Fprintf(&b, "memory: weights %s, arena %s of %s; room for %d sequences of %d tokens\n", size(m.Weights), size(m.Arena), size(d.Memory), n, load.Context)
	}
	fmt.Fprintf(&b, "device facts: %s\n", d.Source)
	return b.String(), nil
}

// least is the time below which the device cannot do it, and what bounds it.
func (c Cost) least(d *kernel.Device) (float64, string) {
	peak, ok := d.Flops[c.Operands]
	if !ok {
		peak = d.Flops["f32"]
	}
	compute, move := float64(c.Flops)/peak, float64(c.Bytes)/d.Bandwidth
	if compute > move {
		return compute, "arithmetic"
	}
	return move, "memory"
}

// MemoryReport says what a plan keeps where, and how many sequences fit into total bytes (0: not asked).
func (in *Instance) MemoryReport(p *plan.Plan, total, tokens int64) string {
	var b strings.Builder
	m := MemoryOf(p)
	kinds := map[string]int64{}
	for i := range p.Weights {
		kinds[p.Weights[i].DType.String()] += weightBytes(&p.Weights[i])
	}
	rows := [][]string{{"weights", size(m.Weights), fmt.Sprintf("%d arrays", len(p.Weights))}}
	for _, d := range sortedBySize(kinds) {
		rows = append(rows, []string{"  " + d, size(kinds[d]), fmt.Sprintf("%.1f %%", 100*float64(kinds[d])/float64(m.Weights))})
	}
	rows = append(rows, []string{"arena", size(m.Arena), fmt.Sprintf("%d buffers, steps of %d rows", len(p.Buffers), p.Limits.Rows)})
	paged, slots := 0, 0
	for i := range p.States {
		if p.States[i].Kind == plan.Paged {
			paged++
		} else {
			slots++
		}
	}
	rows = append(rows,
		[]string{"K and V per token", size(m.PerToken), fmt.Sprintf("%d arrays of %v", paged, p.KV)},
		[]string{"state per sequence", size(m.PerSeq), fmt.Sprintf("%d arrays", slots)},
		[]string{fmt.Sprintf("one sequence of %d", tokens), size(tokens*m.PerToken + m.PerSeq), ""})
	fmt.Fprintf(&b, "%s, compute %s\n\n", in.Name(), p.Compute)
	columns(&b, rows)
	if total > 0 {
		switch n := m.Concurrency(total, tokens, p.Limits.PageSize); {
		case n < 0:
			fmt.Fprintf(&b, "\nthe weights and the arena do not fit %s\n", size(total))
		default:
			fmt.Fprintf(&b, "\n%s hold %d sequences of %d tokens\n", size(total), n, tokens)
		}
	}
	return b.String()
}

func sortedBySize(m map[string]int64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if m[a] != m[b] {
			return int(max(-1, min(1, m[b]-m[a])))
		}
		return strings.Compare(a, b)
	})
	return keys
}

// columns pads a table.
func columns(b *strings.Builder, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, r := range rows {
		line := ""
		for i, c := range r {
			line += c + strings.Repeat(" ", width[i]-len([]rune(c))+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// size prints bytes: 1.5 GiB.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.4g %s", f, units[u])
}

// count prints a number with a decimal prefix: 2.1 G.
func count(f float64) string {
	units := []string{"", "k", "M", "G", "T", "P"}
	u := 0
	for f >= 1000 && u < len(units)-1 {
		f, u = f/1000, u+1
	}
	return strings.TrimSpace(fmt.Sprintf("%.3g %s", f, units[u]))
}

// seconds prints a time: 12.3 µs.
func seconds(t float64) string {
	switch {
	case t >= 1:
		return fmt.Sprintf("%.3g s", t)
	case t >= 1e-3:
		return fmt.Sprintf("%.3g ms", t*1e3)
	case t >= 1e-6:
		return fmt.Sprintf("%.3g µs", t*1e6)
	}
	return fmt.Sprintf("%.3g ns", t*1e9)
}
