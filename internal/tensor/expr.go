// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import (
	"fmt"
	"strconv"
)

// Eval computes an integer expression over named dims, as circuits and manifests write sizes: "heads*head_dim",
// "ceil(rows, 16)", "2*Kd + Vd". Operators + - * / % (exact division only), min, max, ceil(a, b) = ⌈a/b⌉, parentheses.
// An unknown name, a division with a remainder or an overflow of 2^62 is an error that names the expression.
func Eval(expr string, dims map[string]int64) (int64, error) {
	p := exprParser{src: expr, dims: dims}
	v, err := p.sum()
	if err == nil {
		p.space()
		if p.pos < len(expr) {
			err = fmt.Errorf("unexpected %q", expr[p.pos:])
		}
	}
	if err != nil {
		return 0, fmt.Errorf("expression %q: %w", expr, err)
	}
	return v, nil
}

// Names are the dims that an expression needs, in order; an error if it does not parse.
func Names(expr string) ([]string, error) {
	p := exprParser{src: expr, dry: true}
	if _, err := p.sum(); err != nil {
		return nil, fmt.Errorf("expression %q: %w", expr, err)
	}
	if p.space(); p.pos < len(expr) {
		return nil, fmt.Errorf("expression %q: unexpected %q", expr, expr[p.pos:])
	}
	return p.names, nil
}

type exprParser struct {
	src   string
	pos   int
	dims  map[string]int64
	dry   bool // only collect names; every value is 1
	names []string
}

func (p *exprParser) space() {
	for p.pos < len(p.src) && p.src[p.pos] == ' ' {
		p.pos++
	}
}

// next consumes one of the given operator bytes.
func (p *exprParser) next(ops string) byte {
	p.space()
	for i := 0; p.pos < len(p.src) && i < len(ops); i++ {
		if p.src[p.pos] == ops[i] {
			p.pos++
			return ops[i]
		}
	}
	return 0
}

func (p *exprParser) sum() (int64, error) {
	v, err := p.product()
	for err == nil {
		op := p.next("+-")
		if op == 0 {
			break
		}
		var w int64
		if w, err = p.product(); err == nil {
			v, err = p.apply(op, v, w)
		}
	}
	return v, err
}

func (p *exprParser) product() (int64, error) {
	v, err := p.atom()
	for err == nil {
		op := p.next("*/%")
		if op == 0 {
			break
		}
		var w int64
		if w, err = p.atom(); err == nil {
			v, err = p.apply(op, v, w)
		}
	}
	return v, err
}

func (p *exprParser) atom() (int64, error) {
	p.space()
	if p.pos == len(p.src) {
		return 0, fmt.Errorf("ends too early")
	}
	if p.next("(") != 0 {
		v, err := p.sum()
		if err == nil && p.next(")") == 0 {
			err = fmt.Errorf("missing )")
		}
		return v, err
	}
	start := p.pos
	for p.pos < len(p.src) && (isWord(p.src[p.pos])) {
		p.pos++
	}
	word := p.src[start:p.pos]
	if word == "" {
		return 0, fmt.Errorf("unexpected %q", p.src[start:])
	}
	if word[0] >= '0' && word[0] <= '9' {
		return strconv.ParseInt(word, 10, 62)
	}
	if p.next("(") != 0 {
		return p.call(word)
	}
	if p.dry {
		p.names = append(p.names, word)
		return 1, nil
	}
	v, ok := p.dims[word]
	if !ok {
		return 0, fmt.Errorf("unknown dim %q", word)
	}
	return v, nil
}

// call reads the two arguments of min, max or ceil.
func (p *exprParser) call(name string) (int64, error) {
	a, err := p.sum()
	if err != nil {
		return 0, err
	}
	if p.next(",") == 0 {
		return 0, fmt.Errorf("%s needs two arguments", name)
	}
	b, err := p.sum()
	if err != nil {
		return 0, err
	}
	if p.next(")") == 0 {
		return 0, fmt.Errorf("missing )")
	}
	switch name {
	case "min":
		return min(a, b), nil
	case "max":
		return max(a, b), nil
	case "ceil":
		if b <= 0 {
			return 0, fmt.Errorf("ceil(%d, %d)", a, b)
		}
		return (a + b - 1) / b, nil
	}
	return 0, fmt.Errorf("unknown function %q", name)
}

func (p *exprParser) apply(op byte, a, b int64) (int64, error) {
	if p.dry {
		return 1, nil
	}
	return apply(op, a, b)
}

func apply(op byte, a, b int64) (int64, error) {
	const limit = 1 << 62
	switch op {
	case '+':
		a += b
	case '-':
		a -= b
	case '*':
		if a != 0 && (a*b)/a != b {
			return 0, fmt.Errorf("overflow")
		}
		a *= b
	default:
		if b == 0 || (op == '/' && a%b != 0) {
			return 0, fmt.Errorf("%d %c %d", a, op, b)
		}
		if op == '/' {
			a /= b
		} else {
			a %= b
		}
	}
	if a >= limit || a <= -limit {
		return 0, fmt.Errorf("overflow")
	}
	return a, nil
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
