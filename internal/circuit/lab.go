// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Lab measures the library as a blueprint of architectures: how many models it covers, how many of them are points of a
// circuit that was there, what one more costs in lines of TOML, what is written twice, and which ops carry what.
//
// Lines are those that say something: neither blank nor comments. fsys is the kernel tree; survey is of its published configs.
func Lab(lib *Library, fsys fs.FS, survey Survey) (string, error) {
	l := &lab{lib: lib, lines: map[string][]string{}}
	for _, dir := range []string{"circuits", "circuits/parts", "circuits/blocks", "circuits/keys"} {
		for _, file := range glob(fsys, dir+"/*.toml") {
			src, err := fs.ReadFile(fsys, file)
			if err != nil {
				return "", err
			}
			if base := path.Base(file); base != "INSTANCES.toml" && base != "REFUSED.toml" {
				l.lines[file] = sayingLines(string(src))
			}
		}
	}
	var b strings.Builder
	l.coverage(&b, survey)
	l.points(&b)
	l.duplicates(&b)
	if err := l.ops(&b, fsys); err != nil {
		return "", err
	}
	return b.String(), nil
}

// lab is the library with its texts.
type lab struct {
	lib   *Library
	lines map[string][]string // of each file
}

// sayingLines drops blank lines and comments.
func sayingLines(src string) (out []string) {
	for line := range strings.Lines(src) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func (l *lab) coverage(b *strings.Builder, survey Survey) {
	known, types, refused := 0, map[string]bool{}, map[string]bool{}
	var configs []string
	for i := range survey {
		s := &survey[i]
		types[s.ModelType] = true
		switch {
		case s.Circuit != "":
			known++
		case l.lib.Variants[s.ModelType] == nil:
			refused[s.ModelType] = true
		default:
			configs = append(configs, fmt.Sprintf("%s: %s", s.Name, s.Refused))
		}
	}
	lacks := survey.lacks()
	b.WriteString("coverage\n")
	columns(b, [][]string{
		{"  published configs that run", partOf(survey.Runs(), len(survey))},
		{"  published configs with a circuit", partOf(known, len(survey))},
		{"  model_types of theirs with a circuit", partOf(len(types)-len(refused), len(types))},
		{"  residual: model_types refused", fmt.Sprintf("%d: %s", len(refused), orNone(slices.Sorted(maps.Keys(refused))))},
		{"  residual: configs of others refused", fmt.Sprint(len(configs))},
		{"  residual: generators missing", fmt.Sprint(len(lacks))},
	})
	for _, c := range configs {
		fmt.Fprintf(b, "    %s\n", c)
	}
	for _, x := range lacks {
		fmt.Fprintf(b, "    %s\n", x)
	}
}

// cost is what a circuit takes in lines.
type cost struct {
	circuit, parts, blocks, common int            // its file, its parts, blocks that no other circuit places, its maps but for variants
	variants                       map[string]int // of each model_type
}

func (c *cost) all() int { return c.circuit + c.parts + c.blocks + c.common + sum(c.variants) }

func (l *lab) points(b *strings.Builder) {
	costs := map[string]*cost{}
	for name := range l.lib.Circuits {
		costs[name] = &cost{circuit: len(l.lines[l.lib.Circuits[name].file.Name]), variants: map[string]int{}}
	}
	for mt, v := range l.lib.Variants {
		costs[v.circuit.name].variants[mt] = 0
	}
	for file, lines := range l.lines {
		if strings.HasSuffix(file, ".config.toml") {
			l.countMap(costs, lines)
		}
	}
	for _, own := range l.owners(true) {
		if c := costs[own.circuit]; c != nil {
			c.parts += len(l.lines[own.file])
		}
	}
	for _, own := range l.owners(false) {
		if c := costs[own.circuit]; c != nil {
			c.blocks += len(l.lines[own.file])
		}
	}
	rows := [][]string{{"  circuit", "models", "circuit", "parts", "blocks", "map", "variants", "lines a model"}}
	all := cost{variants: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		c := costs[name]
		rows = append(rows, c.row(name))
		all.circuit, all.parts, all.blocks, all.common = all.circuit+c.circuit, all.parts+c.parts, all.blocks+c.blocks, all.common+c.common
		maps.Copy(all.variants, c.variants)
	}
	rows = append(rows, all.row("all"))
	fmt.Fprintf(b, "\npoints\n  %s model_types have no circuit of their own; there are %d circuits\n", partOf(len(all.variants)-len(costs), len(all.variants)), len(costs))
	shared := 0
	for file, lines := range l.lines {
		if strings.HasPrefix(file, "circuits/blocks/") || strings.HasPrefix(file, "circuits/keys/") || strings.HasPrefix(file, "circuits/parts/") {
			shared += len(lines)
		}
	}
	fmt.Fprintf(b, "  %d lines of blocks, parts and key sets are shared\n\nmarginal lines of TOML\n", shared-all.blocks-all.parts)
	columns(b, rows)
	b.WriteString("\nlines of each model_type beyond its circuit and map\n")
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		var words []string
		for _, mt := range slices.Sorted(maps.Keys(costs[name].variants)) {
			words = append(words, fmt.Sprintf("%s %d", mt, costs[name].variants[mt]))
		}
		fmt.Fprintf(b, "  %s: %s\n", name, strings.Join(words, ", "))
	}
}

func (c *cost) row(name string) []string {
	n := len(c.variants)
	return []string{"  " + name, fmt.Sprint(n), fmt.Sprint(c.circuit), times(c.parts), times(c.blocks), fmt.Sprint(c.common), fmt.Sprint(sum(c.variants)), fmt.Sprintf("%.1f", float64(c.all())/float64(max(n, 1)))}
}

