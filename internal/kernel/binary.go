// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/metrale/metrale/internal/diag"
)

// Index is bin/<class>/index.json: what kbuild compiled for a class.
type Index struct {
	Class    string             `json:"class"`
	Arch     string             `json:"arch"`
	Compiler string             `json:"compiler"`
	Modules  map[string]*Object `json:"modules"` // of the class
	// Targets has the leaves, by name; of each, the modules that differ from the class's.
	Targets map[string]map[string]*Object `json:"targets"`
}

// Object is a compiled module.
type Object struct {
	Source  string           `json:"source"`
	Hash    string           `json:"hash"`  // closure: what it was compiled from
	File    string           `json:"file"`  // below bin/<class>, compressed with zstd
	Bytes   int              `json:"bytes"` // of the code
	Sum     string           `json:"sum"`   // SHA-256 of the code
	Entries map[string]Usage `json:"entries"`
}

// Usage is what the compiler says of an entry.
type Usage struct {
	Registers    int `json:"registers"`
	SpillBytes   int `json:"spill_bytes"` // stores and loads
	StaticShared int `json:"static_shared"`
}

// maxCode bounds what a file may expand to.
const maxCode = 256 << 20

// Carried are the indexes of the classes that a tree has code for, by class.
func Carried(fsys fs.FS) (map[string]*Index, error) {
	files, err := fs.Glob(fsys, "bin/*/index.json")
	if err != nil {
		return nil, diag.Errorf(diag.IO, "compiled kernels: %w", err)
	}
	out := map[string]*Index{}
	for _, f := range files {
		src, err := fs.ReadFile(fsys, f)
		if err != nil {
			return nil, diag.Errorf(diag.IO, "compiled kernels: %w", err)
		}
		x := &Index{}
		if err := json.Unmarshal(src, x); err != nil || x.Class != path.Base(path.Dir(f)) || !x.whole() {
			return nil, diag.Errorf(diag.Format, "it is no index of kbuild's; build the kernels again").At(diag.Pos{File: f}).Because(err)
		}
		out[x.Class] = x
	}
	return out, nil
}

// whole says whether every module that the index lists has a description that kbuild can have written.
func (x *Index) whole() bool {
	for _, modules := range append(slices.Collect(maps.Values(x.Targets)), x.Modules) {
		for _, o := range modules {
			if o == nil || o.Bytes < 0 || o.Bytes > maxCode || !fs.ValidPath(o.File) || !isSum(o.Hash) || !isSum(o.Sum) {
				return false
			}
		}
	}
	return true
}

// isSum says whether s is a SHA-256 as kbuild writes it.
func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// Object is a target's module: its own, else its class's; nil if there is none.
func (x *Index) Object(target, module string) *Object {
	if o := x.Targets[target][module]; o != nil {
		return o
	}
	return x.Modules[module]
}

// Entry is a compiled entry of a module.
type Entry struct {
	Module, Name string
	Usage        Usage
}

// Entries are those that a target's kernel can launch.
func (x *Index) Entries(t *Target, k *Kernel) []Entry {
	found := map[[2]string]Usage{}
	for _, s := range k.symbols() {
		for m := range t.Modules {
			o := x.Object(t.Name(), m)
			if o == nil || !match(s.module, m) {
				continue
			}
			for e, u := range o.Entries {
				if match(s.entry, e) {
					found[[2]string{m, e}] = u
				}
			}
		}
	}
	var out []Entry
	for key, u := range found {
		out = append(out, Entry{key[0], key[1], u})
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Module+"\x00"+a.Name, b.Module+"\x00"+b.Name) })
	return out
}

// Code reads the compiled modules of a target. It is safe for concurrent use.
type Code struct {
	Target *Target
	Index  *Index

	fsys fs.FS

	mu     sync.Mutex
	hashes map[string]map[string]string // of what machine has read: MachineCode, by module
}

