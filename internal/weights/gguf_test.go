// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// ggufFiles are the tiny models that tools/vectors/make_gguf.py converts, and the checkpoints they were converted from.
var ggufFiles = map[string]string{
	"llama.gguf": "llama.txt", "mistral3.gguf": "mistral3.txt", "qwen2.gguf": "qwen2.txt", "qwen3moe.gguf": "qwen3moe.txt",
	"qwen3-00001-of-00002.gguf": "qwen3.txt", "qwen3-00002-of-00002.gguf": "qwen3.txt",
	"qwen35.gguf": "qwen35.txt", "qwen35moe.gguf": "qwen35moe.txt",
}

// TestGGUFLooksLikeTheCheckpoint: names, types, shapes and bytes are those of the checkpoint before its conversion.
func TestGGUFLooksLikeTheCheckpoint(t *testing.T) {
	for file, want := range ggufFiles {
		for _, mmap := range []bool{false, true} {
			s, f, err := Open(filepath.Join("testdata", file), Options{Mmap: mmap})
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			golden, err := os.ReadFile(filepath.Join("testdata", want))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range s.Names() {
				x, _ := s.Lookup(name)
				b := make([]byte, x.Size())
				if err := s.Read(name, 0, b); err != nil {
					t.Fatalf("%s: %s: %v", file, name, err)
				}
				if view, ok := s.Bytes(name); ok && (!mmap || !bytes.Equal(view, b)) {
					t.Errorf("%s: %s: the view differs from what is read", file, name)
				}
				s.Drop(name)
				extents := strings.ReplaceAll(strings.Trim(x.Shape.String(), "[]"), " ", "x")
				got = append(got, fmt.Sprintf("%s %v %s %x", name, x.DType, extents, sha256.Sum256(b)))
			}
			rows := strings.Split(strings.TrimSpace(string(golden)), "\n")
			if len(got) != len(rows) {
				t.Errorf("%s: %d tensors, want %d", file, len(got), len(rows))
			}
			for i := 0; i < min(len(got), len(rows)); i++ {
				if got[i] != rows[i] {
					t.Errorf("%s:\n got %s\nwant %s", file, got[i], rows[i])
				}
			}
			if f.GGUF == nil || f.GGUF.Arch() == "" {
				t.Errorf("%s: no metadata", file)
			}
			s.Close()
		}
	}
}

// TestPartsOfViews: any part read alone is that part of the whole.
func TestPartsOfViews(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, file := range []string{"llama.gguf", "qwen35.gguf", "qwen35moe.gguf"} {
		s, _, err := Open(filepath.Join("testdata", file), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, name := range s.Names() {
			x, _ := s.Lookup(name)
			whole := make([]byte, x.Size())
			if err := s.Read(name, 0, whole); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				off := r.Int63n(x.Size() + 1)
				part := make([]byte, r.Int63n(x.Size()-off+1))
				if err := s.Read(name, off, part); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(part, whole[off:off+int64(len(part))]) {
					t.Fatalf("%s: %s: %d bytes at %d differ from the whole", file, name, len(part), off)
				}
			}
		}
	}
}

