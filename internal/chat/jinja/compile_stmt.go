// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// stmt compiles one statement; it may give several, or none.
func (c *compiler) stmt(n node, p place) []stmt {
	switch n := n.(type) {
	case *outputNode:
		return c.output(n, p)
	case *ifNode:
		return one(c.ifElse(n, p.softly()))
	case *forNode:
		return one(c.forLoop(n, p))
	case *assignNode:
		s := &assignStmt{line: n.at(), target: c.target(n.target, p), value: c.expr(n.value, p)}
		s.spaces = c.namespaces(n.target, p)
		return one(s)
	case *captureNode:
		return one(c.capture(n, p))
	case *macroNode:
		s := &macroStmt{code: c.macro(n.name, n.signature, n.body, p)}
		s.target = c.target(&nameNode{n.line, n.name, useStore}, p)
		return one(s)
	case *callNode:
		s := &callStmt{line: n.at(), code: c.macro("", n.signature, n.body, p), escape: p.escape}
		if n.call != nil {
			s.callee, s.args = c.expr(n.call.callee, p), c.args(n.call.passed, p)
		}
		return one(s)
	case *filterNode:
		q := p.inner(p.unit)
		for _, s := range n.body {
			q.declare(s)
		}
		q.declare(n.filter)
		s := &filterStmt{line: n.at(), body: c.block(n.body, q), escape: p.escape}
		s.filter, s.loads = c.expr(n.filter, q), c.loads(q)
		return one(s)
	case *withNode:
		return one(c.with(n, p))
	case *autoescapeNode:
		return one(c.autoescape(n, p))
	case *blockNode:
		s := &blockStmt{line: n.at(), name: n.name, code: c.t.blocks[n.name], required: n.required}
		if n.scoped {
			s.locals = c.visible(p)
		}
		return one(s)
	case *breakNode:
		if p.loops == 0 {
			failSyntax(n.at(), "'break' outside loop")
		}
		return one(breakStmt{})
	case *continueNode:
		if p.loops == 0 {
			failSyntax(n.at(), "'continue' not properly in loop")
		}
		return one(continueStmt{})
	}
	return nil
}

func one(s stmt) []stmt { return []stmt{s} }

// output joins text and constants, and prints the rest piece by piece.
func (c *compiler) output(n *outputNode, p place) (out []stmt) {
	var text []byte
	flush := func() {
		if len(text) > 0 {
			out = append(out, &textStmt{string(text)})
			text = text[:0]
		}
	}
	for _, item := range n.items {
		if t, ok := item.(*textNode); ok {
			text = append(text, t.text...)
			continue
		}
		e := c.expr(item, p)
		if k, ok := e.(*constExpr); ok && (k.val.kind <= kMarkup) {
			if p.escape {
				text = append(text, c.consts.escape(k.val)...)
			} else {
				text = append(text, c.consts.text(k.val)...)
			}
			continue
		}
		flush()
		s := &outputStmt{line: item.at(), value: e, escape: p.escape}
		s.emit, _ = e.(emitter)
		out = append(out, s)
	}
	flush()
	return out
}

func (c *compiler) ifElse(n *ifNode, p place) stmt {
	s := &ifStmt{}
	for _, arm := range n.arms {
		s.arms = append(s.arms, armCode{arm.at(), c.expr(arm.test, p), c.block(arm.body, p)})
	}
	if n.orElse != nil {
		s.orElse = c.block(n.orElse, p)
	}
	return s
}

func (c *compiler) forLoop(n *forNode, p place) stmt {
	c.checkLoopTargets(n)
	u := p.unit
	if n.recursive {
		u = newUnit(p.unit)
	}
	loop, orElse := p.inner(u), p.inner(u)
	loop.loops++
	s := &forStmt{line: n.at(), iter: c.expr(n.iter, p), loopSlot: -1}
	if n.recursive || undeclared(n.body, "loop")["loop"] || hasScopedBlock(n) {
		s.loopSlot = loop.parameter("loop").slot
	}
	loop.declareParams(n.target)
	for _, b := range n.body {
		loop.declare(b)
	}
	s.target = c.target(n.target, loop)
	if n.test != nil {
		s.test = c.loopFilter(n, p)
	}
	s.body, s.loads = c.block(n.body, loop), c.loads(loop)
	if n.orElse != nil {
		for _, b := range n.orElse {
			orElse.declare(b)
		}
		s.orElse, s.orElseLoads = c.block(n.orElse, orElse), c.loads(orElse)
	}
	if n.recursive {
		s.unit = &unitCode{slots: len(u.vars), nested: u.nested}
	}
	return s
}

// loopFilter compiles the if of a loop: a unit of its own that jinja2 makes a generator of.
func (c *compiler) loopFilter(n *forNode, p place) *filterCode {
	q := p.inner(newUnit(p.unit))
	q.declareParams(n.target)
	q.declare(n.test)
	f := &filterCode{target: c.target(n.target, q), test: c.expr(n.test, q), loads: c.loads(q)}
	f.slots = len(q.unit.vars)
	if t, ok := n.target.(*tupleNode); ok {
		f.value = c.expr(loaded(t), q)
	}
	return f
}

// loaded is a target as an expression.
func loaded(n node) node {
	switch n := n.(type) {
	case *nameNode:
		return &nameNode{n.line, n.name, useLoad}
	case *tupleNode:
		t := &tupleNode{line: n.line}
		for _, item := range n.items {
			t.items = append(t.items, loaded(item))
		}
		return t
	}
	return n
}

