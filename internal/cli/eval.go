// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// newEvalCmd is `met eval`: a model's numbers, so that anyone can hold us against a reference.
func newEvalCmd(env environment) *cobra.Command {
	eval := &cobra.Command{Use: "eval", Short: "Compute a model's numbers for comparison with a reference", RunE: group}
	eval.AddCommand(newEvalLogitsCmd(env))
	return eval
}

func newEvalLogitsCmd(env environment) *cobra.Command {
	var ids, out, compute, format string
	var greedy, chunk int
	var device deviceFlags
	var noFusion bool
	var parts evalParts
	cmd := &cobra.Command{
		Use:   "logits <path | file.gguf> --ids 1,2,3 --out FILE",
		Short: "Write the logits of every position, and greedy continuations, as safetensors",
		Long: `Runs the tokens through the model and writes to FILE (safetensors):
  logits  float32 [tokens, vocabulary]  of every position
  greedy  int64 [N]                     the likeliest continuation, token by token from the cache (with --greedy)
  drafts  float32 [tokens, vocabulary]  of the draft head: row t knows token t+1 (after the last one, the likeliest) (with --part mtp)
Images (PNG, JPEG, GIF, WebP, BMP, or patches as safetensors) stand where --ids has the model's image token as often as they make tokens.
Computes in float32 unless --compute says otherwise.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, err := parseIDs(ids)
			if err != nil {
				return err
			}
			if out == "" {
				return diag.Errorf(diag.Invalid, "--out is missing: the file to write").For("out")
			}
			if err := cmp.Or(within("greedy", int64(greedy), 0, mostTokens), within("chunk", int64(chunk), 0, mostTokens), parts.check(), device.check(), checkLoadFormat(format), checkCompute(compute), checkOut(out)); err != nil {
				return err
			}
			dev, err := device.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer dev.Close()
			c, err := openAs(args[0], format, parts.with()...)
			if err != nil {
				return err
			}
			defer c.store.Close()
			if err := c.target(dev, &device, cmd.ErrOrStderr(), args[0]); err != nil {
				return err
			}
			tokens := int64(len(prompt) + greedy)
			if most := c.instance.Dim("context"); most > 0 && tokens > most {
				return diag.Errorf(diag.TooLong, "--ids and --greedy are %d tokens; the model was made for %d", tokens, most)
			}
			rows := int64(len(prompt))
			if chunk > 0 {
				rows = min(rows, int64(chunk))
			}
			rows = min(rows, 512)
			size := c.pageSize(dev.Info().Class)
			pages := (tokens + size - 1) / size
			o := modelOptions{
				device: dev, compute: compute, kv: tensor.F32, noFusion: noFusion, eager: device.eager,
				limits: plan.Limits{Rows: rows, Seqs: 1, Outs: rows, PageSize: size, Pages: pages}, pages: int(pages), slots: 1,
			}
			images, err := parts.load(c, &o, prompt)
			if err != nil {
				return err
			}
			m, err := c.load(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer m.Close()
			n, err := m.Evaluate(cmd.Context(), exec.Sequence{Prompt: prompt, Images: images, Chunk: chunk, Greedy: greedy, Draft: parts.part == exec.Draft})
			if err != nil {
				return err
			}
			return writeNumbers(out, n)
		},
	}
	f := cmd.Flags()
	f.StringVar(&ids, "ids", "", "token ids, separated by commas")
	f.StringVar(&out, "out", "", "file to write")
	f.IntVar(&greedy, "greedy", 0, "continue greedily by so many tokens")
	f.IntVar(&chunk, "chunk", 0, "feed the prompt in chunks of so many tokens (0: as large as fit)")
	f.StringVar(&compute, "compute", circuit.Float32, "float32, or declared: the precision that serving uses")
	f.StringVar(&format, "load-format", "auto", "auto: the checkpoint's weights; dummy: random ones, made from config.json alone")
	device.add(f, env, "cpu")
	f.StringVar(&parts.part, "part", "", "run this part of the model too: mtp, its draft head")
	f.StringArrayVar(&parts.images, "image", nil, "image of the prompt: a picture, or safetensors with pixel_values and grid_thw")
	f.BoolVar(&noFusion, "no-fusion", false, "lower every op alone, by the reference rules")
	return cmd
}

// checkOut refuses a file that cannot be made, before a long computation.
func checkOut(path string) error {
	if dir := filepath.Dir(path); !isFolder(dir) {
		return diag.Errorf(diag.NotFound, "--out %s: there is no folder %s", path, dir).For("out")
	}
	if isFolder(path) {
		return diag.Errorf(diag.Invalid, "--out %s: it is a folder", path).For("out")
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// parseIDs reads "1,2,3".
func parseIDs(s string) ([]int32, error) {
	if strings.TrimSpace(s) == "" {
		return nil, diag.Errorf(diag.Invalid, "--ids is missing: token ids, separated by commas").For("ids")
	}
	var ids []int32
	for i, word := range strings.Split(s, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
		if err != nil || n < 0 {
			return nil, diag.Errorf(diag.Invalid, "--ids: item %d is %q, not a token id", i, word).For("ids")
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

// rowsTensor is float32 [rows, n].
func rowsTensor(name string, rows [][]float32) safetensors.NamedTensor {
	raw := make([]byte, 0, 4*len(rows)*len(rows[0]))
	for _, row := range rows {
		for _, v := range row {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	}
	return safetensors.NamedTensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{int64(len(rows)), int64(len(rows[0]))}, Data: raw}
}

// writeNumbers writes the file that `met eval logits` promises.
func writeNumbers(path string, n *exec.Numbers) error {
	tensors := []safetensors.NamedTensor{rowsTensor("logits", n.Logits)}
	if len(n.Drafts) > 0 {
		tensors = append(tensors, rowsTensor("drafts", n.Drafts))
	}
	if len(n.Greedy) > 0 {
		raw := make([]byte, 0, 8*len(n.Greedy))
		for _, id := range n.Greedy {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
		}
		tensors = append(tensors, safetensors.NamedTensor{Name: "greedy", DType: tensor.I64, Shape: tensor.Shape{int64(len(n.Greedy))}, Data: raw})
	}
	f, err := os.Create(path)
	if err != nil {
		return diag.Errorf(diag.IO, "--out %s: %w", path, err).For("out")
	}
	if err := safetensors.Write(f, tensors); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
