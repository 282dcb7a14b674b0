// SPDX-License-Identifier: MIT OR Apache-2.0

package bench_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// TestPrefill: a prompt's figures agree with each other, in one step or several.
func TestPrefill(t *testing.T) {
	s := subject(t, "llama")
	p, err := s.Prefill(context.Background(), 10, most, 1e12)
	if err != nil {
		t.Fatal(err)
	}
	if !near(p.TokS, 1000*10/p.Millis) || !near(p.Share, p.Flops/1e12/p.Millis*1000) || p.Launches != len(s.Model.Plan(most).Launches) || p.Flops <= 0 {
		t.Errorf("%+v", p)
	}
	one, err := s.Prefill(context.Background(), most, most, 0)
	if err != nil || one.Share != 0 || one.Flops >= p.Flops/2 {
		t.Errorf("%v %+v", err, one)
	}
	var out strings.Builder
	if err := bench.PrintPrefilling(&out, []*bench.Prefilling{p, one}); err != nil || strings.Count(out.String(), "\n") != 3 {
		t.Error(err, out.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Prefill(ctx, 10, most, 0); !diag.Is(err, diag.Canceled) {
		t.Error(err)
	}
	if _, err := s.Prefill(context.Background(), 10, 10, 0); err == nil {
		t.Error("a step that no plan holds is run")
	}
}

// TestWriteCheckpoint: what is written opens again, with the same bytes.
func TestWriteCheckpoint(t *testing.T) {
	list := []tensor.Info{{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{3, 1 << 20}}, {Name: "b", DType: tensor.F32, Shape: tensor.Shape{5}}}
	from, err := weights.Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := bench.WriteCheckpoint(context.Background(), dir, []byte("{}"), list, from.Read); err != nil {
		t.Fatal(err)
	}
	to, files, err := weights.Open(dir, weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if string(files.Side["config.json"]) != "{}" || to.TotalBytes() != from.TotalBytes() {
		t.Errorf("%q, %d bytes", files.Side["config.json"], to.TotalBytes())
	}
	for _, x := range list {
		got, want := make([]byte, x.Size()), make([]byte, x.Size())
		if err := to.Read(x.Name, 0, got); err != nil {
			t.Fatal(err)
		}
		if err := from.Read(x.Name, 0, want); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", x.Name, err)
		}
	}
	if rate, err := bench.ReadThrough(dir); err != nil || rate <= 0 {
		t.Error(rate, err)
	}
	if err := bench.WriteCheckpoint(context.Background(), dir, nil, list, from.Read); !diag.Is(err, diag.Invalid) {
		t.Error(err)
	}
	if _, err := bench.ReadThrough(filepath.Join(dir, "none")); !diag.Is(err, diag.NotFound) {
		t.Error(err)
	}
}

// TestStopwatch: the total is from the opening's end to the first token.
func TestStopwatch(t *testing.T) {
	s := subject(t, "llama")
	var w bench.Stopwatch
	for _, phase := range []string{bench.Opening, "plan", "load"} {
		w.Begin(phase)
	}
	if err := w.Steps(s.Model, 2); err != nil {
		t.Fatal(err)
	}
	c := w.Report("d", 1e9, 2, 4)
	if len(c.Phases) != 6 || !near(c.Total, c.Phases[1].Seconds+c.Phases[2].Seconds+c.Phases[3].Seconds) || !near(c.Start, c.Total+c.Phases[0].Seconds) || !near(c.Load, 1/c.Phases[2].Seconds) || !near(c.Share, c.Load/4) {
		t.Errorf("%+v", c)
	}
	var out strings.Builder
	if err := bench.PrintCold(&out, c); err != nil || !strings.Contains(out.String(), "from page cache to first token") {
		t.Error(err, out.String())
	}
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if rate, err := bench.CopyRate(dev, 1<<20); err != nil || rate <= 0 {
		t.Error(rate, err)
	}
}
