// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Layers says which blocks each layer has: those of its kind, part after part.
type Layers struct {
	Path  string `toml:"path"`  // {L} of tensor names; {i} is the layer
	Count string `toml:"count"` // the dim that counts them
	// Sharing is how many layers, the last ones, keep no state: in them the dim "shares" is 1, and blocks read the states of
	// the last layer before them of the same kinds.
	Sharing string           `toml:"sharing"`
	Parts   []Part           `toml:"part"` // one part of the only kind, unless given
	Kind    map[string][]Use `toml:"kind"`
}

// Part is what of a layer varies by itself. A list of the config that names the part decides its kinds; else one of the
// rules below does, if there is one.
type Part struct {
	Name  string  `toml:"name"`
	Kind  string  `toml:"kind"`  // of all layers
	Every *Choice `toml:"every"` // decides each Dim-th layer
	First *Choice `toml:"first"` // decides the first Dim layers
}

// Choice gives the layers that Dim decides one kind and the others another.
type Choice struct {
	Dim  string `toml:"dim"`  // or an expression
	From string `toml:"from"` // where counting begins; layers before it are of the first kind
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
		at := "layers.part." + strconv.Itoa(i)
		if names[p.Name] {
			return c.file.Errorf(at, "two parts are named %q", p.Name)
		}
		names[p.Name] = true
		for _, kind := range p.kinds() {
			if l.Kind[kind] == nil {
				return c.file.Errorf(at, "%q is no layer kind", kind)
			}
		}
		if n := len(p.kinds()); n > 2 || n == 2 && p.Kind != "" {
			return c.file.Errorf(at, "part %q has more than one of kind, every, first", p.Name)
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

// layerKinds decides the kinds of each layer, one per part: as the config lists them, else by the part's rule; then by lists
// of layer numbers.
func (p *point) layerKinds(c *Circuit, tree *modelconf.Node) error {
	n, ok := p.dims[c.Layers.Count]
	if !ok {
		return c.file.Errorf("layers.count", "there is no dim %s", c.Layers.Count)
	}
	p.kinds = make([][]string, n)
	for i := range c.Layers.Parts {
		part := &c.Layers.Parts[i]
		words := make([]string, n)
		listed, numbered := false, false
		for _, x := range p.lists {
			if x.key.In != p.part || x.key.Part != part.Name {
				continue
			}
			if numbered = numbered || x.key.Layers != ""; x.key.Kinds == nil {
				continue
			}
			list := kindWords(x.n)
			if err := x.fits(len(list), len(words)); err != nil {
				return err
			}
			for j := range words {
				words[j] = x.key.kindOf(list[j])
			}
			listed = true
		}
		if !listed {
			if len(part.kinds()) == 0 && !numbered {
				return tree.Errorf("no key of the config says which kind each layer is; model_type %s needs one", p.variant.ModelType)
			}
			if err := p.ruled(words, c, part, "layers.part."+strconv.Itoa(i)); err != nil {
				return err
			}
		}
		for _, x := range p.lists {
			if x.key.In == p.part && x.key.Part == part.Name && x.key.Layers != "" {
				if err := x.numbers(words); err != nil {
					return err
				}
			}
		}
		for j, k := range words {
			if c.Layers.Kind[k] == nil {
				return tree.Errorf("no key of the config says which kind layer %d is", j)
			}
			p.kinds[j] = append(p.kinds[j], k)
		}
	}
	return nil
}

// ruled gives layers the kinds of the part's rule.
func (p *point) ruled(words []string, c *Circuit, part *Part, at string) error {
	choice := part.Every
	if choice == nil {
		choice = part.First
	}
	if choice == nil {
		for i := range words {
			words[i] = part.Kind
		}
		return nil
	}
	n, err := tensor.Eval(choice.Dim, p.dims)
	if err != nil || n < 0 || n == 0 && part.Every != nil {
		return c.file.Errorf(at, "dim %s is %d (%v)", choice.Dim, n, err)
	}
	from := int64(0)
	if choice.From != "" {
		if from, err = tensor.Eval(choice.From, p.dims); err != nil {
			return c.file.Errorf(at, "from: %v", err)
		}
	}
	for i := range words {
		words[i] = choice.Else
		if at := int64(i) - from; at < 0 || part.Every != nil && (at+1)%n == 0 || part.First != nil && at < n {
			words[i] = choice.Kind
		}
	}
	return nil
}

// checkKinds looks at the words of a list of kinds.
func (k *Key) checkKinds(n *modelconf.Node) error {
	if k.Kinds == nil {
		return nil
	}
	for i, s := range kindWords(n) {
		if at := n; !slices.Contains(k.Kinds, s) {
			if n.Kind() == modelconf.Array {
				at = n.Items()[i]
			}
			return refuse(at, "%s is %s; supported is %s", at.Path(), literal(at), strings.Join(k.Kinds, ", "))
		}
	}
	if n.Kind() != modelconf.Array && n.Kind() != modelconf.String {
		return n.Errorf("%s is %s; it must be a list of layer kinds", n.Path(), n.Kind())
	}
	return nil
}

// kindWords are the words of a list of kinds, or the letters of a text that is one: "MEM*".
func kindWords(n *modelconf.Node) (words []string) {
	if s, ok := n.Str(); ok {
		return strings.Split(s, "")
	}
	for _, e := range n.Items() {
		s, ok := e.Str()
		if !ok {
			s = e.Literal()
		}
		words = append(words, s)
	}
	return words
}

// countLayers sets the number of layers to the length of a list of their kinds, where no key gives it.
func (p *point) countLayers(dim string) {
	for _, x := range p.lists {
		if _, ok := p.dims[dim]; !ok && x.key.In == "" && x.key.Kinds != nil && !x.key.Longer {
			p.dims[dim] = int64(len(kindWords(x.n)))
		}
	}
}

// kindOf is our word for one of a list of kinds.
func (k *Key) kindOf(s string) string {
	if ours, ok := k.Allow[s]; ok {
		return ours
	}
	return s
}

// fits checks that a list of n has an entry for each layer.
func (x *placedNode) fits(n, layers int) error {
	if n < layers || n > layers && !x.key.Longer {
		return x.n.Errorf("%s has %d entries for %d layers", x.n.Path(), n, layers)
	}
	return nil
}

// numbers gives the layers that a list names its kind.
func (x *placedNode) numbers(words []string) error {
	set := func(at *modelconf.Node, i int64, ok bool) error {
		if i -= x.key.Base; !ok || i < 0 || i >= int64(len(words)) && !x.key.Longer {
			return at.Errorf("%s is %s; it must name some of %d layers", at.Path(), literal(at), len(words))
		}
		if i < int64(len(words)) {
			words[i] = x.key.Layers
		}
		return nil
	}
	if text, ok := x.n.Str(); ok {
		for _, word := range strings.Split(text, ",") {
			i, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
			if err := set(x.n, i, err == nil); err != nil {
				return err
			}
		}
		return nil
	}
	if x.n.Kind() != modelconf.Array {
		return x.n.Errorf("%s is %s; it must be a list of layer numbers", x.n.Path(), x.n.Kind())
	}
	last := int64(-1)
	for _, e := range x.n.Items() {
		i, ok := e.Int()
		if err := set(e, i, ok); err != nil {
			return err
		}
		if x.key.Count != "" && i <= last {
			return refuse(e, "%s is %s; layer numbers must rise here", e.Path(), literal(e))
		}
		last = i
	}
	return nil
}
