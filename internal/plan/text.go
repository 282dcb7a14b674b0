// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The text form has one record per line; words are separated by one space, so that a change touches its own lines only.
//
//	plan   <circuit> [part=<part>] class=<class> compute=<policy> kv=<dtype>
//	limits rows=<n> seqs=<n> outs=<n> page_size=<n> pages=<n>
//	dim    <name> <size>
//	const  <name> <value>…
//	weight <name> [<axis> <size>, …] <dtype> <layout> <split> <source>…   or   *<n> <source with {e}>…, for e < n
//	state  <name> paged|slot [<axis> <size>, …] <dtype> <split>
//	arena  <bytes>
//	buffer <name> @<offset> [<axis> <size>, …] <dtype> <split>                           or   @in:<port>, @out:<port>
//	logits <buffer>
//	launch <name> <kernel> <rule> <numerics> (<arg>…) {<attr>=<value>…} <<grid>…> : <op>…
//
//	arg    <param>, then = reads, > writes or & reads and writes, then % buffer, $ weight, ~ const, ^ state, @ step field
//	split  all, or <mesh>:<axis>
//	value  3 is an integer, 3.0 a float, "3" a string
//
// Absent parts are left out: no braces without attributes, no <> without a grid, no ops where the only one has the
// launch's name. A word that would be misread is quoted as in Go.

const (
	accessMarks = "=>&"   // by Access
	kindMarks   = "%$~^@" // by ArgKind
)

// Print is the plan's text.
func (p *Plan) Print() string { return p.print(false) }

// Columns is the text with each section padded into columns, for people. Parse reads it too.
func (p *Plan) Columns() string { return p.print(true) }

func (p *Plan) print(pad bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s ", word(p.Circuit))
	if p.Part != "" {
		fmt.Fprintf(&b, "part=%s ", word(p.Part))
	}
	fmt.Fprintf(&b, "class=%s compute=%s kv=%v\n", word(p.Class), word(p.Compute), p.KV)
	fmt.Fprintf(&b, "limits rows=%d seqs=%d outs=%d page_size=%d pages=%d\n", p.Limits.Rows, p.Limits.Seqs, p.Limits.Outs, p.Limits.PageSize, p.Limits.Pages)
	t := table{b: &b, pad: pad}
	for _, d := range p.Dims {
		t.row("dim", word(d.Name), strconv.FormatInt(d.Size, 10))
	}
	t.flush()
	for _, c := range p.Consts {
		row := []string{"const", word(c.Name)}
		for _, v := range c.Values {
			row = append(row, strconv.FormatFloat(float64(v), 'g', -1, 32))
		}
		b.WriteString(strings.Join(row, " ") + "\n")
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		t.row("weight", word(w.Name), w.Axes.String(), w.DType.String(), word(w.Layout), w.Split.String(), strings.Join(packNames(w.Sources), " "))
	}
	t.flush()
	for i := range p.States {
		s := &p.States[i]
		kind := s.Kind.String()
		if s.Every > 1 {
			kind += "/" + strconv.FormatInt(s.Every, 10)
		}
		t.row("state", word(s.Name), kind, s.Axes.String(), s.DType.String(), s.Split.String())
	}
	t.flush()
	fmt.Fprintf(&b, "arena %d\n", p.Arena)
	for i := range p.Buffers {
		f := &p.Buffers[i]
		t.row("buffer", word(f.Name), "@"+f.place(), f.Axes.String(), f.DType.String(), f.Split.String())
	}
	t.flush()
	if p.Logits >= 0 && p.Logits < len(p.Buffers) {
		fmt.Fprintf(&b, "logits %s\n", word(p.Buffers[p.Logits].Name))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		t.row("launch", word(l.Name), word(l.Kernel), word(l.Rule), word(string(l.Numerics)), p.launchTail(l))
	}
	t.flush()
	return b.String()
}

// place is the offset, or the port.
func (b *Buffer) place() string {
	switch {
	case b.Port.Name == "":
		return strconv.FormatInt(b.Offset, 10)
	case b.Port.Dir == Out:
		return "out:" + word(b.Port.Name)
	}
	return "in:" + word(b.Port.Name)
}

// Digest identifies the plan: the SHA-256 of its text, in hex.
func (p *Plan) Digest() string {
	sum := sha256.Sum256([]byte(p.Print()))
	return hex.EncodeToString(sum[:])
}