// declareParams makes the names of a loop's target parameters of its scope.
func (s *scope) declareParams(target node) {
	switch n := target.(type) {
	case *nameNode:
		s.parameter(n.name)
	case *tupleNode:
		for _, item := range n.items {
			s.declareParams(item)
		}
	}
}

// checkLoopTargets refuses assignments to loop within a loop.
func (c *compiler) checkLoopTargets(n node) {
	if name, ok := n.(*nameNode); ok && name.use == useStore && name.name == "loop" {
		c.fail(n.at(), "Can't assign to special loop variable in for-loop target")
	}
	children(n, c.checkLoopTargets)
}

func hasScopedBlock(n node) (found bool) {
	if b, ok := n.(*blockNode); ok && b.scoped {
		return true
	}
	children(n, func(child node) { found = found || hasScopedBlock(child) })
	return found
}

func (c *compiler) capture(n *captureNode, p place) stmt {
	q := p.inner(p.unit)
	for _, b := range n.body {
		q.declare(b)
	}
	if n.filter != nil {
		q.declare(n.filter)
	}
	s := &captureStmt{line: n.at(), target: c.target(n.target, p), body: c.block(n.body, q)}
	if n.filter != nil {
		s.filter = c.expr(n.filter, q)
	}
	s.loads = c.loads(q)
	return s
}

func (c *compiler) with(n *withNode, p place) stmt {
	q := p.inner(p.unit)
	for _, t := range n.targets {
		q.declare(t)
	}
	for _, b := range n.body {
		q.declare(b)
	}
	s := &withStmt{line: n.at()}
	for i := range n.targets {
		s.values = append(s.values, c.expr(n.values[i], p))
		s.targets = append(s.targets, c.target(n.targets[i], q))
	}
	s.body, s.loads = c.block(n.body, q), c.loads(q)
	return s
}

func (c *compiler) autoescape(n *autoescapeNode, p place) stmt {
	q := p.inner(p.unit)
	q.declare(n.value)
	for _, b := range n.body {
		q.declare(b)
	}
	k, ok := c.expr(n.value, q).(*constExpr)
	if !ok {
		panic(&Error{Class: unsupportedError, Line: n.at(), Msg: "{% autoescape %} with a value that is not constant"})
	}
	q.escape = c.consts.truth(k.val)
	s := &escapeStmt{on: q.escape, body: c.block(n.body, q)}
	s.loads = c.loads(q)
	return s
}

// macro compiles the body of a macro or of a call block.
func (c *compiler) macro(name string, sig signature, body []node, p place) *macroCode {
	u := newUnit(p.unit)
	q := p.inner(u)
	for _, param := range sig.params {
		q.declare(param)
	}
	for _, d := range sig.defaults {
		q.declare(d)
	}
	for _, b := range body {
		q.declare(b)
	}
	m := &macroCode{name: name, caller: -1, kwargs: -1, varargs: -1}
	explicit := map[string]int{}
	for i, param := range sig.params {
		explicit[param.name] = i
		code := paramCode{name: param.name, slot: q.refs[param.name].slot}
		if d := i - (len(sig.params) - len(sig.defaults)); d >= 0 {
			code.orElse = c.expr(sig.defaults[d], q)
		}
		m.params = append(m.params, code)
	}
	reads := undeclared(body, "caller", "kwargs", "varargs")
	for name, slot := range map[string]*int{"caller": &m.caller, "kwargs": &m.kwargs, "varargs": &m.varargs} {
		i, taken := explicit[name]
		if taken && name == "caller" && reads[name] && m.params[i].orElse == nil {
			c.fail(body[0].at(), `When defining macros or call blocks the special "caller" argument must be omitted or be given a default.`)
		}
		if reads[name] && !taken {
			*slot = q.parameter(name).slot
		}
	}
	m.body, m.loads = c.block(body, q), c.loads(q)
	m.slots, m.nested = len(u.vars), u.nested
	return m
}

// visible lists what the scopes around p assign, by name.
func (c *compiler) visible(p place) []localCode {
	out := []localCode{}
	seen := map[string]bool{}
	for s := p.scope; s != nil; s = s.parent {
		for _, l := range s.loads {
			name := c.names[l.to]
			if !s.stores[name] || seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, localCode{c.global(name), c.ref(l.to, p)})
		}
	}
	return out
}

// target compiles what is assigned to.
func (c *compiler) target(n node, p place) target {
	switch n := n.(type) {
	case *nameNode:
		v, _ := p.find(n.name)
		if p.top {
			return &exportTarget{slot: v.slot, global: c.global(n.name)}
		}
		return &slotTarget{v.slot}
	case *namespaceNode:
		return &namespaceTarget{c.expr(&nameNode{n.line, n.name, useLoad}, p), n.attr}
	case *tupleNode:
		t := &tupleTarget{}
		for _, item := range n.items {
			t.items = append(t.items, c.target(item, p))
		}
		return t
	}
	failSyntax(n.at(), "cannot assign")
	return nil
}

// namespaces lists the variables of ns.attr targets: they are checked before the value is computed.
func (c *compiler) namespaces(n node, p place) (out []expr) {
	switch n := n.(type) {
	case *namespaceNode:
		out = append(out, c.expr(&nameNode{n.line, n.name, useLoad}, p))
	case *tupleNode:
		for _, item := range n.items {
			out = append(out, c.namespaces(item, p)...)
		}
	}
	return out
}
