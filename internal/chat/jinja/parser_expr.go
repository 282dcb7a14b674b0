// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"slices"
	"strings"
)

// Expressions, from what binds loosest to what binds tightest:
//
//	a if b else c    or    and    not    comparisons, in    + -    ~    * / // %    **    unary + -    . [] ()    | is

// tuple reads an expression, or several with commas between. Without cond, "a if b else c" is not read. ends are names
// that may follow a trailing comma.
func (p *parser) tuple(cond bool, ends []string, parentheses bool) node {
	return p.tupleOf(ends, parentheses, func() node {
		if cond {
			return p.expression()
		}
		return p.or()
	})
}

// targets is tuple for assignments: only names, literals and, with namespace, ns.attr.
func (p *parser) targets(ends []string, namespace bool) node {
	return p.tupleOf(ends, false, func() node { return p.primary(namespace) })
}

func (p *parser) tupleOf(ends []string, parentheses bool, read func() node) node {
	at := p.line()
	var items []node
	for comma := false; ; comma = true {
		if comma && !p.accept(tokComma) {
			if len(items) == 1 {
				return items[0]
			}
			break
		}
		if p.at(tokVariableEnd) || p.at(tokBlockEnd) || p.at(tokRParen) || slices.ContainsFunc(ends, p.atName) {
			if !comma && !parentheses {
				p.fail("Expected an expression, got %s", quote(p.cur().describe()))
			}
			break
		}
		items = append(items, read())
	}
	return &tupleNode{at, items}
}

func (p *parser) expression() node {
	p.nest()
	at := p.line()
	n := p.or()
	for chain := 0; p.acceptName("if"); chain++ {
		p.chain(chain)
		test := p.or()
		var orElse node
		if p.acceptName("else") {
			orElse = p.expression()
		}
		n = &condNode{at, test, n, orElse}
		at = p.line()
	}
	p.deep--
	return n
}

// chain bounds the length of a row of operators.
func (p *parser) chain(n int) {
	if n > MaxChain {
		p.fail("more than %d operators in a row", MaxChain)
	}
}

func (p *parser) or() node {
	at := p.line()
	n := p.and()
	for chain := 0; p.acceptName("or"); chain++ {
		p.chain(chain)
		n = &logicNode{at, true, n, p.and()}
		at = p.line()
	}
	return n
}

func (p *parser) and() node {
	at := p.line()
	n := p.not()
	for chain := 0; p.acceptName("and"); chain++ {
		p.chain(chain)
		n = &logicNode{at, false, n, p.not()}
		at = p.line()
	}
	return n
}

func (p *parser) not() node {
	at := p.line()
	if !p.acceptName("not") {
		return p.compare()
	}
	p.nest()
	n := &notNode{at, p.not()}
	p.deep--
	return n
}

func (p *parser) compare() node {
	n := &compareNode{line: p.line()}
	n.first = p.sum()
	for {
		op := p.cur().token
		switch {
		case op >= tokEq && op <= tokLe:
			p.skip(1)
		case p.acceptName("in"):
			op = tokIn
		case p.atName("not") && p.look().is("in"):
			p.skip(2)
			op = tokNotIn
		case len(n.ops) == 0:
			return n.first
		default:
			return n
		}
		p.chain(len(n.ops))
		n.ops = append(n.ops, comparison{op, p.sum()})
	}
}

func (p *parser) sum() node     { return p.binary(p.concat, tokAdd, tokSub) }
func (p *parser) product() node { return p.binary(p.power, tokMul, tokDiv, tokFloorDiv, tokMod) }
func (p *parser) power() node {
	return p.binary(func() node { return p.unary(true) }, tokPow)
}

// binary reads operands with any of ops between them; all of them group to the left, ** too.
func (p *parser) binary(operand func() node, ops ...token) node {
	at := p.line()
	n := operand()
	for chain := 0; slices.Contains(ops, p.cur().token); chain++ {
		p.chain(chain)
		op := p.next().token
		n = &binaryNode{at, op, n, operand()}
		at = p.line()
	}
	return n
}

func (p *parser) concat() node {
	n := &concatNode{line: p.line()}
	n.items = append(n.items, p.product())
	for p.accept(tokTilde) {
		n.items = append(n.items, p.product())
	}
	if len(n.items) == 1 {
		return n.items[0]
	}
	return n
}

func (p *parser) unary(filters bool) node {
	at := p.line()
	var n node
	if op := p.cur().token; op == tokSub || op == tokAdd {
		p.skip(1)
		p.nest()
		n = &unaryNode{at, op, p.unary(false)}
		p.deep--
	} else {
		n = p.primary(false)
	}
	n = p.postfix(n)
	if filters {
		n = p.filterOrTest(n)
	}
	return n
}

func (p *parser) primary(namespace bool) node {
	l := p.cur()
	at := line(l.line)
	switch l.token {
	case tokName:
		p.skip(1)
		switch l.text {
		case "true", "True":
			return &constNode{at, True}
		case "false", "False":
			return &constNode{at, False}
		case "none", "None":
			return &constNode{at, Null}
		}
		if namespace && p.accept(tokDot) {
			return &namespaceNode{at, l.text, p.expect(tokName).text}
		}
		return &nameNode{at, l.text, useLoad}
	case tokString:
		parts := []string{p.next().text}
		for p.at(tokString) {
			parts = append(parts, p.next().text)
		}
		return &constNode{at, String(strings.Join(parts, ""))}
	case tokInteger, tokFloat:
		return &constNode{at, p.next().value}
	case tokLParen:
		p.skip(1)
		p.nest()
		n := p.tuple(true, nil, true)
		p.deep--
		p.expect(tokRParen)
		return n
	case tokLBracket:
		p.skip(1)
		return &listNode{at, p.list(tokRBracket)}
	case tokLBrace:
		return p.dictionary()
	}
	failSyntax(l.line, "unexpected %s", quote(l.describe()))
	return nil
}