// launchTail is what follows a launch's columns.
func (p *Plan) launchTail(l *Launch) string {
	var args []string
	for i := range l.Args {
		a := &l.Args[i]
		name := a.Step
		if a.Kind != ArgStep {
			name, _, _ = p.Array(a)
		}
		args = append(args, word(a.Param)+accessMarks[a.Access:a.Access+1]+kindMarks[a.Kind:a.Kind+1]+word(name))
	}
	s := "(" + strings.Join(args, " ") + ")"
	if len(l.Attrs) > 0 {
		var attrs []string
		for _, a := range l.Attrs {
			attrs = append(attrs, word(a.Name)+"="+a.Value())
		}
		s += " {" + strings.Join(attrs, " ") + "}"
	}
	if len(l.Grid) > 0 {
		var grid []string
		for _, g := range l.Grid {
			grid = append(grid, word(g))
		}
		s += " <" + strings.Join(grid, " ") + ">"
	}
	if len(l.Ops) != 1 || l.Ops[0] != l.Name {
		s += " :"
		for _, o := range l.Ops {
			s += " " + word(o)
		}
	}
	return s
}

// Value prints the attribute's value so that its kind can be told.
func (a Attr) Value() string {
	switch a.Kind {
	case IntAttr:
		return strconv.FormatInt(a.Int, 10)
	case FloatAttr:
		s := strconv.FormatFloat(a.Float, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	}
	return strconv.Quote(a.Str)
}

// String is [rows 16, hidden 64].
func (a Axes) String() string {
	parts := make([]string, len(a))
	for i, x := range a {
		name := x.Name
		if name == "" || strings.ContainsAny(name, "\"\\,[]\n\r\t") || strings.TrimSpace(name) != name {
			name = strconv.Quote(name)
		}
		parts[i] = name + " " + strconv.FormatInt(x.Size, 10)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// String is all, or mesh:axis.
func (s Split) String() string {
	if s.Axis < 0 {
		return "all"
	}
	return word(s.Mesh) + ":" + strconv.Itoa(s.Axis)
}

// String is paged or slot.
func (k StateKind) String() string {
	if k == Slot {
		return "slot"
	}
	return "paged"
}

// word quotes what the parser would not take as one word.
func word(s string) string {
	if s == "" {
		return `""`
	}
	for i := range len(s) {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-+/", c) >= 0 || c == '*' && i > 0
		if !plain {
			return strconv.Quote(s)
		}
	}
	return s
}

// maxCopies bounds *n when text is parsed.
const maxCopies = 1 << 20

// packNames shortens a list that repeats per expert: *128 a.{e}.gate a.{e}.up.
func packNames(names []string) []string {
	for k := 1; k <= 4 && 2*k <= len(names); k++ {
		if len(names)%k != 0 {
			continue
		}
		var packed []string
		for j := range k {
			t, ok := expertTemplate(names[j], names[k+j])
			if !ok {
				break
			}
			packed = append(packed, t)
		}
		n := len(names) / k
		if len(packed) == k && n <= maxCopies && equalNames(names, packed) {
			out := []string{"*" + strconv.Itoa(n)}
			for _, t := range packed {
				out = append(out, template(t))
			}
			return out
		}
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = word(n)
	}
	return out
}

// template prints a name with {e} in it.
func template(t string) string {
	before, after, _ := strings.Cut(t, "{e}")
	if plain := word(before + "0" + after); plain[0] != '"' {
		return t
	}
	return strconv.Quote(t)
}

// expertTemplate puts {e} where one name has 0 and the other 1.
func expertTemplate(zero, one string) (string, bool) {
	if len(zero) != len(one) || strings.Contains(zero, "{e}") {
		return "", false
	}
	at := -1
	for i := range len(zero) {
		if zero[i] != one[i] {
			if at >= 0 || zero[i] != '0' || one[i] != '1' {
				return "", false
			}
			at = i
		}
	}
	if at < 0 {
		return "", false
	}
	return zero[:at] + "{e}" + zero[at+1:], true
}

// equalNames says whether the templates give the names.
func equalNames(names, templates []string) bool {
	for i, n := range names {
		before, after, _ := strings.Cut(templates[i%len(templates)], "{e}")
		if n != before+strconv.Itoa(i/len(templates))+after {
			return false
		}
	}
	return true
}

// table is a section: rows of cells, padded into columns if asked for; the last cell is left as it is.
type table struct {
	b    *strings.Builder
	pad  bool
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) flush() {
	var width []int
	for _, r := range t.rows {
		for i := range len(r) - 1 {
			if i == len(width) {
				width = append(width, 0)
			}
			if t.pad {
				width[i] = max(width[i], len(r[i]))
			}
		}
	}
	for _, r := range t.rows {
		for i, c := range r {
			t.b.WriteString(c)
			if i < len(r)-1 {
				t.b.WriteString(strings.Repeat(" ", max(width[i]-len(c), 0)+1))
			}
		}
		t.b.WriteByte('\n')
	}
	t.rows = t.rows[:0]
}
