// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// Configs of the formats, as checkpoints write them.
const (
	fp8Block  = `{"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}`
	fp8Static = `{"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": null}`
	fp8FP4    = `{"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}, "expert_dtype": "fp4"`
	moFP8     = `{"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}`
	moNVFP4   = `{"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0*"], "kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": false}}`
	moMXFP8   = `{"quant_method": "modelopt", "quant_algo": "MXFP8"}`
	moMixed   = `{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"m.a": {"quant_algo": "FP8"}, "m.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}`
	gptOSS    = `{"quant_method": "mxfp4", "modules_to_not_convert": ["m.router"]}`
)

func ctConfig(format, weights string) string {
	return fmt.Sprintf(`{"quant_method": "compressed-tensors", "format": %q, "ignore": ["lm_head", "re:.*gate$"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {%s}}}}`, format, weights)
}

var (
	ctTensor  = ctConfig("float-quantized", `"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true, "dynamic": false`)
	ctChannel = ctConfig("float-quantized", `"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false`)
	ctBlock   = ctConfig("float-quantized", `"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]`)
	ctNVFP4   = ctNVFP4By(16)
	ctMXFP4   = ctMXFP4By(32)
)

func ctNVFP4By(group int64) string {
	return ctConfig("nvfp4-pack-quantized", fmt.Sprintf(`"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": %d, "scale_dtype": "torch.float8_e4m3fn"`, group))
}

func ctMXFP4By(group int64) string {
	return ctConfig("mxfp4-pack-quantized", fmt.Sprintf(`"num_bits": 4, "type": "float", "strategy": "group", "group_size": %d, "scale_dtype": "torch.uint8"`, group))
}

func ctInt4(group int64) string {
	return ctConfig("pack-quantized", fmt.Sprintf(`"num_bits": 4, "type": "int", "strategy": "group", "group_size": %d, "symmetric": true`, group))
}

func quant(t testing.TB, config string) *modelconf.Quant {
	t.Helper()
	c, err := modelconf.Read(map[string][]byte{"config.json": []byte(`{"model_type": "llama", "quantization_config": ` + config + `}`)})
	if err != nil {
		t.Fatal(err)
	}
	return c.Quant
}

// made is a tensor of random numbers of a type, and its numbers.
type made struct {
	safetensors.NamedTensor
	v []float64
}

// e4m3Value and e2m1Value are the formats' definitions.
func e4m3Value(b byte) float64 {
	exp, man := int(b>>3&15), float64(b&7)
	v := math.Ldexp(1+man/8, exp-7)
	if exp == 0 {
		v = math.Ldexp(man/8, -6)
	}
	if b >= 128 {
		v = -v
	}
	return v
}

func e2m1Value(b byte) float64 {
	v := [8]float64{0, .5, 1, 1.5, 2, 3, 4, 6}[b&7]
	if b&8 != 0 {
		v = -v
	}
	return v
}

type maker struct{ *rand.Rand }

func (r maker) of(name string, d tensor.DType, shape ...int64) made {
	m := made{NamedTensor: safetensors.NamedTensor{Name: name, DType: d, Shape: shape}}
	m.Data = make([]byte, d.Bytes(m.Shape.Elems()))
	for i := range m.Data {
		m.Data[i] = byte(r.Uint32())
	}
	return m
}

// values are random e4m3 but for NaN.
func (r maker) values(name string, shape ...int64) made {
	m := r.of(name, tensor.E4M3, shape...)
	for i, b := range m.Data {
		if b&0x7F == 0x7F {
			m.Data[i] = 0x80
		}
		m.v = append(m.v, e4m3Value(m.Data[i]))
	}
	return m
}

// nibbles are codes of 4 bits that follow each other.
func (r maker) nibbles(name string, d tensor.DType, value func(byte) float64, shape ...int64) made {
	m := r.of(name, d, shape...)
	for _, b := range m.Data {
		m.v = append(m.v, value(b&15), value(b>>4))
	}
	return m
}

