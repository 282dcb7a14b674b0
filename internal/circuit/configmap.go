// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
)

// mapFile is kernels/circuits/<arch>.config.toml.
type mapFile struct {
	Circuit  string              `toml:"circuit"`
	Use      []string            `toml:"use"` // shared sets of keys: kernels/circuits/keys/<name>.toml
	Keys     map[string]Key      `toml:"keys"`
	Variants map[string]*Variant `toml:"variant"`
}

// Variant maps one model_type's config.json to a circuit.
type Variant struct {
	Wraps    string            `toml:"wraps"` // the key under which the decoder's config is; then Keys are those around it
	As       string            `toml:"as"`    // the variant of that inner config
	Or       []string          `toml:"or"`    // other variants that it may have
	Bare     bool              `toml:"bare"`  // without that key, the decoder's own are at the top
	Use      []string          `toml:"use"`   // further sets of keys
	Prefixes []string          `toml:"prefixes"`
	Dims     map[string]string `toml:"dims"` // set for all checkpoints of this model_type
	Rope     RopeRule          `toml:"rope"`
	Keys     map[string]Key    `toml:"keys"`

	ModelType string `toml:"-"`
	file      *kernel.File
	circuit   *Circuit // of the inner variant too
	inner     *Variant
	keys      map[string]placedKey // all key sets and Keys, merged
}

// RopeRule is what a model_type says about its rotation beyond the config's keys.
type RopeRule struct {
	Theta         float64             `toml:"theta"`          // where the config gives none
	Partial       float64             `toml:"partial"`        // rotated share of a head where the config gives none; 0 = all
	Dim           string              `toml:"dim"`            // of which a part is rotated; head_dim unless given
	Rot           string              `toml:"rot"`            // the dim that says how many are rotated
	PositionScale bool                `toml:"position_scale"` // llama_4_scaling_beta scales queries
	Sections      []int64             `toml:"sections"`       // positions have three axes; mrope_section where the config gives none
	Unscaled      bool                `toml:"unscaled"`       // yarn stretches frequencies alone: cos and sin keep their size
	Kind          map[string]RopeKind `toml:"kind"`           // layers of these kinds rotate otherwise
}

// RopeKind is the rotation of a layer kind, where rope_parameters has no object for it.
type RopeKind struct {
	Theta    float64 `toml:"theta"`     // where the config gives none
	ThetaKey string  `toml:"theta_key"` // the key that holds this kind's theta
	Partial  float64 `toml:"partial"`   // as of RopeRule
	Type     string  `toml:"type"`      // where the config gives none; default unless given
	Plain    bool    `toml:"plain"`     // rope_scaling is not of this kind
	Object   string  `toml:"object"`    // the key of its object in rope_parameters; the kind unless given
}

// Key classifies a key of config.json. Exactly one of the first eleven is given.
type Key struct {
	Dim      string   `toml:"dim"`       // an integer; also the name that expressions use
	Switch   string   `toml:"switch"`    // true or false, as the dim 1 or 0
	Param    string   `toml:"param"`     // a number
	Variant  string   `toml:"variant"`   // a string, true or false, one of Allow's keys
	Kinds    []string `toml:"kinds"`     // a list of a layer part's kinds, these
	Layers   string   `toml:"layers"`    // a list of layer numbers, or their text "1,2": layers of this kind
	PerLayer bool     `toml:"per_layer"` // an object: layer number → keys that differ there
	Rope     bool     `toml:"rope"`      // read by rope.go
	Accept   []any    `toml:"accept"`    // only these values, or none; Why says what is missing for others
	Ignore   string   `toml:"ignore"`    // has no effect; says why
	Quant    bool     `toml:"quant"`     // read by modelconf

	Must    bool              `toml:"must"`    // of Accept, Kinds, Layers and Rope: the key must be there
	Of      string            `toml:"of"`      // of a dim, switch or param: holds for layers of this kind only
	Each    bool              `toml:"each"`    // of a dim or param: a list with a value for each layer, or null for what holds without
	Longer  bool              `toml:"longer"`  // of Kinds and Each: entries of draft layers may follow
	Base    int64             `toml:"base"`    // of Layers: the number of the first layer
	Alias   []string          `toml:"alias"`   // other spellings of the key
	Also    []string          `toml:"also"`    // further switches that it sets; of a param, those that are on where it is not 0
	Part    string            `toml:"part"`    // of Kinds and Layers: the layer part
	In      string            `toml:"in"`      // of Kinds and Layers: the part of the model
	Count   string            `toml:"count"`   // of Layers: the dim that counts what the list names
	Allow   map[string]string `toml:"allow"`   // of Variant and Kinds: the config's word → ours
	Default any               `toml:"default"` // where the key is absent; an expression, for a dim
	Null    *int64            `toml:"null"`    // what null stands for; absence unless given
	Min     *int64            `toml:"min"`     // of a dim; 1 unless given
	Max     *int64            `toml:"max"`     // of a dim; 2^31 unless given
	Why     string            `toml:"why"`
}

