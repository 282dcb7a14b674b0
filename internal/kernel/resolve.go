// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"maps"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Checkpoint is what a target is resolved by.
type Checkpoint struct {
	ModelTypes []string // model_type of the config, and of its text_config
	HiddenSize int64
	Quant      string   // a word of Quants
	Names      []string // hub id, --model-name, folder: what match_names is compared with
}

// Resolve chooses the target that serves a checkpoint on a class:
//
//  1. pin, a target's name with or without its class, decides alone;
//  2. models that declare the checkpoint's model_type and hidden_size are tried before those that declare any size;
//  3. of several, match_names choose; several that remain are an error that lists them;
//  4. of the model's leaves the one of the checkpoint's quantisation is taken;
//  5. what no leaf is made for is served by the class itself.
func (t *Tree) Resolve(class string, ck Checkpoint, pin string) (*Target, error) {
	common := t.Targets[class]
	if common == nil {
		return nil, diag.Errorf(diag.NotFound, "hardware class %q is no target", class)
	}
	if pin != "" {
		return t.pinned(common, ck, pin)
	}
	leaves := t.leaves(class)
	candidates := matching(leaves, ck, ck.HiddenSize)
	if len(candidates) == 0 {
		candidates = matching(leaves, ck, 0)
	}
	models := modelNames(candidates)
	if len(models) > 1 {
		named := slices.DeleteFunc(slices.Clone(candidates), func(tg *Target) bool { return !tg.Model.named(ck.Names) })
		switch n := modelNames(named); {
		case len(n) == 1:
			candidates, models = named, n
		case len(n) > 1:
			models = n
		}
	}
	switch {
	case len(models) == 0:
		return common, nil
	case len(models) > 1:
		return nil, diag.Errorf(diag.Invalid, "model_type %s with hidden_size %d is served by several kernel targets, and the name %s does not tell which: %s; choose with --kernel-target",
			strings.Join(ck.ModelTypes, "/"), ck.HiddenSize, quoted(ck.Names), targetNames(candidates, models)).For("kernel-target")
	}
	for _, tg := range candidates {
		if tg.Quant == ck.Quant {
			return tg, nil
		}
	}
	return common, nil
}

// pinned is the target of that name, if its quantisation suits the checkpoint.
func (t *Tree) pinned(common *Target, ck Checkpoint, pin string) (*Target, error) {
	class := common.Class.Name
	tg := t.Targets[pin]
	if tg == nil {
		tg = t.Targets[class+"/"+pin]
	}
	if tg == nil || tg.Class != common.Class {
		all := append([]*Target{common}, t.leaves(class)...)
		return nil, diag.Errorf(diag.Invalid, "--kernel-target %s is no target of class %s; there are %s", pin, class, targetNames(all, nil)).For("kernel-target")
	}
	return tg, tg.CheckQuant(ck.Quant)
}

// CheckQuant refuses a checkpoint whose weights are stored otherwise than the target's kernels read them.
func (t *Target) CheckQuant(quant string) error {
	if t.Model == nil || t.Quant == quant {
		return nil
	}
	return diag.Errorf(diag.Invalid, "kernel target %s is for %s weights; the checkpoint's are %s", t.Name(), t.Quant, quant).For("kernel-target")
}

// leaves are a class's targets with a model, by name.
func (t *Tree) leaves(class string) (out []*Target) {
	for _, name := range slices.Sorted(maps.Keys(t.Targets)) {
		if tg := t.Targets[name]; tg.Class.Name == class && tg.Model != nil {
			out = append(out, tg)
		}
	}
	return out
}

// matching are the targets that declare the checkpoint's type with that size.
func matching(leaves []*Target, ck Checkpoint, size int64) (out []*Target) {
	for _, tg := range leaves {
		if slices.ContainsFunc(tg.Model.Matches, func(m Match) bool { return m.HiddenSize == size && slices.Contains(ck.ModelTypes, m.ModelType) }) {
			out = append(out, tg)
		}
	}
	return out
}

// named says whether one of match_names is a run of whole words of one of the names.
func (m *Model) named(names []string) bool {
	for _, n := range names {
		n = strings.ToLower(n)
		for _, part := range m.MatchNames {
			for from := 0; ; {
				i := strings.Index(n[from:], part)
				if i < 0 {
					break
				}
				begin, end := from+i, from+i+len(part)
				if !wordAt(n, begin-1) && !wordAt(n, end) {
					return true
				}
				from = begin + 1
			}
		}
	}
	return false
}

// wordAt says whether a letter or digit stands at i.
func wordAt(s string, i int) bool {
	return i >= 0 && i < len(s) && (s[i] >= 'a' && s[i] <= 'z' || s[i] >= '0' && s[i] <= '9')
}

func modelNames(list []*Target) (names []string) {
	for _, tg := range list {
		if !slices.Contains(names, tg.Model.Name) {
			names = append(names, tg.Model.Name)
		}
	}
	return names
}

// targetNames lists targets, of the given models if any are given.
func targetNames(list []*Target, models []string) string {
	var names []string
	for _, tg := range list {
		if models == nil || slices.Contains(models, tg.Model.Name) {
			names = append(names, tg.Name())
		}
	}
	return strings.Join(names, ", ")
}

func quoted(names []string) string {
	if len(names) == 0 {
		return `""`
	}
	return `"` + strings.Join(names, `", "`) + `"`
}
