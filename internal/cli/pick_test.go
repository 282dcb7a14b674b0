// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// TestPick: a person names a model by its number or its name, and is asked again after anything else.
func TestPick(t *testing.T) {
	list := []choice{{demo, 8_400_000, "nvfp4, built in"}, {"acme/tiny-2b", 22, ""}}
	for typed, want := range map[string]string{
		"\nHello":               demo,
		"2\nHello":              "acme/tiny-2b",
		" 1 \nHello":            demo,
		"0\n3\nyes\n2\nHello":   "acme/tiny-2b",
		"acme/tiny-2b\r\nHello": "acme/tiny-2b",
	} {
		in, log := strings.NewReader(typed), &strings.Builder{}
		got, err := pick(in, log, list)
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", typed, got, err, want)
		}
		if rest, _ := io.ReadAll(in); string(rest) != "Hello" {
			t.Errorf("%q: %q is left for the conversation", typed, rest)
		}
		if asked := strings.Count(log.String(), "which one?"); asked != strings.Count(typed, "\n") || !strings.HasPrefix(log.String(), "1  demo          8.4 MB  nvfp4, built in\n2  acme/tiny-2b  22 B\n") {
			t.Errorf("%q was asked:\n%s", typed, log)
		}
	}
	if _, err := pick(strings.NewReader("9\n"), io.Discard, list); !diag.Is(err, diag.Canceled) {
		t.Errorf("the end of input chooses: %v", err)
	}
}

// TestDefaultModel: with nobody to ask, the cache does not matter.
func TestDefaultModel(t *testing.T) {
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "models--acme--tiny-2b", "blobs"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := defaultModel(strings.NewReader("1\n"), io.Discard, cache)
	if demoBytes() == 0 {
		if !diag.Is(err, diag.NotFound) {
			t.Errorf("without a model inside: %q, %v", got, err)
		}
		return
	}
	if err != nil || got != demo {
		t.Errorf("%q, %v", got, err)
	}
	list, err := choices(cache)
	if err != nil || len(list) != 2 || list[0].name != demo || list[1].name != "acme/tiny-2b" {
		t.Errorf("choices are %v, %v", list, err)
	}
}