// scales are positive.
func (r maker) scales(name string, d tensor.DType, shape ...int64) made {
	m := r.of(name, d, shape...)
	elems := int(m.Shape.Elems())
	for i := range elems {
		x := float32(math.Exp(r.NormFloat64()))
		switch d {
		case tensor.E8M0, tensor.U8:
			m.Data[i] = byte(118 + r.IntN(12))
			m.v = append(m.v, math.Ldexp(1, int(m.Data[i])-127))
			continue
		case tensor.E4M3:
			m.Data[i] = byte(r.IntN(0x7F))
			m.v = append(m.v, e4m3Value(m.Data[i]))
			continue
		case tensor.BF16:
			x = tensor.FromBF16(tensor.ToBF16(x))
			binary.LittleEndian.PutUint16(m.Data[2*i:], tensor.ToBF16(x))
		case tensor.F16:
			x = tensor.FromF16(tensor.ToF16(x))
			binary.LittleEndian.PutUint16(m.Data[2*i:], tensor.ToF16(x))
		default:
			binary.LittleEndian.PutUint32(m.Data[4*i:], math.Float32bits(x))
		}
		m.v = append(m.v, float64(x))
	}
	return m
}

// layer is a quantised weight: its tensors, and what it must be.
type layer struct {
	config  string
	name    string
	tensors []made // values first, then the scale of groups, or of rows
	group   [2]int64
	global  int // the tensor that multiplies all of a matrix; 0 none
	divides bool
	shape   tensor.Shape
	shown   tensor.DType
	rows    bool // ScaleOf is there
}

