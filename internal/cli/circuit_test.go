// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

const llamaConfig = `{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-05
}`

// runCircuit is `met circuit args…`.
func runCircuit(args ...string) (string, error) {
	cmd := newCircuitCmd(environment{})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// TestCircuitVerbs prints a bare config in every way.
func TestCircuitVerbs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(llamaConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"show", file}, []string{"plan llama/llama class=cpu compute=declared kv=f16\n", "limits rows=16 seqs=16 outs=16 page_size=16 pages=16\n", "linear_n"}},
		{[]string{"show", file, "--no-fusion", "--kv", "f32", "--compute", "float32", "--rows", "4", "--outs", "1"}, []string{"compute=float32 kv=f32\n", "limits rows=4 seqs=4 outs=1 "}},
		{[]string{"show", file, "--stored", "q8_0"}, []string{`compute="q16"`}},
		{[]string{"display", file}, []string{"llama/llama: 2 layers, 37 ops in 25 launches", "┌─ linear_glu (bit_identical)"}},
		{[]string{"estimate", file, "--hardware", "h200-sxm"}, []string{"llama/llama on NVIDIA H200 SXM", "device facts:"}},
		{[]string{"memory", file, "--memory", "1"}, []string{"K and V per token    256 B", "1 GiB hold 16379 sequences of 256 tokens"}},
	} {
		out, err := runCircuit(c.args...)
		if err != nil {
			t.Errorf("%v: %v", c.args, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v does not print %q:\n%s", c.args, w, out)
			}
		}
	}
	digest, err := runCircuit("show", file, "--digest")
	if err != nil || len(digest) != 65 {
		t.Errorf("digest %q, %v", digest, err)
	}
	for _, c := range []struct {
		args []string
		code diag.Code
	}{
		{[]string{"show", file + ".json"}, diag.NotFound},
		{[]string{"show", file, "--kv", "f17"}, diag.Invalid},
		{[]string{"show", file, "--rows", "0"}, diag.Invalid},
		{[]string{"show", file, "--compute", "fast"}, diag.Invalid},
		{[]string{"show", file, "--class", "none"}, diag.Invalid},
		{[]string{"estimate", file, "--hardware", "abacus"}, diag.Invalid},
		{[]string{"memory", file, "--memory", "-1"}, diag.Invalid},
	} {
		if _, err := runCircuit(c.args...); diag.CodeOf(err) != c.code {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
