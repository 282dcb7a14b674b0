// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"strings"
	"testing"
)

// TestSharedMemoryIsBounded holds conditions against what they let a launch ask for, beside 20992 static bytes of its entry.
func TestSharedMemoryIsBounded(t *testing.T) {
	for _, c := range []struct {
		name, shared, entry string
		where               []string
		want                string // part of the fault; "" if there is none
	}{
		{"fits", "4*n*(R + 1)", "tiled", []string{"R <= 4", "n % 32 == 0", "n*(R + 1) <= 52864"}, ""},
		{"one step too many", "4*n*(R + 1)", "tiled", []string{"R <= 4", "n % 32 == 0", "n*(R + 1) <= 52896"}, "the device has 232448"},
		{"at one size alone", "4*n*(R + 1)", "tiled", []string{"R == 7", "n == 6624"}, "blocks of R 7, n 6624 have 232960 bytes"},
		{"no condition", "4*n", "tiled", nil, "the device has 232448"},
		{"no condition needed", "min(4*n, 131072)", "tiled", nil, ""},
		{"the same for all", "212480", "tiled", []string{"n < 1"}, "blocks of any size have 233472 bytes"},
		{"an entry that is not there", "4*n", "tiled_{n}", []string{"n <= 64"}, "no sizes were found for which it starts entry tiled_{n}"},
		{"nothing is allowed", "64*n", "tiled", []string{"n < 1"}, "no sizes were found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, tree, x := compiled(t)
			tg := tree.Targets["hw"]
			k := *tg.Kernels["tiled"]
			l := *k.Launch
			l.Shared, l.Entry, k.Where, k.Launch = c.shared, c.entry, c.where, &l
			tg.Kernels = map[string]*Kernel{"tiled": &k}
			x.Modules["a/tiled"].Entries["tiled"] = Usage{StaticShared: 20992}
			said := ""
			report := func(err error) { said += err.Error() + "\n" }
			tg.checkShared(x, report)
			if said != "" {
				t.Errorf("a class that does not know its devices: %s", said)
			}
			tg.Class.Build.Shared = 232448
			tg.checkShared(x, report)
			if (c.want == "") != (said == "") || !strings.Contains(said, c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}
