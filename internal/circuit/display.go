// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"strings"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
)

// Display draws the layers as a strip and, once per kind of layer and for what stands around the layers, the ops in order
// with fused groups framed. p was lowered from in.
func (in *Instance) Display(p *plan.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d layers, %d ops in %d launches\n\n", in.Name(), len(in.Kinds), len(in.Nodes), len(p.Launches))
	in.strip(&b)
	nodes := map[string]*Node{}
	for _, n := range in.Nodes {
		nodes[n.ID] = n
	}
	shown, inside := map[string]bool{}, false
	for i := range p.Launches {
		l := &p.Launches[i]
		first := nodes[l.Ops[0]]
		title := "before the layers"
		if first.Layer >= 0 {
			inside = true
			title = in.Kinds[first.Layer]
			if first.Layer != in.firstOf(title) {
				continue
			}
			title = fmt.Sprintf("layer %d: %s", first.Layer, title)
		} else if inside {
			title = "after the layers"
		}
		if !shown[title] {
			shown[title] = true
			fmt.Fprintf(&b, "\n%s\n", title)
		}
		in.drawLaunch(&b, l, nodes)
	}
	return b.String()
}

// firstOf is the first layer of a kind.
func (in *Instance) firstOf(kind string) int {
	for i, k := range in.Kinds {
		if k == kind {
			return i
		}
	}
	return -1
}

// strip draws one letter per layer, ten to a group.
func (in *Instance) strip(b *strings.Builder) {
	letters := map[string]string{}
	var legend []string
	for _, k := range in.Kinds {
		if letters[k] == "" {
			letters[k] = string(rune('A' + len(letters)))
			legend = append(legend, letters[k]+" "+k)
		}
	}
	for i, k := range in.Kinds {
		if i > 0 && i%40 == 0 {
			b.WriteByte('\n')
		} else if i > 0 && i%10 == 0 {
			b.WriteByte(' ')
		}
		b.WriteString(letters[k])
	}
	fmt.Fprintf(b, "\n%s\n", strings.Join(legend, ", "))
}

// drawLaunch writes a launch's ops, framed if there are several.
func (in *Instance) drawLaunch(b *strings.Builder, l *plan.Launch, nodes map[string]*Node) {
	framed := len(l.Ops) > 1
	if framed {
		fmt.Fprintf(b, "  ┌─ %s (%s)\n", l.Kernel, l.Numerics)
	}
	for _, id := range l.Ops {
		edge := "   "
		if framed {
			edge = "  │"
		}
		fmt.Fprintf(b, "%s %s\n", edge, in.nodeText(nodes[id]))
	}
	if framed {
		b.WriteString("  └─\n")
	}
}

// nodeText is "L00.attn.q  linear(h, w[heads*head_dim=64, hidden=64]) → q[rows, heads*head_dim=64]"; edges of the same block
// go without its prefix.
func (in *Instance) nodeText(n *Node) string {
	prefix := n.ID[:strings.LastIndexByte(n.ID, '.')+1]
	short := func(name string) string { return strings.TrimPrefix(name, prefix) }
	var args, outs []string
	for _, e := range n.In {
		args = append(args, short(in.Edges[e].Name))
	}
	for i, w := range n.Weights {
		if w >= 0 {
			args = append(args, n.Op.weights[i].name+axesNames(in.Weights[w].Axes))
		}
	}
	for _, s := range n.States {
		args = append(args, "state "+short(in.States[s].Name))
	}
	for _, e := range n.Out {
		outs = append(outs, short(in.Edges[e].Name)+axesNames(in.Edges[e].Axes))
	}
	s := fmt.Sprintf("%-22s %s(%s)", n.ID, n.Op.Name, strings.Join(args, ", "))
	if len(outs) > 0 {
		s += " → " + strings.Join(outs, ", ")
	}
	return s
}

// axesNames is [rows, heads*head_dim=4096]: sizes that vary have none.
func axesNames(axes []kernel.Axis) string {
	var out []string
	for _, a := range axes {
		if text := fmt.Sprint(a.Size); a.Size < 0 || a.Name == text {
			out = append(out, a.Name)
		} else {
			out = append(out, fmt.Sprintf("%s=%d", a.Name, a.Size))
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}
