// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/diag"
)

func TestKernelsCheckListsFaults(t *testing.T) {
	tree := fstest.MapFS{
		"DEVICES.toml":     {},
		"hw/HARDWARE.toml": {Data: []byte("[hardware]\nclass = \"hw\"\nvendor = \"nvidia\"\narch = \"sm_90a\"\n")},
	}
	var out bytes.Buffer
	if err := checkTree(&out, tree); err != nil || out.String() != "1 target, 0 kernels and 0 classes with compiled code: in order\n" {
		t.Errorf("%v %s", err, out.String())
	}
	if got, err := carriedHardware(tree); err != nil || got != "cpu; built without kbuild, so no GPU's kernels are in it" {
		t.Errorf("%q %v", got, err)
	}
	tree["hw/common/a/x.cu"] = &fstest.MapFile{Data: []byte("x")}
	tree["hw/common/x.cu"] = &fstest.MapFile{Data: []byte("y")}
	out.Reset()
	err := checkTree(&out, tree)
	if !diag.Is(err, diag.Format) || err.Error() != "2 faults in the kernel tree" {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"hw/common/x.cu: no layer compiles it", "hw/common/a/x.cu: no kernel of any class names module a/x"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %s", out.String(), want)
		}
	}
	sum := strings.Repeat("0", 64)
	tree["bin/hw/index.json"] = &fstest.MapFile{Data: []byte(`{"class": "hw", "arch": "sm_90a", "modules": {"a/x": {"file": "a.x.zst", "hash": "` + sum + `", "sum": "` + sum + `"}}}`)}
	if got, err := carriedHardware(tree); err != nil || got != "cpu, hw (sm_90a, 1 module)" {
		t.Errorf("%q %v", got, err)
	}
	// A damaged index is an error of every verb that reads it.
	for _, index := range []string{"{", `{"class": "hw", "modules": {"a/x": {"file": "a.x.zst", "hash": "h", "sum": "` + sum + `"}}}`, `{"class": "hw", "modules": {"a/x": {"file": "a.x.zst", "hash": "` + sum + `"}}}`} {
		tree["bin/hw/index.json"].Data = []byte(index)
		if _, err := carriedHardware(tree); !diag.Is(err, diag.Format) {
			t.Errorf("%s: %v", index, err)
		}
		for name, verb := range map[string]func() error{
			"list": func() error { return listTargets(&out, tree) }, "show": func() error { return showTarget(&out, tree, "hw") }, "check": func() error { return checkTree(&out, tree) },
		} {
			if err := verb(); !diag.Is(err, diag.Format) {
				t.Errorf("%s of %s: %v", name, index, err)
			}
		}
	}
}
