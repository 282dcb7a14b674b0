// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Target is what a checkpoint is served with: the kernels of a class, or those of a leaf, which picks points and constants
// for one model in one quantisation.
type Target struct {
	Class   *Class
	Model   *Model // nil: the class itself, which serves what no leaf does
	Quant   string // the leaf's folder
	Kernels map[string]*Kernel
	Modules map[string]*Module // that the target compiles, by name; none where kernels are Go

	layers []*Layer
}

// Name is the class, or <class>/<model>/<quant>.
func (t *Target) Name() string {
	if t.Model == nil {
		return t.Class.Name
	}
	return t.Class.Name + "/" + t.Model.Name + "/" + t.Quant
}

// Layers are the folders that the target's sources come from, nearest first.
func (t *Target) Layers() (dirs []string) {
	for _, l := range t.layers {
		dirs = append(dirs, l.Dir)
	}
	return dirs
}

// Quants are the words for how a checkpoint's linear layers are stored; a leaf's folder is called by one of them.
var Quants = []string{"f32", "f16", "bf16", "fp8", "nvfp4", "mxfp4", "int4", "int8",
	"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"}

// Model is a MODEL.toml.
type Model struct {
	Name       string              // its folder
	Doc        string              `toml:"doc"`
	Matches    []Match             `toml:"match"`
	MatchNames []string            `toml:"match_names"` // parts of a checkpoint's names, that break a tie
	Sampling   map[string]Sampling `toml:"sampling"`    // presets; "default" is for a checkpoint without sampling defaults, others are asked for by name
	Behavior   Behavior            `toml:"behavior"`
}

// Match is a kind of checkpoint that a model's targets are made for.
type Match struct {
	ModelType  string `toml:"model_type"`
	HiddenSize int64  `toml:"hidden_size"` // 0: any, tried only when no target declares the size
}

// Sampling is a preset; what it does not give keeps the engine's default.
type Sampling struct {
	Temperature       *float64 `toml:"temperature"`
	TopP              *float64 `toml:"top_p"`
	TopK              *int64   `toml:"top_k"`
	MinP              *float64 `toml:"min_p"`
	PresencePenalty   *float64 `toml:"presence_penalty"`
	RepetitionPenalty *float64 `toml:"repetition_penalty"`
}

// outside names a value that no sampler takes, and which ones it does; "" if there is none. NaN is outside of everything.
func (s Sampling) outside() (key, want string) {
	in := func(v *float64, least, most float64) bool { return v == nil || *v >= least && *v <= most }
	switch {
	case !in(s.Temperature, 0, math.MaxFloat64):
		return "temperature", "a number of at least 0"
	case !in(s.TopP, 0, 1):
		return "top_p", "from 0 to 1"
	case s.TopK != nil && *s.TopK < -1:
		return "top_k", "at least 0, or -1 for all"
	case !in(s.MinP, 0, 1):
		return "min_p", "from 0 to 1"
	case !in(s.PresencePenalty, -math.MaxFloat64, math.MaxFloat64):
		return "presence_penalty", "a number"
	case !in(s.RepetitionPenalty, 0, math.MaxFloat64):
		return "repetition_penalty", "a number of at least 0"
	}
	return "", ""
}

// String lists what the preset gives: "temperature 0.6, top_k 20".
func (s Sampling) String() string {
	var words []string
	add := func(name string, v *float64) {
		if v != nil {
			words = append(words, fmt.Sprintf("%s %v", name, *v))
		}
	}
	add("temperature", s.Temperature)
	add("top_p", s.TopP)
	if s.TopK != nil {
		words = append(words, fmt.Sprintf("top_k %d", *s.TopK))
	}
	add("min_p", s.MinP)
	add("presence_penalty", s.PresencePenalty)
	add("repetition_penalty", s.RepetitionPenalty)
	return strings.Join(words, ", ")
}

// Behavior is how a model wants to be served, where neither flag nor request says: for what parses tool calls, bounds thinking
// and drafts. A server that does none of these does not read it.
type Behavior struct {
	ToolCallParser    string `toml:"tool_call_parser"`
	MaxThinkingBudget int64  `toml:"max_thinking_budget"` // tokens; 0: no limit
	NumDrafts         int64  `toml:"num_drafts"`          // tokens drafted for a step
}

// String lists what is said: "tool_call_parser hermes, num_drafts 2".
func (b Behavior) String() string {
	var words []string
	if b.ToolCallParser != "" {
		words = append(words, "tool_call_parser "+b.ToolCallParser)
	}
	if b.MaxThinkingBudget > 0 {
		words = append(words, fmt.Sprintf("max_thinking_budget %d", b.MaxThinkingBudget))
	}
	if b.NumDrafts > 0 {
		words = append(words, fmt.Sprintf("num_drafts %d", b.NumDrafts))
	}
	return strings.Join(words, ", ")
}