func (l *layer) store(t testing.TB) Store {
	t.Helper()
	var list []safetensors.NamedTensor
	for _, m := range l.tensors {
		list = append(list, m.NamedTensor)
	}
	s, err := Memory(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// twin is the obvious weight in float64.
func (l *layer) twin() []float64 {
	last := len(l.shape) - 1
	n, k := l.shape[last-1], l.shape[last]
	up := func(a, b int64) int64 { return (a + b - 1) / b }
	out := slices.Clone(l.tensors[0].v)
	for i := range out {
		m, r, c := int64(i)/(n*k), int64(i)/k%n, int64(i)%k
		if s := l.tensors[1].v; len(s) == 1 {
			out[i] *= s[0]
		} else {
			out[i] *= s[(m*up(n, l.group[0])+r/l.group[0])*up(k, l.group[1])+c/l.group[1]]
		}
		if l.global > 0 {
			g := l.tensors[l.global].v
			if f := g[m%int64(len(g))]; l.divides {
				out[i] /= f
			} else {
				out[i] *= f
			}
		}
	}
	return out
}

func layers() map[string]layer {
	r := maker{rand.New(rand.NewPCG(5, 6))}
	block := [2]int64{128, 128}
	i4 := func(b byte) float64 { return float64(b) - 8 }
	return map[string]layer{
		"fp8 block":          {fp8Block, "m.q.weight", []made{r.values("m.q.weight", 200, 384), r.scales("m.q.weight_scale_inv", tensor.F32, 2, 3)}, block, 0, false, tensor.Shape{200, 384}, tensor.E4M3_B128, false},
		"fp8 block, bf16":    {fp8Block, "m.q.weight", []made{r.values("m.q.weight", 300, 128), r.scales("m.q.weight_scale_inv", tensor.BF16, 3, 1)}, block, 0, false, tensor.Shape{300, 128}, tensor.E4M3_B128, false},
		"fp8 block, narrow":  {fp8Block, "m.q.weight", []made{r.values("m.q.weight", 130, 160), r.scales("m.q.weight_scale_inv", tensor.F32, 2, 2)}, block, 0, false, tensor.Shape{130, 160}, tensor.E4M3_B32, false},
		"fp8 block, odd":     {fp8Block, "m.q.weight", []made{r.values("m.q.weight", 3, 301), r.scales("m.q.weight_scale_inv", tensor.F32, 1, 3)}, block, 0, false, tensor.Shape{3, 301}, tensor.F32, false},
		"fp8 block, stacked": {fp8Block, "m.experts.up", []made{r.values("m.experts.up", 3, 130, 256), r.scales("m.experts.up_scale_inv", tensor.F32, 3, 2, 2)}, block, 0, false, tensor.Shape{3, 130, 256}, tensor.E4M3_B128, false},
		"fp8 block, .scale":  {fp8FP4, "m.q.weight", []made{r.values("m.q.weight", 130, 256), r.scales("m.q.scale", tensor.E8M0, 2, 2)}, block, 0, false, tensor.Shape{130, 256}, tensor.E4M3_B128, false},
		"fp8 tensor":         {fp8Static, "m.q.weight", []made{r.values("m.q.weight", 5, 33), r.scales("m.q.weight_scale_inv", tensor.BF16), r.scales("m.q.activation_scale", tensor.BF16)}, block, 0, false, tensor.Shape{5, 33}, tensor.E4M3, true},
		"modelopt fp8":       {moFP8, "m.q.weight", []made{r.values("m.q.weight", 7, 64), r.scales("m.q.weight_scale", tensor.F32), r.scales("m.q.input_scale", tensor.F32)}, block, 0, false, tensor.Shape{7, 64}, tensor.E4M3, true},
		"modelopt mxfp8":     {moMXFP8, "m.q.weight", []made{r.values("m.q.weight", 7, 64), r.scales("m.q.weight_scale", tensor.U8, 7, 2)}, [2]int64{1, 32}, 0, false, tensor.Shape{7, 64}, tensor.E4M3_B32, false},
		"ct fp8 tensor":      {ctTensor, "m.q.weight", []made{r.values("m.q.weight", 7, 64), r.scales("m.q.weight_scale", tensor.F32, 1)}, block, 0, false, tensor.Shape{7, 64}, tensor.E4M3, true},
		"ct fp8 channel":     {ctChannel, "m.q.weight", []made{r.values("m.q.weight", 7, 50), r.scales("m.q.weight_scale", tensor.BF16, 7, 1)}, [2]int64{1, 50}, 0, false, tensor.Shape{7, 50}, tensor.E4M3, true},
		"ct fp8 block":       {ctBlock, "m.q.weight", []made{r.values("m.q.weight", 7, 128), r.scales("m.q.weight_scale", tensor.F32, 1, 1)}, block, 0, false, tensor.Shape{7, 128}, tensor.E4M3_B128, false},
		"modelopt nvfp4": {moNVFP4, "m.q.weight", []made{r.nibbles("m.q.weight", tensor.U8, e2m1Value, 7, 32), r.scales("m.q.weight_scale", tensor.E4M3, 7, 4),
			r.scales("m.q.weight_scale_2", tensor.F32), r.scales("m.q.input_scale", tensor.F32), r.scales("m.k_proj.k_scale", tensor.F32), r.scales("m.v_proj.v_scale", tensor.BF16, 1)}, [2]int64{1, 16}, 2, false, tensor.Shape{7, 64}, tensor.NVFP4, true},
		"modelopt nvfp4, stacked": {moNVFP4, "m.e.weight", []made{r.nibbles("m.e.weight", tensor.U8, e2m1Value, 3, 4, 16), r.scales("m.e.weight_scale", tensor.E4M3, 3, 4, 2),
			r.scales("m.e.weight_scale_2", tensor.F32, 3)}, [2]int64{1, 16}, 2, false, tensor.Shape{3, 4, 32}, tensor.NVFP4, true},
		"modelopt mixed": {moMixed, "m.experts.0.up.weight", []made{r.nibbles("m.experts.0.up.weight", tensor.U8, e2m1Value, 4, 16), r.scales("m.experts.0.up.weight_scale", tensor.E4M3, 4, 2),
			r.scales("m.experts.0.up.weight_scale_2", tensor.F32)}, [2]int64{1, 16}, 2, false, tensor.Shape{4, 32}, tensor.NVFP4, true},
		"ct nvfp4": {ctNVFP4, "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, 7, 48), r.scales("m.q.weight_scale", tensor.E4M3, 7, 6),
			r.scales("m.q.weight_global_scale", tensor.F32, 1), r.scales("m.q.input_global_scale", tensor.F32, 1)}, [2]int64{1, 16}, 2, true, tensor.Shape{7, 96}, tensor.NVFP4, true},
		"ct nvfp4, odd": {ctNVFP4, "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, 5, 24), r.scales("m.q.weight_scale", tensor.E4M3, 5, 3),
			r.scales("m.q.weight_global_scale", tensor.F32, 1)}, [2]int64{1, 16}, 2, true, tensor.Shape{5, 48}, tensor.F32, false},
		"ct nvfp4, by 8": {ctNVFP4By(8), "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, 5, 32), r.scales("m.q.weight_scale", tensor.E4M3, 5, 8),
			r.scales("m.q.weight_global_scale", tensor.F32, 1)}, [2]int64{1, 8}, 2, true, tensor.Shape{5, 64}, tensor.F32, false},
		"ct nvfp4, by 24": {ctNVFP4By(24), "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, 5, 48), r.scales("m.q.weight_scale", tensor.E4M3, 5, 4),
			r.scales("m.q.weight_global_scale", tensor.F32, 1)}, [2]int64{1, 24}, 2, true, tensor.Shape{5, 96}, tensor.F32, false},
		"ct mxfp4":        {ctMXFP4, "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, 7, 48), r.scales("m.q.weight_scale", tensor.U8, 7, 3)}, [2]int64{1, 32}, 0, false, tensor.Shape{7, 96}, tensor.MXFP4, false},
		"gpt_oss mxfp4":   {gptOSS, "m.mlp.experts.up_blocks", []made{r.nibbles("m.mlp.experts.up_blocks", tensor.U8, e2m1Value, 3, 6, 2, 16), r.scales("m.mlp.experts.up_scales", tensor.U8, 3, 6, 2)}, [2]int64{1, 32}, 0, false, tensor.Shape{3, 6, 64}, tensor.MXFP4, false},
		"deepseek mxfp4":  {fp8FP4, "m.ffn.experts.0.w1.weight", []made{r.nibbles("m.ffn.experts.0.w1.weight", tensor.I8, e2m1Value, 6, 32), r.scales("m.ffn.experts.0.w1.scale", tensor.E8M0, 6, 2)}, [2]int64{1, 32}, 0, false, tensor.Shape{6, 64}, tensor.MXFP4, false},
		"awq":             byColumns(`{"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true, "version": "gemm"}`, 24, 128, 64, tensor.Q5_0),
		"awq, odd":        byColumns(`{"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": true, "version": "gemm"}`, 8, 80, 16, tensor.F32),
		"gptq":            byColumns(`{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": false, "checkpoint_format": "gptq"}`, 16, 96, 32, tensor.Q5_0),
		"gptq_v2":         byColumns(`{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": false, "checkpoint_format": "gptq_v2"}`, 8, 64, 32, tensor.Q5_0),
		"gptq, symmetric": byColumns(`{"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": false, "sym": true, "checkpoint_format": "gptq"}`, 8, 64, 64, tensor.Q4_0),
		"ct int4":         {ctInt4(32), "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.I32, i4, 7, 12), r.scales("m.q.weight_scale", tensor.BF16, 7, 3), shapeOf("m.q.weight_shape", 7, 96)}, [2]int64{1, 32}, 0, false, tensor.Shape{7, 96}, tensor.INT4_B32, false},
		"ct int4, f16":    {ctInt4(64), "m.q.weight", []made{r.nibbles("m.q.weight_packed", tensor.I32, i4, 7, 16), r.scales("m.q.weight_scale", tensor.F16, 7, 2)}, [2]int64{1, 64}, 0, false, tensor.Shape{7, 128}, tensor.Q4_0, false},
	}
}

