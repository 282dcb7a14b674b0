// SPDX-License-Identifier: MIT OR Apache-2.0

package bench_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/kernels"
)

// TestMicro: shapes are measured on the CPU, over one set of arrays or several.
func TestMicro(t *testing.T) {
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m := &bench.Micro{Device: dev, Library: lib, Only: regexp.MustCompile("rmsnorm .1,|gated_rmsnorm|silu_mul .16|rope seq=32|hist=64|conv1d_decode|gdr_decode|gemm .16|w4a16 .80")}
	r, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Shapes) != 10 {
		t.Errorf("%d shapes", len(r.Shapes))
	}
	for _, s := range r.Shapes {
		if s.Times["met"] <= 0 || s.Sets != 1 || len(s.Kernels) == 0 || s.Bytes == 0 || s.Missing != "" {
			t.Errorf("%+v", s)
		}
	}
	m.Only, m.Rotate = regexp.MustCompile("silu_mul .16"), 1
	if r, err = m.Run(context.Background()); err != nil || r.Shapes[0].Sets < 10 || r.Rotate != 1 {
		t.Errorf("%v %+v", err, r.Shapes[0])
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Run(ctx); !diag.Is(err, diag.Canceled) {
		t.Error(err)
	}
}

// TestCompare: ratios are of others' times to ours; a shape without a time of ours counts as lacking.
func TestCompare(t *testing.T) {
	ours := &bench.Reading{Program: "met", Shapes: []*bench.ShapeTime{
		{Shape: "a", Times: map[string]float64{"met": 2}, Kernels: []string{"k"}},
		{Shape: "b", Times: map[string]float64{"met": 4}, Kernels: []string{"k"}},
		{Shape: "c", Missing: "no kernel"},
		{Shape: "d", Further: true, Times: map[string]float64{"met": 1}},
	}}
	theirs := &bench.Reading{Program: "torch", Shapes: []*bench.ShapeTime{
		{Shape: "a", Times: map[string]float64{"eager": 10, "graph": 4, "compiled": 3, "library": 1}},
		{Shape: "b", Times: map[string]float64{"eager": 8, "graph": 3}},
		{Shape: "c", Times: map[string]float64{"eager": 8}},
	}}
	var out strings.Builder
	if err := bench.Compare(&out, ours, theirs); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{
		"SHAPE MET µS EAGER GRAPH COMPILED OTHERS × EAGER × BEST OF 3 KERNELS",
		"a 2.00 10.00 4.00 3.00 library 1.00 5.00 1.50 k",
		"b 4.00 8.00 3.00 - - 2.00 0.75 k",
		"c - 8.00 - - - - - no kernel",
		"d 1.00 - - - - - -",
		"of 3 shapes: ahead of eager on 2, of the best of three on 1; without a kernel of ours: 1",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	theirs.Rotate = 64
	if err := bench.Compare(&out, ours, theirs); !diag.Is(err, diag.Invalid) {
		t.Error(err)
	}
	if err := bench.PrintReading(&out, ours); err != nil || !strings.Contains(out.String(), "no kernel") {
		t.Error(err, out.String())
	}
}
