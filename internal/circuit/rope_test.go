// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
)

// TestRopeTablesAgreeWithTransformers compares with numbers that tools/rope/make.py took from transformers. PyTorch's powf is
// not correctly rounded and differs from machine to machine by a unit in the last place, so that much is allowed; formulas
// that blend two powers may double it.
func TestRopeTablesAgreeWithTransformers(t *testing.T) {
	src, err := os.ReadFile("testdata/rope.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Config  json.RawMessage `json:"config"`
		InvFreq []uint32        `json:"inv_freq"`
		Scale   float64         `json:"scale"`
	}
	if err := json.Unmarshal(src, &cases); err != nil {
		t.Fatal(err)
	}
	equal, all := 0, 0
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			in := instantiate(t, readConfig(t, c.Config))
			got := in.Consts[0].Values
			if len(got) != len(c.InvFreq) || in.Dim("rot") != 2*int64(len(got)) {
				t.Fatalf("%d frequencies, rot %d; transformers has %d", len(got), in.Dim("rot"), len(c.InvFreq))
			}
			for k, want := range c.InvFreq {
				d := int64(math.Float32bits(got[k])) - int64(want)
				if d < -2 || d > 2 {
					t.Errorf("frequency %d is %v, transformers has %v", k, got[k], math.Float32frombits(want))
				}
				if d == 0 {
					equal++
				}
				all++
			}
			for _, n := range in.Nodes {
				if n.Op.Name == "rope_angles" && n.attr("scale").Float != c.Scale {
					t.Errorf("scale %v, transformers has %v", n.attr("scale").Float, c.Scale)
				}
			}
		})
	}
	if equal*100 < all*95 {
		t.Errorf("only %d of %d frequencies are bit-equal", equal, all)
	}
	t.Logf("%d of %d frequencies are bit-equal", equal, all)
}
