// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Parse reads what Print writes; name is the file, for errors. The plan is not verified.
func Parse(name, text string) (*Plan, error) {
	p := &parser{plan: &Plan{Logits: -1}, index: map[ArgKind]map[string]int{ArgBuffer: {}, ArgWeight: {}, ArgConst: {}, ArgState: {}}}
	for i, line := range strings.Split(text, "\n") {
		p.rest = strings.TrimSpace(line)
		if p.rest == "" {
			continue
		}
		if err := p.record(); err != nil {
			return nil, diag.Errorf(diag.Format, "%s", err).At(diag.Pos{File: name, Line: i + 1})
		}
	}
	if p.plan.Circuit == "" || !p.plan.givesSomething() {
		return nil, diag.Errorf(diag.Format, "a plan needs a plan line, and logits or a port out").At(diag.Pos{File: name})
	}
	return p.plan, nil
}

// parser holds the plan so far and what is left of the current line. The first error ends the line.
type parser struct {
	plan  *Plan
	index map[ArgKind]map[string]int // names so far
	rest  string
	err   error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r") }

// skip consumes a mark, if it is next.
func (p *parser) skip(mark string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, mark)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) expect(mark string) {
	if !p.skip(mark) {
		p.fail("expected %q at %.20q", mark, p.rest)
	}
}

// word reads a plain or quoted word; extra are further characters that it may have.
func (p *parser) word(extra string) string {
	p.space()
	if strings.HasPrefix(p.rest, `"`) {
		q, err := strconv.QuotedPrefix(p.rest)
		if err != nil {
			p.fail("a quoted word does not end at %.20q", p.rest)
			return ""
		}
		p.rest = p.rest[len(q):]
		s, _ := strconv.Unquote(q)
		return s
	}
	i := 0
	for i < len(p.rest) && strings.IndexByte(" \t\r\"()[]{}<>=&%$~^@:,", p.rest[i]) < 0 || i < len(p.rest) && strings.IndexByte(extra, p.rest[i]) >= 0 && extra != "" {
		i++
	}
	if i == 0 {
		p.fail("expected a word at %.20q", p.rest)
	}
	s := p.rest[:i]
	p.rest = p.rest[i:]
	return s
}

func (p *parser) int() int64 {
	w := p.word("")
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		p.fail("%q is no integer", w)
	}
	return n
}

// field reads name=value.
func (p *parser) field(name string) {
	p.expect(name)
	p.expect("=")
}

func (p *parser) dtype() tensor.DType {
	w := p.word("")
	if w == tensor.None.String() {
		return tensor.None
	}
	d, ok := tensor.ParseDType(w)
	if !ok {
		p.fail("%q is no element type", w)
	}
	return d
}

func (p *parser) axes() Axes {
	var a Axes
	p.expect("[")
	for p.err == nil && !p.skip("]") {
		if len(a) > 0 {
			p.expect(",")
		}
		p.space()
		var x Axis
		if strings.HasPrefix(p.rest, `"`) {
			x.Name = p.word("")
		} else { // up to the last space before , or ]
			end := strings.IndexAny(p.rest, ",]\"")
			if end < 0 {
				p.fail("axes do not end")
				return a
			}
			cut := strings.LastIndexByte(strings.TrimRight(p.rest[:end], " "), ' ')
			if cut <= 0 {
				p.fail("an axis needs a name and a size at %.20q", p.rest)
				return a
			}
			x.Name = strings.TrimRight(p.rest[:cut], " ")
			p.rest = p.rest[cut:]
		}
		x.Size = p.int()
		a = append(a, x)
	}
	return a
}

func (p *parser) split() Split {
	w := p.word("")
	if !p.skip(":") {
		if w != "all" {
			p.fail("%q is no split", w)
		}
		return Replicated
	}
	n := p.int()
	if n < 0 || n > 16 {
		p.fail("axis %d", n)
	}
	return Split{Axis: int(n), Mesh: w}
}

// add registers a name of an array.
func (p *parser) add(k ArgKind, name string, i int) string {
	if _, dup := p.index[k][name]; dup {
		p.fail("%q is there twice", name)
	}
	p.index[k][name] = i
	return name
}

