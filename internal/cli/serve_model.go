// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/server"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/tokenizer"
	"github.com/metrale/metrale/internal/weights/hub"
)

// defaultContext bounds --max-seq-len when it is not given.
const defaultContext = 32768

// reserve is what a GPU's driver may take beside our buffers: code, graphs, local memory.
const reserve = 512 << 20

// gcPercent keeps the garbage of parsing a checkpoint, and of serving, small beside the weights; a step makes none.
const gcPercent = 40

// source is what a model's files say, before a device is asked for anything.
type source struct {
	*checkpoint
	tokenizer *tokenizer.Tokenizer
	template  server.Template
	images    *server.Images // nil: takes none
}

// read finds the model's files, downloading what is missing, and understands them.
func (s *serving) read(ctx context.Context, bars *progress) (_ *source, err error) {
	path, err := s.resolve(ctx, bars)
	if err != nil {
		return nil, err
	}
	c, err := openAs(path, s.flags.loadFormat)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.store.Close()
		}
	}()
	src := &source{checkpoint: c}
	if src.tokenizer, err = c.readTokenizer(); err != nil {
		return nil, err
	}
	if src.template, err = c.readTemplate(src.tokenizer); err != nil {
		return nil, err
	}
	src.images, err = c.see(src.tokenizer, src.template, &s.flags, s.log)
	return src, err
}

// load brings the model onto its device and starts its engine. Files are read while the device opens.
func (s *serving) load(ctx context.Context) (_ *server.Model, _ gpu.Device, err error) {
	debug.SetGCPercent(gcPercent)
	bars := newProgress(s.log)
	defer bars.close()
	var src *source
	dev, err := s.flags.openBeside(ctx, s.log, func(ctx context.Context, class func() (string, bool)) (err error) {
		if src, err = s.read(ctx, bars); err != nil {
			return err
		}
		if name, ok := class(); ok && src.choose(name, &s.flags.deviceFlags, s.log, s.model, s.name()) == nil {
			if o, err := s.wanted(src, name); err == nil { // which it mostly gets
				src.foresee(o)
			}
		}
		return nil
	})
	if src != nil {
		defer src.store.Close()
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			dev.Close()
		}
	}()
	if s.wrap != nil {
		dev = s.wrap(dev)
	}
	m, err := s.place(ctx, src, dev, bars)
	return m, dev, err
}

// place loads what was read onto the device.
func (s *serving) place(ctx context.Context, src *source, dev gpu.Device, bars *progress) (*server.Model, error) {
	f := &s.flags
	if err := src.target(dev, &f.deviceFlags, s.log, s.model, s.name()); err != nil {
		return nil, err
	}
	defaults, err := src.defaults(f.samplingPreset)
	if err != nil {
		return nil, err
	}
	o, err := s.fit(src, dev)
	if err != nil {
		return nil, err
	}
	src.files = nil // a vocabulary's worth of strings
	debug.FreeOSMemory()
	o.progress = bars.loading
	m, err := src.load(ctx, o)
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // what loading left
	tok := src.tokenizer
	vocab := min(m.Limits().Vocab, tok.VocabSize())
	e, err := engine.New(m, engine.Options{MaxBatch: f.maxBatch, Sync: f.router == "sync", MaxQueue: f.maxNumSeqs, MaxPrefillTokens: f.prefill(dev.Info().Class),
		MaxContext: int(o.limits.Pages * o.limits.PageSize), Vocab: vocab})
	if err != nil {
		m.Close()
		return nil, err
	}
	return &server.Model{
		Name: s.name(), Created: time.Now(), Engine: e, Tokenizer: tok, Template: src.template, Images: src.images, EOS: endTokens(&src.config.Generation, tok, vocab, s.log), Vocab: vocab,
		Defaults: defaults, PageSize: int(o.limits.PageSize), MaxSequences: f.maxBatch + f.maxNumSeqs, Fingerprint: "met-" + m.plan.Digest()[:12],
	}, nil
}

