// SPDX-License-Identifier: MIT OR Apache-2.0

package models_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/metrale/metrale/models"
)

// TestDemoIsWhole: the binary carries what a checkpoint in Hugging Face's layout has, with its licence and a card without gaps.
func TestDemoIsWhole(t *testing.T) {
	for _, name := range []string{"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE", "README.md"} {
		if info, err := fs.Stat(models.Demo(), name); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		} else if info.Size() > 12e6 {
			t.Errorf("%s has %d bytes, more than a binary should carry", name, info.Size())
		}
	}
	card, err := fs.ReadFile(models.Demo(), "README.md")
	if err != nil {
		t.Fatal(err)
	}
	if gap := regexp.MustCompile(`not measured|\{[a-z.]+\}`).Find(card); gap != nil {
		t.Errorf("the data card has a gap: %s", gap)
	}
}

// TestArchiveIsTheListedOne: the BF16 weights that other forms are made from are those that tools/demo lists. A checkout may leave them out.
func TestArchiveIsTheListedOne(t *testing.T) {
	folder := filepath.Join("..", "tools", "demo")
	archive, err := os.ReadFile(filepath.Join(folder, "bf16.tar.xz"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("this checkout has no tools/demo/bf16.tar.xz")
	}
	if err != nil {
		t.Fatal(err)
	}
	listed, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	if !bytes.Contains(listed, []byte(hex.EncodeToString(sum[:]))) {
		t.Errorf("tools/demo/README.md does not list sha256 %x of bf16.tar.xz", sum)
	}
}