// countMap shares a config map's lines out: those under [variant.<model_type>…] are that model_type's.
func (l *lab) countMap(costs map[string]*cost, lines []string) {
	var c *cost
	var of string
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "circuit = "); ok && c == nil {
			c = costs[strings.Trim(name, `"`)]
		}
		if strings.HasPrefix(line, "[") {
			of = ""
			if section, ok := strings.CutPrefix(strings.TrimLeft(line, "["), "variant."); ok {
				of = strings.Trim(section[:strings.IndexAny(section+".", ".]")], `"`)
			}
		}
		switch {
		case c == nil: // loading has refused such a map
		case of != "":
			c.variants[of]++
		default:
			c.common++
		}
	}
}

// owned is a file that only one circuit uses.
type owned struct{ file, circuit string }

// owners finds parts, or blocks, that one circuit alone uses.
func (l *lab) owners(parts bool) (out []owned) {
	by := map[string]map[string]bool{}
	for name, c := range l.lib.Circuits {
		for _, x := range c.whole() {
			files := []string{x.file.Name}
			if !parts {
				files = nil
				for _, u := range x.uses() {
					files = append(files, l.lib.Blocks[u.Block].file.Name)
				}
			}
			for _, file := range files {
				if by[file] == nil {
					by[file] = map[string]bool{}
				}
				by[file][name] = true
			}
		}
	}
	for file, circuits := range by {
		if len(circuits) == 1 && (!parts || path.Dir(file) == "circuits/parts") {
			out = append(out, owned{file, slices.Collect(maps.Keys(circuits))[0]})
		}
	}
	return out
}

// whole are a circuit and its parts.
func (c *Circuit) whole() []*Circuit {
	out := []*Circuit{c}
	for _, name := range slices.Sorted(maps.Keys(c.parts)) {
		out = append(out, c.parts[name])
	}
	return out
}

// uses are all blocks that a circuit places.
func (c *Circuit) uses() []Use {
	out := slices.Concat(c.Begin, c.End)
	for _, kind := range slices.Sorted(maps.Keys(c.Layers.Kind)) {
		out = append(out, c.Layers.Kind[kind]...)
	}
	return out
}

// copied is how many equal lines in a row are a copy.
const copied = 6

// duplicates counts lines that stand in a run of equal lines of an earlier file, or earlier in the same.
func (l *lab) duplicates(b *strings.Builder) {
	first := map[string]string{} // run → file that has it first
	copies := map[[2]string]int{}
	total, twice := 0, 0
	for _, file := range slices.Sorted(maps.Keys(l.lines)) {
		lines, counted := l.lines[file], 0 // lines before counted are
		total += len(lines)
		for i := range max(0, len(lines)-copied+1) {
			text := strings.Join(lines[i:i+copied], "\n")
			at, ok := first[text]
			if !ok {
				first[text] = file
				continue
			}
			more := i + copied - max(i, counted)
			counted = i + copied
			twice += more
			copies[[2]string{file, at}] += more
		}
	}
	fmt.Fprintf(b, "\nduplicated lines\n  %s lines stand in an earlier place too, in runs of %d or more\n", partOf(twice, total), copied)
	pairs := slices.SortedFunc(maps.Keys(copies), func(x, y [2]string) int {
		return cmp.Or(cmp.Compare(copies[y], copies[x]), strings.Compare(x[0], y[0]), strings.Compare(x[1], y[1]))
	})
	for _, p := range pairs {
		if copies[p] >= copied {
			fmt.Fprintf(b, "  %d of %s from %s\n", copies[p], strings.TrimPrefix(p[0], "circuits/"), strings.TrimPrefix(p[1], "circuits/"))
		}
	}
}

// ops says which circuits use each op of Σ, in the models whose configs are known, and which blocks name it.
func (l *lab) ops(b *strings.Builder, fsys fs.FS) error {
	models, err := Small(fsys)
	if err != nil {
		return err
	}
	more, err := Published(fsys)
	if err != nil {
		return err
	}
	circuits, seen := map[string]map[string]bool{}, map[string]bool{}
	for i, m := range append(models, more...) {
		if m.Err != nil || i >= len(models) && seen[m.ModelType()] {
			continue
		}
		seen[m.ModelType()] = true
		in, err := Whole(l.lib, m.Config)
		if err != nil {
			continue // the coverage counts these
		}
		for k := range in.census() {
			if circuits[k.op] == nil {
				circuits[k.op] = map[string]bool{}
			}
			circuits[k.op][in.Circuit] = true
		}
	}
	blocks := map[string]map[string]bool{}
	for name, block := range l.lib.Blocks {
		for i := range block.Nodes {
			op := block.Nodes[i].Op
			if blocks[op] == nil {
				blocks[op] = map[string]bool{}
			}
			blocks[op][name] = true
		}
	}
	fmt.Fprintf(b, "\nops of Σ: %d, used by known models: %d\n", len(sigma), len(circuits))
	rows := [][]string{{"  op", "circuits", "blocks", ""}}
	names := slices.SortedFunc(maps.Keys(sigma), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(circuits[y]), len(circuits[x])), cmp.Compare(len(blocks[y]), len(blocks[x])), strings.Compare(x, y))
	})
	var unused []string
	for _, op := range names {
		if len(circuits[op]) == 0 {
			unused = append(unused, op)
			continue
		}
		which := ""
		if n := len(circuits[op]); n > 0 && n <= 3 {
			which = strings.Join(slices.Sorted(maps.Keys(circuits[op])), ", ")
		}
		rows = append(rows, []string{"  " + op, times(len(circuits[op])), times(len(blocks[op])), which})
	}
	columns(b, rows)
	if len(unused) > 0 {
		fmt.Fprintf(b, "  in no known model: %s\n", strings.Join(unused, ", "))
	}
	return nil
}
