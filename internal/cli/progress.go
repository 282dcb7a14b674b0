// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/metrale/metrale/internal/weights/hub"
)

// progress shows how downloads and loading go on: bars on a terminal, a line every few seconds elsewhere.
type progress struct {
	out  io.Writer
	bars *mpb.Progress // nil: lines
	mu   sync.Mutex
	bar  map[string]*mpb.Bar
	last time.Time
}

// lineEvery is the pause between two lines where there is no terminal.
const lineEvery = 2 * time.Second

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, bar: map[string]*mpb.Bar{}, last: time.Now()}
	if f, ok := out.(*os.File); ok {
		if term.IsTerminal(int(f.Fd())) {
			p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(48))
		}
	}
	return p
}

// at says that done of total bytes of something are there; total may be unknown (-1).
func (p *progress) at(what string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		if now := time.Now(); done == total || now.Sub(p.last) >= lineEvery {
			p.last = now
			if total > 0 {
				fmt.Fprintf(p.out, "%s: %s of %s\n", what, byteCount(done), byteCount(total))
			} else {
				fmt.Fprintf(p.out, "%s: %s\n", what, byteCount(done))
			}
		}
		return
	}
	bar := p.bar[what]
	if bar == nil {
		bar = p.bars.AddBar(max(total, 0), mpb.PrependDecorators(decor.Name(what+" ", decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.CountersKiloByte("% .1f / % .1f"), decor.Name(" "), decor.AverageSpeed(decor.SizeB1000(0), "% .1f")))
		p.bar[what] = bar
	}
	bar.SetCurrent(done)
	if done == total {
		bar.SetTotal(total, true)
	}
}

// download shows an event of the hub; what was in the cache is not shown.
func (p *progress) download(e hub.Event) {
	if !e.Cached {
		p.at(e.File, e.Done, e.Total)
	}
}

// loading shows how many bytes of the weights are packed.
func (p *progress) loading(done, total int64) { p.at("loading", done, total) }

// close ends the bars, finished or not.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.bar {
		b.Abort(false)
	}
	p.bars.Wait()
}
