// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// sourceExt is the ending of a vendor's sources.
var sourceExt = map[string]string{NVIDIA: ".cu", AMD: ".hip"}

// Layer is a folder of sources, <class>/common or a leaf <class>/<model>/<quant>, with its KERNEL.toml. A target compiles
// what its layers hold; of two sources of one module the nearer layer's is taken, whole, and must be declared.
type Layer struct {
	Dir     string
	Build   LayerBuild        `toml:"build"`
	Modules map[string]string `toml:"modules"` // module → the source that it is compiled from, where names differ
	Sources struct {
		Use []string `toml:"use"` // sources of other folders of the class or its ancestors, that this layer compiles too
	} `toml:"sources"`
	Shadow    map[string]Shadow           `toml:"shadow"`    // module → why this layer's source stands before a farther one's
	Constants map[string]map[string]int64 `toml:"constants"` // module → macros that it is compiled with
	Points    map[string]Points           `toml:"points"`    // modules that kbuild generates

	sources map[string]source // by module
	file    *File
}

// LayerBuild is what a layer adds to the compiler's flags.
type LayerBuild struct {
	Flags []string `toml:"flags"`
}

// Shadow says why a layer has a source of its own.
type Shadow struct {
	Reason      string `toml:"reason"`
	Measurement string `toml:"measurement"`
}

// Points are instantiations of a template: the header defines the macro INSTANTIATE(entry, template arguments…), which
// declares the entry.
type Points struct {
	Header  string              `toml:"header"`
	Entries map[string][]string `toml:"entries"` // symbol → template arguments
}

// source is a file, or the text that a layer's points stand for.
type source struct {
	path      string // of a generated source: <layer>/<module>.<ext>, which no file has
	generated string
	header    string // of points
}

var moduleName = regexp.MustCompile(`^[a-z0-9_]+/[a-z0-9_]+$`)

// readLayer reads a folder's KERNEL.toml, if it has one, and lists its sources.
func readLayer(fsys fs.FS, dir, vendor string) (*Layer, error) {
	l := &Layer{}
	if name := dir + "/KERNEL.toml"; exists(fsys, name) {
		var err error
		if l.file, err = ReadTOML(fsys, name, l); err != nil {
			return nil, err
		}
	} else {
		l.file = &File{Name: name} // for errors about what it lacks
	}
	l.Dir, l.sources = dir, map[string]source{}
	ext := sourceExt[vendor]
	if ext == "" {
		return l, nil
	}
	names, err := fs.Glob(fsys, dir+"/*/*"+ext)
	if err != nil {
		return nil, diag.Errorf(diag.IO, "kernel tree: %w", err)
	}
	for _, n := range names {
		l.sources[moduleOf(n)] = source{path: n}
	}
	for i, n := range l.Sources.Use {
		at := fmt.Sprintf("sources.use.%d", i)
		m := moduleOf(n)
		switch {
		case !fs.ValidPath(n) || path.Ext(n) != ext || !exists(fsys, n):
			return nil, l.file.Errorf(at, "%s is no %s source of the tree", n, ext)
		case l.sources[m].path != "":
			return nil, l.file.Errorf(at, "the layer has module %s already, from %s", m, l.sources[m].path)
		}
		l.sources[m] = source{path: n}
	}
	if err := l.generate(fsys, ext); err != nil {
		return nil, err
	}
	for _, m := range slices.Sorted(maps.Keys(l.Modules)) {
		from := l.Modules[m]
		s, ok := l.sources[from]
		switch _, taken := l.sources[m]; {
		case !moduleName.MatchString(m):
			return nil, l.file.Errorf("modules."+m, "module %q; it is <family>/<name>", m)
		case !ok:
			return nil, l.file.Errorf("modules."+m, "module %s: the layer has no source %s", m, from)
		case taken:
			return nil, l.file.Errorf("modules."+m, "module %s: the layer has a source of that name", m)
		}
		delete(l.sources, from)
		l.sources[m] = s
	}
	return l, l.checkTables()
}

