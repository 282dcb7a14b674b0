// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// threads is a Pool of goroutines that hands tasks out from the last to the first.
type threads int

func (n threads) Workers() int { return int(n) }

func (n threads) Run(tasks int, task func(i, worker int)) {
	var wg sync.WaitGroup
	queue := make(chan int, tasks)
	for i := range tasks {
		queue <- tasks - 1 - i
	}
	close(queue)
	for w := range int(n) {
		wg.Go(func() {
			for i := range queue {
				task(i, w)
			}
		})
	}
	wg.Wait()
}

// dtypes are all that have a panel layout.
var dtypes = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0,
	tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_NL, tensor.MXFP4,
	tensor.INT4_B32, tensor.NVFP4, tensor.E4M3, tensor.E4M3_B32, tensor.E4M3_B128}

// scales are the offsets of half-precision numbers in a stored block.
var scales = map[tensor.DType][]int{tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0},
	tensor.Q2_K: {80, 82}, tensor.Q3_K: {108}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208}, tensor.IQ4_NL: {0}}

// randomWeights are stored bytes of n elements: every bit pattern of codes and integer scales, numbers around 0.1.
func randomWeights(rng *rand.Rand, d tensor.DType, n int) []byte {
	raw := make([]byte, d.Bytes(int64(n)))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	_, size := d.Block()
	number := func() float32 { return float32(rng.NormFloat64() * 0.1) }
	for at := 0; at < len(raw); at += size {
		switch d {
		case tensor.F32:
			le.PutUint32(raw[at:], math.Float32bits(number()))
		case tensor.F16:
			le.PutUint16(raw[at:], tensor.ToF16(number()))
		case tensor.BF16:
			le.PutUint16(raw[at:], tensor.ToBF16(number()))
		case tensor.MXFP4:
			raw[at] = byte(120 + rng.IntN(10))
		case tensor.NVFP4:
			raw[at] = byte(rng.IntN(0x7F)) // subnormal scales too
		case tensor.INT4_B32:
			le.PutUint16(raw[at:], tensor.ToBF16(number()))
		case tensor.E4M3:
			raw[at] = noNaN(raw[at])
		case tensor.E4M3_B32, tensor.E4M3_B128:
			le.PutUint32(raw[at:], math.Float32bits(number()))
			for i := at + 4; i < at+size; i++ {
				raw[i] = noNaN(raw[i])
			}
		default:
			for _, o := range scales[d] {
				le.PutUint16(raw[at+o:], tensor.ToF16(number()))
			}
		}
	}
	return raw
}

// noNaN replaces the two codes of e4m3 that are no numbers.
func noNaN(code byte) byte {
	if code&0x7F == 0x7F {
		return code ^ 1
	}
	return code
}

// matrix is a weight, packed and as float32.
type matrix struct {
	Weight
	raw    []byte
	floats []float32
}

func newMatrix(t testing.TB, rng *rand.Rand, d tensor.DType, n, k int) matrix {
	t.Helper()
	m := matrix{Weight: Weight{D: d, N: n, K: k}, raw: randomWeights(rng, d, n*k), floats: make([]float32, n*k)}
	if err := weights.Dequantize(m.floats, d, m.raw); err != nil {
		t.Fatal(err)
	}
	m.Data = pack(t, d, n, k, m.raw)
	return m
}

