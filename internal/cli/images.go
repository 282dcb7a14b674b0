// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/server"
	"github.com/metrale/metrale/internal/tokenizer"
	"github.com/metrale/metrale/internal/vision"
)

// What a request may send as images.
const (
	imagesPerRequest = 16
	imageBytes       = 20 << 20 // of a file
	imagePixels      = 64 << 20
)

// processorFiles say how a checkpoint wants its images; the first that is there does.
var processorFiles = []string{"preprocessor_config.json", "processor_config.json"}

// processor reads how the checkpoint wants its images, and holds it against what its tower takes.
func (c *checkpoint) processor() (*vision.Processor, error) {
	for _, name := range processorFiles {
		data, ok := c.files.Side[name]
		if !ok {
			continue
		}
		p, err := vision.ReadProcessor(name, data)
		if err != nil {
			return nil, err
		}
		for _, k := range []struct {
			key, dim string
			value    int
		}{{"patch_size", "vis_patch", p.Patch}, {"temporal_patch_size", "vis_frames", p.Frames}, {"merge_size", "vis_merge", p.Merge}} {
			if want := c.instance.Dim(k.dim); int64(k.value) != want {
				return nil, diag.Errorf(diag.Format, "%s: %s is %d, config.json has %d", name, k.key, k.value, want)
			}
		}
		return p, nil
	}
	return nil, diag.Errorf(diag.NotFound, "%s has no %s", c.files.Path, processorFiles[0])
}

// see makes the checkpoint one that takes images, and says how; nil when it takes none. Where the checkpoint has a tower that
// cannot be used, log is told why.
func (c *checkpoint) see(tok *tokenizer.Tokenizer, template server.Template, f *serveFlags, log io.Writer) (*server.Images, error) {
	tower := c.instance.InPart(exec.Vision)
	if tower == nil || f.maxImageTokens == 0 || !tower.Stored(c.store) {
		return nil, nil
	}
	token := c.instance.Dim("image_token")
	p, err := c.processor()
	switch {
	case template == nil:
		err = diag.Errorf(diag.NotFound, "the model has no chat template")
	case err == nil && token >= int64(tok.VocabSize()):
		err = diag.Errorf(diag.Format, "image_token_id %d is none of the tokenizer's %d tokens", token, tok.VocabSize())
	}
	if err != nil {
		fmt.Fprintf(log, "met: images are refused: %v\n", err)
		return nil, nil
	}
	p.MaxPixels = min(p.MaxPixels, p.PixelsOf(f.maxImageTokens))
	p.MinPixels = min(p.MinPixels, p.MaxPixels)
	c.instance, err = circuit.Instantiate(c.library, c.config, exec.Vision)
	var hosts []string
	for _, h := range f.imageHosts {
		hosts = append(hosts, strings.ToLower(h))
	}
	return &server.Images{Processor: p, Token: int32(token), Most: imagesPerRequest, Hosts: hosts, Limits: vision.Limits{Bytes: imageBytes, Pixels: imagePixels}}, err
}

// towerLimits are the sizes of a tower for a processor's largest image.
func towerLimits(p *vision.Processor, pageSize int64) plan.Limits {
	tokens := int64(p.MaxPixels / p.PixelsOf(1))
	return plan.Limits{Rows: tokens * int64(p.Merge*p.Merge), Seqs: 1, Outs: tokens, PageSize: pageSize, Pages: 1}
}
