// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
)

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct {
	name   string
	root   *unitCode
	names  []string // that are looked up at run time: variables of the caller, globals, assignments of the top level
	lookup map[string]int
	blocks map[string]*unitCode
	free   []string // names that are looked up and that the environment does not define
}

// Compile compiles a template; name is for messages.
func Compile(name, source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, recovered(name, 0, r)
		}
	}()
	if len(source) > MaxSource {
		return nil, diag.Errorf(diag.Format, "chat template %s: larger than %d bytes", name, MaxSource)
	}
	if !utf8.ValidString(source) {
		return nil, diag.Errorf(diag.Format, "chat template %s: not UTF-8", name)
	}
	c := &compiler{names: map[variable]string{}, budget: compileBudget}
	c.consts = &state{steps: 1_000_000, heap: 4 << 20}
	c.t = &Template{name: name, lookup: map[string]int{}, blocks: map[string]*unitCode{}}
	c.template(parse(source))
	return c.t, nil
}

// Variables lists the parameters of the template: the names that it reads before it assigns them, or assigns only under a
// condition. Names that the environment defines (range, raise_exception, …) are left out.
func (t *Template) Variables() []string { return t.free }

// compiler turns the tree of a template into code.
type compiler struct {
	t      *Template
	names  map[variable]string
	budget int
	weight int64  // of the expressions compiled since the current block began
	consts *state // computes constants
}

// compileBudget bounds the work on scopes, which grows with names times branches.
const compileBudget = 10_000_000

func (c *compiler) charge(n int) {
	c.budget -= n
	if c.budget < 0 {
		fail(limitError, "the template has too many names and branches")
	}
}

func (c *compiler) fail(line int, format string, args ...any) {
	panic(&Error{Class: assertionError, Msg: fmt.Sprintf(format, args...), Line: line})
}

// place is where in a template the compiler stands.
type place struct {
	*scope
	top    bool // at the top level, ifs included: assignments are visible to macros and blocks
	soft   bool // within an if: an unknown filter fails only when it is reached
	loops  int  // loops around, within the same unit
	escape bool // autoescape is on
}

// inner opens a scope within p, in unit u.
func (p place) inner(u *unit) place {
	q := place{scope: p.c.newScope(p.scope, u), loops: p.loops, escape: p.escape}
	if u != p.unit {
		q.loops = 0
	}
	return q
}

func (p place) softly() place {
	p.soft = true
	return p
}

// global gives the number of a name that is looked up at run time.
func (c *compiler) global(name string) int {
	i, ok := c.t.lookup[name]
	if !ok {
		i = len(c.t.names)
		c.t.lookup[name] = i
		c.t.names = append(c.t.names, name)
	}
	return i
}

// template compiles the top level and every block.
func (c *compiler) template(body []node) {
	blocks := c.findBlocks(body)
	root := place{scope: c.newScope(nil, newUnit(nil)), top: true}
	c.t.root = c.unit(root, body, "self")
	for _, b := range blocks {
		c.compileBlock(b)
	}
}

// findBlocks lists the blocks of the template and gives each its code, still empty.
func (c *compiler) findBlocks(body []node) (blocks []*blockNode) {
	var visit func(n node)
	visit = func(n node) {
		if b, ok := n.(*blockNode); ok {
			if c.t.blocks[b.name] != nil {
				c.fail(b.at(), "block %s defined twice", quote(b.name))
			}
			c.t.blocks[b.name] = &unitCode{}
			blocks = append(blocks, b)
		}
		children(n, visit)
	}
	for _, n := range body {
		visit(n)
	}
	return blocks
}

func (c *compiler) compileBlock(b *blockNode) {
	p := place{scope: c.newScope(nil, newUnit(nil))}
	*c.t.blocks[b.name] = *c.unit(p, b.body, "self", "super")
}

// unit compiles the template or a block: a unit without parameters, but with special names.
func (c *compiler) unit(p place, body []node, special ...string) *unitCode {
	code := &unitCode{special: map[string]int{}}
	found := undeclared(body, special...)
	for _, name := range special {
		if found[name] {
			code.special[name] = p.parameter(name).slot
		}
	}
	for _, n := range body {
		p.declare(n)
	}
	code.body = c.block(body, p)
	code.loads = c.loads(p)
	code.slots, code.nested = len(p.unit.vars), p.unit.nested
	return code
}

// loads gives the instructions that enter p's scope.
func (c *compiler) loads(p place) []loadCode {
	var out []loadCode
	for _, l := range p.scope.loads {
		switch l.how {
		case loadName:
			out = append(out, loadCode{slot: l.to.slot, global: c.global(l.name)})
			if globals[l.name].kind == kAbsent && !slices.Contains(c.t.free, l.name) {
				c.t.free = append(c.t.free, l.name)
			}
		case loadCopy:
			out = append(out, loadCode{slot: l.to.slot, global: -1, from: c.ref(l.from, p)})
		case loadUnset:
			out = append(out, loadCode{slot: l.to.slot, global: -1})
		}
	}
	return out
}

// ref gives the code that reads a variable; the absent value when it is not set.
func (c *compiler) ref(v variable, p place) *varExpr {
	hops := 0
	for u := p.unit; u != v.unit; u = u.parent {
		hops++
	}
	return &varExpr{hops: hops, slot: v.slot}
}

// block compiles statements that run one after the other in p.
func (c *compiler) block(body []node, p place) *blockCode {
	b := &blockCode{}
	outer := c.weight
	c.weight = 0
	for _, n := range body {
		b.stmts = append(b.stmts, c.stmt(n, p)...)
	}
	b.cost = c.weight + int64(len(b.stmts)) + 1
	c.weight = outer
	return b
}