func pack(t testing.TB, d tensor.DType, n, k int, raw []byte) []byte {
	t.Helper()
	size, err := PackedSize(d, int64(n), int64(k))
	if err != nil {
		t.Fatal(err)
	}
	data := aligned(int(size))
	for i := range data {
		data[i] = 0xff // NaN in every format that has one
	}
	// In two calls, as a loader does.
	cut := n / 2 / lanes * lanes
	rowBytes := int(d.Bytes(int64(k)))
	for _, part := range [][2]int{{cut, n}, {0, cut}} {
		src := raw[part[0]*rowBytes : part[1]*rowBytes]
		if err := Pack(data, d, int64(n), int64(k), int64(part[0]), int64(part[1]-part[0]), src); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func randomFloats(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func poisoned(n int) []float32 {
	y := make([]float32, n)
	for i := range y {
		y[i] = float32(math.NaN())
	}
	return y
}

// widths are rows of elements that try tails: blocks have whole blocks, and one is longer than what is unpacked at a time.
func widths(d tensor.DType) []int {
	switch elems, _ := d.Block(); elems {
	case 1:
		return []int{1, 2, 35, 96, 577, chunkQ8 + 3}
	case 16, 32:
		return []int{32, 96, 576, chunkQ8 + 32}
	case 128:
		return []int{128, 384, 640, chunkQ8 + 128}
	}
	return []int{256, 768, chunkQ8 + 256}
}

func newScratch(t *testing.T, path string, workers int) *Scratch {
	t.Helper()
	s := NewScratch(1, 1, workers)
	if err := s.SetPath(path); err != nil {
		t.Fatal(err)
	}
	return s
}

func eachPath(t *testing.T, test func(t *testing.T, s *Scratch, p Pool)) {
	for _, path := range Paths() {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", path, workers), func(t *testing.T) { test(t, newScratch(t, path, workers), threads(workers)) })
		}
	}
}

func TestFMATwin(t *testing.T) {
	for _, c := range [][4]float32{
		{1 + 0x1p-23, 1 + 0x1p-23, -1, 0x1p-22 + 0x1p-46}, // exact
		{3, 5, 7, 22},
		{1 + 0x1p-12, 1 + 0x1p-12, 0x1p-60, 1 + 0x1p-11 + 0x1p-23}, // just above a tie
		{1 + 0x1p-12, 1 + 0x1p-12, -0x1p-60, 1 + 0x1p-11},          // just below
		{1 + 0x1p-12, 1 + 0x1p-12, 0, 1 + 0x1p-11},                 // a tie, to even
	} {
		if got := fma(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%v·%v+%v = %x, want %x", c[0], c[1], c[2], got, c[3])
		}
	}
}

// Every stored weight comes out of a panel as it went in.
func TestEmbedIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, d := range dtypes {
		for _, n := range []int{1, 16, 37} {
			k := widths(d)[2]
			m := newMatrix(t, rng, d, n, k)
			for row := range n {
				y := poisoned(k)
				Embed(y, m.Weight, row, 1)
				for i, want := range m.floats[row*k:][:k] {
					if y[i] != want {
						t.Fatalf("%v [%d, %d]: %v at %d, %d, want %v", d, n, k, y[i], row, i, want)
					}
				}
				Embed(y, m.Weight, row, 1.5)
				if want := m.floats[row*k+k-1] * 1.5; y[k-1] != want {
					t.Fatalf("%v: scaled %v, want %v", d, y[k-1], want)
				}
			}
		}
	}
}

// Rows alone and among others, in any number, have the bits of the twin.
func TestRunMatchesTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	const rows = 29
	for _, d := range dtypes {
		for i, k := range widths(d) {
			n := []int{1, 45, 16, 70}[i%4]
			m := newMatrix(t, rng, d, n, k)
			x := randomFloats(rng, rows*k)
			clear(x[k : k+min(k, 40)]) // a block of zeros
			for _, compute := range []Compute{F32, Q16} {
				if compute == Q16 && !formats[d].quantised() {
					continue
				}
				want, size := make([][]float32, rows), make([][]float32, rows)
				for r := range rows {
					want[r], size[r] = twin(&m, x[r*k:][:k], compute)
				}
				for _, path := range Paths() {
					s := newScratch(t, path, 2)
					for _, some := range []int{1, 2, 7, 12, 17, rows} {
						if path == "go" && k > 600 && some > 2 {
							continue // slow, and nothing new
						}
						y := poisoned(some * n)
						Run(threads(2), s, &Call{X: x[:some*k], Rows: some, W: []Weight{m.Weight}, Y: [][]float32{y}, Compute: compute})
						for r := range some {
							if err := differs(path, y[r*n:][:n], want[r], size[r], k); err != "" {
								t.Fatalf("%s, %v [%d, %d], compute %d, row %d of %d: %s", path, d, n, k, compute, r, some, err)
							}
						}
					}
				}
			}
		}
	}
}

