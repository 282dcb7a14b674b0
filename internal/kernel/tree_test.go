// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"os"
	"testing"
)

// TestTheTreeKeepsItsRules checks the real tree, without a compiler.
func TestTheTreeKeepsItsRules(t *testing.T) {
	fsys := os.DirFS("../../kernels")
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range append(append(tree.checkFiles(fsys), tree.checkModules()...), tree.checkForks(fsys)...) {
		t.Error(err)
	}
}
