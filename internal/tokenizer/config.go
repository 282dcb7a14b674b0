// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/metrale/metrale/internal/diag"
)

// Config is the rest of tokenizer_config.json, or of GGUF metadata.
type Config struct {
	Class                                  string // tokenizer_class
	BOSToken, EOSToken, UnkToken, PadToken string // "" if there is none
	AddBOS, AddEOS                         *bool  // add_bos_token, add_eos_token; the post-processor decides, not these
	ModelMaxLength                         int64  // tokens; 0 if not said (files write 1e30 for that)
	ChatTemplates                          []ChatTemplate
	ExtraSpecial                           map[string]string // extra_special_tokens by name, as image_token

	special []addedToken // tokens that the configuration adds or makes special
	cleanup bool         // clean_up_tokenization_spaces, and it is meant (see parseConfig)
}

// ChatTemplate is a template of chat_template; a file that has a single one calls it default.
type ChatTemplate struct{ Name, Text string }

// ChatTemplate is the template of that name; "" is default.
func (c Config) ChatTemplate(name string) (string, bool) {
	if name == "" {
		name = "default"
	}
	for _, t := range c.ChatTemplates {
		if t.Name == name {
			return t.Text, true
		}
	}
	return "", false
}

// configToken is a token in tokenizer_config.json: its text, or an object.
type configToken struct {
	Content    string `json:"content"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	SingleWord bool   `json:"single_word"`
	Normalized *bool  `json:"normalized"`
	Special    bool   `json:"special"`
}

func (t *configToken) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.Content)
	}
	type plain configToken
	return json.Unmarshal(b, (*plain)(t))
}

// parseConfig reads tokenizer_config.json. Of its keys only those that Config holds matter here; tokenizer.json says the
// rest. As in transformers 5, clean_up_tokenization_spaces does nothing unless a second key insists.
func parseConfig(data []byte) (Config, error) {
	const file = "tokenizer_config.json"
	var f struct {
		Class          string                 `json:"tokenizer_class"`
		BOS            *configToken           `json:"bos_token"`
		EOS            *configToken           `json:"eos_token"`
		Unk            *configToken           `json:"unk_token"`
		Pad            *configToken           `json:"pad_token"`
		Sep            *configToken           `json:"sep_token"`
		Cls            *configToken           `json:"cls_token"`
		Mask           *configToken           `json:"mask_token"`
		AddBOS         *bool                  `json:"add_bos_token"`
		AddEOS         *bool                  `json:"add_eos_token"`
		ModelMaxLength *float64               `json:"model_max_length"`
		ChatTemplate   json.RawMessage        `json:"chat_template"`
		Additional     []configToken          `json:"additional_special_tokens"`
		Extra          json.RawMessage        `json:"extra_special_tokens"`
		Added          map[string]configToken `json:"added_tokens_decoder"`
		Cleanup        bool                   `json:"clean_up_tokenization_spaces"`
		CleanupMeant   bool                   `json:"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"`
	}
	fail := func(key string, err error) (Config, error) {
		return Config{}, diag.Errorf(diag.Format, "%s does not follow its format", key).For(key).
			At(diag.Pos{File: file}).Because(err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return fail("the file", err)
	}
	c := Config{Class: f.Class, AddBOS: f.AddBOS, AddEOS: f.AddEOS, cleanup: f.Cleanup && f.CleanupMeant}
	if n := f.ModelMaxLength; n != nil && *n > 0 && *n < math.MaxInt32 {
		c.ModelMaxLength = int64(*n)
	}
	for key, t := range f.Added {
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil || id > maxID {
			return fail("added_tokens_decoder", err)
		}
		a := t.added(t.Special)
		a.ID = int32(id)
		c.special = append(c.special, a)
	}
	slices.SortFunc(c.special, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	for _, t := range []struct {
		token *configToken
		name  *string
	}{
		{f.BOS, &c.BOSToken}, {f.EOS, &c.EOSToken}, {f.Unk, &c.UnkToken}, {f.Pad, &c.PadToken},
		{f.Sep, nil}, {f.Cls, nil}, {f.Mask, nil},
	} {
		if t.token == nil {
			continue
		}
		c.special = append(c.special, t.token.added(true))
		if t.name != nil {
			*t.name = t.token.Content
		}
	}
	if err := c.parseExtra(f.Extra); err != nil {
		return fail("extra_special_tokens", err)
	}
	for _, t := range f.Additional {
		c.special = append(c.special, t.added(true))
	}
	if err := c.parseTemplates(f.ChatTemplate); err != nil {
		return fail("chat_template", err)
	}
	return c, nil
}

func (t configToken) added(special bool) addedToken {
	normalized := t.Normalized != nil && *t.Normalized
	return addedToken{ID: -1, Content: t.Content, LStrip: t.LStrip, RStrip: t.RStrip, SingleWord: t.SingleWord,
		Normalized: normalized, Special: special}
}

// parseExtra reads extra_special_tokens: a list, or an object from names.
func (c *Config) parseExtra(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list []configToken
	if raw[0] == '{' {
		var named map[string]configToken
		if err := json.Unmarshal(raw, &named); err != nil {
			return err
		}
		c.ExtraSpecial = map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			c.ExtraSpecial[name] = named[name].Content
			list = append(list, named[name])
		}
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, t := range list {
		c.special = append(c.special, t.added(true))
	}
	return nil
}

// parseTemplates reads chat_template: a text, or a list of named ones.
func (c *Config) parseTemplates(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		c.ChatTemplates = []ChatTemplate{{Name: "default"}}
		return json.Unmarshal(raw, &c.ChatTemplates[0].Text)
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, t := range list {
		c.ChatTemplates = append(c.ChatTemplates, ChatTemplate{t.Name, t.Template})
	}
	return nil
}
