// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"github.com/metrale/metrale/internal/diag"
)

// Config is what a checkpoint says about itself.
type Config struct {
	Tree          *Node      // config.json as it is, wrappers with text_config included
	ModelType     string     // model_type at the top
	Architectures []string   // may be empty
	Quant         *Quant     // nil: not quantised
	Generation    Generation // zero: no generation_config.json
	Source        string     // "hf" or "gguf"
}

// Generation are the sampling defaults of generation_config.json. A nil pointer or empty list means that the file does not
// say.
type Generation struct {
	DoSample          *bool
	Temperature       *float64
	TopP              *float64
	TopK              *int64
	MinP              *float64
	RepetitionPenalty *float64
	MaxNewTokens      *int64
	EOS               []int64 // every token that ends a text
	BOS, Pad          *int64
}

// Read reads a checkpoint's files by name: config.json must be there; hf_quant_config.json and generation_config.json may.
// Others are not looked at. Errors are of code Format or Unsupported and name file, line and key.
func Read(files map[string][]byte) (*Config, error) {
	const name = "config.json"
	data, ok := files[name]
	if !ok {
		return nil, diag.Errorf(diag.NotFound, "the checkpoint has no config.json").For(name)
	}
	tree, err := ParseJSON(name, data)
	if err != nil {
		return nil, err
	}
	c := &Config{Tree: tree, Source: "hf"}
	if tree.Kind() != Object {
		return nil, tree.Errorf("it is %v; a config must be an object", tree.Kind())
	}
	mt, _ := tree.Child("model_type")
	if c.ModelType, ok = mt.Str(); !ok || c.ModelType == "" {
		return nil, at(mt, tree).Errorf("model_type is missing or no string").For("model_type")
	}
	if c.Architectures, err = stringList(tree, "architectures"); err != nil {
		return nil, err
	}
	if c.Quant, err = readQuant(tree, files); err != nil {
		return nil, err
	}
	if err := c.Generation.read(tree, files); err != nil {
		return nil, err
	}
	return c, nil
}

// at is the first of its arguments that is there, to have a position for an error.
func at(nodes ...*Node) *Node {
	for _, n := range nodes {
		if n != nil {
			return n
		}
	}
	return nil
}

// stringList is the list of strings under key; absent and null are empty.
func stringList(n *Node, key string) ([]string, error) {
	v, _ := n.Child(key)
	if v.IsNull() {
		return nil, nil
	}
	if v.Kind() != Array {
		return nil, v.Errorf("%s is %v; it must be a list of strings", v.Path(), v.Kind())
	}
	out := make([]string, v.Len())
	for i, e := range v.Items() {
		var ok bool
		if out[i], ok = e.Str(); !ok {
			return nil, e.Errorf("%s is %v; it must be a string", e.Path(), e.Kind())
		}
	}
	return out, nil
}

// read fills g from generation_config.json; token ids that it does not give come from config.json, where older checkpoints
// have them (at the top, or under text_config).
func (g *Generation) read(tree *Node, files map[string][]byte) error {
	const name = "generation_config.json"
	var own *Node
	if data, ok := files[name]; ok {
		var err error
		if own, err = ParseJSON(name, data); err != nil {
			return err
		}
		if own.Kind() != Object {
			return own.Errorf("it is %v; it must be an object", own.Kind())
		}
	}
	text, _ := tree.Child("text_config")
	var err error
	get := func(kind string, key string, set func(*Node) bool) {
		v, _ := own.Child(key)
		if err == nil && !v.IsNull() && !set(v) {
			err = v.Errorf("%s must be %s", key, kind)
		}
	}
	float := func(p **float64) func(*Node) bool {
		return func(v *Node) bool { f, ok := v.Float(); *p = &f; return ok }
	}
	integer := func(p **int64) func(*Node) bool {
		return func(v *Node) bool { i, ok := v.Int(); *p = &i; return ok }
	}
	get("true or false", "do_sample", func(v *Node) bool { b, ok := v.Bool(); g.DoSample = &b; return ok })
	get("a number", "temperature", float(&g.Temperature))
	get("a number", "top_p", float(&g.TopP))
	get("a number", "min_p", float(&g.MinP))
	get("a number", "repetition_penalty", float(&g.RepetitionPenalty))
	get("an integer", "top_k", integer(&g.TopK))
	get("an integer", "max_new_tokens", integer(&g.MaxNewTokens))
	if err != nil {
		return err
	}
	for key, set := range map[string]func([]int64){
		"eos_token_id": func(ids []int64) { g.EOS = ids },
		"bos_token_id": func(ids []int64) { g.BOS = &ids[0] },
		"pad_token_id": func(ids []int64) { g.Pad = &ids[0] },
	} {
		for _, n := range []*Node{own, tree, text} {
			v, _ := n.Child(key)
			ids, err := tokenIDs(v)
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				set(ids)
				break
			}
		}
	}
	return nil
}

// tokenIDs reads an id or a list of ids; null is none. Negative ids, which mean "none" to some, are left out.
func tokenIDs(v *Node) ([]int64, error) {
	if v.IsNull() {
		return nil, nil
	}
	items := []*Node{v}
	if v.Kind() == Array {
		items = v.Items()
	}
	var out []int64
	for _, e := range items {
		id, ok := e.Int()
		if !ok {
			return nil, e.Errorf("%s must be a token id or a list of them", v.Path())
		}
		if id >= 0 {
			out = append(out, id)
		}
	}
	return out, nil
}
