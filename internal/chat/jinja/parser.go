// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"slices"
	"strings"
)

// parser makes the tree of a template by recursive descent: statements here, expressions in parser_expr.go.
type parser struct {
	lex  []lexeme
	pos  int
	tags []string   // open statements, for messages
	ends [][]string // what would end each of them
	deep int        // nesting of statements and expressions
}

// parse gives the statements of a template.
func parse(src string) []node {
	p := &parser{lex: tokenize(src)}
	p.skip(0)
	return p.statements(nil)
}

func (p *parser) cur() lexeme { return p.lex[p.pos] }

// look is the lexeme after the current one.
func (p *parser) look() lexeme {
	if p.at(tokEOF) {
		return p.cur()
	}
	p.skip(1)
	l := p.cur()
	p.pos--
	return l
}

// next gives the current lexeme and goes on to the following one.
func (p *parser) next() lexeme {
	l := p.lex[p.pos]
	p.skip(1)
	return l
}

func (p *parser) skip(n int) {
	p.pos = min(p.pos+n, len(p.lex)-1)
	if err := p.cur().err; err != nil {
		panic(err)
	}
}

func (p *parser) at(t token) bool      { return p.cur().token == t }
func (p *parser) atName(s string) bool { return p.cur().is(s) }
func (p *parser) line() line           { return line(p.cur().line) }

func (p *parser) accept(t token) bool {
	if p.at(t) {
		p.skip(1)
		return true
	}
	return false
}

func (p *parser) acceptName(s string) bool {
	if p.atName(s) {
		p.skip(1)
		return true
	}
	return false
}

func (p *parser) expect(t token) lexeme {
	if !p.at(t) {
		p.unexpected(t.String())
	}
	return p.next()
}

func (p *parser) expectName(s string) {
	if !p.acceptName(s) {
		p.unexpected(s)
	}
}

func (p *parser) unexpected(want string) {
	if p.at(tokEOF) {
		p.fail("unexpected end of template, expected %s.", quote(want))
	}
	p.fail("expected token %s, got %s", quote(want), quote(p.cur().describe()))
}

func (p *parser) fail(format string, args ...any) { failSyntax(p.cur().line, format, args...) }

// nest counts a level of nesting; undo it with p.deep--.
func (p *parser) nest() {
	p.deep++
	if p.deep > MaxNesting {
		p.fail("nested more than %d deep", MaxNesting)
	}
}

// statements reads up to one of the tags that end a body and stands on that tag's name; without ends, up to the end.
func (p *parser) statements(ends []string) []node {
	body := []node{}
	var output *outputNode
	add := func(n node) {
		if output == nil {
			output = &outputNode{line: line(n.at())}
			body = append(body, output)
		}
		output.items = append(output.items, n)
	}
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	p.nest()
	for {
		l := p.next()
		switch l.token {
		case tokEOF:
			if ends != nil {
				p.failEnd("", p.cur().line)
			}
			p.deep--
			return body
		case tokData:
			add(&textNode{line(l.line), l.text})
		case tokVariableBegin:
			add(p.tuple(true, nil, false))
			p.expect(tokVariableEnd)
		case tokBlockBegin:
			output = nil
			if slices.ContainsFunc(ends, p.atName) {
				p.deep--
				return body
			}
			body = append(body, p.statement())
			p.expect(tokBlockEnd)
		}
	}
}

// body reads the rest of an opening tag and what follows, up to one of ends.
func (p *parser) body(ends ...string) []node {
	p.accept(tokColon)
	p.expect(tokBlockEnd)
	return p.statements(ends)
}

// wholeBody is body for statements with one end, which is read too.
func (p *parser) wholeBody(end string) []node {
	b := p.body(end)
	p.skip(1)
	return b
}