// list reads expressions up to the closing bracket.
func (p *parser) list(end token) (items []node) {
	p.nest()
	for !p.at(end) {
		if len(items) > 0 {
			p.expect(tokComma)
			if p.at(end) {
				break
			}
		}
		items = append(items, p.expression())
	}
	p.deep--
	p.expect(end)
	return items
}

func (p *parser) dictionary() node {
	n := &dictNode{line: line(p.expect(tokLBrace).line)}
	p.nest()
	for !p.at(tokRBrace) {
		if len(n.keys) > 0 {
			p.expect(tokComma)
			if p.at(tokRBrace) {
				break
			}
		}
		n.keys = append(n.keys, p.expression())
		p.expect(tokColon)
		n.vals = append(n.vals, p.expression())
	}
	p.deep--
	p.expect(tokRBrace)
	return n
}

func (p *parser) postfix(n node) node {
	for chain := 0; ; chain++ {
		p.chain(chain)
		switch p.cur().token {
		case tokDot, tokLBracket:
			n = p.subscript(n)
		case tokLParen:
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) filterOrTest(n node) node {
	for chain := 0; ; chain++ {
		p.chain(chain)
		switch {
		case p.at(tokPipe):
			n = p.filters(n)
		case p.atName("is"):
			n = p.test(n)
		case p.at(tokLParen):
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) subscript(n node) node {
	l := p.next()
	at := line(l.line)
	if l.token == tokDot {
		name := p.next()
		switch name.token {
		case tokName:
			return &attrNode{at, n, name.text}
		case tokInteger:
			return &itemNode{at, n, &constNode{line(name.line), name.value}}
		}
		failSyntax(name.line, "expected name or number")
	}
	p.nest()
	defer func() { p.deep-- }()
	var keys []node
	for !p.at(tokRBracket) {
		if len(keys) > 0 {
			p.expect(tokComma)
		}
		key := p.sliceOrKey(at, n)
		if s, ok := key.(*sliceNode); ok {
			if len(keys) > 0 || !p.at(tokRBracket) {
				p.fail("invalid syntax: a slice among several subscripts")
			}
			p.skip(1)
			return s
		}
		keys = append(keys, key)
	}
	p.skip(1)
	if len(keys) == 1 {
		return &itemNode{at, n, keys[0]}
	}
	return &itemNode{at, n, &tupleNode{at, keys}}
}

// sliceOrKey reads an expression, or start:stop:step as a slice of n.
func (p *parser) sliceOrKey(at line, n node) node {
	s := &sliceNode{line: at, object: n}
	if !p.at(tokColon) {
		s.start = p.expression()
		if !p.at(tokColon) {
			return s.start
		}
	}
	p.skip(1)
	end := func() bool { return p.at(tokColon) || p.at(tokRBracket) || p.at(tokComma) }
	if !end() {
		s.stop = p.expression()
	}
	if p.accept(tokColon) && !end() {
		s.step = p.expression()
	}
	return s
}

func (p *parser) call(n node) node {
	at := p.line()
	return &callExpr{at, n, p.arguments()}
}

func (p *parser) arguments() (a passed) {
	at := p.expect(tokLParen).line
	p.nest()
	ensure := func(ok bool) {
		if !ok {
			failSyntax(at, "invalid syntax for function call expression")
		}
	}
	for comma := false; !p.at(tokRParen); comma = true {
		if comma {
			p.expect(tokComma)
			if p.at(tokRParen) {
				break
			}
		}
		switch {
		case p.accept(tokMul):
			ensure(a.star == nil && a.starstar == nil)
			a.star = p.expression()
		case p.accept(tokPow):
			ensure(a.starstar == nil)
			a.starstar = p.expression()
		case p.at(tokName) && p.look().token == tokAssign:
			ensure(a.starstar == nil)
			name := p.next().text
			p.skip(1)
			if slices.Contains(a.kwNames, name) {
				failSyntax(at, "keyword argument repeated: %s", name)
			}
			a.kwNames = append(a.kwNames, name)
			a.kwArgs = append(a.kwArgs, p.expression())
		default:
			ensure(a.star == nil && a.starstar == nil && len(a.kwArgs) == 0)
			a.args = append(a.args, p.expression())
		}
	}
	p.deep--
	p.expect(tokRParen)
	return a
}

// filters reads "|name(args)" as often as it comes; n is nil in a filter block.
func (p *parser) filters(n node) node {
	for chain := 0; p.accept(tokPipe); chain++ {
		p.chain(chain)
		n = p.filter(n)
	}
	return n
}

func (p *parser) filter(n node) node {
	f := &filterExpr{input: n}
	f.line, f.name = p.dottedName()
	if p.at(tokLParen) {
		f.passed = p.arguments()
	}
	return f
}

func (p *parser) dottedName() (line, string) {
	l := p.expect(tokName)
	name := l.text
	for p.accept(tokDot) {
		name += "." + p.expect(tokName).text
	}
	return line(l.line), name
}

func (p *parser) test(n node) node {
	t := &testExpr{line: line(p.next().line), input: n}
	negated := p.acceptName("not")
	_, t.name = p.dottedName()
	switch p.cur().token {
	case tokLParen:
		t.passed = p.arguments()
	case tokName, tokString, tokInteger, tokFloat, tokLBracket, tokLBrace:
		if p.atName("else") || p.atName("or") || p.atName("and") {
			break
		}
		if p.atName("is") {
			p.fail("You cannot chain multiple tests with is")
		}
		t.args = []node{p.postfix(p.primary(false))}
	}
	if negated {
		return &notNode{t.line, t}
	}
	return t
}