// A row has the same bits alone, in the middle of others and with other workers, on every path.
func TestRowsDoNotKnowEachOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	for _, d := range dtypes {
		k, n := 256, 88
		m := newMatrix(t, rng, d, n, k)
		const rows = 300
		x := randomFloats(rng, rows*k)
		for _, path := range Paths() {
			for _, compute := range []Compute{F32, Q16} {
				if compute == Q16 && !formats[d].quantised() {
					continue
				}
				run := func(workers, from, rows int) []float32 {
					s := newScratch(t, path, workers)
					y := poisoned(rows * n)
					Run(threads(workers), s, &Call{X: x[from*k:], Rows: rows, W: []Weight{m.Weight}, Y: [][]float32{y}, Compute: compute})
					return y
				}
				all := run(2, 0, rows)
				for _, part := range [][2]int{{0, 1}, {7, 1}, {11, 3}, {13, 8}, {299, 1}, {250, 50}} {
					got := run(3, part[0], part[1])
					if !slices.Equal(got, all[part[0]*n:][:part[1]*n]) {
						t.Fatalf("%v on %s, compute %d: rows %v differ", d, path, compute, part)
					}
				}
			}
		}
	}
}

// Fused calls have the bits of the single steps.
func TestFusedEqualsSteps(t *testing.T) {
	eachPath(t, func(t *testing.T, s *Scratch, p Pool) {
		rng := rand.New(rand.NewPCG(6, 7))
		for _, rows := range []int{1, 6, 31} {
			const k, n, n2 = 256, 72, 40
			a, b := newMatrix(t, rng, tensor.Q4_K, n, k), newMatrix(t, rng, tensor.Q6_K, n2, k)
			c := newMatrix(t, rng, tensor.Q4_K, n, k)
			x, scale, bias := randomFloats(rng, rows*k), randomFloats(rng, n), randomFloats(rng, n)
			single := func(m matrix) []float32 {
				y := poisoned(rows * m.N)
				Run(p, s, &Call{X: x, Rows: rows, W: []Weight{m.Weight}, Y: [][]float32{y}, Compute: Q16})
				return y
			}
			ya, yb, yc := single(a), single(b), single(c)

			y0, y1, y2 := poisoned(rows*n), poisoned(rows*n2), poisoned(rows*n)
			Run(p, s, &Call{X: x, Rows: rows, W: []Weight{a.Weight, b.Weight, c.Weight}, Y: [][]float32{y0, y1, y2},
				Scale: [][]float32{scale, nil, nil}, Bias: [][]float32{bias, nil, nil}, Compute: Q16})
			biased := slices.Clone(ya)
			for i := range biased {
				biased[i] = float32(biased[i]*scale[i%n]) + bias[i%n]
			}
			if !slices.Equal(y0, biased) || !slices.Equal(y1, yb) || !slices.Equal(y2, yc) {
				t.Fatalf("%d rows: linear_n differs from linear", rows)
			}

			sum := randomFloats(rng, rows*n)
			want := slices.Clone(sum)
			s.kernels.level.Add(want, biased)
			Run(p, s, &Call{X: x, Rows: rows, W: []Weight{a.Weight}, Y: [][]float32{sum}, Scale: [][]float32{scale}, Bias: [][]float32{bias}, Mode: Add, Compute: Q16})
			if !slices.Equal(sum, want) {
				t.Fatalf("%d rows: linear_add differs from linear, add", rows)
			}

			for act, limit := range map[vec.Act]float32{vec.Silu: 0, vec.GeluTanh: 0.5, vec.SiluThenLimit: 0.5, vec.SwigluOAI: 7} {
				got, want := poisoned(rows*n), make([]float32, rows*n)
				s.kernels.level.GluLimited(act, limit, want, ya, yc)
				call := &Call{X: x, Rows: rows, W: []Weight{a.Weight, c.Weight}, Y: [][]float32{got}, Glu: act, Limit: limit, Compute: Q16}
				Run(p, s, call)
				if !slices.Equal(got, want) {
					t.Fatalf("%d rows: linear_glu differs from linear, linear, glu", rows)
				}
				call.Scale, call.Bias = [][]float32{scale, nil}, [][]float32{bias, nil}
				Run(p, s, call)
				s.kernels.level.GluLimited(act, limit, want, biased, yc)
				if !slices.Equal(got, want) {
					t.Fatalf("%d rows: linear_glu with a scale and a bias differs from steps", rows)
				}
			}
		}
	})
}

