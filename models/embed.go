// SPDX-License-Identifier: MIT OR Apache-2.0

package models

import (
	"embed"
	"io/fs"
)

//go:embed demo
var files embed.FS

// Demo is the folder of the demo model: weights, configuration, tokenizer, licence and data card.
func Demo() fs.FS {
	demo, err := fs.Sub(files, "demo")
	if err != nil {
		panic(err) // the name is a constant
	}
	return demo
}
