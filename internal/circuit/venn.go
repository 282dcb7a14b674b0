// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/plan"
)

// Venn compares two models' diagrams, parts included: which blocks, ops and nodes they share, and which only one has. a and b
// name them. A node is shared if its block, name, op and features are the same; numbers may differ.
func Venn(a, b string, x, y *Instance) string {
	v := venn{names: [2]string{a, b}, of: [2]census{x.census(), y.census()}}
	var out strings.Builder
	for i, in := range []*Instance{x, y} {
		fmt.Fprintf(&out, "%c  %s: %s, %d layers, %d nodes\n", 'A'+i, v.names[i], in.Name(), len(in.Kinds), v.of[i].total())
	}
	v.blocks(&out)
	v.ops(&out)
	v.nodes(&out)
	return out.String()
}

// nodeKind is a node of a block, wherever it is placed.
type nodeKind struct{ block, id, op string }

func (k nodeKind) String() string { return fmt.Sprintf("%s.%s (%s)", k.block, k.id, k.op) }

// census counts a model's nodes by kind and features.
type census map[nodeKind]map[string]int

func (in *Instance) census() census {
	out := census{}
	for _, part := range in.all() {
		for _, n := range part.Nodes {
			k := nodeKind{n.Block, n.ID[strings.LastIndexByte(n.ID, '.')+1:], n.Op.Name}
			if out[k] == nil {
				out[k] = map[string]int{}
			}
			out[k][n.features()]++
		}
	}
	return out
}

// features are what a node is beside its sizes: words, what is not as by default, and optional weights, as "act=silu, bias".
func (n *Node) features() string {
	var out []string
	for _, a := range n.Attrs {
		dflt, has := n.Op.attr(a.Name).value()
		switch {
		case a.Name == "compute": // the policy's
		case a.Kind == plan.StrAttr:
			out = append(out, a.Name+"="+a.Str)
		case has && a != dflt:
			out = append(out, a.Name)
		}
	}
	for i, p := range n.Op.weights {
		if p.optional && n.Weights[i] >= 0 {
			out = append(out, p.name)
		}
	}
	return strings.Join(out, ", ")
}

func (c census) total() (n int) {
	for _, by := range c {
		n += sum(by)
	}
	return n
}

func sum(by map[string]int) (n int) {
	for _, count := range by {
		n += count
	}
	return n
}

// by counts nodes by a word of their kind.
func (c census) by(word func(nodeKind) string) map[string]int {
	out := map[string]int{}
	for k, by := range c {
		out[word(k)] += sum(by)
	}
	return out
}

// venn is two models side by side.
type venn struct {
	names [2]string
	of    [2]census
}

// parted splits words into those of both models and of either.
func parted(x, y map[string]int) (both, onlyX, onlyY []string) {
	for _, w := range slices.Sorted(maps.Keys(x)) {
		if y[w] > 0 {
			both = append(both, w)
		} else {
			onlyX = append(onlyX, w)
		}
	}
	for _, w := range slices.Sorted(maps.Keys(y)) {
		if x[w] == 0 {
			onlyY = append(onlyY, w)
		}
	}
	return both, onlyX, onlyY
}

func (v *venn) blocks(out *strings.Builder) {
	word := func(k nodeKind) string { return k.block }
	both, a, b := parted(v.of[0].by(word), v.of[1].by(word))
	out.WriteString("\nblocks\n")
	columns(out, [][]string{{"  both", orNone(both)}, {"  only A", orNone(a)}, {"  only B", orNone(b)}})
}

func (v *venn) ops(out *strings.Builder) {
	word := func(k nodeKind) string { return k.op }
	x, y := v.of[0].by(word), v.of[1].by(word)
	both, a, b := parted(x, y)
	rows := [][]string{{"ops", "A", "B"}}
	for _, op := range slices.Concat(both, a, b) {
		rows = append(rows, []string{"  " + op, times(x[op]), times(y[op])})
	}
	out.WriteByte('\n')
	columns(out, rows)
}

// nodes prints the diagram, and what is not in the middle of it by name.
func (v *venn) nodes(out *strings.Builder) {
	var same, other, only [2]int // nodes of each model
	var differ, a, b []string
	for k := range v.of[0] {
		x, y := v.of[0][k], v.of[1][k]
		if y == nil {
			only[0] += sum(x)
			a = append(a, fmt.Sprintf("%s ×%d", k, sum(x)))
			continue
		}
		for i, pair := range [][2]map[string]int{{x, y}, {y, x}} {
			for p, n := range pair[0] {
				if pair[1][p] > 0 {
					same[i] += n
				} else {
					other[i] += n
				}
			}
		}
		if px, py := without(x, y), without(y, x); len(px)+len(py) > 0 {
			differ = append(differ, fmt.Sprintf("%s: A {%s}, B {%s}", k, strings.Join(px, " | "), strings.Join(py, " | ")))
		}
	}
	for k, y := range v.of[1] {
		if v.of[0][k] == nil {
			only[1] += sum(y)
			b = append(b, fmt.Sprintf("%s ×%d", k, sum(y)))
		}
	}
	rows := [][]string{{"nodes", "A", "B"}}
	for _, l := range []struct {
		name string
		n    [2]int
	}{{"shared", same}, {"shared, other features", other}, {"only in one", only}} {
		rows = append(rows, []string{"  " + l.name, share(l.n[0], v.of[0].total()), share(l.n[1], v.of[1].total())})
	}
	out.WriteByte('\n')
	columns(out, rows)
	for _, l := range []struct {
		title string
		lines []string
	}{{"other features", differ}, {"only in A", a}, {"only in B", b}} {
		if len(l.lines) > 0 {
			slices.Sort(l.lines)
			fmt.Fprintf(out, "\n%s\n  %s\n", l.title, strings.Join(l.lines, "\n  "))
		}
	}
}

// without are the features in x that y does not have.
func without(x, y map[string]int) (out []string) {
	for _, p := range slices.Sorted(maps.Keys(x)) {
		if y[p] == 0 {
			out = append(out, p)
		}
	}
	return out
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "–"
	}
	return strings.Join(words, ", ")
}

func times(n int) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// share is a part of a whole: "120 (63 %)".
func share(n, of int) string { return fmt.Sprintf("%d (%s)", n, percent(n, of)) }

// partOf is "120 of 190 (63 %)".
func partOf(n, of int) string { return fmt.Sprintf("%d of %d (%s)", n, of, percent(n, of)) }

func percent(n, of int) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(max(of, 1))) }
