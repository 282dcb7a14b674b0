// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// TestDiffTakesAChoiceOfEquals: two experts whose scores differ by rounding may change places, within the choice or at its end; two whose
// scores differ by more may not, nor is a number right that is no expert's.
func TestDiffTakesAChoiceOfEquals(t *testing.T) {
	c, err := openDummy(filepath.Join("testdata", "fused", "gemma4-moe", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.store.Close()
	dev, err := cpu.Open(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &differ{c: c, ctx: context.Background(), kv: tensor.BF16, rows: 40, out: io.Discard}
	host, err := d.open(dev, circuit.Float32, true)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	want, err := d.record(host)
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Probe(d.step(host, 0))
	if err != nil {
		t.Fatal(err)
	}
	launches := p.Plan().Launches
	at := slices.IndexFunc(launches, func(l plan.Launch) bool { return l.Kernel == "router" })
	l, wires := &launches[at], host.wires[p.Plan()][at]
	const experts, k, row = 16, 4, 5
	if got := elements(p.Plan(), l, "logits"); got != experts {
		t.Fatalf("a row of logits has %d", got)
	}
	tol := kernel.Tolerance{Abs: 1e-7, Rel: 3e-6}
	// Logits of the row: 15, 14, … 0 thousandths by expert, but those of the case.
	for _, x := range []struct {
		name   string
		logits map[int]float32
		choice []int32
		right  bool
	}{
		{"the reference's", nil, []int32{0, 1, 2, 3}, true},
		{"two places changed", map[int]float32{1: 0.0140005}, []int32{1, 0, 2, 3}, false},
		{"two places changed, equal but for rounding", map[int]float32{1: 0.014999}, []int32{1, 0, 2, 3}, true},
		{"the fifth for the fourth, equal but for rounding", map[int]float32{4: 0.011999}, []int32{0, 1, 2, 4}, true},
		{"the fifth for the fourth", map[int]float32{4: 0.01199}, []int32{0, 1, 2, 4}, false},
		{"three that are equal but for rounding, the other way round", map[int]float32{1: 0.014999, 2: 0.014998}, []int32{2, 1, 0, 3}, true},
		{"no expert", nil, []int32{0, 1, 2, 16}, false},
		{"less than none", nil, []int32{0, 1, 2, -1}, false},
		{"one twice", nil, []int32{0, 1, 2, 2}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := map[string][]byte{}
			for edge, raw := range want[0] {
				v[edge] = slices.Clone(raw)
			}
			logits := v[wires["logits"].In][4*row*experts:]
			for e := range experts {
				value := float32(experts-1-e) / 1000
				if other, ok := x.logits[e]; ok {
					value = other
				}
				binary.LittleEndian.PutUint32(logits[4*e:], math.Float32bits(value))
			}
			v, err := d.again(host, 0, l, v, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids := wires["ids"].Out
			got := map[string][]byte{ids: slices.Clone(v[ids])}
			for j, id := range x.choice {
				binary.LittleEndian.PutUint32(got[ids][4*(k*row+j):], uint32(id))
			}
			ref, allowed, err := d.choose(host, 0, l, got, v, tol)
			if err != nil {
				t.Fatal(err)
			}
			if right := bytes.Equal(ref[ids], got[ids]); right != x.right {
				t.Errorf("taken for right: %v; it is %v", right, x.right)
			}
			if same := bytes.Equal(v[ids], got[ids]); same && allowed.Rel != tol.Rel || !same && !(allowed.Rel > tol.Rel) {
				t.Errorf("the tolerance is %+v then", allowed)
			}
		})
	}
}