// resolve gives the model's path: itself if it is one or the built-in model, else that of the hub's cache.
func (s *serving) resolve(ctx context.Context, bars *progress) (string, error) {
	switch _, err := os.Stat(s.model); {
	case (err == nil || s.model == demo) && s.flags.gguf != "":
		return "", diag.Errorf(diag.Invalid, "--gguf-file %s: it chooses a file of a Hugging Face id, which %s is not", s.flags.gguf, s.model).For("gguf-file")
	case err == nil || s.model == demo:
		return s.model, nil
	case s.flags.modelFromPath != "":
		return "", diag.Errorf(diag.NotFound, "--model-from-path %s cannot be read", s.model).For("model-from-path").Because(err)
	}
	if _, err := hub.ParseID(s.model); err != nil || strings.HasSuffix(s.model, ".gguf") {
		return "", diag.Errorf(diag.NotFound, "%q is neither a file, a folder nor an id as org/name", s.model).For("model").Because(err)
	}
	env := s.env.hub
	if s.flags.cacheDir != "" {
		env.Cache = s.flags.cacheDir
	}
	warn := func(msg string) { fmt.Fprintln(s.log, "met:", msg) }
	path, err := hub.Resolve(ctx, s.model, hub.Options{Env: env, GGUF: s.flags.gguf, Progress: bars.download, Warn: warn})
	if err != nil && !strings.Contains(s.model, "/") { // more likely a file that is not there than one of the hub's few ids without an owner
		err = diag.Errorf(diag.CodeOf(err), "%s is no file or folder, and as an id: %w", s.model, err).For("model")
	}
	return path, err
}

// name is what /v1/models reports.
func (s *serving) name() string {
	if s.flags.modelName != "" {
		return s.flags.modelName
	}
	if _, err := os.Stat(s.model); err != nil {
		return s.model
	}
	path, err := filepath.Abs(s.model)
	if err != nil {
		path = s.model
	}
	return strings.TrimSuffix(filepath.Base(path), ".gguf")
}

// prefill is the most prompt tokens in a step on a device of a class.
func (f *serveFlags) prefill(class string) int {
	if class != "cpu" && !f.prefillGiven {
		return gpuPrefill
	}
	return f.maxPrefill
}

// wanted chooses the sizes of steps and of a sequence's context, if memory allows, on a device of a class.
func (s *serving) wanted(c *source, class string) (modelOptions, error) {
	f := &s.flags
	kv, ok := tensor.None, true
	if f.kvDType != "" {
		kv, ok = tensor.ParseDType(f.kvDType)
	}
	if !ok {
		return modelOptions{}, diag.Errorf(diag.Invalid, "--kv-cache-dtype %s is no element type", f.kvDType).For("kv-cache-dtype")
	}
	longest := c.maxContext()
	length := int64(f.maxSeqLen)
	switch {
	case length == 0:
		length = min(longest, defaultContext)
	case length > longest:
		return modelOptions{}, diag.Errorf(diag.Invalid, "--max-seq-len %d: the model was made for %d tokens", length, longest).For("max-seq-len")
	}
	size := c.pageSize(class)
	rows := int64(max(f.prefill(class), f.maxBatch))
	o := modelOptions{opening: class, compute: f.compute, kv: kv, noFusion: f.noFusion, eager: f.eager, slots: f.maxBatch,
		limits: plan.Limits{Rows: rows, Seqs: int64(f.maxBatch), Outs: min(rows, int64(max(f.maxBatch, 16))), PageSize: size, Pages: (length + size - 1) / size}}
	if c.images != nil {
		o.parts = map[string]plan.Limits{exec.Vision: towerLimits(c.images.Processor, size)}
	}
	return o, nil
}

