// SPDX-License-Identifier: MIT OR Apache-2.0

package exec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// The parity ladder's first rung: a plan of the cpu class in float32 against transformers, on small random checkpoints.
// testdata/tiny/<family>.tar.gz holds each with its reference logits (tools/tiny packs them), testdata/tiny/quantised some that are
// quantised.
const (
	tolerance = 1e-3 // on |ours - ref| / (1 + |ref|); about 1e-5 is expected
	pageSize  = 16
)

// reference is what transformers computed for one prompt.
type reference struct {
	ids     []int32
	logits  []float32 // [len(ids), vocab]
	greedy  []int32
	margins []float32
}

// family is an unpacked checkpoint.
type family struct {
	store    weights.Store
	instance *circuit.Instance
	library  *circuit.Library
	prompts  map[string]reference // "long", "short"
	with     []string             // parts beside the decoder
	compute  string               // precision policy
	ref      weights.Store
}

// library is the kernel tree's, read once.
var library = sync.OnceValues(func() (*circuit.Library, error) { return circuit.LoadLibrary(kernels.FS) })

func openFamily(t *testing.T, name string, with ...string) *family {
	t.Helper()
	const computed = "ref.safetensors"
	dir, refs := fixture.Unpack(t, fixture.Tiny(name), computed), filepath.Join(t.TempDir(), computed)
	if err := os.WriteFile(refs, fixture.Files(t, fixture.Tiny(name))[computed], 0o644); err != nil {
		t.Fatal(err)
	}
	store, files, err := weights.Open(dir, weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	cfg, err := modelconf.Read(files.Side)
	if err == nil {
		store, err = weights.Quantised(store, cfg.Quant)
	}
	if err != nil {
		t.Fatal(err)
	}
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	in, err := circuit.Instantiate(lib, cfg, with...)
	if err != nil {
		t.Fatal(err)
	}
	ref, _, err := weights.Open(refs, weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ref.Close() })
	f := &family{store: store, instance: in, library: lib, prompts: map[string]reference{}, with: with, compute: circuit.Float32, ref: ref}
	for _, which := range []string{"long", "short"} {
		f.prompts[which] = reference{
			ids: readInts(t, ref, which+".input_ids"), greedy: readInts(t, ref, which+".greedy"),
			logits: readFloats(t, ref, which+".logits"), margins: readFloats(t, ref, which+".greedy_margin"),
		}
	}
	return f
}

func readBytes(t *testing.T, s weights.Store, name string) []byte {
	t.Helper()
	x, ok := s.Lookup(name)
	if !ok {
		t.Fatalf("the reference has no %s", name)
	}
	raw := make([]byte, x.Size())
	if err := s.Read(name, 0, raw); err != nil {
		t.Fatal(err)
	}
	return raw
}

func readInts(t *testing.T, s weights.Store, name string) []int32 {
	raw := readBytes(t, s, name)
	out := make([]int32, len(raw)/8)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out
}

