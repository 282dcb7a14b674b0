// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// Options say what to build.
type Options struct {
	Root             string            // the kernel tree
	HW, Model, Quant string            // patterns as of path.Match; "" is "*"
	Compilers        map[string]string // by vendor; "" or none: the one on PATH
	Parallel         int               // compilers at a time; at least 1
	Cache            string            // folder of compiled modules; "" for none
	Log              io.Writer         // progress; may be nil
}

// Build compiles the classes that match, and of their leaves those that match, and writes Root/bin. It gives the indexes by
// class.
func Build(ctx context.Context, o Options) (map[string]*kernel.Index, error) {
	fsys := os.DirFS(o.Root)
	tree, err := kernel.Load(fsys)
	if err != nil {
		return nil, err
	}
	if bad := tree.CheckSources(fsys); len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	classes, err := o.classes(tree)
	if err != nil {
		return nil, err
	}
	if err := o.anyLeaf(tree); err != nil {
		return nil, err
	}
	b := &builder{o: o, tree: tree, from: kernel.NewSources(fsys), jobs: map[string]*job{}}
	var builds []*classBuild
	for _, c := range classes {
		cb, err := b.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		builds = append(builds, cb)
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	out := map[string]*kernel.Index{}
	for _, cb := range builds {
		out[cb.class.Name] = cb.index()
		if bad := tree.CheckIndex(out[cb.class.Name]); len(bad) > 0 {
			return nil, errors.Join(bad...)
		}
	}
	for _, cb := range builds {
		if err := cb.write(filepath.Join(o.Root, "bin", cb.class.Name), out[cb.class.Name]); err != nil {
			return nil, err
		}
		b.log("%s: %d modules for %s, %d leaves", cb.class.Name, len(out[cb.class.Name].Modules), cb.class.Arch, len(cb.leaves))
	}
	return out, b.cache().trim()
}

// Check holds the tree, and what is compiled of it, against its rules. Compiled kernels that no device has run as they are go to log, or are
// errors if all must have been seen. It runs no compiler.
func Check(root string, allSeen bool, log io.Writer) []error {
	fsys := os.DirFS(root)
	tree, err := kernel.Load(fsys)
	if err != nil {
		return []error{err}
	}
	bad := tree.Check(fsys)
	unseen, unknown, err := tree.Unseen(fsys)
	if err != nil {
		return append(bad, err)
	}
	tell := func(err error) {
		if allSeen {
			bad = append(bad, err)
		} else {
			fmt.Fprintln(log, err)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(unknown)) {
		tell(diag.Errorf(diag.Unsupported, "%s: which kernels have run on a device is known of compiled ones alone: %w", class, unknown[class]))
	}
	for _, class := range slices.Sorted(maps.Keys(unseen)) {
		list := unseen[class]
		what := "kernel has run on no device in its form"
		if len(list) > 1 {
			what = "kernels have run on no device in their form"
		}
		tell(diag.Errorf(diag.Unsupported, "%s: %d %s: %s", class, len(list), what, strings.Join(list, ", ")))
	}
	return bad
}

// classes are those that match and have sources to compile.
func (o *Options) classes(tree *kernel.Tree) ([]*kernel.Class, error) {
	var out []*kernel.Class
	for _, name := range slices.Sorted(maps.Keys(tree.Classes)) {
		c := tree.Classes[name]
		ok, err := matches(o.HW, name)
		if err != nil {
			return nil, err
		}
		switch {
		case !ok:
		case c.Vendor == kernel.AnyVendor || c.Abstract:
			if name == o.HW {
				return nil, diag.Errorf(diag.Invalid, "class %s has nothing to compile: it is abstract, or its kernels are Go", name)
			}
		default:
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, diag.Errorf(diag.NotFound, "no hardware class matches %q; there are %s", o.HW, strings.Join(slices.Sorted(maps.Keys(tree.Classes)), ", "))
	}
	return out, nil
}

// anyLeaf refuses patterns that select no leaf of any class, as a misspelt one does.
func (o *Options) anyLeaf(tree *kernel.Tree) error {
	if o.Model == "" && o.Quant == "" {
		return nil
	}
	var leaves []string
	for _, name := range slices.Sorted(maps.Keys(tree.Targets)) {
		t := tree.Targets[name]
		if t.Model == nil {
			continue
		}
		if ok, err := o.leaf(t); ok || err != nil {
			return err
		}
		leaves = append(leaves, t.Model.Name+"/"+t.Quant)
	}
	return diag.Errorf(diag.NotFound, "no leaf matches model %q and quantisation %q; there are %s", cmp.Or(o.Model, "*"), cmp.Or(o.Quant, "*"), strings.Join(leaves, ", "))
}

// leaf says whether a leaf is selected.
func (o *Options) leaf(t *kernel.Target) (bool, error) {
	model, err := matches(o.Model, t.Model.Name)
	if err != nil {
		return false, err
	}
	quant, err := matches(o.Quant, t.Quant)
	return model && quant, err
}

func matches(pattern, name string) (bool, error) {
	if pattern == "" {
		return true, nil
	}
	ok, err := path.Match(pattern, name)
	if err != nil {
		return false, diag.Errorf(diag.Invalid, "pattern %q: %w", pattern, err)
	}
	return ok, nil
}

// builder compiles modules, each closure once.
type builder struct {
	o    Options
	tree *kernel.Tree
	from *kernel.Sources
	jobs map[string]*job // by class and hash
	mu   sync.Mutex      // of the log
}

// job is a module to be compiled.
type job struct {
	class   string
	module  *kernel.Module
	program string
	tool    *toolchain
	object  kernel.Object
	code    []byte
}

// classBuild is a class with its modules and leaves.
type classBuild struct {
	class    *kernel.Class
	compiler string
	modules  map[string]*job
	leaves   map[string]map[string]*job // what differs from the class
}

// plan lists what a class and its matching leaves need.
func (b *builder) plan(ctx context.Context, c *kernel.Class) (*classBuild, error) {
	tool := toolchains[c.Vendor]
	program, version, err := tool.find(ctx, b.o.Compilers[c.Vendor])
	if err != nil {
		return nil, err
	}
	cb := &classBuild{class: c, compiler: version, leaves: map[string]map[string]*job{}}
	jobs := func(t *kernel.Target) (map[string]*job, error) {
		out := map[string]*job{}
		for _, name := range t.Used() {
			m := t.Modules[name]
			hash, err := b.from.Closure(m, version)
			if err != nil {
				return nil, err
			}
			key := c.Name + " " + hash
			if b.jobs[key] == nil {
				b.jobs[key] = &job{class: c.Name, module: m, program: program, tool: tool, object: kernel.Object{Source: m.Source, Hash: hash}}
			}
			out[name] = b.jobs[key]
		}
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(b.tree.Targets)) {
		t := b.tree.Targets[name]
		if t.Class != c {
			continue
		}
		if t.Model == nil {
			if cb.modules, err = jobs(t); err != nil {
				return nil, err
			}
			continue
		}
		if ok, err := b.o.leaf(t); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		own, err := jobs(t)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(own, func(name string, j *job) bool { return cb.modules[name] == j })
		cb.leaves[name] = own
	}
	return cb, nil
}

// run compiles all jobs; its error tells of each that failed, by class and module.
func (b *builder) run(ctx context.Context) error {
	keys := slices.Sorted(maps.Keys(b.jobs))
	slices.SortStableFunc(keys, func(x, y string) int {
		return strings.Compare(b.jobs[x].class+" "+b.jobs[x].module.Name, b.jobs[y].class+" "+b.jobs[y].module.Name)
	})
	errs := make([]error, len(keys))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(keys), max(b.o.Parallel, 1)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = b.compile(ctx, b.jobs[keys[i]])
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return diag.Errorf(diag.Canceled, "interrupted").Because(ctx.Err())
	}
	return errors.Join(errs...)
}

// compile fills a job, from the cache if it is there.
func (b *builder) compile(ctx context.Context, j *job) error {
	if b.cache().get(&j.object, &j.code) {
		return nil
	}
	tmp, err := os.MkdirTemp("", "kbuild-")
	if err != nil {
		return diag.Errorf(diag.IO, "a folder to compile in: %w", err)
	}
	defer os.RemoveAll(tmp)
	m, source := j.module, j.module.Source
	if m.Generated != "" {
		source = filepath.Join(tmp, path.Base(m.Source))
		if err := os.WriteFile(source, []byte(m.Generated), 0o600); err != nil {
			return diag.Errorf(diag.IO, "%w", err)
		}
	}
	out := filepath.Join(tmp, "code")
	cmd := bounded(ctx, j.program, append(j.tool.command(m), "-o", out, source)...)
	cmd.Dir = b.o.Root
	var report bytes.Buffer
	cmd.Stdout, cmd.Stderr = &report, &report
	if err := cmd.Run(); err != nil {
		return diag.Errorf(diag.Format, "%s does not compile for %s:\n%s", m.Source, m.Arch, strings.TrimSpace(report.String())).Because(err)
	}
	if j.code, err = os.ReadFile(out); err != nil {
		return diag.Errorf(diag.IO, "%s wrote no code for %s", j.tool.name, m.Source).Because(err)
	}
	o := &j.object
	o.Bytes, o.Sum, o.Entries = len(j.code), kernel.CodeSum(j.code), j.tool.report(report.String())
	b.log("%s %s: %d entries, %d bytes", j.class, m.Name, len(o.Entries), o.Bytes)
	return b.cache().put(o, j.code)
}

func (b *builder) cache() cache { return cache(b.o.Cache) }

func (b *builder) log(format string, args ...any) {
	if b.o.Log == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.o.Log, format+"\n", args...)
}
