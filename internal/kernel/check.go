// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Check holds a tree that was read from fsys against the rules that no single manifest can break:
//
//   - every source lies where a layer reads it, and is no copy of another;
//   - every module is named by a kernel's launch, and every launch names a module;
//   - FORKS.md lists the shadows, all and only those;
//   - compiled code, where the tree has any, is of these sources and keeps what the manifests say of it.
//
// It gives everything that is wrong.
func (t *Tree) Check(fsys fs.FS) []error {
	bad := t.CheckSources(fsys)
	carried, err := Carried(fsys)
	if err != nil {
		return append(bad, err)
	}
	from := NewSources(fsys)
	for _, class := range slices.Sorted(maps.Keys(carried)) {
		bad = append(bad, t.checkCarried(from, carried[class])...)
	}
	return bad
}

// CheckSources is Check but for compiled code: what must hold before anything is compiled.
func (t *Tree) CheckSources(fsys fs.FS) []error {
	return slices.Concat(t.checkFiles(fsys), t.checkModules(), t.checkForks(fsys))
}

// deviceFile says whether a file is device code.
func deviceFile(name string) bool {
	return slices.Contains([]string{".cu", ".hip", ".cuh", ".h"}, path.Ext(name))
}

// checkFiles looks for sources that nothing compiles and for copies.
func (t *Tree) checkFiles(fsys fs.FS) (bad []error) {
	layerOf := map[string]*Layer{} // by source
	for _, tg := range t.everyStack() {
		for _, l := range tg.layers {
			for _, s := range l.sources {
				if s.generated == "" && path.Dir(path.Dir(s.path)) == l.Dir {
					layerOf[s.path] = l
				}
			}
		}
	}
	first := map[[sha256.Size]byte]string{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !deviceFile(name) {
			return err
		}
		if ext := path.Ext(name); (ext == ".cu" || ext == ".hip") && layerOf[name] == nil {
			bad = append(bad, diag.Errorf(diag.Format, "no layer compiles it: sources lie in <class>/common/<family>/ or <class>/<model>/<quant>/<family>/, and end as the class's vendor has it").At(diag.Pos{File: name}))
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(src)
		other, seen := first[sum]
		first[sum] = name
		if !seen {
			return nil
		}
		a, b := layerOf[name], layerOf[other]
		if a != nil && b != nil && moduleOf(name) == moduleOf(other) && t.hides(a, b) {
			bad = append(bad, diag.Errorf(diag.Format, "it is byte-identical to %s, which one of the two hides: delete the nearer one", other).At(diag.Pos{File: name}))
		} else {
			bad = append(bad, diag.Errorf(diag.Format, "it is a copy of %s: keep one, and bring it in with [sources] use or a header", other).At(diag.Pos{File: name}))
		}
		return nil
	})
	if err != nil {
		bad = append(bad, diag.Errorf(diag.IO, "kernel tree: %w", err))
	}
	return bad
}

