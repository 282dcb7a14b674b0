// SPDX-License-Identifier: MIT OR Apache-2.0

package metrale

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longFiles may have more than maxLines, each with its reason.
var longFiles = map[string]string{
	"kernels/hopper/common/recurrent/delta_chunks.cu": "two kernels that share the layout of what one leaves for the other",
}

const maxLines = 600

// generated files are exempt from rules about style, not from the licence line.
func generated(src []byte) bool {
	head := src[:min(len(src), 400)]
	return bytes.Contains(head, []byte("Code generated")) && bytes.Contains(head, []byte("DO NOT EDIT"))
}

// bans are patterns that source must not have, each with what to use instead. Files named in except may.
var bans = []struct {
	ext, pattern, instead string
	except                []string
}{
	{".go", `\bos\.(Getenv|LookupEnv|Environ)\(`, "environment variables are read in internal/cli/environment.go and passed on", []string{"internal/cli/environment.go", "_test.go", "tools/", "cmd/kbuild/"}},
	{".go", `\bfmt\.Print(f|ln)?\(`, "write to the io.Writer that the command was given", []string{"tools/", "_test.go", "cmd/"}},
	{".go", `\blog\.(Print|Fatal|Panic)`, "use log/slog", []string{"tools/"}},
	{".go", `\btime\.Sleep\(`, "wait for the event itself", []string{"_test.go", "tools/", "internal/weights/hub/", "internal/gpu/cuda/wait.go", "internal/engine/script/", "internal/exec/script/"}},
	{"", "TO" + `DO|FIX` + "ME|XX" + "X:", "finish it, or refuse with an error that says what is missing", nil},
	{"", `(?i)\b(sub` + `agent|helper-[0-9])`, "the project speaks of the project alone", nil},
}

// sourceExt are the kinds of files that carry a licence line.
var sourceExt = []string{".go", ".s", ".toml", ".py", ".sh", ".cu", ".cuh", ".hip", ".h", ".mjs", ".js"}

func TestEverySourceFileHasItsLicence(t *testing.T) {
	walkSource(t, func(path string) {
		if !slices.Contains(sourceExt, filepath.Ext(path)) {
			return
		}
		src := read(t, path)
		if !bytes.Contains(src[:min(len(src), 300)], []byte("SPDX-License-Identifier: MIT OR Apache-2.0")) {
			t.Errorf("%s: no SPDX line on top", path)
		}
	})
}

func TestBannedPatterns(t *testing.T) {
	for _, b := range bans {
		re := regexp.MustCompile(b.pattern)
		walkSource(t, func(path string) {
			ext := filepath.Ext(path)
			if !slices.Contains(sourceExt, ext) && ext != ".md" || b.ext != "" && ext != b.ext || path == "lint_test.go" {
				return
			}
			if slices.ContainsFunc(b.except, func(e string) bool { return strings.Contains(filepath.ToSlash(path), e) }) {
				return
			}
			for i, line := range strings.Split(string(read(t, path)), "\n") {
				if re.MatchString(line) {
					t.Errorf("%s:%d: %s; %s", path, i+1, strings.TrimSpace(line), b.instead)
				}
			}
		})
	}
}

func TestFilesStayShort(t *testing.T) {
	walkSource(t, func(path string) {
		if ext := filepath.Ext(path); ext != ".go" && ext != ".cu" && ext != ".cuh" && ext != ".hip" && ext != ".h" {
			return
		}
		src := read(t, path)
		if n := bytes.Count(src, []byte("\n")); n > maxLines && !generated(src) && longFiles[filepath.ToSlash(path)] == "" {
			t.Errorf("%s has %d lines; split it, or give its reason in longFiles", path, n)
		}
	})
}

func TestEveryPackageStatesItsContract(t *testing.T) {
	badName := regexp.MustCompile(`(^|/)(util|utils|common|helpers?|types|misc)$`)
	for pkg := range imports(t) {
		if !within(pkg, "internal") && !within(pkg, "kernels") && !within(pkg, "models") {
			continue
		}
		if badName.MatchString(pkg) {
			t.Errorf("%s: a package is named for what it provides", pkg)
		}
		src, err := os.ReadFile(filepath.Join(pkg, "doc.go"))
		if err != nil {
			t.Errorf("%s has no doc.go", pkg)
			continue
		}
		if !bytes.Contains(src, []byte("\n// Package ")) || bytes.Count(src, []byte("\n//")) < 4 {
			t.Errorf("%s/doc.go states no contract", pkg)
		}
	}
}

// TestTrackedTreeStaysSmall keeps a checkout light: it travels to machines with accelerators (docs/adr/0005).
func TestTrackedTreeStaysSmall(t *testing.T) {
	const limit = 58 << 20
	var size int64
	err := filepath.Walk(".", func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.IsDir() && (path == ".git" || path == "build" || strings.HasSuffix(path, "node_modules")) {
			return filepath.SkipDir
		}
		if info.Mode().IsRegular() && path != "met" && !strings.HasPrefix(path, filepath.Join("kernels", "bin")) {
			size += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > limit {
		t.Errorf("the tree has %d MB, at most %d", size>>20, limit>>20)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return src
}