// failEnd reports an unknown tag, or the end of the template when name is empty.
func (p *parser) failEnd(name string, line int) {
	msg := []string{"Unexpected end of template."}
	if name != "" {
		msg[0] = "Encountered unknown tag " + quote(name) + "."
	}
	if len(p.ends) > 0 {
		var quoted []string
		expected := false
		for i, ends := range p.ends {
			expected = expected || slices.Contains(ends, name)
			if i == len(p.ends)-1 {
				for _, e := range ends {
					quoted = append(quoted, quote(e))
				}
			}
		}
		looking := strings.Join(quoted, " or ")
		if expected {
			msg = append(msg, "You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "+looking+".")
		} else {
			msg = append(msg, "Jinja was looking for the following tags: "+looking+".")
		}
	}
	if len(p.tags) > 0 {
		msg = append(msg, "The innermost block that needs to be closed is "+quote(p.tags[len(p.tags)-1])+".")
	}
	failSyntax(line, "%s", strings.Join(msg, " "))
}

// statement reads one tag; the parser stands on its name.
func (p *parser) statement() node {
	l := p.cur()
	if l.token != tokName {
		p.fail("tag name expected")
	}
	read := map[string]func(*parser) node{
		"for": (*parser).forLoop, "if": (*parser).ifElse, "set": (*parser).set, "macro": (*parser).macro,
		"call": (*parser).callBlock, "filter": (*parser).filterBlock, "with": (*parser).with, "print": (*parser).print,
		"block": (*parser).block, "autoescape": (*parser).autoescape, "generation": (*parser).generation,
		"break":    func(p *parser) node { p.skip(1); return &breakNode{line(l.line)} },
		"continue": func(p *parser) node { p.skip(1); return &continueNode{line(l.line)} },
	}[l.text]
	switch l.text {
	case "include", "import", "from", "extends":
		panic(&Error{Class: unsupportedError, Line: l.line, Msg: "{% " + l.text + " %}: a chat template cannot load other templates"})
	}
	if read == nil {
		p.failEnd(l.text, l.line)
	}
	p.tags = append(p.tags, l.text)
	n := read(p)
	p.tags = p.tags[:len(p.tags)-1]
	return n
}

func (p *parser) set() node {
	at := line(p.next().line)
	target := p.target(nil, true)
	if p.accept(tokAssign) {
		return &assignNode{at, target, p.tuple(true, nil, false)}
	}
	filter := p.filters(nil)
	return &captureNode{at, target, filter, p.wholeBody("endset")}
}

func (p *parser) forLoop() node {
	n := &forNode{line: line(p.next().line)}
	n.target = p.target([]string{"in"}, false)
	p.expectName("in")
	n.iter = p.tuple(false, []string{"recursive"}, false)
	if p.acceptName("if") {
		n.test = p.expression()
	}
	n.recursive = p.acceptName("recursive")
	n.body = p.body("endfor", "else")
	if p.next().text == "else" {
		n.orElse = p.wholeBody("endfor")
	}
	return n
}

func (p *parser) ifElse() node {
	n := &ifNode{line: p.line()}
	for {
		p.skip(1)
		arm := ifArm{line: p.line()}
		arm.test = p.tuple(false, nil, false)
		arm.body = p.body("elif", "else", "endif")
		n.arms = append(n.arms, arm)
		if p.atName("elif") {
			continue
		}
		if p.next().text == "else" {
			n.orElse = p.wholeBody("endif")
		}
		return n
	}
}

func (p *parser) with() node {
	n := &withNode{line: line(p.next().line)}
	for !p.at(tokBlockEnd) {
		if len(n.targets) > 0 {
			p.expect(tokComma)
		}
		target := p.target(nil, false)
		setUse(target, useParam)
		p.expect(tokAssign)
		n.targets = append(n.targets, target)
		n.values = append(n.values, p.expression())
	}
	n.body = p.wholeBody("endwith")
	return n
}

func (p *parser) autoescape() node {
	n := &autoescapeNode{line: line(p.next().line)}
	n.value = p.expression()
	n.body = p.wholeBody("endautoescape")
	return n
}

