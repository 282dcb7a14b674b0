// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// index describes what a class's jobs made. A module's file is named after it and its code, a leaf's below the leaf's folder: other code has
// another file, so that the index of an earlier build holds until the new one is there.
func (cb *classBuild) index() *kernel.Index {
	x := &kernel.Index{Class: cb.class.Name, Arch: cb.class.Arch, Compiler: cb.compiler, Modules: objects(cb.modules, ""), Targets: map[string]map[string]*kernel.Object{}}
	for name, leaf := range cb.leaves {
		x.Targets[name] = objects(leaf, strings.TrimPrefix(name, cb.class.Name+"/")+"/")
	}
	return x
}

func objects(jobs map[string]*job, dir string) map[string]*kernel.Object {
	out := map[string]*kernel.Object{}
	for name, j := range jobs {
		o := j.object
		o.File = dir + strings.ReplaceAll(name, "/", ".") + "." + o.Sum[:12] + ".zst"
		out[name] = &o
	}
	return out
}

// write makes dir hold the class's code, its index and nothing else.
func (cb *classBuild) write(dir string, x *kernel.Index) error {
	keep := map[string]bool{"index.json": true}
	put := func(objects map[string]*kernel.Object, jobs map[string]*job) error {
		for name, o := range objects {
			keep[o.File] = true
			packed, err := pack(jobs[name].code)
			if err != nil {
				return err
			}
			if err := writeAtomic(filepath.Join(dir, filepath.FromSlash(o.File)), packed); err != nil {
				return err
			}
		}
		return nil
	}
	if err := put(x.Modules, cb.modules); err != nil {
		return err
	}
	for name, leaf := range cb.leaves {
		if err := put(x.Targets[name], leaf); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return diag.Errorf(diag.Internal, "index: %w", err)
	}
	if err := writeAtomic(filepath.Join(dir, "index.json"), append(data, '\n')); err != nil {
		return err
	}
	return sweep(dir, keep)
}

// sweep removes files of earlier builds, and folders that this leaves empty.
func sweep(dir string, keep map[string]bool) error {
	var folders []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		if d.IsDir() {
			folders = append(folders, name)
			return nil
		}
		rel, err := filepath.Rel(dir, name)
		if err == nil && !keep[filepath.ToSlash(rel)] {
			err = os.Remove(name)
		}
		return err
	})
	for i := len(folders) - 1; i >= 0; i-- {
		_ = os.Remove(folders[i]) // refuses one that holds something
	}
	if err != nil {
		return diag.Errorf(diag.IO, "%w", err)
	}
	return nil
}

// pack compresses code; the same code gives the same bytes.
func pack(code []byte) ([]byte, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, diag.Errorf(diag.Internal, "zstd: %w", err)
	}
	defer e.Close()
	return e.EncodeAll(code, nil), nil
}

// writeAtomic replaces a file by rename, so that no reader ever sees part of it. Equal content is left alone, which keeps
// the stamps that go build looks at.
func writeAtomic(name string, data []byte) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(data) {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(filepath.Dir(name), ".write-")
	}
	if err != nil {
		return diag.Errorf(diag.IO, "%w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return diag.Errorf(diag.IO, "%w", err)
	}
	return nil
}

// cache is a folder of compiled modules by closure hash; "" is none. What was not used for maxAge is dropped.
type cache string

const maxAge = 30 * 24 * time.Hour

// get fills an object and its code by the object's hash.
func (c cache) get(o *kernel.Object, code *[]byte) bool {
	if c == "" {
		return false
	}
	base := filepath.Join(string(c), o.Hash)
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return false
	}
	var have kernel.Object
	data, err := os.ReadFile(base + ".code")
	if err != nil || json.Unmarshal(text, &have) != nil || have.Hash != o.Hash || have.Sum != kernel.CodeSum(data) {
		return false
	}
	now := time.Now()
	for _, ext := range []string{".json", ".code"} {
		_ = os.Chtimes(base+ext, now, now) // only keeps it from being dropped
	}
	o.Bytes, o.Sum, o.Entries, *code = have.Bytes, have.Sum, have.Entries, data
	return true
}

// put keeps an object; its description comes last.
func (c cache) put(o *kernel.Object, code []byte) error {
	if c == "" {
		return nil
	}
	base := filepath.Join(string(c), o.Hash)
	if err := writeAtomic(base+".code", code); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return diag.Errorf(diag.Internal, "cache: %w", err)
	}
	return writeAtomic(base+".json", text)
}

// cached are the names of files that a cache makes; the folder is the user's, who may keep others there.
var cached = regexp.MustCompile(`^([0-9a-f]{64}\.(json|code)|\.write-[0-9]+)$`)

// trim drops what was not used for long.
func (c cache) trim() error {
	if c == "" {
		return nil
	}
	entries, err := os.ReadDir(string(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && cached.MatchString(e.Name()) && time.Since(info.ModTime()) > maxAge {
			_ = os.Remove(filepath.Join(string(c), e.Name())) // another build may have been quicker
		}
	}
	if err != nil {
		return diag.Errorf(diag.IO, "%w", err)
	}
	return nil
}