// byColumns is a layer as AWQ and GPTQ store it: n outputs, k inputs in groups of g.
func byColumns(config string, n, k, g int, shown tensor.DType) layer {
	r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	awq, symmetric := strings.Contains(config, `"awq"`), strings.Contains(config, `"sym": true`)
	less := 0
	if strings.Contains(config, `"checkpoint_format": "gptq"`) {
		less = 1
	}
	words := func(name string, rows, cols int) made {
		m := made{NamedTensor: safetensors.NamedTensor{Name: name, DType: tensor.I32, Shape: tensor.Shape{int64(rows), int64(cols)}}}
		m.Data = make([]byte, 4*rows*cols)
		return m
	}
	put := func(m made, word, nibble, code int) { m.Data[4*word+nibble/2] |= byte(code << (nibble % 2 * 4)) }
	place := func(row int) int { // the nibble of an output
		if awq {
			return []int{0, 4, 1, 5, 2, 6, 3, 7}[row%8]
		}
		return row % 8
	}
	groups := (k + g - 1) / g
	q, z := words("m.q.qweight", k, n/8), words("m.q.qzeros", groups, n/8)
	if !awq {
		q = words("m.q.qweight", k/8, n)
	}
	s := made{NamedTensor: safetensors.NamedTensor{Name: "m.q.scales", DType: tensor.F16, Shape: tensor.Shape{int64(groups), int64(n)}, Data: make([]byte, 2*groups*n)}}
	s.v = make([]float64, n*groups)
	index := made{NamedTensor: safetensors.NamedTensor{Name: "m.q.g_idx", DType: tensor.I32, Shape: tensor.Shape{int64(k)}, Data: make([]byte, 4*k)}}
	for row := range n {
		zero := 0
		for i := range k {
			binary.LittleEndian.PutUint32(index.Data[4*i:], uint32(i/g))
			if i%g == 0 {
				if zero = 8; !symmetric {
					zero = r.IntN(16) + less
				}
				put(z, i/g*(n/8)+row/8, place(row), zero-less)
				h := tensor.ToF16(float32(0.01 + r.Float64()))
				binary.LittleEndian.PutUint16(s.Data[2*(i/g*n+row):], h)
				s.v[row*groups+i/g] = float64(tensor.FromF16(h))
			}
			code := r.IntN(16)
			if awq {
				put(q, i*(n/8)+row/8, place(row), code)
			} else {
				put(q, i/8*n+row, i%8, code)
			}
			q.v = append(q.v, float64(code-zero))
		}
	}
	l := layer{config, "m.q.weight", []made{q, s, z}, [2]int64{1, int64(g)}, 0, false, tensor.Shape{int64(n), int64(k)}, shown, false}
	if !awq {
		l.tensors = append(l.tensors, index)
	}
	return l
}

