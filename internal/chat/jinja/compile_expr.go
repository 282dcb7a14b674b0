// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "strconv"

// expr compiles an expression; what has only constant parts and cannot fail becomes a constant.
func (c *compiler) expr(n node, p place) expr {
	c.weight++
	switch n := n.(type) {
	case nil:
		return nil
	case *constNode:
		return &constExpr{n.value}
	case *nameNode:
		v, ok := p.find(n.name)
		if !ok {
			return &constExpr{undefinedName(n.name)} // only in the filter of a set block
		}
		ref := c.ref(v, p)
		if ref.hops == 0 {
			return &slotExpr{ref.slot, n.name}
		}
		return &outerExpr{*ref, n.name}
	case *tupleNode:
		return c.sequence(n.items, p, kTuple)
	case *listNode:
		return c.sequence(n.items, p, kList)
	case *dictNode:
		e := &dictExpr{keys: c.exprs(n.keys, p), vals: c.exprs(n.vals, p)}
		return c.fold(e, append(append([]expr{}, e.keys...), e.vals...)...)
	case *unaryNode:
		e := &unaryExpr{n.op, c.expr(n.operand, p)}
		return c.fold(e, e.operand)
	case *notNode:
		e := &notExpr{c.expr(n.operand, p)}
		return c.fold(e, e.operand)
	case *binaryNode:
		return c.binary(n, p)
	case *logicNode:
		e := &logicExpr{n.or, c.expr(n.left, p), c.expr(n.right, p)}
		return c.fold(e, e.left, e.right)
	case *concatNode:
		e := &concatExpr{n.at(), c.exprs(n.items, p), p.escape}
		if p.escape {
			return e
		}
		return c.fold(e, e.items...)
	case *compareNode:
		return c.compare(n, p)
	case *condNode:
		return c.cond(n, p.softly())
	case *attrNode:
		return newAttrExpr(c.expr(n.object, p), n.name)
	case *itemNode:
		return &itemExpr{c.expr(n.object, p), c.expr(n.key, p)}
	case *sliceNode:
		return &sliceExpr{c.expr(n.object, p), c.expr(n.start, p), c.expr(n.stop, p), c.expr(n.step, p)}
	case *callExpr:
		return c.call(n, p)
	case *filterExpr:
		return c.filter(n, p)
	case *testExpr:
		return c.test(n, p)
	}
	failSyntax(n.at(), "unexpected expression")
	return nil
}

func (c *compiler) exprs(list []node, p place) []expr {
	out := make([]expr, len(list))
	for i, n := range list {
		out[i] = c.expr(n, p)
	}
	return out
}

func (c *compiler) sequence(list []node, p place, k kind) expr {
	e := &seqExpr{k, c.exprs(list, p)}
	return c.fold(e, e.items...)
}

// binary compiles an operation; a row of + becomes one node, so that text is joined once.
func (c *compiler) binary(n *binaryNode, p place) expr {
	left, right := c.expr(n.left, p), c.expr(n.right, p)
	e := c.fold(&binaryExpr{n.op, left, right}, left, right)
	if b, ok := e.(*binaryExpr); ok && b.op == tokAdd {
		if row, ok := left.(*sumExpr); ok {
			row.terms = append(row.terms, right)
			return row
		}
		return &sumExpr{[]expr{left, right}}
	}
	return e
}

func (c *compiler) compare(n *compareNode, p place) expr {
	e := &compareExpr{first: c.expr(n.first, p)}
	parts := []expr{e.first}
	for _, op := range n.ops {
		e.ops = append(e.ops, operation{op.op, c.expr(op.operand, p)})
		parts = append(parts, e.ops[len(e.ops)-1].operand)
	}
	return c.fold(e, parts...)
}

func (c *compiler) cond(n *condNode, p place) expr {
	e := &condExpr{test: c.expr(n.test, p), then: c.expr(n.then, p), orElse: c.expr(n.orElse, p)}
	if n.orElse == nil {
		e.orElse = &constExpr{undefinedHint("the inline if-expression on line " + strconv.Itoa(n.at()) +
			" evaluated to false and no else section was defined.")}
	}
	e.thenEmit, _ = e.then.(emitter)
	e.elseEmit, _ = e.orElse.(emitter)
	return e
}

func (c *compiler) args(a passed, p place) argCode {
	return argCode{
		pos: c.exprs(a.args, p), names: a.kwNames, kw: c.exprs(a.kwArgs, p),
		star: c.expr(a.star, p), starstar: c.expr(a.starstar, p),
	}
}

func (c *compiler) call(n *callExpr, p place) expr {
	if attr, ok := n.callee.(*attrNode); ok {
		c.weight++
		return &methodExpr{n.at(), newAttrExpr(c.expr(attr.object, p), attr.name), c.args(n.passed, p)}
	}
	return &callCode{n.at(), c.expr(n.callee, p), c.args(n.passed, p)}
}

func (c *compiler) filter(n *filterExpr, p place) expr {
	b := filters[n.name]
	if b == nil {
		return c.unknown("filter", n.name, n.at(), p)
	}
	var input expr = holeExpr{}
	if n.input != nil {
		input = c.expr(n.input, p)
	}
	return &applyExpr{n.at(), b, input, c.args(n.passed, p)}
}

func (c *compiler) test(n *testExpr, p place) expr {
	b := tests[n.name]
	if b == nil {
		return c.unknown("test", n.name, n.at(), p)
	}
	return &applyExpr{n.at(), b, c.expr(n.input, p), c.args(n.passed, p)}
}

// unknown refuses a filter or test that does not exist; within an if, only when it is reached.
func (c *compiler) unknown(what, name string, line int, p place) expr {
	if !p.soft {
		c.fail(line, "No %s named %s.", what, quote(name))
	}
	return &failExpr{"TemplateRuntimeError", "No " + what + " named " + quote(name) + " found."}
}

// fold computes e now if all its parts are constants and nothing goes wrong; an error is left for the time it is reached.
// All constants of a template share one budget.
func (c *compiler) fold(e expr, parts ...expr) (out expr) {
	for _, part := range parts {
		if _, ok := part.(*constExpr); !ok {
			return e
		}
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*Error); !ok {
				panic(r)
			}
			c.consts.out, c.consts.depth = c.consts.out[:0], 0
			out = e
		}
	}()
	return &constExpr{e.eval(c.consts)}
}