// TestGGUFConfig: the translated config says what config.json would, with the GGUF key as position.
func TestGGUFConfig(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"llama.gguf": {"model_type": "llama", "hidden_size": "64", "num_hidden_layers": "2", "head_dim": "16", "vocab_size": "40",
			"rms_norm_eps": "1e-05", "tie_word_embeddings": "true", "rope_parameters.rope_type": "llama3", "rope_parameters.factor": "8",
			"rope_parameters.rope_theta": "500000", "rope_parameters.original_max_position_embeddings": "8192", "attention_bias": "false"},
		"mistral3.gguf": {"model_type": "ministral3", "tie_word_embeddings": "false", "rope_parameters.rope_type": "yarn",
			"rope_parameters.factor": "16", "rope_parameters.original_max_position_embeddings": "32", "rope_parameters.beta_fast": "32",
			"rope_parameters.mscale_all_dim": "1", "rope_parameters.llama_4_scaling_beta": "0.1"},
		"qwen2.gguf":                {"model_type": "qwen2", "num_key_value_heads": "2", "rope_parameters.rope_type": "default"},
		"qwen3-00002-of-00002.gguf": {"model_type": "qwen3", "head_dim": "32", "intermediate_size": "96", "rms_norm_eps": "1e-06"},
		"qwen3moe.gguf":             {"model_type": "qwen3_moe", "num_experts": "3", "num_experts_per_tok": "2", "moe_intermediate_size": "32", "norm_topk_prob": "true"},
		"qwen35.gguf": {"model_type": "qwen3_5_text", "num_hidden_layers": "2", "mtp_num_hidden_layers": "1", "layer_types.0": "linear_attention",
			"layer_types.1": "full_attention", "linear_num_value_heads": "6", "linear_value_head_dim": "32", "linear_key_head_dim": "16",
			"rope_parameters.partial_rotary_factor": "0.25", "rope_parameters.mrope_section.0": "2", "intermediate_size": "96"},
		"qwen35moe.gguf": {"model_type": "qwen3_5_moe_text", "linear_value_head_dim": "16", "shared_expert_intermediate_size": "32",
			"num_experts": "2", "eos_token_id": "2"},
	} {
		s, f, err := Open(filepath.Join("testdata", file), Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		s.Close()
		c, err := modelconf.FromGGUF(f.GGUF)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for path, v := range want {
			if n, _ := c.Tree.Get(path); n.Literal() != v {
				t.Errorf("%s: %s is %s, want %s", file, path, n.Literal(), v)
			}
		}
		if fmt.Sprint(c.Generation.EOS) != "[2 3]" || c.Source != "gguf" || c.Quant.Method != "gguf" {
			t.Errorf("%s: %+v", file, c)
		}
		if n, _ := c.Tree.Get("hidden_size"); !strings.HasSuffix(n.Pos().File, ".embedding_length") {
			t.Errorf("%s: hidden_size stands at %v", file, n.Pos())
		}
	}
}

func TestGGUFPartsAreChecked(t *testing.T) {
	one, err := os.ReadFile("testdata/qwen3-00001-of-00002.gguf")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string]any
		open  string
		code  diag.Code
		want  string
	}{
		"a part is missing": {map[string]any{"m-00001-of-00002.gguf": string(one)}, "m-00001-of-00002.gguf", diag.NotFound, "m-00002-of-00002.gguf: no such file"},
		"a part alone":      {map[string]any{"m.gguf": string(one)}, "m.gguf", diag.Format, "m.gguf: split.count is 2, but the file's name says 1"},
		"a part twice":      {map[string]any{"m-00001-of-00002.gguf": string(one), "m-00002-of-00002.gguf": string(one)}, "m-00001-of-00002.gguf", diag.Format, "split.no is 0, but the file's name says 1"},
		"several":           {map[string]any{"d/a.gguf": "", "d/b.gguf": "", "d/c-00002-of-00002.gguf": ""}, "d", diag.Invalid, "choose one of: a.gguf, b.gguf"},
		"part 3 of 2":       {map[string]any{"m-00003-of-00002.gguf": string(one)}, "m-00003-of-00002.gguf", diag.Format, "part 3 of 2 cannot be"},
	} {
		_, _, err := Open(filepath.Join(dir(t, c.files), c.open), Options{})
		if !diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestOpenDirectoryWithOneGGUF(t *testing.T) {
	one, err := os.ReadFile("testdata/qwen2.gguf")
	if err != nil {
		t.Fatal(err)
	}
	s, f, err := Open(dir(t, map[string]any{"x.Q4_0.gguf": string(one), "README.md": ""}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f.GGUF.Arch() != "qwen2" {
		t.Errorf("architecture %q", f.GGUF.Arch())
	}
}

func TestDequantizeTakesEveryType(t *testing.T) {
	for d := tensor.Bool; d <= tensor.MXFP4; d++ {
		elems, size := d.Block()
		if err := Dequantize(make([]float32, 2*elems), d, make([]byte, 2*size)); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		if err := Dequantize(make([]float32, 2*elems), d, make([]byte, size)); err == nil {
			t.Errorf("%v: half of the bytes were enough", d)
		}
	}
}
