// SPDX-License-Identifier: MIT OR Apache-2.0

package gguf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// halves are the offsets of the halves in a block; the vectors clear their top exponent bit.
var halves = map[tensor.DType][]int{
	tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0}, tensor.Q2_K: {80, 82},
	tensor.Q3_K: {108}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208}, tensor.IQ4_NL: {0}, tensor.MXFP4: nil,
}

// randomBlocks is the stream that tools/vectors/make_gguf.py makes.
func randomBlocks(d tensor.DType, n int) []byte {
	_, size := d.Block()
	var b []byte
	for i := 0; len(b) < n*size; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%v %d", d, i))
		b = append(b, sum[:]...)
	}
	b = b[:n*size]
	for i := 0; i < len(b); i += size {
		for _, h := range halves[d] {
			b[i+h+1] &= 0xBF
		}
	}
	return b
}

func TestDequantizeEqualsReference(t *testing.T) {
	golden, err := os.ReadFile("testdata/dequant.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(golden)), "\n")
	if len(rows) != len(blocks) {
		t.Errorf("%d formats have vectors, %d are decoded", len(rows), len(blocks))
	}
	for _, row := range rows {
		f := strings.Fields(row)
		d, ok := tensor.ParseDType(f[0])
		if !ok {
			t.Fatalf("format %s", f[0])
		}
		var n int
		fmt.Sscan(f[1], &n)
		elems, _ := d.Block()
		out := make([]float32, n*elems)
		if err := Dequantize(out, d, randomBlocks(d, n)); err != nil {
			t.Fatal(err)
		}
		var raw []byte
		for _, x := range out {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		for i, want := range f[3:] {
			if got := fmt.Sprintf("%08x", math.Float32bits(out[i])); got != want {
				t.Errorf("%s: element %d is %s, want %s", f[0], i, got, want)
			}
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != f[2] {
			t.Errorf("%s: the hash of %d elements differs", f[0], len(out))
		}
	}
	if err := Dequantize(make([]float32, 1), tensor.F32, make([]byte, 4)); err == nil {
		t.Error("float32 is no block format")
	}
}

// builder writes GGUF headers, right or wrong.
type builder struct{ bytes.Buffer }

func (b *builder) put(vs ...any) *builder {
	for _, v := range vs {
		switch v := v.(type) {
		case string:
			binary.Write(b, binary.LittleEndian, uint64(len(v)))
			b.WriteString(v)
		case int:
			binary.Write(b, binary.LittleEndian, uint32(v))
		default:
			binary.Write(b, binary.LittleEndian, v)
		}
	}
	return b
}

// head starts a version 3 file of that many tensors and pairs.
func head(tensors, pairs int) *builder {
	b := &builder{}
	b.WriteString("GGUF")
	return b.put(3, uint64(tensors), uint64(pairs))
}

// data pads to 32 and appends n bytes.
func (b *builder) data(n int) []byte {
	b.Write(make([]byte, (32-b.Len()%32)%32+n))
	return b.Bytes()
}

func read(b []byte) (*File, error) { return Read("m.gguf", bytes.NewReader(b), int64(len(b))) }

func TestReadsEveryValueType(t *testing.T) {
	b := head(1, 15).
		put("u8", vUint8, uint8(200)).put("i8", vInt8, int8(-3)).put("u16", vUint16, uint16(65535)).put("i16", vInt16, int16(-300)).
		put("u32", vUint32, 7).put("i32", vInt32, int32(-7)).put("f32", vFloat32, float32(1.5)).put("bool", vBool, true).
		put("str", vString, "é").put("u64", vUint64, uint64(1)<<63).put("i64", vInt64, int64(-1)).put("f64", vFloat64, 0.25).
		put("list", vArray, vString, uint64(2), "a", "b").
		put("nested", vArray, vArray, uint64(2)).put(vInt32, uint64(1), int32(5)).put(vInt32, uint64(0)).
		put("general.alignment", vUint32, 32).
		put("x", 2, uint64(3), uint64(2), 0, uint64(0)).data(24)
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"u8": uint8(200), "i8": int8(-3), "u16": uint16(65535), "i16": int16(-300), "u32": uint32(7), "i32": int32(-7),
		"f32": float32(1.5), "bool": true, "str": "é", "u64": uint64(1) << 63, "i64": int64(-1), "f64": 0.25, "list": []string{"a", "b"},
		"nested": []any{[]int32{5}, []int32{}}, "general.alignment": uint32(32)}
	if !reflect.DeepEqual(f.Metadata, want) {
		t.Errorf("got %v", f.Metadata)
	}
	x := f.Tensors[0]
	if x.Name != "x" || !x.Shape.Equal(tensor.Shape{2, 3}) || x.End-x.Begin != 24 || x.End != int64(len(b)) || f.Keys[0] != "u8" {
		t.Errorf("%+v", x)
	}
}

// TestHeaderFaults: one fault each; the message names the file and the key or tensor.
func TestHeaderFaults(t *testing.T) {
	one := func(dims []uint64, kind int, off uint64, data int) []byte {
		b := head(1, 0).put("x", len(dims))
		for _, d := range dims {
			b.put(d)
		}
		return b.put(kind, off).data(data)
	}
	two := func(a, b uint64, data int) []byte {
		return head(2, 0).put("x", 1, uint64(8), 0, a).put("y", 1, uint64(8), 0, b).data(data)
	}
	big := head(0, 0).Bytes()
	big = append([]byte("GGUF\x00\x00\x00\x03"), big[8:]...)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":               {nil, "4 bytes are announced, but only 0 are left"},
		"another magic":       {[]byte("GGML\x03\x00\x00\x00"), "does not start with GGUF"},
		"big-endian":          {big, "it is big-endian"},
		"version 1":           {append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 16)...), "version 1 is not supported"},
		"too many tensors":    {head(1<<30, 0).Bytes(), "1073741824 tensors and 0 metadata keys cannot fit into 24 bytes"},
		"too many keys":       {head(0, 1<<30).Bytes(), "1073741824 metadata keys cannot fit"},
		"empty key":           {head(0, 1).put("", vUint8, uint8(0), uint64(0)).Bytes(), "a metadata key has no name"},
		"key not UTF-8":       {head(0, 1).put("\xff", vUint8, uint8(0), uint64(0)).Bytes(), "is no valid UTF-8"},
		"key twice":           {head(0, 2).put("a", vUint8, uint8(0), "a", vUint8, uint8(0)).Bytes(), `metadata key "a" is given twice`},
		"unknown value type":  {head(0, 1).put("a", 13, uint64(0)).Bytes(), "a: unknown value type 13"},
		"long string":         {head(0, 1).put("a", vString, uint64(1)<<60).Bytes(), "a: 1152921504606846976 bytes are announced"},
		"long array":          {head(0, 1).put("a", vArray, vUint8, uint64(1)<<62).Bytes(), "a: 4611686018427387904 elements are announced"},
		"unknown element":     {head(0, 1).put("a", vArray, 99, uint64(1)).Bytes(), "a: unknown element type 99"},
		"deep nesting":        {head(0, 1).put("a", vArray).put(vArray, uint64(1), vArray, uint64(1), vArray, uint64(1), vArray, uint64(1), vUint8, uint64(0)).Bytes(), "a: arrays are nested deeper than 4"},
		"neither true":        {head(0, 1).put("a", vBool, uint8(2)).Bytes(), "a: 2 is neither true nor false"},
		"cut in a value":      {head(0, 1).put("a", vUint64, 1).Bytes(), "a: 8 bytes are announced, but only 4 are left"},
		"alignment 0":         {head(0, 1).put("general.alignment", vUint32, 0).Bytes(), "general.alignment is 0"},
		"alignment 24":        {head(0, 1).put("general.alignment", vUint32, 24).Bytes(), "general.alignment is 24"},
		"alignment a string":  {head(0, 1).put("general.alignment", vString, "32").Bytes(), "general.alignment is 32; it must be"},
		"no axes":             {one(nil, 0, 0, 32), "tensor x: it has 0 axes"},
		"five axes":           {one([]uint64{1, 1, 1, 1, 1}, 0, 0, 32), "tensor x: it has 5 axes"},
		"zero extent":         {one([]uint64{0, 4}, 0, 0, 32), "tensor x: an extent is 0"},
		"extent over 63 bits": {one([]uint64{1 << 63}, 0, 0, 32), "tensor x: an extent is 9223372036854775808"},
		"product wraps":       {one([]uint64{1<<42 + 1, 1 << 22}, 0, 0, 32), "tensor x: it has more elements than can be counted"},
		"unknown type":        {one([]uint64{32}, 77, 0, 32), "tensor x: unknown element type 77"},
		"unsupported type":    {one([]uint64{256}, 16, 0, 320), "tensor x: element type IQ2_XXS is not supported"},
		"split block":         {one([]uint64{33}, 2, 0, 64), "tensor x: its rows of 33 elements are no whole blocks of Q4_0 (32)"},
		"misaligned":          {one([]uint64{8}, 0, 16, 64), "tensor x: its offset 16 is no multiple of the alignment 32"},
		"offset beyond all":   {one([]uint64{8}, 0, math.MaxInt64/32*32, 64), "tensor x: its offset"},
		"cut short":           {one([]uint64{9}, 0, 0, 32), "tensor x: its bytes end at 36 of 32 bytes of data: the file is cut short"},
		"hole in front":       {one([]uint64{8}, 0, 32, 64), "tensor x: a hole of 32 bytes lies between it and the start of data"},
		"overlap":             {two(0, 0, 64), "its bytes overlap those of"},
		"hole":                {two(0, 64, 96), "tensor y: a hole of 32 bytes lies between it and x"},
		"tensor twice":        {head(2, 0).put("x", 1, uint64(8), 0, uint64(0)).put("x", 1, uint64(8), 0, uint64(32)).data(64), "tensor x is given twice"},
		"tensor without name": {head(1, 0).put("", 1, uint64(8), 0, uint64(0)).data(32), "a tensor has no name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.file)
			if err == nil || !strings.HasPrefix(err.Error(), "m.gguf: ") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if code := diag.CodeOf(err); code != diag.Format && code != diag.Unsupported {
				t.Errorf("code %s", code)
			}
		})
	}
	if _, err := read(two(32, 0, 64)); err != nil {
		t.Errorf("tensors in another order than their bytes: %v", err)
	}
}