// everyStack are the targets and, so that their layers are seen too, the abstract classes.
func (t *Tree) everyStack() []*Target {
	var out []*Target
	for _, name := range slices.Sorted(maps.Keys(t.Targets)) {
		out = append(out, t.Targets[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		if c := t.Classes[name]; c.Abstract {
			out = append(out, &Target{Class: c, layers: c.layers})
		}
	}
	return out
}

// hides says whether some target has both layers.
func (t *Tree) hides(a, b *Layer) bool {
	return slices.ContainsFunc(t.everyStack(), func(tg *Target) bool { return slices.Contains(tg.layers, a) && slices.Contains(tg.layers, b) })
}

// checkModules looks for modules that no kernel names and for kernels without their module.
func (t *Tree) checkModules() (bad []error) {
	named := map[string]bool{} // by source
	for _, name := range slices.Sorted(maps.Keys(t.Targets)) {
		tg := t.Targets[name]
		for _, m := range tg.Used() {
			named[tg.Modules[m].Source] = true
		}
		if tg.Model != nil {
			continue
		}
		modules := slices.Collect(maps.Keys(tg.Modules))
		for _, k := range sortedKernels(tg.Kernels) {
			for _, s := range k.symbols() {
				if !slices.ContainsFunc(modules, func(m string) bool { return match(s.module, m) }) {
					bad = append(bad, k.file.Errorf(s.at+".module", "kernel %s: class %s has no module %s", k.Name, tg.Class.Name, s.module))
				}
			}
		}
	}
	reported := map[string]bool{}
	for _, tg := range t.everyStack() {
		for _, l := range tg.layers {
			for _, m := range slices.Sorted(maps.Keys(l.sources)) {
				if s := l.sources[m].path; !named[s] && !reported[s] && !t.hidden(l, m) {
					reported[s] = true
					bad = append(bad, diag.Errorf(diag.Format, "no kernel of any class names module %s", m).At(diag.Pos{File: s}))
				}
			}
		}
	}
	return bad
}

// hidden says whether a nearer layer's source stands before the layer's in every target that has it.
func (t *Tree) hidden(l *Layer, module string) bool {
	for _, tg := range t.Targets {
		if m := tg.Modules[module]; slices.Contains(tg.layers, l) && m != nil && m.Layer == l.Dir {
			return false
		}
	}
	return len(t.Targets) > 0
}

func sortedKernels(all map[string]*Kernel) []*Kernel {
	out := make([]*Kernel, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// checkForks compares the rows of FORKS.md, | layer | module | reason | measurement |, with the shadows. The layer of
// <class>/common is written as the class.
func (t *Tree) checkForks(fsys fs.FS) (bad []error) {
	declared := map[[2]string]diag.Pos{}
	for _, tg := range t.everyStack() {
		for _, l := range tg.layers {
			for m := range l.Shadow {
				declared[[2]string{strings.TrimSuffix(l.Dir, "/common"), m}] = l.file.At("shadow." + m)
			}
		}
	}
	const name = "FORKS.md"
	src, err := fs.ReadFile(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(declared) == 0:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return []error{diag.Errorf(diag.NotFound, "%s is missing; it lists every shadow", name)}
	case err != nil:
		return []error{Unread(name, err)}
	}
	listed := map[[2]string]bool{}
	for i, line := range strings.Split(string(src), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !moduleName.MatchString(strings.TrimSpace(cells[2])) {
			continue
		}
		key := [2]string{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])}
		listed[key] = true
		if _, ok := declared[key]; !ok {
			bad = append(bad, diag.Errorf(diag.Format, "%s declares no shadow of module %s", key[0], key[1]).At(diag.Pos{File: name, Line: i + 1}))
		}
	}
	for key, pos := range declared {
		if !listed[key] {
			bad = append(bad, diag.Errorf(diag.Format, "the shadow of %s by %s is no row of %s", key[1], key[0], name).At(pos))
		}
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return bad
}

// checkCarried holds compiled code against the tree: sources, sums, entries and ceilings.
func (t *Tree) checkCarried(from *Sources, x *Index) (bad []error) {
	at := diag.Pos{File: path.Join("bin", x.Class, "index.json")}
	common := t.Targets[x.Class]
	if common == nil {
		return []error{diag.Errorf(diag.Format, "class %s is no target of the tree", x.Class).At(at)}
	}
	if x.Arch != common.Class.Arch {
		return []error{diag.Errorf(diag.Format, "compiled for %s; the class is %s", x.Arch, common.Class.Arch).At(at)}
	}
	told := map[[2]string]bool{} // modules and closures, most of which a leaf shares with its class
	for _, name := range append([]string{x.Class}, slices.Sorted(maps.Keys(x.Targets))...) {
		tg := t.Targets[name]
		if tg == nil {
			bad = append(bad, diag.Errorf(diag.Format, "%s is no target of the tree", name).At(at))
			continue
		}
		objects := x.Modules
		if tg.Model != nil {
			objects = x.Targets[name]
		}
		for _, m := range slices.Sorted(maps.Keys(objects)) {
			if _, err := readCode(from.fsys, x.Class, objects[m]); err != nil {
				bad = append(bad, err)
			}
		}
		for _, m := range tg.Used() {
			hash, err := from.Closure(tg.Modules[m], x.Compiler)
			if err != nil {
				bad = append(bad, err)
				continue
			}
			o, key := x.Object(name, m), [2]string{m, hash}
			switch {
			case told[key] && o == x.Modules[m]:
			case o == nil:
				bad = append(bad, diag.Errorf(diag.Format, "%s: module %s is not compiled", name, m).At(at))
			case hash != o.Hash:
				bad = append(bad, diag.Errorf(diag.Format, "%s: module %s was compiled from other sources; run kbuild %s", name, m, x.Class).At(at))
			}
			told[key] = true
		}
	}
	if len(bad) > 0 {
		return bad // what other sources were compiled to says nothing of these manifests
	}
	return t.CheckIndex(x)
}

// CheckIndex holds what a compiler said of a class's entries against the manifests: a launch names entries that are there,
// each entry is named by a launch of some class, none exceeds its ceilings, and no launch needs more shared memory than a block has.
func (t *Tree) CheckIndex(x *Index) (bad []error) {
	named, said := t.entries(), map[string]bool{}
	report := func(err error) {
		if !said[err.Error()] {
			said[err.Error()] = true
			bad = append(bad, err)
		}
	}
	for _, name := range append([]string{x.Class}, slices.Sorted(maps.Keys(x.Targets))...) {
		tg := t.Targets[name]
		if tg == nil {
			continue
		}
		for _, k := range sortedKernels(tg.Kernels) {
			for _, s := range k.symbols() {
				for _, m := range slices.Sorted(maps.Keys(tg.Modules)) {
					if o := x.Object(name, m); o != nil && match(s.module, m) {
						tg.checkEntry(s, m, o, report)
					}
				}
			}
		}
		tg.checkShared(x, report)
		objects := x.Modules
		if tg.Model != nil {
			objects = x.Targets[name]
		}
		for _, m := range slices.Sorted(maps.Keys(objects)) {
			for _, e := range slices.Sorted(maps.Keys(objects[m].Entries)) {
				if !slices.ContainsFunc(named[objects[m].Source], func(pattern string) bool { return match(pattern, e) }) {
					report(diag.Errorf(diag.Format, "no kernel of any class names entry %s of module %s", e, m).At(diag.Pos{File: objects[m].Source}))
				}
			}
		}
	}
	return bad
}

// checkEntry looks for a symbol in a compiled module, and at what its entries use.
func (t *Target) checkEntry(s symbol, module string, o *Object, report func(error)) {
	k, found := s.kernel, false
	fail := func(key, format string, args ...any) {
		report(k.file.Errorf(s.at+"."+key, "kernel %s on class %s: "+format, append([]any{k.Name, t.Class.Name}, args...)...))
	}
	for _, e := range slices.Sorted(maps.Keys(o.Entries)) {
		if !match(s.entry, e) {
			continue
		}
		found = true
		u, l := o.Entries[e], s.launch
		spill := t.Class.Build.SpillBytes
		if l.SpillBytes != nil {
			spill = *l.SpillBytes
		}
		if u.SpillBytes > spill {
			fail("spill_bytes", "entry %s spills %d bytes; its ceiling is %d", e, u.SpillBytes, spill)
		}
		if l.Registers > 0 && u.Registers > l.Registers {
			fail("registers", "entry %s uses %d registers; its ceiling is %d", e, u.Registers, l.Registers)
		}
		if most := cmp.Or(l.StaticShared, t.Class.Build.StaticShared); most != nil && u.StaticShared > *most {
			fail("static_shared", "entry %s has %d bytes of static shared memory; its ceiling is %d", e, u.StaticShared, *most)
		}
	}
	if !found {
		fail("entry", "module %s has no entry %s; it has %s", module, s.entry, strings.Join(slices.Sorted(maps.Keys(o.Entries)), ", "))
	}
}

// entries are what the kernels of all targets name, by source.
func (t *Tree) entries() map[string][]string {
	out := map[string][]string{}
	for _, tg := range t.Targets {
		for _, k := range tg.Kernels {
			for _, s := range k.symbols() {
				for name, m := range tg.Modules {
					if match(s.module, name) && !slices.Contains(out[m.Source], s.entry) {
						out[m.Source] = append(out[m.Source], s.entry)
					}
				}
			}
		}
	}
	return out
}
