// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// The tree that the parser makes. Lines count from 1.

// node is a statement or an expression.
type node interface{ at() int }

type line int

func (l line) at() int { return int(l) }

// Statements.
type (
	// outputNode prints text (textNode) and expressions.
	outputNode struct {
		line
		items []node
	}
	textNode struct {
		line
		text string
	}
	ifNode struct {
		line
		arms   []ifArm
		orElse []node // nil when there is no else
	}
	ifArm struct {
		line
		test node
		body []node
	}
	forNode struct {
		line
		target    node
		iter      node
		test      node // nil when there is no if
		recursive bool
		body      []node
		orElse    []node
	}
	// assignNode is {% set target = value %}.
	assignNode struct {
		line
		target, value node
	}
	// captureNode is {% set target | filter %}body{% endset %}; filter is nil or a chain that ends in a hole.
	captureNode struct {
		line
		target node
		filter node
		body   []node
	}
	macroNode struct {
		line
		name string
		signature
		body []node
	}
	// callNode is {% call(params) call %}body{% endcall %}; the call is nil for {% generation %}.
	callNode struct {
		line
		signature
		call *callExpr
		body []node
	}
	// filterNode is {% filter f %}body{% endfilter %}; filter ends in a hole.
	filterNode struct {
		line
		filter node
		body   []node
	}
	withNode struct {
		line
		targets, values []node
		body            []node
	}
	autoescapeNode struct {
		line
		value node
		body  []node
	}
	blockNode struct {
		line
		name             string
		scoped, required bool
		body             []node
	}
	breakNode    struct{ line }
	continueNode struct{ line }
)

// signature are the parameters of a macro; the last len(defaults) of them have one.
type signature struct {
	params   []*nameNode
	defaults []node
}

// Expressions.
type (
	constNode struct {
		line
		value Value
	}
	nameNode struct {
		line
		name string
		use  nameUse
	}
	// namespaceNode is ns.attr as the target of an assignment.
	namespaceNode struct {
		line
		name, attr string
	}
	tupleNode struct {
		line
		items []node
	}
	listNode struct {
		line
		items []node
	}
	dictNode struct {
		line
		keys, vals []node
	}
	unaryNode struct {
		line
		op      token // tokAdd, tokSub
		operand node
	}
	notNode struct {
		line
		operand node
	}
	binaryNode struct {
		line
		op          token
		left, right node
	}
	logicNode struct {
		line
		or          bool
		left, right node
	}
	concatNode struct {
		line
		items []node
	}
	compareNode struct {
		line
		first node
		ops   []comparison
	}
	comparison struct {
		op      token
		operand node
	}
	condNode struct {
		line
		test, then, orElse node // orElse is nil when there is no else
	}
	attrNode struct {
		line
		object node
		name   string
	}
	itemNode struct {
		line
		object, key node
	}
	sliceNode struct {
		line
		object            node
		start, stop, step node // nil when left out
	}
	callExpr struct {
		line
		callee node
		passed
	}
	filterExpr struct {
		line
		input node // nil for the body of a filter block or a set block
		name  string
		passed
	}
	testExpr struct {
		line
		input node
		name  string
		passed
	}
)

// passed are the arguments of a call.
type passed struct {
	args     []node
	kwNames  []string
	kwArgs   []node
	star     node // *args, or nil
	starstar node // **kwargs, or nil
}

type nameUse uint8

const (
	useLoad nameUse = iota
	useStore
	useParam
)

// children calls visit for the parts of n in jinja2's order, not for parts of parts. Statements include their bodies.
func children(n node, visit func(node)) {
	all := func(list ...node) {
		for _, c := range list {
			if c != nil {
				visit(c)
			}
		}
	}
	params := func(s signature) {
		for _, p := range s.params {
			visit(p)
		}
		all(s.defaults...)
	}
	args := func(p passed) {
		all(p.args...)
		all(p.kwArgs...)
		all(p.star, p.starstar)
	}
	switch n := n.(type) {
	case *outputNode:
		all(n.items...)
	case *ifNode:
		for _, arm := range n.arms {
			visit(arm.test)
			all(arm.body...)
		}
		all(n.orElse...)
	case *forNode:
		all(n.target, n.iter)
		all(n.body...)
		all(n.orElse...)
		all(n.test)
	case *assignNode:
		all(n.target, n.value)
	case *captureNode:
		all(n.target, n.filter)
		all(n.body...)
	case *macroNode:
		params(n.signature)
		all(n.body...)
	case *callNode:
		if n.call != nil {
			visit(n.call)
		}
		params(n.signature)
		all(n.body...)
	case *filterNode:
		all(n.body...)
		all(n.filter)
	case *withNode:
		all(n.targets...)
		all(n.values...)
		all(n.body...)
	case *autoescapeNode:
		all(n.value)
		all(n.body...)
	case *blockNode:
		all(n.body...)
	case *tupleNode:
		all(n.items...)
	case *listNode:
		all(n.items...)
	case *dictNode:
		for i := range n.keys {
			all(n.keys[i], n.vals[i])
		}
	case *unaryNode:
		all(n.operand)
	case *notNode:
		all(n.operand)
	case *binaryNode:
		all(n.left, n.right)
	case *logicNode:
		all(n.left, n.right)
	case *concatNode:
		all(n.items...)
	case *compareNode:
		all(n.first)
		for _, op := range n.ops {
			all(op.operand)
		}
	case *condNode:
		all(n.test, n.then, n.orElse)
	case *attrNode:
		all(n.object)
	case *itemNode:
		all(n.object, n.key)
	case *sliceNode:
		all(n.object, n.start, n.stop, n.step)
	case *callExpr:
		all(n.callee)
		args(n.passed)
	case *filterExpr:
		all(n.input)
		args(n.passed)
	case *testExpr:
		all(n.input)
		args(n.passed)
	}
}
