// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/tensor"
)

// TestAFormThatCannotBeCut: rows that do not part into a form's tensors have no expected shape to be told.
func TestAFormThatCannotBeCut(t *testing.T) {
	cat := &Synthetic{dtypes: map[string]tensor.DType{"a": tensor.BF16, "b": tensor.BF16}, shapes: map[string]tensor.Shape{"a": {2, 8}, "b": {2, 8}}}
	p := &preflight{cat: cat, used: map[string]bool{}}
	p.alternative(&Weight{Name: "L00.w", Axes: []kernel.Axis{{Name: "n", Size: 5}, {Name: "k", Size: 8}}}, []string{"a", "b"})
	if want := []string{"a is [2 8], and weight L00.w cannot be cut from it", "b is [2 8], and weight L00.w cannot be cut from it"}; !slices.Equal(p.wrong, want) {
		t.Errorf("%q, want %q", p.wrong, want)
	}
}
