// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// Names follow jinja2's rules, quirks included. The whole body of a scope is looked at before it runs:
//
//   - a name that is only read in a scope, and that no outer scope knows, is looked up among what the top level assigned
//     and what Render was given, when the scope is entered;
//   - a name that is assigned in a scope is that scope's own, and starts as a copy of the outer variable;
//   - if, elif and else open no scope; what only some of their branches assign starts as the outer variable, too;
//   - loops, macros, call, filter, with, autoescape, set blocks and blocks open one; blocks see no outer scope at all.

// unit is what has its own activation record at run time.
type unit struct {
	parent *unit
	vars   map[varKey]int
	nested bool // other units are written in it, so a record may outlive its call
}

// varKey names a variable within a unit. Scopes that lie side by side share their variables.
type varKey struct {
	level int
	name  string
}

func newUnit(parent *unit) *unit {
	if parent != nil {
		parent.nested = true
	}
	return &unit{parent: parent, vars: map[varKey]int{}}
}

// variable is a slot of a unit's record.
type variable struct {
	unit *unit
	slot int
}

// load says how a variable gets its value when its scope is entered.
type load struct {
	to   variable
	how  loadKind
	name string   // for loadName
	from variable // for loadCopy
}

type loadKind uint8

const (
	loadGiven loadKind = iota // a parameter or a loop variable: already there
	loadName                  // look the name up
	loadCopy                  // copy an outer variable
	loadUnset                 // absent
)

// scope is one scope while it is compiled.
type scope struct {
	c      *compiler
	unit   *unit
	level  int
	parent *scope
	refs   map[string]variable
	loads  []load
	index  map[variable]int // into loads
	stores map[string]bool
}

func (c *compiler) newScope(parent *scope, u *unit) *scope {
	s := &scope{c: c, unit: u, parent: parent, refs: map[string]variable{}, index: map[variable]int{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

// find gives the variable that a name means here.
func (s *scope) find(name string) (variable, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.refs[name]; ok {
			return v, true
		}
	}
	return variable{}, false
}

// define makes the name a variable of this scope.
func (s *scope) define(name string, l load) variable {
	key := varKey{s.level, name}
	slot, ok := s.unit.vars[key]
	if !ok {
		slot = len(s.unit.vars)
		s.unit.vars[key] = slot
	}
	l.to = variable{s.unit, slot}
	s.refs[name] = l.to
	s.c.names[l.to] = name
	s.setLoad(l)
	return l.to
}

func (s *scope) setLoad(l load) {
	if i, ok := s.index[l.to]; ok {
		s.loads[i] = l
		return
	}
	s.index[l.to] = len(s.loads)
	s.loads = append(s.loads, l)
}

// parameter declares a name whose value is given.
func (s *scope) parameter(name string) variable {
	s.stores[name] = true
	return s.define(name, load{how: loadGiven})
}

func (s *scope) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, load{how: loadName, name: name})
	}
}

func (s *scope) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if s.parent != nil {
		if outer, ok := s.parent.find(name); ok {
			s.define(name, load{how: loadCopy, from: outer})
			return
		}
	}
	s.define(name, load{how: loadUnset})
}

// branch gives a copy of s for one branch of an if.
func (s *scope) branch() *scope {
	b := s.c.newScope(s.parent, s.unit)
	b.level = s.level
	s.c.charge(len(s.refs) + len(s.loads) + len(s.stores))
	for k, v := range s.refs {
		b.refs[k] = v
	}
	for _, l := range s.loads {
		b.setLoad(l)
	}
	for k := range s.stores {
		b.stores[k] = true
	}
	return b
}

// merge takes over what the branches of an if declared. A name that one of them assigns may keep its outer value.
func (s *scope) merge(branches []*scope) {
	var fresh []string
	seen := map[string]bool{}
	for _, b := range branches {
		s.c.charge(len(b.refs) + len(b.loads) + len(b.stores))
		for _, l := range b.loads { // in order, so that code does not depend on the order of maps
			if name := b.nameOf(l.to); b.stores[name] && !s.stores[name] && !seen[name] {
				seen[name] = true
				fresh = append(fresh, name)
			}
		}
	}
	for _, b := range branches {
		for k, v := range b.refs {
			s.refs[k] = v
		}
		for _, l := range b.loads {
			s.setLoad(l)
		}
		for k := range b.stores {
			s.stores[k] = true
		}
	}
	for _, name := range fresh {
		v := s.refs[name]
		l := load{to: v, how: loadName, name: name}
		if s.parent != nil {
			if outer, ok := s.parent.find(name); ok {
				l = load{to: v, how: loadCopy, from: outer}
			}
		}
		s.setLoad(l)
	}
}

// nameOf is the name of a variable of this scope.
func (s *scope) nameOf(v variable) string { return s.c.names[v] }

// declare finds what a statement or an expression reads and assigns in this scope; it stops at inner scopes.
func (s *scope) declare(n node) {
	each := func(list []node) {
		for _, c := range list {
			if c != nil {
				s.declare(c)
			}
		}
	}
	switch n := n.(type) {
	case *nameNode:
		switch n.use {
		case useLoad:
			s.load(n.name)
		case useStore:
			s.store(n.name)
		case useParam:
			s.parameter(n.name)
		}
	case *namespaceNode:
		s.load(n.name)
	case *ifNode:
		s.declare(n.arms[0].test)
		body, elifs, orElse := s.branch(), s.branch(), s.branch()
		for _, c := range n.arms[0].body {
			body.declare(c)
		}
		for _, arm := range n.arms[1:] {
			elifs.declare(&ifNode{line: arm.line, arms: []ifArm{arm}})
		}
		for _, c := range n.orElse {
			orElse.declare(c)
		}
		s.merge([]*scope{body, elifs, orElse})
	case *macroNode:
		s.store(n.name)
	case *assignNode:
		s.declare(n.value)
		s.declare(n.target)
	case *forNode:
		s.declare(n.iter)
	case *callNode:
		if n.call != nil {
			s.declare(n.call)
		}
	case *filterNode:
		s.declare(n.filter)
	case *withNode:
		each(n.values)
	case *captureNode:
		s.declare(n.target)
	case *autoescapeNode, *blockNode, nil:
	default:
		children(n, s.declare)
	}
}

// undeclared tells which of names a piece of template reads before it assigns them.
func undeclared(body []node, names ...string) map[string]bool {
	open, found := map[string]bool{}, map[string]bool{}
	for _, n := range names {
		open[n] = true
	}
	var visit func(n node)
	visit = func(n node) {
		switch n := n.(type) {
		case *nameNode:
			if n.use != useLoad {
				delete(open, n.name)
			} else if open[n.name] {
				found[n.name] = true
			}
		case *blockNode:
		default:
			if len(found) < len(names) {
				children(n, visit)
			}
		}
	}
	for _, n := range body {
		visit(n)
	}
	return found
}
