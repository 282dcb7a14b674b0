// SPDX-License-Identifier: MIT OR Apache-2.0

package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

const (
	most, behind, steps = 4, 20, 3
	pageSize            = 16
)

// subject is a reference checkpoint's config with invented weights on the CPU.
func subject(t *testing.T, family string) *bench.Subject {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return subjectOn(t, family, dev)
}

// subjectOn is subject on a device of class cpu.
func subjectOn(t *testing.T, family string, dev gpu.Device) *bench.Subject {
	t.Helper()
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	in := instance(t, lib, fixture.Files(t, fixture.Tiny(family))["config.json"])
	cat := in.SyntheticCatalog(tensor.BF16)
	var list []tensor.Info
	for _, name := range cat.Names() {
		x, _ := cat.Lookup(name)
		list = append(list, x)
	}
	store, err := weights.Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	pages, all := bench.Room(most, behind, steps, pageSize)
	p, err := in.Lower(lib, cat, circuit.Options{Class: "cpu", Compute: circuit.Declared, KV: tensor.F32,
		Limits: plan.Limits{Rows: most, Seqs: most, Outs: most, PageSize: pageSize, Pages: pages}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := exec.Load(context.Background(), exec.Options{Device: dev, Plans: []*plan.Plan{p}, Store: store, NumPages: all, NumSlots: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &bench.Subject{Name: family, Model: m, Instance: in, Device: dev, Sweep: 10}
}

func instance(t *testing.T, lib *circuit.Library, src []byte) *circuit.Instance {
	t.Helper()
	cfg, err := modelconf.Read(map[string][]byte{"config.json": src})
	if err != nil {
		t.Fatal(err)
	}
	in, err := circuit.Instantiate(lib, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// stained is a device on which a test can spoil what sequences leave behind.
type stained struct {
	gpu.Device
	buffers map[string]gpu.Buffer
}

func (d *stained) Alloc(name string, bytes int64) (gpu.Buffer, error) {
	b, err := d.Device.Alloc(name, bytes)
	d.buffers[name] = b
	return b, err
}

// TestABatchBeginsWithoutStates: kernels that are timed alone leave anything in them, NaN too.
func TestABatchBeginsWithoutStates(t *testing.T) {
	on, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { on.Close() })
	for _, family := range []string{"qwen3_next", "nemotron_h", "kimi_linear"} {
		dev := &stained{on, map[string]gpu.Buffer{}}
		s := subjectOn(t, family, dev)
		spoilt := 0
		for _, st := range s.Model.Plan(1).States {
			if st.Kind == plan.Paged {
				continue
			}
			b := dev.buffers[st.Name]
			if err := b.Write(0, bytes.Repeat([]byte{0xff}, int(b.Size()))); err != nil {
				t.Fatal(err)
			}
			spoilt++
		}
		if spoilt == 0 {
			t.Errorf("%s has no states", family)
		}
		if _, err := s.Decode(t.Context(), 2, behind, steps); err != nil {
			t.Errorf("%s: %v", family, err)
		}
	}
}

// TestModelsAreThere: every configuration that the package carries is one that circuits know.
func TestModelsAreThere(t *testing.T) {
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range bench.Models() {
		src, ok := bench.Config(name)
		if !ok {
			t.Fatalf("%s has no config", name)
		}
		if in := instance(t, lib, src); in.Dim("layers") < 32 {
			t.Errorf("%s has %d layers", name, in.Dim("layers"))
		}
		for _, format := range bench.Formats() {
			src, ok := bench.Config(name + "-" + format)
			if !ok {
				t.Fatalf("%s has no config as %s", name, format)
			}
			cfg, err := modelconf.Read(map[string][]byte{"config.json": src})
			if err != nil {
				t.Fatal(err)
			}
			if o, head := cfg.Quant.For("model.layers.0.self_attn.o_proj"), cfg.Quant.For("lm_head"); o.Method == "" || head.Method != "" {
				t.Errorf("%s as %s: o_proj is %v, lm_head %v", name, format, o, head)
			}
		}
	}
	for _, name := range []string{"none", "none-fp8", bench.Models()[0] + "-none", bench.Models()[0] + "fp8", ""} {
		if _, ok := bench.Config(name); ok {
			t.Errorf("there is a config of %q, which is not carried", name)
		}
	}
}

// TestDecode: a batch's figures agree with each other and with the plan.
func TestDecode(t *testing.T) {
	for _, family := range []string{"llama", "qwen3_5_moe_text"} {
		s := subject(t, family)
		var list []*bench.Decoding
		for _, batch := range []int{1, most} {
			d, err := s.Decode(context.Background(), batch, behind, steps)
			if err != nil {
				t.Fatal(err)
			}
			floor := float64(d.Bytes) / s.Sweep / 1000
			if d.Batch != batch || d.Steps != steps || d.Launches != len(s.Model.Plan(batch).Launches) || d.Step <= 0 || d.Device <= 0 || d.Host <= 0 || d.Sampling <= 0 ||
				!near(d.TokS, 1e6*float64(batch)/d.Step) || !near(d.Floor, floor) || !near(d.Share, floor/d.Step) || d.Kernels <= 0 || d.Gaps != d.Step-d.Kernels-d.Sampling {
				t.Errorf("%s: %+v", family, d)
			}
			list = append(list, d)
		}
		if family == "llama" && list[0].Bytes >= list[1].Bytes || list[1].Bytes > 2*list[0].Bytes {
			// Only the embedding's rows differ.
			t.Errorf("%s: a row reads %d bytes, four %d", family, list[0].Bytes, list[1].Bytes)
		}
		var text strings.Builder
		if err := bench.PrintDecoding(&text, list); err != nil || strings.Count(text.String(), "\n") != 3 || !strings.Contains(text.String(), "  LAUNCHES  GAPS µS  ") {
			t.Errorf("%v\n%s", err, text.String())
		}
	}
}

// TestDecodeEndsWhenItIsTold, and refuses what the plans do not hold.
func TestDecodeEndsWhenItIsTold(t *testing.T) {
	s := subject(t, "llama")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Decode(ctx, 1, behind, steps); !diag.Is(err, diag.Canceled) {
		t.Error(err)
	}
	if _, err := s.Kernels(ctx, 1, behind); !diag.Is(err, diag.Canceled) {
		t.Error(err)
	}
	if _, err := s.Decode(context.Background(), most+1, behind, steps); err == nil {
		t.Error("a batch that no plan holds is run")
	}
}

// TestKernels: every launch of the step is in exactly one line.
func TestKernels(t *testing.T) {
	s := subject(t, "qwen3_5_moe_text")
	list, err := s.Kernels(context.Background(), 2, behind)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, k := range list {
		n += k.Count
		if i > 0 && k.Each*float64(k.Count) > list[i-1].Each*float64(list[i-1].Count) {
			t.Errorf("%s takes longer than %s before it", k.Launch, list[i-1].Launch)
		}
	}
	if want := len(s.Model.Plan(2).Launches); n != want {
		t.Errorf("%d launches of %d", n, want)
	}
	at := slices.IndexFunc(list, func(k *bench.KernelTime) bool { return k.Kernel == "experts" })
	if at < 0 || list[at].Count != 4 || list[at].Shapes != "gate_up [8 64 64] bf16, down [8 64 32] bf16" || list[at].Bytes == 0 {
		t.Errorf("experts: %+v", list)
	}
	text, err := json.Marshal(list[at])
	if err != nil || !strings.HasPrefix(string(text), `{"model":"qwen3_5_moe_text","batch":2,"kernel":"experts",`) {
		t.Errorf("%s %v", text, err)
	}
	var out strings.Builder
	if err := bench.PrintKernels(&out, list); err != nil || strings.Count(out.String(), "\n") != len(list)+2 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestPromptKernels: every launch of a prompt's step is in exactly one line; the first is the step as a whole.
func TestPromptKernels(t *testing.T) {
	s := subject(t, "qwen3_5_moe_text")
	list, err := s.PromptKernels(context.Background(), most, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	n, floor := 0, 0.0
	for _, k := range list[1:] {
		if n += k.Count; k.Each <= 0 || k.Floor <= 0 || k.Starts != 1 {
			t.Errorf("%+v", k)
		}
		floor += k.Floor * float64(k.Count)
	}
	if step := list[0]; n != len(s.Model.Plan(most).Launches) || step.Kernel != "step" || step.Starts != n || !near(step.Floor, floor) {
		t.Errorf("%d launches, floor %g: %+v", n, floor, step)
	}
	var out strings.Builder
	if err := bench.PrintPromptKernels(&out, list); err != nil || strings.Count(out.String(), "\n") != len(list)+2 || !strings.Contains(out.String(), "100.0 %") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, err := s.PromptKernels(context.Background(), most+1, 0); err == nil {
		t.Error("a prompt that no plan holds is measured")
	}
}

func near(a, b float64) bool { return a > 0.999*b && a < 1.001*b }