func shapeOf(name string, n, k int64) made {
	m := made{NamedTensor: safetensors.NamedTensor{Name: name, DType: tensor.I64, Shape: tensor.Shape{2}}}
	m.Data = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(n)), uint64(k))
	return m
}

// readAll reads a tensor in pieces of some bytes.
func readAll(t testing.TB, s Store, name string, piece int64) (tensor.Info, []byte) {
	t.Helper()
	x, ok := s.Lookup(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	raw := make([]byte, x.Size())
	for at := int64(0); at < x.Size(); at += piece {
		if err := s.Read(name, at, raw[at:min(at+piece, x.Size())]); err != nil {
			t.Fatal(err)
		}
	}
	return x, raw
}

func floatsOf(t testing.TB, x tensor.Info, raw []byte) []float32 {
	t.Helper()
	out := make([]float32, x.Shape.Elems())
	if err := Dequantize(out, x.DType, raw); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestQuantisedWeightsAreWhatTheirTensorsSay: blocks times the scales of rows, and the float32 form, are values times scales.
func TestQuantisedWeightsAreWhatTheirTensorsSay(t *testing.T) {
	for name, l := range layers() {
		t.Run(name, l.check)
	}
}

// check holds what is shown of a layer against its twin.
func (l *layer) check(t *testing.T) {
	s, err := Quantised(l.store(t), quant(t, l.config))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{l.name}) {
		t.Errorf("it shows %v", got)
	}
	want := l.twin()
	k := l.shape[len(l.shape)-1]
	scale := slices.Repeat([]float32{1}, len(want)/int(k))
	if _, ok := s.Lookup(l.name + ScaleOf); ok != l.rows {
		t.Fatalf("scales of rows: %v", ok)
	}
	for _, piece := range []int64{1 << 20, 1000, 37} {
		if l.rows {
			x, raw := readAll(t, s, l.name+ScaleOf, piece)
			if scale = floatsOf(t, x, raw); !x.Shape.Equal(l.shape[:len(l.shape)-1]) {
				t.Fatalf("scales are %v", x)
			}
		}
		x, raw := readAll(t, s, l.name, piece)
		if x.DType != l.shown || !x.Shape.Equal(l.shape) {
			t.Fatalf("it is %v %v, want %v %v", x.DType, x.Shape, l.shown, l.shape)
		}
		f, plain := readAll(t, s, l.name+FloatOf, piece)
		floats := floatsOf(t, f, plain)
		for i, v := range floatsOf(t, x, raw) {
			for what, got := range map[string]float64{"blocks": float64(v) * float64(scale[i/int(k)]), "float32": float64(floats[i])} {
				if math.Abs(got-want[i]) > 3e-7*math.Abs(want[i]) {
					t.Fatalf("%s: element %d is %g, want %g", what, i, got, want[i])
				}
			}
		}
	}
}

// refused gives the error of a store with a tensor replaced, removed (no data) or added.
func refused(t testing.TB, config string, base []made, change ...safetensors.NamedTensor) error {
	t.Helper()
	var list []safetensors.NamedTensor
	for _, m := range base {
		if !slices.ContainsFunc(change, func(c safetensors.NamedTensor) bool { return c.Name == m.Name }) {
			list = append(list, m.NamedTensor)
		}
	}
	for _, c := range change {
		if c.Data != nil {
			list = append(list, c)
		}
	}
	s, err := Memory(list...)
	if err != nil {
		t.Fatal(err)
	}
	var q *modelconf.Quant
	if config != "" {
		q = quant(t, config)
	}
	s, err = Quantised(s, q)
	if err != nil {
		return err
	}
	for _, name := range s.Names() { // what only reading shows
		x, _ := s.Lookup(name)
		for _, n := range []string{name, name + ScaleOf} {
			if y, ok := s.Lookup(n); ok && err == nil {
				err = s.Read(n, 0, make([]byte, y.Size()))
			}
		}
		_ = x
	}
	return err
}

// TestContradictionsAreRefusedByName: each fault names its tensor.
func TestContradictionsAreRefusedByName(t *testing.T) {
	all := layers()
	r := maker{rand.New(rand.NewPCG(7, 8))}
	f32 := func(name string, v ...float32) safetensors.NamedTensor {
		raw := make([]byte, 4*len(v))
		_ = tensor.Encode(raw, tensor.F32, v)
		return safetensors.NamedTensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{int64(len(v))}, Data: raw}
	}
	without := func(name string) safetensors.NamedTensor { return safetensors.NamedTensor{Name: name} }
	edit := func(m made, at int, b byte) safetensors.NamedTensor {
		n := m.NamedTensor
		n.Data = slices.Clone(n.Data)
		n.Data[at] = b
		return n
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	nv, fp := all["modelopt nvfp4"], all["fp8 block"]
	gptq := all["gptq"]
	gptq.config = strings.Replace(gptq.config, `"sym": false`, `"sym": true`, 1)
	plain := r.of("m.q.weight", tensor.BF16, 8, 32).NamedTensor
	for name, c := range map[string]struct {
		config string
		base   []made
		change []safetensors.NamedTensor
		want   string
	}{
		"no scale":           {fp.config, fp.tensors, []safetensors.NamedTensor{without("m.q.weight_scale_inv")}, "m.q.weight has no scale: m.q.weight_scale_inv is missing"},
		"no global scale":    {nv.config, nv.tensors, []safetensors.NamedTensor{without("m.q.weight_scale_2")}, "m.q.weight has no scale: m.q.weight_scale_2 is missing"},
		"two scales":         {fp.config, fp.tensors, []safetensors.NamedTensor{r.scales("m.q.scale", tensor.F32, 2, 3).NamedTensor}, "m.q.weight has two scales"},
		"scale's shape":      {fp.config, fp.tensors, []safetensors.NamedTensor{r.scales("m.q.weight_scale_inv", tensor.F32, 3, 2).NamedTensor}, "m.q.weight_scale_inv is [3 2], the scale of m.q.weight [200 384] must be [2 3]"},
		"scale's type":       {nv.config, nv.tensors, []safetensors.NamedTensor{r.scales("m.q.weight_scale", tensor.F32, 7, 4).NamedTensor}, "m.q.weight_scale is f32"},
		"scales in bf16":     {gptOSS, all["gpt_oss mxfp4"].tensors, []safetensors.NamedTensor{r.scales("m.mlp.experts.up_scales", tensor.BF16, 3, 6, 2).NamedTensor}, "m.mlp.experts.up_scales is bf16, the scale of m.mlp.experts.up_blocks must be one of [e8m0]"},
		"scales in nibbles":  {gptOSS, all["gpt_oss mxfp4"].tensors, []safetensors.NamedTensor{r.nibbles("m.mlp.experts.up_scales", tensor.E2M1, e2m1Value, 3, 6, 2).NamedTensor}, "m.mlp.experts.up_scales is e2m1"},
		"global of two":      {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_scale_2", 1, 1)}, "m.q.weight_scale_2 is [2], expected one value"},
		"global NaN":         {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_scale_2", nan)}, "m.q.weight_scale_2 is not a number"},
		"global infinite":    {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_scale_2", inf)}, "m.q.weight_scale_2 is infinite"},
		"global zero":        {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_scale_2", 0)}, "m.q.weight_scale_2 is zero"},
		"global negative":    {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_scale_2", -1)}, "m.q.weight_scale_2 is negative"},
		"input scale":        {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.input_scale", 0)}, "m.q.input_scale is zero"},
		"k scale":            {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.k_proj.k_scale", -2)}, "m.k_proj.k_scale is negative"},
		"v scale's shape":    {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.v_proj.v_scale", 1, nan)}, "m.v_proj.v_scale is not a number"},
		"group scale":        {nv.config, nv.tensors, []safetensors.NamedTensor{edit(nv.tensors[1], 5, 0x85)}, "m.q.weight_scale: a scale is negative"},
		"group scale NaN":    {nv.config, nv.tensors, []safetensors.NamedTensor{edit(nv.tensors[1], 27, 0x7F)}, "m.q.weight_scale: a scale is not a number"},
		"block scale":        {fp.config, fp.tensors, []safetensors.NamedTensor{{Name: "m.q.weight_scale_inv", DType: tensor.F32, Shape: tensor.Shape{2, 3}, Data: f32("", 1, 1, 1, 1, 1, inf).Data}}, "m.q.weight_scale_inv: a scale is infinite"},
		"exponent NaN":       {all["ct mxfp4"].config, all["ct mxfp4"].tensors, []safetensors.NamedTensor{edit(all["ct mxfp4"].tensors[1], 8, 0xFF)}, "m.q.weight_scale: a scale is not a number"},
		"value NaN":          {fp.config, fp.tensors, []safetensors.NamedTensor{edit(fp.tensors[0], 76799, 0xFF)}, "m.q.weight: a value is not a number"},
		"channel scale":      {all["ct fp8 channel"].config, all["ct fp8 channel"].tensors, []safetensors.NamedTensor{r.of("m.q.weight_scale", tensor.BF16, 7).NamedTensor}, "m.q.weight_scale: a scale is"},
		"scale of a channel": {all["ct fp8 tensor"].config, all["ct fp8 channel"].tensors, nil, "m.q.weight_scale is [7 1], expected one value"},
		"foreign scale":      {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.q.weight_global_scale", 1)}, "m.q.weight_global_scale belongs to no quantised tensor"},
		"scale of nothing":   {nv.config, nv.tensors, []safetensors.NamedTensor{f32("m.o.weight_scale_2", 1)}, "m.o.weight_scale_2 belongs to no quantised tensor"},
		"nothing quantised":  {nv.config, nil, []safetensors.NamedTensor{plain}, "no tensor is"},
		"no config":          {"", fp.tensors, nil, "m.q.weight is quantised (e4m3), but config.json has no quantization_config"},
		"no config, nvfp4":   {"", all["ct nvfp4"].tensors, nil, "m.q.weight_packed is quantised (u8), but"},
		"excluded":           {moNVFP4, []made{r.nibbles("model.layers.0.q.weight", tensor.U8, e2m1Value, 7, 32), r.scales("model.layers.0.q.weight_scale", tensor.E4M3, 7, 4)}, nil, "model.layers.0.q.weight is quantised (u8), but the config leaves model.layers.0.q as it is"},
		"listed, not so":     {moMixed, all["modelopt mixed"].tensors, []safetensors.NamedTensor{{Name: "m.a.weight", DType: tensor.BF16, Shape: tensor.Shape{2, 2}, Data: make([]byte, 8)}}, "m.a.weight is bf16, but the config says that m.a is quantised"},
		"another format":     {moFP8, nv.tensors, nil, "m.q.weight is u8 [7 32], but the config says e4m3[*x*]"},
		"shape beside":       {all["ct int4"].config, all["ct int4"].tensors, []safetensors.NamedTensor{shapeOf("m.q.weight_shape", 7, 95).NamedTensor}, "m.q.weight_shape says [7 95]"},
		"packed and not":     {ctNVFP4, all["ct nvfp4"].tensors, []safetensors.NamedTensor{r.nibbles("m.q.weight", tensor.U8, e2m1Value, 7, 48).NamedTensor}, "is there beside other values"},
		"zero points":        {gptq.config, all["gptq"].tensors, nil, "m.q.qzeros: a zero point is"},
		"no zero points":     {all["awq"].config, all["awq"].tensors, []safetensors.NamedTensor{without("m.q.qzeros")}, "m.q.qzeros is missing"},
		"outputs":            {all["gptq"].config, []made{r.of("m.q.qweight", tensor.I32, 8, 12), r.scales("m.q.scales", tensor.F16, 2, 12), r.of("m.q.qzeros", tensor.I32, 2, 1)}, nil, "m.q.qweight is [8 12]: 64 inputs and 12 outputs, both must be multiples of 8"},
		"permuted":           {all["gptq"].config, all["gptq"].tensors, []safetensors.NamedTensor{edit(all["gptq"].tensors[3], 4*33, 2)}, "m.q.g_idx puts input 33 into another group"},
		"shape of scales":    {all["awq"].config, all["awq"].tensors, []safetensors.NamedTensor{r.scales("m.q.scales", tensor.F16, 2, 25).NamedTensor}, "m.q.scales is [2 25]"},
		"int8":               {ctConfig("int-quantized", `"num_bits": 8, "type": "int", "strategy": "channel"`), []made{r.of("m.q.weight", tensor.I8, 8, 64), r.scales("m.q.weight_scale", tensor.BF16, 8, 1)}, nil, "m.q.weight is quantised by compressed-tensors (int8"},
		"float8_e5m2":        {fp.config, []made{r.of("m.q.weight", tensor.E5M2, 8, 64)}, nil, "m.q.weight is e5m2"},
	} {
		t.Run(name, func(t *testing.T) {
			err := refused(t, c.config, c.base, c.change...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v\nwant …%s…", err, c.want)
			}
			if !diag.Is(err, diag.Format) && !diag.Is(err, diag.Unsupported) {
				t.Errorf("code %v", diag.CodeOf(err))
			}
		})
	}
}

// TestAllFaultsAreListed: sorted, up to a limit.
func TestAllFaultsAreListed(t *testing.T) {
	var base []made
	r := maker{rand.New(rand.NewPCG(9, 10))}
	for i := range 70 {
		base = append(base, r.values(fmt.Sprintf("m.%02d.weight", i), 1, 128))
	}
	err := refused(t, fp8Block, base)
	if err == nil || !strings.Contains(err.Error(), "do not fit (70):\n  m.00.weight has no scale") || !strings.HasSuffix(err.Error(), "m.63.weight has no scale: m.63.weight_scale_inv is missing\n  … and 6 more") {
		t.Errorf("got %v", err)
	}
}

// TestPlainCheckpointsPassThrough: nothing is wrapped, and tensors beside packed ones are as they were.
func TestPlainCheckpointsPassThrough(t *testing.T) {
	r := maker{rand.New(rand.NewPCG(11, 12))}
	plain := r.of("m.norm.weight", tensor.BF16, 4)
	s, err := Memory(plain.NamedTensor)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := Quantised(s, nil); err != nil || q != s {
		t.Errorf("%v, %v", q, err)
	}
	l := layers()["fp8 block"]
	l.tensors = append(l.tensors, plain)
	q, err := Quantised(l.store(t), quant(t, l.config))
	if err != nil {
		t.Fatal(err)
	}
	if _, raw := readAll(t, q, "m.norm.weight", 3); !slices.Equal(raw, plain.Data) {
		t.Errorf("it reads %v", raw)
	}
	x, raw := readAll(t, q, "m.norm.weight"+FloatOf, 3)
	for i, v := range floatsOf(t, x, raw) {
		if want := tensor.FromBF16(binary.LittleEndian.Uint16(plain.Data[2*i:])); v != want && !math.IsNaN(float64(want)) {
			t.Errorf("element %d is %g, want %g", i, v, want)
		}
	}
	if want := int64(200*3*132 + 8); q.TotalBytes() != want {
		t.Errorf("%d bytes in all, want %d", q.TotalBytes(), want)
	}
}

// BenchmarkQuantised reads matrices of 2048 x 4096; bytes are those of the blocks.
func BenchmarkQuantised(b *testing.B) {
	r := maker{rand.New(rand.NewPCG(1, 2))}
	const n, k = 2048, 4096
	block, one := []made{r.values("m.q.weight", n, k)}, r.scales("m.q.weight_scale_2", tensor.F32)
	for name, l := range map[string]layer{
		"fp8 block":  {config: fp8Block, tensors: append(block, r.scales("m.q.weight_scale_inv", tensor.F32, n/128, k/128))},
		"fp8 tensor": {config: moFP8, tensors: append(block, r.scales("m.q.weight_scale", tensor.F32))},
		"nvfp4":      {config: moNVFP4, tensors: []made{r.nibbles("m.q.weight", tensor.U8, e2m1Value, n, k/2), r.scales("m.q.weight_scale", tensor.E4M3, n, k/16), one}},
		"mxfp4":      {config: ctMXFP4, tensors: []made{r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, n, k/2), r.scales("m.q.weight_scale", tensor.U8, n, k/32)}},
		"int4":       {config: ctInt4(32), tensors: []made{r.nibbles("m.q.weight_packed", tensor.I32, e2m1Value, n, k/8), r.scales("m.q.weight_scale", tensor.BF16, n, k/32)}},
		"awq":        byColumns(`{"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm"}`, n, k, 128, tensor.Q5_0),
	} {
		b.Run(name, func(b *testing.B) {
			s, err := Quantised(l.store(b), quant(b, l.config))
			if err != nil {
				b.Fatal(err)
			}
			x, _ := s.Lookup("m.q.weight")
			raw := make([]byte, x.Size())
			b.SetBytes(x.Size())
			for b.Loop() {
				if err := s.Read("m.q.weight", 0, raw); err != nil {
					b.Fatal(err)
				}
				s.Drop("m.q.weight")
			}
		})
	}
}