// placedKey knows where it was declared.
type placedKey struct {
	Key
	name string
	file *kernel.File
	at   string
}

func (k *Key) kindsGiven() int {
	n := 0
	for _, given := range []bool{k.Dim != "", k.Switch != "", k.Param != "", k.Variant != "", k.Kinds != nil, k.Layers != "", k.PerLayer, k.Rope, k.Accept != nil, k.Ignore != "", k.Quant} {
		if given {
			n++
		}
	}
	return n
}

func (lib *Library) loadMaps(fsys fs.FS) error {
	for _, name := range glob(fsys, "circuits/*.config.toml") {
		var m mapFile
		f, err := kernel.ReadTOML(fsys, name, &m)
		if err != nil {
			return err
		}
		c := lib.Circuits[m.Circuit]
		if c == nil {
			return f.Errorf("circuit", "there is no circuit %q", m.Circuit)
		}
		base := map[string]placedKey{}
		if err := addSets(fsys, base, m.Use, f, "use"); err != nil {
			return err
		}
		if err := addKeys(base, m.Keys, f, "keys"); err != nil {
			return err
		}
		if err := lib.addVariants(fsys, &m, f, c, base); err != nil {
			return err
		}
	}
	for _, mt := range lib.ModelTypes() {
		v := lib.Variants[mt]
		if v.Wraps == "" {
			continue
		}
		for _, name := range v.inners() {
			if in := lib.Variants[name]; in == nil || in.Wraps != "" {
				return v.keys["model_type"].file.Errorf("", "variant %s wraps %q, which is no variant of a decoder", v.ModelType, name)
			}
		}
		v.inner = lib.Variants[v.As]
	}
	return nil
}

func (lib *Library) addVariants(fsys fs.FS, m *mapFile, f *kernel.File, c *Circuit, base map[string]placedKey) error {
	for _, mt := range slices.Sorted(maps.Keys(m.Variants)) {
		v, at := m.Variants[mt], "variant."+mt
		if lib.Variants[mt] != nil {
			return f.Errorf(at, "model_type %s is mapped twice", mt)
		}
		if len(v.Prefixes) == 0 {
			return f.Errorf(at, "variant %s has no prefixes", mt)
		}
		if n := len(v.Rope.Sections); n != 0 && n != 3 {
			return f.Errorf(at+".rope.sections", "%d sections; there are three axes", n)
		}
		v.ModelType, v.circuit, v.file = mt, c, f
		v.keys = maps.Clone(base)
		if v.Wraps != "" { // around the decoder stand only bookkeeping and Keys
			v.keys = map[string]placedKey{}
			for k, p := range base {
				if p.file.Name == bookkeeping {
					v.keys[k] = p
				}
			}
		}
		if err := addSets(fsys, v.keys, v.Use, f, at+".use"); err != nil {
			return err
		}
		if err := addKeys(v.keys, v.Keys, f, at+".keys"); err != nil {
			return err
		}
		if err := v.checkKinds(f, at); err != nil {
			return err
		}
		lib.Variants[mt] = v
	}
	return nil
}

