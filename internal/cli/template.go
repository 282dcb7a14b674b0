// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/server"
	"github.com/metrale/metrale/internal/tokenizer"
)

// readTemplate compiles the checkpoint's chat templates; nil when it has none.
func (c *checkpoint) readTemplate(tok *tokenizer.Tokenizer) (server.Template, error) {
	config := tok.Config()
	sources, err := templateSources(config, c.files.Side)
	if err != nil || len(sources) == 0 {
		return nil, err
	}
	return openai.NewTemplates(sources, openai.SpecialTokens{
		BOS: config.BOSToken, EOS: config.EOSToken, Unk: config.UnkToken, Pad: config.PadToken,
	}, time.Now)
}

// templateSources gives the templates by name. Files of their own win over those in tokenizer_config.json, as in transformers.
func templateSources(config tokenizer.Config, side map[string][]byte) (map[string]string, error) {
	sources := map[string]string{}
	for _, t := range config.ChatTemplates {
		sources[t.Name] = t.Text
	}
	if data, ok := side["chat_template.json"]; ok {
		var file struct {
			Template string `json:"chat_template"`
		}
		if err := json.Unmarshal(data, &file); err != nil || file.Template == "" {
			return nil, diag.Errorf(diag.Format, "no chat_template in it").At(diag.Pos{File: "chat_template.json"}).Because(err)
		}
		sources["default"] = file.Template
	}
	if text, ok := side["chat_template.jinja"]; ok {
		sources["default"] = string(text)
	}
	for name, text := range side {
		if dir, file := path.Split(name); dir == "additional_chat_templates/" {
			sources[strings.TrimSuffix(file, ".jinja")] = string(text)
		}
	}
	return sources, nil
}
