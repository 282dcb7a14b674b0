// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// Index is bin/<class>/index.json.
type Index struct {
	Arch     string            `json:"arch"`
	Compiler string            `json:"compiler"`
	Kernels  map[string]Object `json:"kernels"`
}

// Object is one compiled translation unit.
type Object struct {
	Hash    string           `json:"hash"`
	Bytes   int              `json:"bytes"`
	Entries map[string]Usage `json:"entries"`
}

// Usage is what ptxas says of an entry.
type Usage struct {
	Registers  int `json:"registers"`
	SpillBytes int `json:"spill_bytes"` // stores and loads
	SharedMem  int `json:"shared_bytes"`
}

// Options say what to build.
type Options struct {
	Root string // the kernel tree
	Nvcc string // the compiler; "" looks in PATH
	Log  io.Writer
}

// Build compiles a class and writes its objects and index below Root/bin.
func Build(ctx context.Context, class string, o Options) (*Index, error) {
	tree, err := kernel.Load(os.DirFS(o.Root))
	if err != nil {
		return nil, err
	}
	h := tree.Classes[class]
	if h == nil {
		return nil, diag.Errorf(diag.NotFound, "no hardware class %q: %s/HARDWARE.toml is missing", class, class)
	}
	if h.Abstract {
		return nil, diag.Errorf(diag.Invalid, "class %s is abstract: build a class that inherits from it", class)
	}
	if h.Vendor != kernel.NVIDIA {
		return nil, diag.Errorf(diag.Unsupported, "class %s: this build compiles for vendor nvidia only, not %q", class, h.Vendor)
	}
	nvcc, version, err := compiler(ctx, o.Nvcc)
	if err != nil {
		return nil, err
	}
	sources, err := Sources(o.Root, h)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Root, "bin", class)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &builder{o: o, h: h, nvcc: nvcc, version: version, dir: dir, old: readIndex(dir)}
	index := &Index{Arch: h.Arch, Compiler: version, Kernels: map[string]Object{}}
	err = parallel(len(sources), func(i int) error {
		obj, err := b.one(ctx, sources[i])
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		index.Kernels[sources[i].Name] = obj
		return nil
	})
	if err != nil {
		return nil, err
	}
	data, _ := json.MarshalIndent(index, "", "  ")
	return index, writeAtomic(filepath.Join(dir, "index.json"), append(data, '\n'))
}

type builder struct {
	o             Options
	h             *kernel.Class
	nvcc, version string
	dir           string
	old           *Index
	mu            sync.Mutex
}

// one compiles a source unless the index has its hash.
func (b *builder) one(ctx context.Context, s Source) (Object, error) {
	hash, err := Closure(b.o.Root, s.Path, b.h.Arch, b.version, b.h.Build.Flags)
	if err != nil {
		return Object{}, err
	}
	out := filepath.Join(b.dir, s.Name+".cubin")
	if have, ok := b.old.Kernels[s.Name]; ok && have.Hash == hash && exists(out) {
		b.log("%s/%s: unchanged", b.h.Name, s.Name)
		return have, nil
	}
	tmp, err := os.MkdirTemp(b.dir, ".build-")
	if err != nil {
		return Object{}, err
	}
	defer os.RemoveAll(tmp)
	cubin := filepath.Join(tmp, "o.cubin")
	args := append([]string{"-cubin", "-arch=" + b.h.Arch, "-Xptxas", "-v", "-I", filepath.Join(b.o.Root, "include")}, b.h.Build.Flags...)
	args = append(args, "-o", cubin, filepath.Join(b.o.Root, s.Path))
	cmd := exec.CommandContext(ctx, b.nvcc, args...)
	var report bytes.Buffer
	cmd.Stdout, cmd.Stderr = &report, &report
	if err := cmd.Run(); err != nil {
		return Object{}, diag.Errorf(diag.Format, "%s does not compile for %s:\n%s", s.Path, b.h.Arch, report.String()).Because(err)
	}
	entries := parsePtxas(report.String())
	for name, u := range entries {
		if u.SpillBytes > b.h.Build.SpillBytes {
			return Object{}, diag.Errorf(diag.Format, "%s: entry %s spills %d bytes, the ceiling of class %s is %d", s.Path, name, u.SpillBytes, b.h.Name, b.h.Build.SpillBytes)
		}
	}
	data, err := os.ReadFile(cubin)
	if err != nil {
		return Object{}, err
	}
	b.log("%s/%s: %d bytes, %d entries", b.h.Name, s.Name, len(data), len(entries))
	return Object{Hash: hash, Bytes: len(data), Entries: entries}, writeAtomic(out, data)
}

func (b *builder) log(format string, args ...any) {
	if b.o.Log == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.o.Log, format+"\n", args...)
}

var (
	ptxasEntry = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	ptxasSpill = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	ptxasUsed  = regexp.MustCompile(`Used (\d+) registers(?:.*?(\d+) bytes smem)?`)
)

// parsePtxas reads the report of ptxas -v: an entry's lines follow the line that names it.
func parsePtxas(report string) map[string]Usage {
	out, entry := map[string]Usage{}, ""
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	for _, line := range strings.Split(report, "\n") {
		if m := ptxasEntry.FindStringSubmatch(line); m != nil {
			entry = m[1]
			out[entry] = Usage{}
		}
		u := out[entry]
		if m := ptxasSpill.FindStringSubmatch(line); m != nil && entry != "" {
			u.SpillBytes = number(m[1]) + number(m[2])
			out[entry] = u
		}
		if m := ptxasUsed.FindStringSubmatch(line); m != nil && entry != "" {
			u.Registers, u.SharedMem = number(m[1]), number(m[2])
			out[entry] = u
		}
	}
	return out
}

var releaseLine = regexp.MustCompile(`release (\S+), V(\S+)`)

// compiler finds nvcc and its version.
func compiler(ctx context.Context, nvcc string) (path, version string, err error) {
	if nvcc == "" {
		if nvcc, err = exec.LookPath("nvcc"); err != nil {
			return "", "", diag.Errorf(diag.NotFound, "no nvcc: give --nvcc, or put CUDA's compiler on PATH").Because(err)
		}
	}
	out, err := exec.CommandContext(ctx, nvcc, "--version").Output()
	if err != nil {
		return "", "", diag.Errorf(diag.NotFound, "%s --version failed", nvcc).Because(err)
	}
	m := releaseLine.FindSubmatch(out)
	if m == nil {
		return "", "", diag.Errorf(diag.Unsupported, "%s --version names no release", nvcc)
	}
	return nvcc, "nvcc " + string(m[2]), nil
}

func readIndex(dir string) *Index {
	x := &Index{}
	if data, err := os.ReadFile(filepath.Join(dir, "index.json")); err == nil && json.Unmarshal(data, x) == nil {
		return x
	}
	return &Index{}
}

func writeAtomic(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".write-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// parallel runs n jobs on all cores and gives the error of the first that failed, by index.
func parallel(n int, job func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = job(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
