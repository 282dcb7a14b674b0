// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"math"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Kind is the JSON type of a Node.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Int   // a number written without fraction and exponent
	Float // any other number, NaN and ±Infinity included
	String
	Array
	Object
)

var kindNames = [...]string{Null: "null", Bool: "true or false", Int: "an integer", Float: "a number", String: "a string",
	Array: "a list", Object: "an object"}

// String describes the kind for messages: "a string".
func (k Kind) String() string { return kindNames[k] }

// Node is a JSON value that knows where it stands. All methods work on a nil Node and then answer "absent", so that
// chains of lookups need no checks between them. Nodes are immutable.
type Node struct {
	kind  Kind
	pos   diag.Pos
	up    *Node
	key   string // under up: the key, or the index in decimal
	text  string // String: the value; Int and Float: the literal; Bool: "true" or "false"
	keys  []string
	items []*Node        // of an Array; of an Object, in the order of keys
	index map[string]int // of an Object: key → place in keys
}

// Kind is the value's JSON type; Null for a nil Node.
func (n *Node) Kind() Kind {
	if n == nil {
		return Null
	}
	return n.kind
}

// IsNull says whether the value is null or absent.
func (n *Node) IsNull() bool { return n.Kind() == Null }

// Pos is where the value starts.
func (n *Node) Pos() diag.Pos {
	if n == nil {
		return diag.Pos{}
	}
	return n.pos
}

// Key is the last component of Path.
func (n *Node) Key() string {
	if n == nil {
		return ""
	}
	return n.key
}

// Path is the way from the root, as "rope_scaling.factor" or "layer_types.3"; empty for the root.
func (n *Node) Path() string {
	if n == nil || n.up == nil {
		return ""
	}
	if p := n.up.Path(); p != "" {
		return p + "." + n.key
	}
	return n.key
}

// Child is the value of exactly that key (dots are not special) of an Object.
func (n *Node) Child(key string) (*Node, bool) {
	if n == nil {
		return nil, false
	}
	i, ok := n.index[key]
	if !ok {
		return nil, false
	}
	return n.items[i], true
}

// Get follows a path of keys and list indices joined by dots. An empty path is the node itself.
func (n *Node) Get(path string) (*Node, bool) {
	if path == "" {
		return n, n != nil
	}
	head, rest, _ := strings.Cut(path, ".")
	next, ok := n.Child(head)
	if !ok && n.Kind() == Array {
		i, err := strconv.Atoi(head)
		if err != nil || i < 0 || i >= len(n.items) {
			return nil, false
		}
		next, ok = n.items[i], true
	}
	if !ok {
		return nil, false
	}
	return next.Get(rest)
}

// Keys are an Object's keys in the order of the file. The caller must not change the slice.
func (n *Node) Keys() []string {
	if n == nil {
		return nil
	}
	return n.keys
}

// Items are an Array's values, or an Object's in the order of Keys. The caller must not change the slice.
func (n *Node) Items() []*Node {
	if n == nil {
		return nil
	}
	return n.items
}

// Len is the number of items.
func (n *Node) Len() int { return len(n.Items()) }

// Int is the value of an integer that fits; 1.0 is none.
func (n *Node) Int() (int64, bool) {
	if n.Kind() != Int {
		return 0, false
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	return v, err == nil
}

// Float is the value of any number, integers included.
func (n *Node) Float() (float64, bool) {
	switch n.Kind() {
	case Int, Float:
	case Object: // as transformers spells what is no JSON: {"__float__": "Infinity"}
		if inner, ok := n.Child("__float__"); ok && n.Len() == 1 {
			s, _ := inner.Str()
			v, known := map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[s]
			return v, known
		}
		return 0, false
	default:
		return 0, false
	}
	switch n.text {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	v, err := strconv.ParseFloat(n.text, 64)
	return v, err == nil
}

// Str is the value of a string.
func (n *Node) Str() (string, bool) {
	if n.Kind() != String {
		return "", false
	}
	return n.text, true
}

// Bool is the value of true or false.
func (n *Node) Bool() (v, ok bool) {
	if n.Kind() != Bool {
		return false, false
	}
	return n.text == "true", true
}

// Literal is a scalar as the file writes it (strings without quotes), for messages and for exact comparison.
func (n *Node) Literal() string {
	if n.Kind() == Null {
		return "null"
	}
	return n.text
}

// Errorf is an error of code Format about this value: it stands at Pos and names Path as the field.
func (n *Node) Errorf(format string, args ...any) *diag.Error {
	return diag.Errorf(diag.Format, format, args...).At(n.Pos()).For(n.Path())
}

// newObject starts an Object; add fills it.
func newObject(pos diag.Pos) *Node {
	return &Node{kind: Object, pos: pos, index: map[string]int{}}
}

// add appends a member. The caller has made sure that the key is new.
func (n *Node) add(key string, v *Node) {
	v.up, v.key = n, key
	n.index[key] = len(n.keys)
	n.keys = append(n.keys, key)
	n.items = append(n.items, v)
}

// push appends an item to an Array.
func (n *Node) push(v *Node) {
	v.up, v.key = n, strconv.Itoa(len(n.items))
	n.items = append(n.items, v)
}