// checkKinds holds the kinds that a map names against the circuit's.
func (v *Variant) checkKinds(f *kernel.File, at string) error {
	for _, kind := range slices.Sorted(maps.Keys(v.Rope.Kind)) {
		if v.circuit.Layers.Kind[kind] == nil {
			return f.Errorf(at+".rope.kind."+kind, "circuit %s has no layer kind %s", v.circuit.name, kind)
		}
	}
	for _, spelling := range slices.Sorted(maps.Keys(v.keys)) {
		k := v.keys[spelling]
		kinds := []string{k.Of, k.Layers}
		for _, kind := range k.Kinds {
			kinds = append(kinds, cmp.Or(k.Allow[kind], kind))
		}
		c := v.circuit
		if k.In != "" {
			if c = c.parts[k.In]; c == nil {
				return k.file.Errorf(k.at, "circuit %s of model_type %s has no part %s", v.circuit.name, v.ModelType, k.In)
			}
		}
		for _, kind := range kinds {
			if kind != "" && c.Layers.Kind[kind] == nil {
				return k.file.Errorf(k.at, "circuit %s of model_type %s has no layer kind %s", v.circuit.name, v.ModelType, kind)
			}
		}
	}
	return nil
}

// bookkeeping is the key set that also holds around a wrapped decoder's config.
const bookkeeping = "circuits/keys/checkpoint.toml"

// addSets adds shared sets of keys by name.
func addSets(fsys fs.FS, into map[string]placedKey, sets []string, f *kernel.File, at string) error {
	for i, set := range sets {
		var s struct {
			Keys map[string]Key `toml:"keys"`
		}
		file := path.Join("circuits/keys", set+".toml")
		sf, err := kernel.ReadTOML(fsys, file, &s)
		if diag.Is(err, diag.NotFound) {
			return f.Errorf(at+"."+strconv.Itoa(i), "there is no key set %q", set)
		}
		if err != nil {
			return err
		}
		if err := addKeys(into, s.Keys, sf, "keys"); err != nil {
			return err
		}
	}
	return nil
}

// addKeys puts a set over another; aliases become entries of their own.
func addKeys(into map[string]placedKey, keys map[string]Key, f *kernel.File, at string) error {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		k, here := keys[name], at+"."+name
		if n := k.kindsGiven(); n != 1 {
			return f.Errorf(here, "key %s has %d classes; exactly one of dim, switch, param, variant, kinds, layers, per_layer, rope, accept, ignore, quant is given", name, n)
		}
		if k.Variant != "" && len(k.Allow) == 0 {
			return f.Errorf(here, "key %s is a variant without allow", name)
		}
		if k.Must && k.Accept == nil && k.Kinds == nil && k.Layers == "" && !k.Rope {
			return f.Errorf(here, "key %s must be there; that is said of accept, kinds, layers and rope, others go without a default", name)
		}
		if k.Accept != nil && k.Why == "" {
			return f.Errorf(here, "key %s accepts only some values and does not say why", name)
		}
		p := placedKey{k, name, f, here}
		for old, o := range into { // a redeclared key loses its old aliases
			if o.name == name {
				delete(into, old)
			}
		}
		for _, spelling := range append([]string{name}, k.Alias...) {
			into[spelling] = p
		}
	}
	return nil
}

// inners are the variants that a wrapper may have inside.
func (v *Variant) inners() []string { return append([]string{v.As}, v.Or...) }

// either quotes words.
func either(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, " or ")
}

// unwrapped is a wrapper with the variant that the config has inside.
func (lib *Library) unwrapped(v *Variant, tree *modelconf.Node) (*Variant, error) {
	if v.Wraps == "" {
		return v, nil
	}
	inner, ok := tree.Child(v.Wraps)
	if !ok && v.Bare {
		out := *lib.Variants[v.As]
		out.ModelType, out.Prefixes = v.ModelType, v.Prefixes
		return &out, nil
	}
	if !ok {
		return nil, tree.Errorf("key %s is missing; model_type %s needs it", join(tree.Path(), v.Wraps), v.ModelType)
	}
	mt, _ := inner.Child("model_type")
	s, _ := mt.Str()
	if !slices.Contains(v.inners(), s) {
		return nil, refuse(inner, "%s.model_type is %q; for model_type %s it must be %s", v.Wraps, s, v.ModelType, either(v.inners()))
	}
	out := *v
	out.inner = lib.Variants[s]
	return &out, nil
}

// errorf is about what the variant itself says.
func (v *Variant) errorf(at, format string, args ...any) error {
	return v.file.Errorf("variant."+v.ModelType+"."+at, format, args...)
}

// hasWithin says whether keys of an object are declared: "linear_attn_config.head_dim".
func (v *Variant) hasWithin(prefix string) bool {
	for name := range v.keys {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// mapped is the decoder's variant: v itself or what it wraps.
func (v *Variant) mapped() *Variant {
	if v.inner != nil {
		return v.inner
	}
	return v
}