// readTargets makes a target of each class that can run something and of each of its leaves.
func (t *Tree) readTargets(fsys fs.FS) error {
	t.Targets = map[string]*Target{}
	leaves, err := t.readLeaves(fsys)
	if err != nil {
		return err
	}
	used := map[*Layer]map[string]bool{} // shadows that hide something
	add := func(tg *Target) error {
		mods, err := stack(tg.Class, tg.layers)
		if err != nil {
			return err
		}
		tg.Modules, tg.Kernels = mods, tg.Class.kernels(tg.layers)
		for _, l := range tg.layers {
			if used[l] == nil {
				used[l] = map[string]bool{}
			}
			for name, m := range mods {
				if m.Layer == l.Dir && m.shadows != "" {
					used[l][name] = true
				}
			}
		}
		if !tg.Class.Abstract {
			t.Targets[tg.Name()] = tg
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		c := t.Classes[name]
		if err := add(&Target{Class: c, layers: c.layers}); err != nil {
			return err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(leaves)) {
		l := leaves[dir]
		c := t.Classes[l.class]
		tg := &Target{Class: c, Model: l.model, Quant: l.quant}
		for i, ancestor := range c.Chain { // each class's leaf stands before its common
			if near := leaves[path.Join(ancestor, l.model.Name, l.quant)]; near != nil {
				tg.layers = append(tg.layers, near.layer)
			}
			tg.layers = append(tg.layers, c.layers[i])
		}
		if err := add(tg); err != nil {
			return err
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(used), func(a, b *Layer) int { return strings.Compare(a.Dir, b.Dir) }) {
		for _, name := range slices.Sorted(maps.Keys(l.Shadow)) {
			if !used[l][name] {
				return l.file.Errorf("shadow."+name, "%s hides nothing: no layer behind %s has module %s", l.sources[name].path, l.Dir, name)
			}
		}
	}
	return nil
}

// leafFolder is <class>/<model>/<quant>.
type leafFolder struct {
	class, quant string
	model        *Model
	layer        *Layer
}

// readLeaves reads each class's models, by leaf folder.
func (t *Tree) readLeaves(fsys fs.FS) (map[string]*leafFolder, error) {
	out := map[string]*leafFolder{}
	models := map[string]*Model{}
	for _, class := range slices.Sorted(maps.Keys(t.Classes)) {
		files, err := fs.Glob(fsys, class+"/*/MODEL.toml")
		if err != nil {
			return nil, diag.Errorf(diag.IO, "kernel tree: %w", err)
		}
		for _, f := range files {
			if models[path.Dir(f)], err = readModel(fsys, f); err != nil {
				return nil, err
			}
		}
		manifests, err := fs.Glob(fsys, class+"/*/*/KERNEL.toml")
		if err != nil {
			return nil, diag.Errorf(diag.IO, "kernel tree: %w", err)
		}
		for _, f := range manifests {
			dir := path.Dir(f)
			l := &leafFolder{class: class, quant: path.Base(dir), model: models[path.Dir(dir)]}
			switch at := (diag.Pos{File: f}); {
			case l.model == nil:
				return nil, diag.Errorf(diag.Format, "there is no %s/MODEL.toml beside it", path.Dir(dir)).At(at)
			case !slices.Contains(Quants, l.quant):
				return nil, diag.Errorf(diag.Format, "%q is no quantisation; known are %s", l.quant, strings.Join(Quants, ", ")).At(at)
			}
			if l.layer, err = readLayer(fsys, dir, t.Classes[class].Vendor); err != nil {
				return nil, err
			}
			out[dir] = l
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(models)) {
		found := false
		for d := range out {
			found = found || path.Dir(d) == dir
		}
		if !found {
			return nil, diag.Errorf(diag.Format, "model %s has no leaf <quant>/KERNEL.toml", path.Base(dir)).At(diag.Pos{File: dir + "/MODEL.toml"})
		}
	}
	return out, nil
}

// readModel reads a MODEL.toml.
func readModel(fsys fs.FS, name string) (*Model, error) {
	m := &Model{}
	f, err := ReadTOML(fsys, name, m)
	if err != nil {
		return nil, err
	}
	m.Name = path.Base(path.Dir(name))
	if len(m.Matches) == 0 {
		return nil, f.Errorf("match", "model %s matches no checkpoint: give [[match]] with model_type", m.Name)
	}
	for i, x := range m.Matches {
		if x.ModelType == "" || x.HiddenSize < 0 || slices.Index(m.Matches, x) != i {
			return nil, f.Errorf("match."+strconv.Itoa(i), "a match names a model_type and at most a hidden_size, once")
		}
	}
	for i, n := range m.MatchNames {
		if n == "" || n != strings.ToLower(n) {
			return nil, f.Errorf("match_names."+strconv.Itoa(i), "%q is compared with names in lower case", n)
		}
	}
	for _, preset := range slices.Sorted(maps.Keys(m.Sampling)) {
		if key, want := m.Sampling[preset].outside(); key != "" {
			return nil, f.Errorf("sampling."+preset+"."+key, "%s must be %s", key, want)
		}
	}
	if m.Behavior.MaxThinkingBudget < 0 || m.Behavior.NumDrafts < 0 {
		return nil, f.Errorf("behavior", "numbers of tokens are not negative")
	}
	return m, nil
}

// View is the class as the target has it: with the kernels whose launches know the target's constants.
func (t *Target) View() *Class {
	c := *t.Class
	c.Kernels = t.Kernels
	return &c
}
