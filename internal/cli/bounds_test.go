// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEveryNumberHasABound: of each verb's flags that are integers, the largest one and one below all is refused by the flag's name, in a
// line, before anything is opened.
func TestEveryNumberHasABound(t *testing.T) {
	unbounded := map[string]string{ // where every value above 0 has a meaning
		"met serve --max-num-seqs": "so many may wait",
		"met chat --max-tokens":    "the server refuses it",
	}
	args := map[string][]string{ // that a verb needs, whatever they name
		"met circuit diff": {"m"}, "met circuit show": {"m"}, "met circuit display": {"m"}, "met circuit estimate": {"m", "--hardware", "h200-sxm"}, "met circuit memory": {"m"},
		"met benchmark run load": {"m"}, "met eval logits": {"m", "--ids", "1", "--out", "x"}, "met serve": {"m"},
	}
	tried := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if cmd.RunE == nil {
			return
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "int" && kind != "int64" && kind != "intSlice" {
				return
			}
			path := cmd.CommandPath()
			for _, value := range []int64{math.MaxInt, math.MinInt} {
				if unbounded[path+" --"+f.Name] != "" && value > 0 {
					continue
				}
				tried++
				var out bytes.Buffer
				line := append(strings.Fields(path)[1:], args[path]...)
				status := Main(append(line, "--"+f.Name, strconv.FormatInt(value, 10)), nil, &out, &out)
				if want := "met: --" + f.Name + " " + strconv.FormatInt(value, 10) + ": want "; status != 2 || !strings.HasPrefix(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
					t.Errorf("%s %v: status %d, %q", path, line, status, &out)
				}
			}
		})
	}
	walk(newRoot(environment{}))
	if tried < 40 {
		t.Errorf("%d values are tried", tried)
	}
}