// A mixture is its experts run one by one, added up in slot order.
func TestExpertsEqualsSteps(t *testing.T) {
	eachPath(t, func(t *testing.T, s *Scratch, p Pool) {
		rng := rand.New(rand.NewPCG(8, 9))
		for _, d := range []tensor.DType{tensor.BF16, tensor.Q8_0, tensor.Q4_1, tensor.NVFP4, tensor.E4M3} {
			for _, rows := range []int{1, 2, 70} {
				const experts, slots, width, inner = 5, 2, 96, 32
				gated, act, n := rows != 2, vec.Silu, 2*inner
				if !gated {
					act, n = vec.Relu2, inner
				}
				gate := Weight{D: d, N: n, K: width}
				down := Weight{D: d, N: width, K: inner}
				var gates, downs []matrix
				for range experts {
					g, w := newMatrix(t, rng, d, gate.N, gate.K), newMatrix(t, rng, d, down.N, down.K)
					gates, downs = append(gates, g), append(downs, w)
					gate.Data, down.Data = append(gate.Data, g.Data...), append(down.Data, w.Data...)
				}
				x, score := randomFloats(rng, rows*width), randomFloats(rng, rows*slots)
				ids := make([]int32, rows*slots)
				for i := range ids {
					ids[i] = int32((i + rng.IntN(2)) % experts) // expert 4 has fewest
				}
				y := poisoned(rows * width)
				call := &ExpertsCall{X: x, Rows: rows, Slots: slots, IDs: ids, Weights: score, Experts: experts,
					Gated: gated, GateUp: gate, Down: down, Y: y, Act: act, Compute: Q16}
				if rows == 70 {
					call.Act, call.Limit = vec.SwigluOAI, 0.5
					call.GateUpBias, call.DownBias = randomFloats(rng, experts*n), randomFloats(rng, experts*width)
					call.GateUpScale, call.DownScale = randomFloats(rng, experts*n), randomFloats(rng, experts*width)
				}
				Experts(p, s, call)

				one := func(m matrix, scale, bias []float32, e int32, x []float32) []float32 {
					y := poisoned(m.N)
					if bias != nil {
						scale, bias = scale[int(e)*m.N:][:m.N], bias[int(e)*m.N:][:m.N]
					}
					Run(p, s, &Call{X: x, Rows: 1, W: []Weight{m.Weight}, Scale: [][]float32{scale}, Bias: [][]float32{bias}, Y: [][]float32{y}, Compute: Q16})
					return y
				}
				for r := range rows {
					want := make([]float32, width)
					for slot := range slots {
						e := ids[r*slots+slot]
						pair := one(gates[e], call.GateUpScale, call.GateUpBias, e, x[r*width:][:width])
						h := make([]float32, inner)
						if gated {
							s.kernels.level.GluLimited(call.Act, call.Limit, h, pair[:inner], pair[inner:])
						} else {
							s.kernels.level.Apply(act, h, pair)
						}
						for i, v := range one(downs[e], call.DownScale, call.DownBias, e, h) {
							want[i] += float32(v * score[r*slots+slot])
						}
					}
					if !slices.Equal(y[r*width:][:width], want) {
						t.Fatalf("%v, %d rows: row %d differs", d, rows, r)
					}
				}
			}
		}
	})
}

func TestRunAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	w := newMatrix(t, rng, tensor.Q4_K, 64, 256)
	x, y := randomFloats(rng, 50*256), poisoned(50*64)
	for _, rows := range []int{1, 50} {
		s := NewScratch(50, 256, 1)
		c := &Call{X: x, Rows: rows, W: []Weight{w.Weight}, Y: [][]float32{y}, Compute: Q16}
		p := Pool(serial{})
		if n := testing.AllocsPerRun(20, func() { Run(p, s, c) }); n > 0 {
			t.Errorf("%d rows: %v allocations a call", rows, n)
		}
	}
}

