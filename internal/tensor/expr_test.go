// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import (
	"slices"
	"testing"
)

// TestNamesOfExpressions: Names accepts what Eval can compute for some sizes, and gives what it needs.
func TestNamesOfExpressions(t *testing.T) {
	for expr, want := range map[string][]string{"3": nil, "ceil(N, 8)*R": {"N", "R"}, "max(a, b) - (c/7 + a)": {"a", "b", "c", "a"}, "x % y": {"x", "y"}} {
		if got, err := Names(expr); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", expr, got, err)
		}
	}
	for _, expr := range []string{"", "a +", "ceil(a)", "f(a, b)", "(a", "a b", "a ^ b"} {
		if names, err := Names(expr); err == nil {
			t.Errorf("%q parses: %v", expr, names)
		}
	}
}