func (p *parser) record() error {
	pl := p.plan
	switch kind := p.word(""); kind {
	case "plan":
		pl.Circuit = p.word("")
		if p.skip("part") {
			p.expect("=")
			pl.Part = p.word("")
		}
		p.field("class")
		pl.Class = p.word("")
		p.field("compute")
		pl.Compute = p.word("")
		p.field("kv")
		pl.KV = p.dtype()
	case "limits":
		for _, f := range []struct {
			name string
			into *int64
		}{{"rows", &pl.Limits.Rows}, {"seqs", &pl.Limits.Seqs}, {"outs", &pl.Limits.Outs}, {"page_size", &pl.Limits.PageSize}, {"pages", &pl.Limits.Pages}} {
			p.field(f.name)
			*f.into = p.int()
		}
	case "dim":
		pl.Dims = append(pl.Dims, Dim{p.word(""), p.int()})
	case "const":
		c := Const{Name: p.add(ArgConst, p.word(""), len(pl.Consts))}
		for p.space(); p.rest != "" && p.err == nil; p.space() {
			w := p.word("")
			f, err := strconv.ParseFloat(w, 32)
			if err != nil {
				p.fail("%q is no float32", w)
			}
			c.Values = append(c.Values, float32(f))
		}
		pl.Consts = append(pl.Consts, c)
	case "weight":
		w := Weight{Name: p.add(ArgWeight, p.word(""), len(pl.Weights)), Axes: p.axes(), DType: p.dtype(), Layout: p.word(""), Split: p.split()}
		w.Sources = p.sources()
		pl.Weights = append(pl.Weights, w)
	case "state":
		s := State{Name: p.add(ArgState, p.word(""), len(pl.States))}
		k, every, shared := strings.Cut(p.word(""), "/")
		if n, err := strconv.ParseInt(every, 10, 64); shared && (err != nil || n < 2) {
			p.fail("%q tokens share an entry", every)
		} else {
			s.Every = n
		}
		switch k {
		case "paged":
		case "slot":
			s.Kind = Slot
		default:
			p.fail("%q is no kind of state", k)
		}
		s.Axes, s.DType, s.Split = p.axes(), p.dtype(), p.split()
		pl.States = append(pl.States, s)
	case "arena":
		pl.Arena = p.int()
	case "buffer":
		b := Buffer{Name: p.add(ArgBuffer, p.word(""), len(pl.Buffers))}
		p.expect("@")
		switch {
		case p.skip("in:"):
			b.Port = Port{p.word(""), In}
		case p.skip("out:"):
			b.Port = Port{p.word(""), Out}
		default:
			b.Offset = p.int()
		}
		b.Axes, b.DType, b.Split = p.axes(), p.dtype(), p.split()
		pl.Buffers = append(pl.Buffers, b)
	case "logits":
		pl.Logits = p.find(ArgBuffer, p.word(""))
	case "launch":
		pl.Launches = append(pl.Launches, p.launch())
	default:
		p.fail("unknown record %q", kind)
	}
	if p.space(); p.rest != "" {
		p.fail("unexpected %.20q", p.rest)
	}
	return p.err
}

func (p *parser) find(k ArgKind, name string) int {
	i, ok := p.index[k][name]
	if !ok {
		p.fail("%q was not declared", name)
	}
	return i
}

// sources reads names, or *n and templates.
func (p *parser) sources() []string {
	n := int64(0)
	if p.skip("*") {
		if n = p.int(); n < 1 || n > maxCopies {
			p.fail("%d copies", n)
		}
	}
	var names []string
	for p.space(); p.rest != "" && p.err == nil; p.space() {
		if n == 0 {
			names = append(names, p.word(""))
		} else {
			names = append(names, p.word("{}"))
		}
	}
	if n == 0 || p.err != nil {
		return names
	}
	if n*int64(len(names)) > 4*maxCopies {
		p.fail("%d copies", n)
		return nil
	}
	var out []string
	for e := range n {
		for _, t := range names {
			before, after, ok := strings.Cut(t, "{e}")
			if !ok {
				p.fail("%q has no {e}", t)
				return nil
			}
			out = append(out, before+strconv.FormatInt(e, 10)+after)
		}
	}
	return out
}

func (p *parser) launch() Launch {
	l := Launch{Name: p.word(""), Kernel: p.word(""), Rule: p.word(""), Numerics: Numerics(p.word(""))}
	p.expect("(")
	for p.err == nil && !p.skip(")") {
		l.Args = append(l.Args, p.arg())
	}
	if p.skip("{") {
		for p.err == nil && !p.skip("}") {
			l.Attrs = append(l.Attrs, p.attr())
		}
	}
	if p.skip("<") {
		for p.err == nil && !p.skip(">") {
			l.Grid = append(l.Grid, p.word(""))
		}
	}
	if !p.skip(":") {
		l.Ops = []string{l.Name}
		return l
	}
	for p.space(); p.rest != "" && p.err == nil; p.space() {
		l.Ops = append(l.Ops, p.word(""))
	}
	return l
}

// mark reads one of the characters and gives its place.
func (p *parser) mark(marks string) int {
	if p.rest != "" {
		if i := strings.IndexByte(marks, p.rest[0]); i >= 0 {
			p.rest = p.rest[1:]
			return i
		}
	}
	p.fail("expected one of %s at %.20q", marks, p.rest)
	return 0
}

func (p *parser) arg() Arg {
	a := Arg{Param: p.word("")}
	a.Access = Access(p.mark(accessMarks))
	a.Kind = ArgKind(p.mark(kindMarks))
	name := p.word("")
	if a.Kind == ArgStep {
		a.Step = name
	} else {
		a.Index = p.find(a.Kind, name)
	}
	return a
}

func (p *parser) attr() Attr {
	a := Attr{Name: p.word("")}
	p.expect("=")
	if p.space(); strings.HasPrefix(p.rest, `"`) {
		a.Kind, a.Str = StrAttr, p.word("")
		return a
	}
	w := p.word("")
	var err error
	if strings.ContainsAny(w, ".eIN") {
		a.Kind = FloatAttr
		a.Float, err = strconv.ParseFloat(w, 64)
	} else {
		a.Int, err = strconv.ParseInt(w, 10, 64)
	}
	if err != nil {
		p.fail("%q is no value", w)
	}
	return a
}