// OpenCode finds a target's code and makes sure that it was compiled from the sources that the tree has.
func OpenCode(fsys fs.FS, t *Target) (*Code, error) {
	carried, err := Carried(fsys)
	if err != nil {
		return nil, err
	}
	x := carried[t.Class.Name]
	switch {
	case x == nil:
		return nil, diag.Errorf(diag.Unsupported, "this build carries no compiled kernels of class %s: run kbuild %s and build again", t.Class.Name, t.Class.Name)
	case x.Arch != t.Class.Arch:
		return nil, diag.Errorf(diag.Unsupported, "the compiled kernels of class %s are for %s, the class is %s: run kbuild again", x.Class, x.Arch, t.Class.Arch)
	case t.Model != nil && x.Targets[t.Name()] == nil:
		return nil, diag.Errorf(diag.Unsupported, "this build carries no compiled kernels of %s: run kbuild %s without METRALE_TARGET_MODEL and METRALE_TARGET_QUANT", t.Name(), t.Class.Name)
	}
	c, from := &Code{Target: t, Index: x, fsys: fsys, hashes: map[string]map[string]string{}}, NewSources(fsys)
	for _, name := range t.Used() {
		o := x.Object(t.Name(), name)
		if o == nil {
			return nil, diag.Errorf(diag.Unsupported, "this build lacks the compiled module %s of %s: run kbuild %s again", name, t.Name(), x.Class)
		}
		hash, err := from.Closure(t.Modules[name], x.Compiler)
		if err != nil {
			return nil, err
		}
		if hash != o.Hash {
			return nil, diag.Errorf(diag.Unsupported, "module %s of %s was compiled from other sources: run kbuild %s again", name, t.Name(), x.Class)
		}
	}
	return c, nil
}

// Module is the native code of a module and its entry in the index.
func (c *Code) Module(name string) ([]byte, *Object, error) {
	o := c.Index.Object(c.Target.Name(), name)
	if o == nil {
		return nil, nil, diag.Errorf(diag.Internal, "%s has no module %s", c.Target.Name(), name)
	}
	code, err := readCode(c.fsys, c.Index.Class, o)
	return code, o, err
}

// machine is MachineCode of a module.
func (c *Code) machine(module string) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hashes[module] == nil {
		code, o, err := c.Module(module)
		if err == nil {
			c.hashes[module], err = MachineCode(code, slices.Sorted(maps.Keys(o.Entries)))
		}
		if err != nil {
			return nil, diag.Errorf(diag.Format, "module %s of %s: %w", module, c.Target.Name(), err)
		}
	}
	return c.hashes[module], nil
}

var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxCode))
})

// readCode expands a module and holds it against its sum.
func readCode(fsys fs.FS, class string, o *Object) ([]byte, error) {
	name := path.Join("bin", class, o.File)
	packed, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, diag.Errorf(diag.NotFound, "%s is missing: run kbuild %s again", name, class).Because(err)
	} else if err != nil {
		return nil, Unread(name, err)
	}
	d, err := decoder()
	if err != nil {
		return nil, diag.Errorf(diag.Internal, "zstd: %w", err)
	}
	code, err := d.DecodeAll(packed, make([]byte, 0, o.Bytes))
	if err == nil && CodeSum(code) != o.Sum {
		err = errors.New("its sum differs from the index")
	}
	if err != nil {
		return nil, diag.Errorf(diag.Format, "the compiled code is damaged: %w", err).At(diag.Pos{File: name})
	}
	return code, nil
}

// CodeSum is an Object's Sum.
func CodeSum(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:])
}

// Used are the modules that the target's kernels name, sorted.
func (t *Target) Used() []string {
	set := map[string]bool{}
	for _, k := range t.Kernels {
		for _, s := range k.symbols() {
			for m := range t.Modules {
				if match(s.module, m) {
					set[m] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Open makes Code an fs.FS of cubins: "<family>.<name>.cubin" is a module's native code.
func (c *Code) Open(name string) (fs.File, error) {
	data, err := c.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return &codeFile{*bytes.NewReader(data), codeInfo{name, int64(len(data))}}, nil
}

// ReadFile is Open and read.
func (c *Code) ReadFile(name string) ([]byte, error) {
	module, ok := strings.CutSuffix(name, ".cubin")
	module = strings.Replace(module, ".", "/", 1)
	if !ok || c.Index.Object(c.Target.Name(), module) == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	code, _, err := c.Module(module)
	return code, err
}

// codeFile is a module's code, expanded.
type codeFile struct {
	bytes.Reader
	info codeInfo
}

func (f *codeFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *codeFile) Close() error               { return nil }

type codeInfo struct {
	name string
	size int64
}

func (i codeInfo) Name() string       { return i.name }
func (i codeInfo) Size() int64        { return i.size }
func (i codeInfo) Mode() fs.FileMode  { return 0o444 }
func (i codeInfo) ModTime() time.Time { return time.Time{} }
func (i codeInfo) IsDir() bool        { return false }
func (i codeInfo) Sys() any           { return nil }