// serial is a pool of the caller alone.
type serial struct{}

func (serial) Workers() int { return 1 }
func (serial) Run(n int, task func(i, worker int)) {
	for i := range n {
		task(i, 0)
	}
}

func TestNonFiniteActivationsShow(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 13))
	m := newMatrix(t, rng, tensor.Q8_0, 20, 64)
	for _, path := range Paths() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			for _, rows := range []int{1, 3} {
				s := newScratch(t, path, 1)
				x, y := randomFloats(rng, rows*64), make([]float32, rows*20)
				x[40] = bad
				Run(serial{}, s, &Call{X: x, Rows: rows, W: []Weight{m.Weight}, Y: [][]float32{y}, Compute: Q16})
				for i, v := range y[:20] {
					if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
						t.Errorf("%s: %v among the activations gives %v in column %d", path, bad, v, i)
					}
				}
			}
		}
	}
}

func TestPackRefuses(t *testing.T) {
	for name, f := range map[string]func() error{
		"type":       func() error { _, err := PackedSize(tensor.I32, 16, 32); return err },
		"half block": func() error { _, err := PackedSize(tensor.Q4_K, 16, 128); return err },
		"no columns": func() error { _, err := PackedSize(tensor.F32, 16, 0); return err },
		"row":        func() error { return Pack(make([]byte, 64*4*2), tensor.F32, 32, 4, 8, 16, make([]byte, 256)) },
		"rows":       func() error { return Pack(make([]byte, 64*4*2), tensor.F32, 32, 4, 0, 8, make([]byte, 128)) },
		"source":     func() error { return Pack(make([]byte, 64*4*2), tensor.F32, 32, 4, 0, 16, make([]byte, 255)) },
		"room":       func() error { return Pack(make([]byte, 64*4), tensor.F32, 32, 4, 16, 16, make([]byte, 256)) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	if err := NewScratch(0, 0, 1).SetPath("mmx"); err == nil {
		t.Error("a path that no processor has was taken")
	}
}

// A packed weight takes little more memory than the stored one.
func TestPanelsTakeTheMemoryOfTheStoredType(t *testing.T) {
	for _, d := range dtypes {
		size, err := PackedSize(d, 576, 1536)
		if err != nil {
			t.Fatal(err)
		}
		if share := float64(size) / float64(d.Bytes(576*1536)); share > 1.2 {
			t.Errorf("%v takes %.3f of its stored size", d, share)
		}
	}
}

// TestDigitsHoldActivations: products of digits differ from float32 ones by little more than float32 itself does, also when
// one activation of a block is a hundred times the others, as in trained models.
func TestDigitsHoldActivations(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 16))
	const n, k = 64, 512
	x := randomFloats(rng, k)
	for i := 5; i < k; i += 64 {
		x[i] *= 100
	}
	for i, f := range formats {
		if f == nil || !f.quantised() {
			continue
		}
		d := tensor.DType(i)
		m := newMatrix(t, rng, d, n, k)
		exact, size := twin(&m, x, F32)
		s := NewScratch(1, k, 1)
		y := poisoned(n)
		Run(serial{}, s, &Call{X: x, Rows: 1, W: []Weight{m.Weight}, Y: [][]float32{y}, Compute: Q16})
		for i := range y {
			bound := float64(size[i]) * k * 0x1p-24 // of the sums in float32
			for b := 0; b < k; b += block {
				var most, weight float64
				for j := b; j < b+block; j++ {
					most = max(most, math.Abs(float64(x[j])))
					weight += math.Abs(float64(m.floats[i*k+j]))
				}
				bound += weight * most * 0x1p-16
			}
			if e := math.Abs(float64(y[i] - exact[i])); !(e <= bound) {
				t.Errorf("%v: column %d is off by %g, at most %g of %g", d, i, e, bound, size[i])
				break
			}
		}
	}
}