func (p *parser) generation() node {
	n := &callNode{line: line(p.next().line)}
	n.body = p.wholeBody("endgeneration")
	return n
}

func (p *parser) block() node {
	n := &blockNode{line: line(p.next().line)}
	n.name = p.expect(tokName).text
	n.scoped = p.acceptName("scoped")
	n.required = p.acceptName("required")
	if p.at(tokSub) {
		p.fail("Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an underscore instead.")
	}
	n.body = p.wholeBody("endblock")
	if n.required {
		for _, s := range n.body {
			out, ok := s.(*outputNode)
			for i := 0; ok && i < len(out.items); i++ {
				t, text := out.items[i].(*textNode)
				ok = text && trimLeft(t.text) == ""
			}
			if !ok {
				p.fail("Required blocks can only contain comments or whitespace")
			}
		}
	}
	p.acceptName(n.name)
	return n
}

// signature reads "(a, b=1)".
func (p *parser) signature() (s signature) {
	p.expect(tokLParen)
	for !p.at(tokRParen) {
		if len(s.params) > 0 {
			p.expect(tokComma)
		}
		param := p.targetName()
		param.use = useParam
		if p.accept(tokAssign) {
			s.defaults = append(s.defaults, p.expression())
		} else if len(s.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
		if slices.ContainsFunc(s.params, func(o *nameNode) bool { return o.name == param.name }) {
			p.fail("duplicate argument %s in function definition", quote(param.name))
		}
		s.params = append(s.params, param)
	}
	p.expect(tokRParen)
	return s
}

func (p *parser) macro() node {
	n := &macroNode{line: line(p.next().line)}
	n.name = p.targetName().name
	n.signature = p.signature()
	n.body = p.wholeBody("endmacro")
	return n
}

func (p *parser) callBlock() node {
	n := &callNode{line: line(p.next().line)}
	if p.at(tokLParen) {
		n.signature = p.signature()
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		failSyntax(n.at(), "expected call")
	}
	n.call = call
	n.body = p.wholeBody("endcall")
	return n
}

func (p *parser) filterBlock() node {
	n := &filterNode{line: line(p.next().line)}
	n.filter = p.filters(p.filter(nil))
	n.body = p.wholeBody("endfilter")
	return n
}

func (p *parser) print() node {
	n := &outputNode{line: line(p.next().line)}
	for !p.at(tokBlockEnd) {
		if len(n.items) > 0 {
			p.expect(tokComma)
		}
		n.items = append(n.items, p.expression())
	}
	return n
}

// targetName reads a name that is assigned to.
func (p *parser) targetName() *nameNode {
	l := p.expect(tokName)
	n := &nameNode{line(l.line), l.text, useStore}
	p.assignable(n)
	return n
}

// target reads what is assigned to: a name, a tuple of them, with namespace also ns.attr.
func (p *parser) target(ends []string, namespace bool) node {
	n := p.targets(ends, namespace)
	setUse(n, useStore)
	p.assignable(n)
	return n
}

// assignable refuses constants and expressions as targets.
func (p *parser) assignable(n node) {
	kind := ""
	switch n := n.(type) {
	case *nameNode:
		if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, n.name) {
			kind = "name"
		}
	case *namespaceNode:
	case *tupleNode:
		for _, item := range n.items {
			switch item.(type) {
			case *nameNode, *namespaceNode, *tupleNode:
				p.assignable(item)
			default:
				kind = "tuple"
			}
		}
	case *constNode:
		kind = "const"
	case *listNode:
		kind = "list"
	case *dictNode:
		kind = "dict"
	default:
		kind = "expression"
	}
	if kind != "" {
		failSyntax(n.at(), "can't assign to %s", quote(kind))
	}
}

// setUse marks the names of a target.
func setUse(n node, use nameUse) {
	switch n := n.(type) {
	case *nameNode:
		n.use = use
	case *tupleNode:
		for _, item := range n.items {
			setUse(item, use)
		}
	}
}