func TestSwapIsAPermutation(t *testing.T) {
	for _, s := range []*Swap{nil, {0, 2, 8, 1}, {5, 3, 4, 2}, {2, 2, 3, 5}, {0, 1, 7, 3}} {
		n := int64(120)
		if s != nil {
			n = s.Start + 2*s.A*s.B*s.Inner
		}
		seen := map[int64]bool{}
		for i := range n {
			j := s.Stored(i)
			if j < 0 || j >= n || seen[j] {
				t.Fatalf("%+v: %d is stored at %d", s, i, j)
			}
			seen[j] = true
		}
	}
	// Halves to pairs: element 1 of the first half lies behind element 0 of the second.
	if s := (&Swap{0, 2, 4, 1}); s.Stored(1) != 2 || s.Stored(4) != 1 || s.Stored(9) != 10 {
		t.Error("rotary order")
	}
}

func TestViewsRefuse(t *testing.T) {
	meta := func(arch string) *modelconf.Metadata {
		return &modelconf.Metadata{File: "m.gguf", Values: map[string]any{"general.architecture": arch,
			arch + ".block_count": uint32(1), arch + ".attention.head_count": uint32(4), arch + ".ssm.group_count": uint32(2),
			arch + ".ssm.time_step_rank": uint32(4), arch + ".ssm.state_size": uint32(8), arch + ".ssm.inner_size": uint32(32)}}
	}
	f32 := func(name string, shape ...int64) Tensor { return Tensor{Name: name, DType: tensor.F32, Shape: shape} }
	for name, c := range map[string]struct {
		arch string
		t    []Tensor
		want string
	}{
		"unknown architecture": {"gpt2", nil, `general.architecture "gpt2" is not supported (llama, mistral3,`},
		"unknown tensor":       {"qwen3", []Tensor{f32("blk.0.attn_sinks.weight", 4)}, "tensor blk.0.attn_sinks.weight has no known counterpart"},
		"unknown suffix":       {"qwen3", []Tensor{f32("blk.0.attn_q.scale", 4)}, "tensor blk.0.attn_q.scale has no known counterpart"},
		"outside of blocks":    {"qwen3", []Tensor{f32("v.patch_embd.weight", 4)}, "tensor v.patch_embd.weight has no known counterpart"},
		"odd block number":     {"qwen3", []Tensor{f32("blk.00.attn_q.weight", 4, 4)}, "tensor blk.00.attn_q.weight has no known counterpart"},
		"block too high":       {"qwen3", []Tensor{f32("blk.1.attn_q.weight", 4, 4)}, "tensor blk.1.attn_q.weight: the model has only 1 blocks"},
		"heads do not fit":     {"llama", []Tensor{f32("blk.0.attn_q.weight", 12, 4)}, "tensor blk.0.attn_q.weight: the shape [12 4] does not fit the heads"},
		"experts of two axes":  {"qwen3moe", []Tensor{f32("blk.0.ffn_up_exps.weight", 12, 4)}, "the shape [12 4] is not that of experts"},
		"odd gate and up":      {"qwen3moe", []Tensor{f32("blk.0.ffn_gate_up_exps.weight", 2, 3, 4)}, "the shape [2 3 4] is not that of experts"},
		"channels do not fit":  {"qwen35", []Tensor{f32("blk.0.ssm_conv1d.weight", 60, 4)}, "the shape [60 4] does not fit the heads"},
		"one name for two":     {"qwen3moe", []Tensor{f32("blk.0.ffn_gate_up_exps.weight", 1, 2, 4), f32("blk.0.ffn_up_exps.weight", 1, 1, 4)}, "are both model.layers.0.mlp.experts.0.up_proj.weight"},
	} {
		_, err := Views(c.t, meta(c.arch))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestListsOfEqualNumbersGiveTheSameViews: a number for each layer is the number, so k is turned by its own heads.
func TestListsOfEqualNumbersGiveTheSameViews(t *testing.T) {
	for arch, ts := range map[string][]Tensor{
		"llama":  {{Name: "blk.0.attn_q.weight", DType: tensor.F32, Shape: tensor.Shape{32, 4}}, {Name: "blk.0.attn_k.weight", DType: tensor.F32, Shape: tensor.Shape{16, 4}}},
		"qwen35": {{Name: "blk.0.attn_qkv.weight", DType: tensor.F32, Shape: tensor.Shape{64, 4}}, {Name: "blk.1.nextn.eh_proj.weight", DType: tensor.F32, Shape: tensor.Shape{4, 8}}},
	} {
		m := &modelconf.Metadata{File: "m.gguf", Values: map[string]any{"general.architecture": arch}}
		numbers := map[string]uint32{"block_count": 2, "nextn_predict_layers": 1, "attention.head_count": 4, "attention.head_count_kv": 2,
			"ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.inner_size": 32}
		for key, n := range numbers {
			m.Values[arch+"."+key] = n
		}
		want, err := Views(ts, m)
		if err != nil {
			t.Fatal(err)
		}
		for key, n := range numbers {
			m.Values[arch+"."+key] = []uint32{n, n}
			if got, err := Views(ts, m); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s a list: %v\n got %+v\nwant %+v", arch, key, err, got, want)
			}
			m.Values[arch+"."+key] = n
		}
		if k := want[0].Rows; arch == "llama" && (k == nil || *k != Swap{0, 2, 4, 1}) {
			t.Errorf("rows of k are %+v", k)
		}
	}
}

// FuzzRead: whatever the bytes, no panic; what is accepted lies inside the file, and its views do too.
func FuzzRead(f *testing.F) {
	f.Add(head(1, 1).put("general.architecture", vString, "llama").put("token_embd.weight", 2, uint64(32), uint64(2), 2, uint64(0)).data(36))
	config := head(1, 8).put("general.architecture", vString, "qwen35")
	for _, key := range []string{"block_count", "embedding_length", "attention.head_count", "ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size"} {
		config.put("qwen35."+key, vUint32, 4)
	}
	f.Add(config.put("blk.0.attn_qkv.weight", 2, uint64(4), uint64(36), 0, uint64(0)).data(576))
	f.Add(head(0, 1).put("a", vArray, vArray, uint64(1), vInt32, uint64(1), int32(5)).Bytes())
	f.Add(head(2, 0).put("x", 1, uint64(8), 0, uint64(32)).put("y", 1, uint64(8), 0, uint64(0)).data(64))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := read(b)
		if err != nil {
			if _, ok := diag.As(err); !ok {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, x := range h.Tensors {
			if x.Begin < 0 || x.End > int64(len(b)) || x.End-x.Begin != x.DType.Bytes(x.Shape.Elems()) {
				t.Fatalf("%+v accepted in %d bytes", x, len(b))
			}
		}
		m := &modelconf.Metadata{File: "m.gguf", Values: h.Metadata, Tensors: map[string]tensor.Shape{}}
		for _, x := range h.Tensors {
			m.Tensors[x.Name] = x.Shape
		}
		if _, err := modelconf.FromGGUF(m); err != nil {
			if _, ok := diag.As(err); !ok {
				t.Fatalf("untyped error %v", err)
			}
		}
		views, err := Views(h.Tensors, m)
		if err != nil {
			return
		}
		for _, v := range views {
			if v.Source.Begin < 0 || v.Source.End > int64(len(b)) || v.Source.End-v.Source.Begin != v.Source.DType.Bytes(v.Shape.Elems()) {
				t.Fatalf("view %+v of %d bytes", v, len(b))
			}
		}
	})
}
