// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Op is a row of Σ; see sigma. The lower-case fields are the strings above them, parsed.
type Op struct {
	Name                             string
	Doc                              string
	In, Out, Weights, Consts, States string
	Step, Attrs, Zero                string
	Flops, Touched, Extra            string
	in, out, weights, consts, states []port
	step, zero                       []string
	attrs                            []attrSpec
}

// port is an array that an op has.
type port struct {
	name     string
	dtype    tensor.DType
	axes     []string
	optional bool
	written  bool           // of a state
	kind     plan.StateKind // of a state
}

// attrSpec is a scalar that an op has.
type attrSpec struct {
	name   string
	kind   plan.AttrKind
	values []string // allowed strings
	dflt   string   // text of the default; "" = must be given
}

// signature parses the table; a mistake in it is a mistake of this package.
func signature(rows []Op) map[string]*Op {
	table := map[string]*Op{}
	for i := range rows {
		op := &rows[i]
		for _, f := range []struct {
			text string
			into *[]port
		}{{op.In, &op.in}, {op.Out, &op.out}, {op.Weights, &op.weights}, {op.Consts, &op.consts}, {op.States, &op.states}} {
			for _, word := range strings.Fields(f.text) {
				p, err := parsePort(word)
				if err != nil {
					panic(fmt.Sprintf("circuit: op %s: %s: %v", op.Name, word, err))
				}
				*f.into = append(*f.into, p)
			}
		}
		op.step, op.zero = strings.Fields(op.Step), strings.Fields(op.Zero)
		for _, word := range strings.Fields(op.Attrs) {
			a, err := parseAttr(word)
			if err != nil {
				panic(fmt.Sprintf("circuit: op %s: %s: %v", op.Name, word, err))
			}
			op.attrs = append(op.attrs, a)
		}
		table[op.Name] = op
	}
	return table
}

// parsePort reads name[?|!][:dtype|paged|slot]"["axis,axis"]".
func parsePort(word string) (port, error) {
	head, axes, ok := strings.Cut(word, "[")
	if !ok || !strings.HasSuffix(axes, "]") {
		return port{}, fmt.Errorf("no [axes]")
	}
	p := port{dtype: tensor.F32, axes: strings.Split(strings.TrimSuffix(axes, "]"), ",")}
	name, kind, typed := strings.Cut(head, ":")
	if typed {
		switch d, isType := tensor.ParseDType(kind); {
		case kind == "paged":
			p.kind = plan.Paged
		case kind == "slot":
			p.kind = plan.Slot
		case isType:
			p.dtype = d
		default:
			return port{}, fmt.Errorf("%q is no type", kind)
		}
	}
	p.name = strings.TrimRight(name, "?!")
	p.optional, p.written = strings.HasSuffix(name, "?"), strings.HasSuffix(name, "!")
	return p, nil
}

// parseAttr reads name:int, name:float=1, name:str(a,b)=a.
func parseAttr(word string) (attrSpec, error) {
	name, rest, ok := strings.Cut(word, ":")
	if !ok {
		return attrSpec{}, fmt.Errorf("no type")
	}
	a := attrSpec{name: name}
	rest, a.dflt, _ = strings.Cut(rest, "=")
	kind, values, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
	switch kind {
	case "int":
		a.kind = plan.IntAttr
	case "float":
		a.kind = plan.FloatAttr
	case "str":
		a.kind, a.values = plan.StrAttr, strings.Split(values, ",")
	default:
		return attrSpec{}, fmt.Errorf("%q is no type", kind)
	}
	return a, nil
}

// value is the default as an attribute.
func (a *attrSpec) value() (plan.Attr, bool) {
	v := plan.Attr{Name: a.name, Kind: a.kind}
	if a.dflt == "" {
		return v, false
	}
	switch a.kind {
	case plan.IntAttr:
		v.Int, _ = strconv.ParseInt(a.dflt, 10, 64)
	case plan.FloatAttr:
		v.Float, _ = strconv.ParseFloat(a.dflt, 64)
	case plan.StrAttr:
		v.Str = a.dflt
	}
	return v, true
}

// attr finds an attribute of the op.
func (op *Op) attr(name string) *attrSpec {
	i := slices.IndexFunc(op.attrs, func(a attrSpec) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &op.attrs[i]
}

// portNamed finds a port in a list.
func portNamed(ports []port, name string) int {
	return slices.IndexFunc(ports, func(p port) bool { return p.name == name })
}

// Signature prints the row: "linear(x[R,K]; w[N,K] bias?[N]) -> y[R,N]".
func (op *Op) Signature() string {
	s := op.Name + "(" + op.In
	for _, f := range []string{op.Weights, op.Consts, op.States, op.Step} {
		if f != "" {
			s += "; " + f
		}
	}
	s += ")"
	if op.Out != "" {
		s += " -> " + op.Out
	}
	return s
}
