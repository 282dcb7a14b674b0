// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"github.com/metrale/metrale/internal/server"
	"github.com/metrale/metrale/internal/tokenizer"
)

func (c *checkpoint) template(tok *tokenizer.Tokenizer) (server.Template, error) { return nil, nil }
