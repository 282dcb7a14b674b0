// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
)

// TestAFileThatCannotBeReadIsNotAbsent: of each kind of file, a disk that fails is told as that, also where the file might be missing.
func TestAFileThatCannotBeReadIsNotAbsent(t *testing.T) {
	files := tree(t)
	for _, name := range []string{
		"DEVICES.toml", "cpu/HARDWARE.toml", "cpu/common/FUSIONS.toml", "cuda/common/KERNEL_FAMILIES.toml", "hopper/llama-3.1-8b/MODEL.toml", "hopper/llama-3.1-8b/bf16/KERNEL.toml",
		"circuits/blocks/mlp.toml", "circuits/llama.toml", "circuits/llama.config.toml", "circuits/keys/decoder.toml", "circuits/keys/checkpoint.toml", "circuits/REFUSED.toml",
	} {
		if files[name] == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		_, err := LoadLibrary(fixture.Unreadable{MapFS: files, Name: name})
		if !diag.Is(err, diag.IO) || !strings.Contains(err.Error(), name+" cannot be read") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Published(fixture.Unreadable{MapFS: files, Name: publishedConfigs}); !diag.Is(err, diag.IO) {
		t.Errorf("%v", err)
	}
	delete(files, publishedConfigs)
	if _, err := Published(files); !diag.Is(err, diag.NotFound) {
		t.Errorf("%v", err)
	}
	delete(files, "circuits/REFUSED.toml") // which may be missing
	if _, err := LoadLibrary(files); err != nil {
		t.Error(err)
	}
	delete(files, "DEVICES.toml")
	if _, err := LoadLibrary(files); !diag.Is(err, diag.NotFound) {
		t.Errorf("%v", err)
	}
}