func readFloats(t *testing.T, s weights.Store, name string) []float32 {
	raw := readBytes(t, s, name)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// load binds the family's plans to the CPU.
func (f *family) load(t *testing.T, device cpu.Options, noFusion bool) *exec.Model {
	t.Helper()
	var plans []*plan.Plan
	for _, part := range append([]string{""}, f.with...) {
		p, err := f.instance.InPart(part).Lower(f.library, f.store, circuit.Options{Class: "cpu", Compute: f.compute, KV: tensor.F32, NoFusion: noFusion,
			Limits: plan.Limits{Rows: 96, Seqs: 4, Outs: 96, PageSize: pageSize, Pages: 5}})
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	dev, err := cpu.Open(device)
	if err != nil {
		t.Skipf("path %q: %v", device.Path, err)
	}
	m, err := exec.Load(context.Background(), exec.Options{Device: dev, Plans: plans, Store: f.store, NumPages: 20, NumSlots: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		dev.Close()
	})
	return m
}

func TestLogitsEqualTransformers(t *testing.T) {
	for _, name := range append(fixture.Families(t), fixture.Quantised(t)...) {
		t.Run(name, func(t *testing.T) {
			f := openFamily(t, name)
			for _, path := range []string{"", "avx2", "go"} {
				m := f.load(t, cpu.Options{Path: path}, false)
				for which, ref := range f.prompts {
					logits, greedy, err := exec.Evaluate(m, ref.ids, 0, len(ref.greedy))
					if err != nil {
						t.Fatal(err)
					}
					worst := compare(t, which, logits, ref)
					ref.sameGreedy(t, which, greedy, worst)
					t.Logf("path %q, %s: max |ours-ref|/(1+|ref|) = %.2e", path, which, worst)
				}
			}
		})
	}
}

// The declared policy keeps two digits of activations, 2^-16 of the largest of 32, for weights of integer codes: logits differ by about
// as much again in each of a few dozen products. Weights of e4m3 are computed as in float32.
func TestDeclaredPolicyIsNearFloat32(t *testing.T) {
	for _, name := range fixture.Quantised(t) {
		t.Run(name, func(t *testing.T) {
			f := openFamily(t, name)
			f.compute = circuit.Declared
			m := f.load(t, cpu.Options{}, false)
			for which, ref := range f.prompts {
				logits, _, err := exec.Evaluate(m, ref.ids, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				worst := 0.0
				for i, row := range logits {
					for j, v := range row {
						want := float64(ref.logits[i*len(row)+j])
						worst = max(worst, math.Abs(float64(v)-want)/(1+math.Abs(want)))
					}
				}
				if bound := 100 * 0x1p-16; !(worst <= bound) || strings.Contains(name, "fp8") && worst > 1e-4 {
					t.Errorf("%s: logits differ by %.2e, at most %.2e", which, worst, bound)
				}
			}
		})
	}
}

// sameGreedy checks a continuation, up to a token that the logits' error could change.
func (r *reference) sameGreedy(t *testing.T, which string, greedy []int32, worst float64) {
	t.Helper()
	for i, id := range greedy {
		if id != r.greedy[i] {
			if r.margins[i] > 4*float32(worst) {
				t.Errorf("%s: greedy token %d is %d, want %d (margin %g)", which, i, id, r.greedy[i], r.margins[i])
			}
			return
		}
	}
}

// compare checks every logit and gives the largest relative error.
func compare(t *testing.T, which string, logits [][]float32, ref reference) (worst float64) {
	t.Helper()
	vocab := len(logits[0])
	for i, row := range logits {
		for j, v := range row {
			want := float64(ref.logits[i*vocab+j])
			e := math.Abs(float64(v)-want) / (1 + math.Abs(want))
			if !(e <= tolerance) {
				t.Fatalf("%s: logit [%d, %d] is %g, transformers says %g", which, i, j, v, want)
			}
			worst = max(worst, e)
		}
	}
	return worst
}

// What a row gives does not depend on how the prompt was cut, on fusion, or on the number of threads: bit for bit. Cut prompts
// run on one thread, which needs no other to be awake, and go on for one token, which reads the state that the last cut left.
func TestChunksFusionAndThreadsChangeNoBit(t *testing.T) {
	for _, name := range append(fixture.Families(t), fixture.Quantised(t)...) {
		t.Run(name, func(t *testing.T) {
			f := openFamily(t, name)
			prompt := f.prompts["long"].ids
			two, one := f.load(t, cpu.Options{Threads: 2}, false), f.load(t, cpu.Options{Threads: 1}, false)
			want, greedy, err := exec.Evaluate(two, prompt, 0, 8)
			if err != nil {
				t.Fatal(err)
			}
			same := func(what string, m *exec.Model, chunk, more int) {
				t.Helper()
				got, ids, err := exec.Evaluate(m, prompt, chunk, more)
				if err != nil {
					t.Fatal(err)
				}
				if i := firstDifference(got, want); i >= 0 || !slices.Equal(ids, greedy[:more]) {
					t.Errorf("%s: row %d differs (greedy %v, want %v)", what, i, ids, greedy)
				}
			}
			for chunk := 1; chunk < len(prompt); chunk++ {
				same(fmt.Sprintf("chunks of %d", chunk), one, chunk, 2)
			}
			same("one thread", one, 0, 8)
			same("two threads", two, 7, 8)
			same("unfused", f.load(t, cpu.Options{}, true), 0, 8)
		})
	}
}

// firstDifference is the first row whose bits differ, -1 if none does.
func firstDifference(a, b [][]float32) int {
	for i := range a {
		for j := range a[i] {
			if math.Float32bits(a[i][j]) != math.Float32bits(b[i][j]) {
				return i
			}
		}
	}
	return -1
}

// addRows appends rows [from, from+n) of a sequence that owns pages 5q… and state slot q.
func addRows(s *exec.Step, q int, prompt []int32, from, n int) {
	seq, pages := int32(len(s.Pages)), []int32{}
	for i := range (from + n + pageSize - 1) / pageSize {
		pages = append(pages, int32(5*q+i))
	}
	for i := from; i < from+n; i++ {
		s.OutRows = append(s.OutRows, int32(len(s.Tokens)))
		s.Tokens = append(s.Tokens, prompt[i])
		s.Positions = append(s.Positions, int32(i))
		s.RowSeq = append(s.RowSeq, seq)
		s.Slots = append(s.Slots, pages[i/pageSize]*pageSize+int32(i%pageSize))
	}
	fresh := int32(0)
	if from == 0 {
		fresh = 1
	}
	s.Pages, s.StateSlot, s.Fresh = append(s.Pages, pages), append(s.StateSlot, int32(q)), append(s.Fresh, fresh)
	s.CuRows = append(s.CuRows, int32(len(s.Tokens)))
}

// Sequences that share a step do not see each other: three of mixed lengths, in mixed chunks, give what each gives alone.
func TestABatchEqualsItsMembersAlone(t *testing.T) {
	for _, name := range append(fixture.Families(t), fixture.Quantised(t)...) {
		t.Run(name, func(t *testing.T) {
			f := openFamily(t, name)
			m := f.load(t, cpu.Options{}, false)
			long := f.prompts["long"].ids
			prompts := [][]int32{long, f.prompts["short"].ids, long[5:29]}
			var alone [][][]float32
			for _, p := range prompts {
				logits, _, err := exec.Evaluate(m, p, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				alone = append(alone, logits)
			}
			chunks := []int{11, 3, 24} // rows of each sequence in each step, until its prompt ends
			var done [3]int
			for done[0] < len(prompts[0]) {
				s := exec.Step{CuRows: []int32{0}}
				var origin [][2]int
				for q, p := range prompts {
					n := min(chunks[q], len(p)-done[q])
					if n == 0 {
						continue
					}
					addRows(&s, q, p, done[q], n)
					for i := range n {
						origin = append(origin, [2]int{q, done[q] + i})
					}
					done[q] += n
				}
				got, err := m.Run(&s)
				if err != nil {
					t.Fatal(err)
				}
				for r, o := range origin {
					if firstDifference(got[r:r+1], alone[o[0]][o[1]:o[1]+1]) >= 0 {
						t.Fatalf("sequence %d, row %d differs from the sequence alone", o[0], o[1])
					}
				}
			}
		})
	}
}