// moduleOf is the module of a source by its place: …/<family>/<name>.<ext>.
func moduleOf(name string) string {
	return path.Base(path.Dir(name)) + "/" + strings.TrimSuffix(path.Base(name), path.Ext(name))
}

// generate makes the sources that [points] stand for.
func (l *Layer) generate(fsys fs.FS, ext string) error {
	for _, m := range slices.Sorted(maps.Keys(l.Points)) {
		p, at := l.Points[m], "points."+m
		header := ""
		for _, dir := range []string{l.Dir, "include", "."} {
			if c := path.Join(dir, p.Header); p.Header != "" && fs.ValidPath(c) && exists(fsys, c) {
				header = c
				break
			}
		}
		switch {
		case !moduleName.MatchString(m):
			return l.file.Errorf(at, "module %q; it is <family>/<name>", m)
		case l.sources[m].path != "":
			return l.file.Errorf(at, "the layer has module %s already, from %s", m, l.sources[m].path)
		case header == "":
			return l.file.Errorf(at+".header", "header %q is neither in %s nor in include/ nor in the tree", p.Header, l.Dir)
		case len(p.Entries) == 0:
			return l.file.Errorf(at, "module %s has no entries", m)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "// Generated from %s; do not edit.\n#include %q\n", l.file.Name, header)
		for _, e := range slices.Sorted(maps.Keys(p.Entries)) {
			if !isName(e) {
				return l.file.Errorf(at+".entries", "entry %q is no symbol", e)
			}
			fmt.Fprintf(&b, "INSTANTIATE(%s)\n", strings.Join(append([]string{e}, p.Entries[e]...), ", "))
		}
		l.sources[m] = source{path.Join(l.Dir, m+ext), b.String(), header}
	}
	return nil
}

// checkTables refuses tables about modules that the layer cannot speak of.
func (l *Layer) checkTables() error {
	for _, m := range slices.Sorted(maps.Keys(l.Shadow)) {
		s := l.Shadow[m]
		switch _, ok := l.sources[m]; {
		case !ok:
			return l.file.Errorf("shadow."+m, "the layer has no source of module %s", m)
		case strings.TrimSpace(s.Reason) == "" || strings.TrimSpace(s.Measurement) == "":
			return l.file.Errorf("shadow."+m, "a shadow states its reason and the measurement that shows it")
		}
	}
	for _, m := range slices.Sorted(maps.Keys(l.Constants)) {
		for _, name := range slices.Sorted(maps.Keys(l.Constants[m])) {
			if !isName(name) {
				return l.file.Errorf("constants."+m, "constant %q is no name", name)
			}
		}
	}
	return nil
}

// Module is a translation unit as a target compiles it.
type Module struct {
	Name      string   // <family>/<name>, as a manifest's launch has it
	Source    string   // in the tree
	Generated string   // the text of a source that no file has
	Arch      string   // that it is compiled for
	Flags     []string // of the class, its layers from the farthest on, then the module's constants
	Layer     string   // folder whose source was taken

	header  string // of points
	shadows string // the source that it stands before, if any; other points of one header are none
}

