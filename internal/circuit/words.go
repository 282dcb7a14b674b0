// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"strings"

	"github.com/metrale/metrale/internal/tensor"
)

// when evaluates a condition: empty, an expression over dims that must not be 0, or !expression.
func when(cond string, dims map[string]int64) (bool, error) {
	if cond == "" {
		return true, nil
	}
	expr, not := strings.CutPrefix(cond, "!")
	v, err := tensor.Eval(expr, dims)
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return (v != 0) != not, nil
}

// words splits an expression into names and what stands between them.
func words(expr string, name func(string), other func(string)) {
	for i := 0; i < len(expr); {
		j := i
		for j < len(expr) && (expr[j] == '_' || expr[j] >= '0' && expr[j] <= '9' || expr[j] >= 'a' && expr[j] <= 'z' || expr[j] >= 'A' && expr[j] <= 'Z') {
			j++
		}
		if j > i {
			name(expr[i:j])
			i = j
			continue
		}
		other(expr[i : i+1])
		i++
	}
}

// mentions says whether an expression names a dim.
func mentions(expr, dim string) bool {
	found := false
	words(expr, func(w string) { found = found || w == dim }, func(string) {})
	return found
}

// substitute replaces names of an expression by expressions.
func substitute(expr string, by map[string]string) string {
	var s strings.Builder
	words(expr, func(w string) {
		e, ok := by[w]
		if !ok {
			e = w
		}
		if strings.ContainsAny(e, "+-") && e != expr {
			e = "(" + e + ")"
		}
		s.WriteString(e)
	}, func(c string) { s.WriteString(c) })
	text := strings.TrimPrefix(s.String(), "1*")
	if inner := strings.TrimSuffix(strings.TrimPrefix(text, "("), ")"); len(inner) == len(text)-2 && !strings.ContainsAny(inner, "()") {
		return inner
	}
	return text
}
