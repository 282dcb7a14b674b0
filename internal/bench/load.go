// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// Cold is a cold start.
type Cold struct {
	Device string  `json:"device"`
	Bytes  int64   `json:"bytes"`          // of tensors
	Cached float64 `json:"page_cache_gbs"` // files read from the page cache, just before; 0 for the model in the binary
	Copy   float64 `json:"copy_gbs"`       // pinned memory to the device's; on the CPU, memory to memory
	Load   float64 `json:"load_gbs"`       // in the phase load
	Share  float64 `json:"share"`          // Load of Copy
	Total  float64 `json:"total_s"`        // from when device and files are open, to the first token
	Start  float64 `json:"start_s"`        // Total and the opening
	Phases []Phase `json:"phases"`
}

// Opening is the phase of the device and, beside it, of the checkpoint's files and plans.
const Opening = "device, files"

// Phase is a part of a start: Opening, plan (what is left of it), alloc, load, bind, first token; and capture, replay of the steps after it.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"s"`
}

// Stopwatch notes when phases begin. The zero value has none.
type Stopwatch struct {
	phases []Phase
	began  time.Time
}

// Begin ends a phase and begins the next one.
func (w *Stopwatch) Begin(name string) {
	w.End()
	w.phases, w.began = append(w.phases, Phase{Name: name}), time.Now()
}

// End ends the newest phase.
func (w *Stopwatch) End() {
	if n := len(w.phases); n > 0 && w.phases[n-1].Seconds == 0 {
		w.phases[n-1].Seconds = time.Since(w.began).Seconds()
	}
}

// Steps runs a prompt of so many tokens to its first token, and the same step twice more.
func (w *Stopwatch) Steps(m *exec.Model, tokens int) error {
	policy := seq.Greedy()
	var state sample.Seq
	var scratch sample.Scratch
	state.Reset(&policy, nil)
	step := promptStep(m.Limits(), 0, tokens, true)
	for _, phase := range []string{"first token", "capture", "replay"} {
		w.Begin(phase)
		logits, err := m.Run(step)
		if err != nil {
			return err
		}
		if _, err := scratch.Sample(&state, sample.Row{Logits: logits[0]}); err != nil {
			return err
		}
	}
	w.End()
	return nil
}

// Report sums the phases up.
func (w *Stopwatch) Report(device string, bytes int64, cached, copy float64) *Cold {
	c := &Cold{Device: device, Bytes: bytes, Cached: cached, Copy: copy, Phases: w.phases}
	for _, p := range w.phases {
		switch p.Name {
		case "load":
			c.Load = float64(bytes) / 1e9 / p.Seconds
		case "capture", "replay":
			continue
		}
		c.Start += p.Seconds
		if p.Name != Opening {
			c.Total += p.Seconds
		}
	}
	c.Share = c.Load / copy
	return c
}

// CopyRate is GB/s of copies of so many bytes to the device, from pinned memory where it has such.
func CopyRate(dev gpu.Device, bytes int64) (float64, error) {
	dst, err := dev.Alloc("copy", bytes)
	if err != nil {
		return 0, err
	}
	defer dst.Free()
	var upload func() error
	if p, ok := dev.(gpu.Pinner); ok {
		src, err := p.Pinned("copy", bytes)
		if err != nil {
			return 0, err
		}
		defer src.Free()
		clear(src.Bytes())
		upload = func() error { return src.Upload(dst, 0, bytes) }
	} else {
		src := make([]byte, bytes)
		upload = func() error { return dst.Write(0, src) }
	}
	us, err := repeat(dev, 5, 2, upload)
	return float64(bytes) / us / 1000, err
}

// shardBytes is about the size of the files that WriteCheckpoint makes.
const shardBytes = 1 << 30

// WriteCheckpoint writes a config and tensors, whose bytes read gives, to a folder that has no checkpoint yet.
func WriteCheckpoint(ctx context.Context, dir string, config []byte, tensors []tensor.Info, read func(name string, off int64, dst []byte) error) error {
	if old, err := filepath.Glob(filepath.Join(dir, "*.safetensors")); err != nil || len(old) > 0 {
		return diag.Errorf(diag.Invalid, "%s has a checkpoint already", dir).For("write").Because(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fileError(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return fileError(err)
	}
	var shards [][]tensor.Info
	room := int64(0)
	for _, t := range tensors {
		if room < t.Size() || len(shards) == 0 {
			shards, room = append(shards, nil), shardBytes
		}
		last := len(shards) - 1
		shards[last], room = append(shards[last], t), room-t.Size()
	}
	return each(len(shards), func(i int) error {
		if err := ctx.Err(); err != nil {
			return diag.Errorf(diag.Canceled, "the benchmark was interrupted: %w", err)
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("model-%05d.safetensors", i+1)))
		if err != nil {
			return fileError(err)
		}
		err = safetensors.Stream(f, shards[i], read)
		if closed := f.Close(); err == nil && closed != nil {
			err = fileError(closed)
		}
		return err
	})
}

// ReadThrough reads the files of a checkpoint, so that they are in the page cache, and then again, for the GB/s.
func ReadThrough(path string) (float64, error) {
	var files []string
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return 0, fileError(err)
	}
	rate := 0.0
	for range 2 {
		began := time.Now()
		sizes := make([]int64, len(files))
		err := each(len(files), func(i int) error {
			f, err := os.Open(files[i])
			if err != nil {
				return fileError(err)
			}
			defer f.Close()
			buf := make([]byte, 4<<20)
			for {
				n, err := f.Read(buf)
				sizes[i] += int64(n)
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return fileError(err)
				}
			}
		})
		if err != nil {
			return 0, err
		}
		total := int64(0)
		for _, n := range sizes {
			total += n
		}
		rate = float64(total) / 1e9 / time.Since(began).Seconds()
	}
	return rate, nil
}

// each calls f for 0 … n-1 on all cores and gives the first error by number.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

func fileError(err error) error {
	code := diag.IO
	if errors.Is(err, fs.ErrNotExist) {
		code = diag.NotFound
	}
	return diag.Errorf(code, "%w", err)
}

// PrintCold writes a cold start as a table.
func PrintCold(w io.Writer, c *Cold) error {
	rows := [][]string{{"PHASE", "S", "GB/S"}}
	for _, p := range c.Phases {
		rate := ""
		if p.Name == "load" {
			rate = fmt.Sprintf("%.2f", c.Load)
		}
		rows = append(rows, []string{p.Name, fmt.Sprintf("%.3f", p.Seconds), rate})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%.3f GB from page cache to first token in %.3f s, %.2f GB/s, and %.3f s with the opening; load %.2f GB/s is %s of a copy's %.2f; page cache %.2f GB/s\n",
		float64(c.Bytes)/1e9, c.Total, float64(c.Bytes)/1e9/c.Total, c.Start, c.Load, percent(c.Share), c.Copy, c.Cached)
	return err
}