// stack puts layers over each other, nearest first, and gives the modules that result, by name.
func stack(c *Class, layers []*Layer) (map[string]*Module, error) {
	out := map[string]*Module{}
	flags := slices.Clone(c.Build.Flags)
	for _, l := range slices.Backward(layers) {
		flags = append(flags, l.Build.Flags...)
	}
	for _, l := range layers {
		for name, s := range l.sources {
			m := out[name]
			if m == nil {
				out[name] = &Module{Name: name, Source: s.path, Generated: s.generated, Arch: c.Arch, Flags: flags, Layer: l.Dir, header: s.header}
				continue
			}
			if points := m.header != "" && m.header == s.header; m.shadows == "" && !points {
				m.shadows = s.path
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		m := out[name]
		i := slices.IndexFunc(layers, func(l *Layer) bool { return l.Dir == m.Layer })
		if _, declared := layers[i].Shadow[name]; m.shadows != "" && !declared {
			return nil, diag.Errorf(diag.Format, "it hides %s, which %s does not declare: state reason and measurement under [shadow.%q], or share that source",
				m.shadows, layers[i].file.Name, name).At(diag.Pos{File: m.Source})
		}
		m.Flags = append(slices.Clone(flags), defines(layers, name)...)
	}
	for _, l := range layers {
		for _, name := range slices.Sorted(maps.Keys(l.Constants)) {
			if out[name] == nil {
				return nil, l.file.Errorf("constants."+name, "class %s has no module %s", c.Name, name)
			}
			for _, k := range sortedKernels(c.declared) {
				for _, v := range slices.Sorted(maps.Keys(l.Constants[name])) {
					if slices.ContainsFunc(k.Launches(), func(l *Launch) bool { return l.Module == name }) && k.hasName(v) {
						return nil, l.file.Errorf("constants."+name+"."+v, "constant %s of module %s: kernel %s has an argument, attribute or axis of that name", v, name, k.Name)
					}
				}
			}
		}
	}
	return out, nil
}

// constants are a module's, the nearest layer's first to say.
func constants(layers []*Layer, module string) map[string]int64 {
	all := map[string]int64{}
	for _, l := range slices.Backward(layers) {
		maps.Copy(all, l.Constants[module])
	}
	return all
}

// constantsOf are those of all modules of the kernel, an earlier launch's first to say.
func (k *Kernel) constantsOf(layers []*Layer) map[string]int64 {
	all := map[string]int64{}
	for _, l := range slices.Backward(k.Launches()) {
		maps.Copy(all, constants(layers, l.Module))
	}
	return all
}

// hasName says whether a launch expression of the kernel means something else by that name.
func (k *Kernel) hasName(name string) bool {
	return k.Arg(name) != nil || k.Attr(name) != nil || slices.Contains(LaunchNames, name) ||
		slices.ContainsFunc(k.Args, func(a Arg) bool { return slices.Contains(a.Shape, name) })
}

var identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// withConstants is the kernel with constants replaced by their values in all expressions of its launches.
func (k *Kernel) withConstants(values map[string]int64) *Kernel {
	if len(values) == 0 {
		return k
	}
	put := func(expr string) string {
		return identifier.ReplaceAllStringFunc(expr, func(name string) string {
			if v, ok := values[name]; ok {
				return strconv.FormatInt(v, 10)
			}
			return name
		})
	}
	all := func(list []string) []string {
		out := make([]string, len(list))
		for i, x := range list {
			out[i] = put(x)
		}
		return out
	}
	one := func(from *Launch) *Launch {
		l := *from
		l.Grid, l.Block, l.Shared, l.Params = all(l.Grid), put(l.Block), put(l.Shared), slices.Clone(l.Params)
		for i, p := range l.Params {
			parts := strings.Split(p, ":")
			if parts[0] == "tmap" && len(parts) == 4 { // tmap:argument[view]:box:swizzle
				if arg, view, seen := strings.Cut(parts[1], "["); seen {
					parts[1] = arg + "[" + put(view)
				}
				parts[2] = strings.Join(all(strings.Split(parts[2], "x")), "x")
				l.Params[i] = strings.Join(parts, ":")
			} else {
				l.Params[i] = put(p)
			}
		}
		return &l
	}
	c := *k
	c.Launch, c.Then, c.Where = one(k.Launch), make([]*Launch, len(k.Then)), all(k.Where)
	for i, l := range k.Then {
		c.Then[i] = one(l)
	}
	c.Args = slices.Clone(k.Args)
	for i := range c.Args {
		if a := &c.Args[i]; a.Kind == ScratchArg {
			a.Shape = all(a.Shape)
		}
	}
	return &c
}

// defines are a module's constants as flags.
func defines(layers []*Layer, module string) (flags []string) {
	all := constants(layers, module)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		flags = append(flags, fmt.Sprintf("-D%s=%d", name, all[name]))
	}
	return flags
}
