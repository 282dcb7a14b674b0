// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"maps"
	"slices"
	"strings"
)

// Layers says which blocks each layer has: those of its kind, part after part.
type Layers struct {
	Path  string           `toml:"path"`  // {L} of tensor names; {i} is the layer
	Count string           `toml:"count"` // the dim that counts them
	Parts []Part           `toml:"part"`  // one part of the only kind, unless given
	Kind  map[string][]Use `toml:"kind"`
}

// Part is what of a layer varies by itself. A list of the config that names the part decides its kinds; else one of the
// rules below does.
type Part struct {
	Name  string  `toml:"name"`
	Kind  string  `toml:"kind"`  // of all layers
	Every *Choice `toml:"every"` // decides each Dim-th layer
	First *Choice `toml:"first"` // decides the first Dim layers
}

// Choice gives the layers that Dim decides one kind and the others another.
type Choice struct {
	Dim  string `toml:"dim"`
	Kind string `toml:"kind"`
	Else string `toml:"else"`
}

// check refuses rules that name no kind. It fills in the only part.
func (l *Layers) check(c *Circuit) error {
	if len(l.Kind) == 0 || l.Count == "" || l.Path == "" {
		return c.file.Errorf("layers", "layers need path, count and at least one kind")
	}
	if len(l.Parts) == 0 {
		if len(l.Kind) > 1 {
			return c.file.Errorf("layers", "several layer kinds need parts")
		}
		l.Parts = []Part{{Kind: slices.Collect(maps.Keys(l.Kind))[0]}}
	}
	names := map[string]bool{}
	for i, p := range l.Parts {
		at := "layers.part." + itoa(i)
		if names[p.Name] {
			return c.file.Errorf(at, "two parts are named %q", p.Name)
		}
		names[p.Name] = true
		for _, kind := range p.kinds() {
			if l.Kind[kind] == nil {
				return c.file.Errorf(at, "%q is no layer kind", kind)
			}
		}
		if n := len(p.kinds()); n != 1 && n != 2 || n == 2 && p.Kind != "" {
			return c.file.Errorf(at, "part %q needs one of kind, every, first", p.Name)
		}
	}
	return nil
}

// kinds are those that its rules give.
func (p *Part) kinds() (kinds []string) {
	if p.Kind != "" {
		kinds = append(kinds, p.Kind)
	}
	for _, c := range []*Choice{p.Every, p.First} {
		if c != nil {
			kinds = append(kinds, c.Kind, c.Else)
		}
	}
	return kinds
}

// layerKinds gives the kinds of each layer, one per part: kinds[part][layer].
func (b *builder) layerKinds() (kinds [][]string, err error) {
	l := &b.c.Layers
	n, ok := b.p.dims[l.Count]
	if !ok {
		return nil, b.c.file.Errorf("layers.count", "there is no dim %s", l.Count)
	}
	for name, at := range b.p.kindsAt {
		if !slices.ContainsFunc(l.Parts, func(p Part) bool { return p.Name == name }) {
			return nil, b.c.file.Errorf("layers.part", "no part is named %q, which key %s lists", name, at.Path())
		}
	}
	for i := range l.Parts {
		p := &l.Parts[i]
		list, listed := b.p.kinds[p.Name]
		if !listed {
			if list, err = b.ruledKinds(p, "layers.part."+itoa(i), n); err != nil {
				return nil, err
			}
		} else if at := b.p.kindsAt[p.Name]; int64(len(list)) != n {
			return nil, at.Errorf("%s has %d entries for %d layers", at.Path(), len(list), n)
		}
		for _, k := range list {
			if l.Kind[k] == nil {
				return nil, b.c.file.Errorf("layers.kind", "the circuit has no layer kind %s", k)
			}
		}
		kinds = append(kinds, list)
	}
	b.in.Kinds = make([]string, n)
	for i := range b.in.Kinds {
		var names []string
		for part := range kinds {
			names = append(names, kinds[part][i])
		}
		b.in.Kinds[i] = strings.Join(names, "+")
	}
	return kinds, nil
}

// ruledKinds are the kinds of n layers by the part's rule.
func (b *builder) ruledKinds(p *Part, at string, n int64) ([]string, error) {
	list := make([]string, n)
	for i := range n {
		switch {
		case p.Every != nil:
			every := b.p.dims[p.Every.Dim]
			if every < 1 {
				return nil, b.c.file.Errorf(at, "dim %s is %d", p.Every.Dim, every)
			}
			if list[i] = p.Every.Else; (i+1)%every == 0 {
				list[i] = p.Every.Kind
			}
		case p.First != nil:
			first, ok := b.p.dims[p.First.Dim]
			if !ok {
				return nil, b.c.file.Errorf(at, "there is no dim %s", p.First.Dim)
			}
			if list[i] = p.First.Else; i < first {
				list[i] = p.First.Kind
			}
		default:
			list[i] = p.Kind
		}
	}
	return list, nil
}