// fit chooses the size of the KV pool too: every place of the batch gets the whole context if memory allows, else the pool takes the
// memory that may be claimed, and what does not fit waits.
func (s *serving) fit(c *source, dev gpu.Device) (modelOptions, error) {
	f := &s.flags
	o, err := s.wanted(c, dev.Info().Class)
	if err != nil {
		return modelOptions{}, err
	}
	o.device = dev
	p, err := c.lower(o, o.limits.Rows)
	if err != nil {
		return modelOptions{}, err
	}
	packed, work, err := c.sizes(o, p)
	if err != nil {
		return modelOptions{}, err
	}
	logits := p.Buffers[p.Logits].Axes
	width := int(logits[len(logits)-1].Size)
	if o.sampling = c.sampling(dev, min(c.tokenizer.VocabSize(), width), f.maxBatch); o.sampling != nil {
		work += exec.SamplingBytes(*o.sampling, p.Limits, width)
	}
	page, slot := stateBytes(p)
	claim := int64(f.memoryUtilization * float64(dev.Info().Memory))
	if free := dev.Info().Free; free > 0 {
		claim = min(claim, free-reserve)
	}
	budget := claim - packed - work - slot*int64(o.slots)
	pages := o.limits.Pages * int64(f.maxBatch)
	if page > 0 {
		pages = min(pages, budget/page)
	}
	if pages < o.limits.Pages {
		if f.maxSeqLen != 0 || pages < 1 {
			return modelOptions{}, diag.Errorf(diag.Invalid, "--max-seq-len %d needs %s for one sequence's keys and values, %s are left of the memory that may be claimed",
				cmp.Or(int64(f.maxSeqLen), o.limits.Pages*o.limits.PageSize), byteCount(o.limits.Pages*page), byteCount(max(budget, 0))).For("max-seq-len")
		}
		o.limits.Pages = pages
	}
	fmt.Fprintf(s.log, "context %d tokens, KV pool %d tokens (%s in %v), weights %s\n", o.limits.Pages*o.limits.PageSize, pages*o.limits.PageSize, byteCount(pages*page), p.KV, byteCount(packed))
	o.pages = int(max(pages, 1))
	return o, nil
}

// stateBytes is what a KV page and a recurrent-state slot take in all layers.
func stateBytes(p *plan.Plan) (page, slot int64) {
	for _, s := range p.States {
		n := s.DType.Bytes(s.Axes.Shape().Elems())
		if s.Kind == plan.Paged {
			page += n * s.PageEntries(p.Limits.PageSize)
		} else {
			slot += n
		}
	}
	return page, slot
}

// readTokenizer is the checkpoint's.
func (c *checkpoint) readTokenizer() (*tokenizer.Tokenizer, error) {
	if c.files.GGUF != nil {
		return tokenizer.FromGGUF(vocabulary{c.files.GGUF})
	}
	data, ok := c.files.Side["tokenizer.json"]
	if !ok && c.dummy {
		return tokenizer.FromJSON(byteTokenizer(), nil)
	}
	if !ok {
		return nil, diag.Errorf(diag.NotFound, "%s has no tokenizer.json", c.files.Path)
	}
	return tokenizer.FromJSON(data, c.files.Side["tokenizer_config.json"])
}

// byteTokenizer is a tokenizer.json whose tokens are the 256 bytes, for invented weights that come without one.
func byteTokenizer() []byte {
	vocab := map[string]int{}
	for b, next := 0, rune(256); b < 256; b++ {
		r := rune(b)
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad { // the byte-level alphabet moves what does not print
			r, next = next, next+1
		}
		vocab[string(r)] = b
	}
	data, _ := json.Marshal(map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
	})
	return data
}

// vocabulary shows GGUF metadata to the tokenizer.
type vocabulary struct{ *modelconf.Metadata }

func (v vocabulary) String(key string) (string, bool) { return v.Str(key) }

func (v vocabulary) Floats(key string) ([]float32, bool) {
	list, ok := v.Values[key].([]float32)
	return list, ok
}

// endTokens end a text: those of generation_config.json or GGUF, and the tokenizer's. What is none of the vocab tokens that can be
// drawn is left out, and log says so.
func endTokens(g *modelconf.Generation, tok *tokenizer.Tokenizer, vocab int, log io.Writer) (list []int32) {
	ids := slices.Clone(g.EOS)
	if id, ok := tok.EOS(); ok {
		ids = append(ids, int64(id))
	}
	slices.Sort(ids)
	var others []int64
	for _, id := range slices.Compact(ids) {
		if id < 0 || id >= int64(vocab) {
			others = append(others, id)
			continue
		}
		list = append(list, int32(id))
	}
	if len(others) > 0 {
		fmt.Fprintf(log, "met: end tokens %v are left out: the model has the tokens 0 to %d\n", others, vocab-1)
	}
	return list
}
