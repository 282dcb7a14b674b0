// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/kernels"
)

// smallLibrary is the kernel tree with the circuits and models of testdata/library.txtar.
func smallLibrary(t *testing.T) (*Library, fs.FS) {
	t.Helper()
	a, err := txtar.ParseFile("testdata/library.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, f := range tree(t) {
		if !strings.HasPrefix(name, "circuits/") {
			files[name] = f
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for _, f := range a.Files {
		name, ok := strings.CutPrefix(f.Name, "published/")
		if !ok {
			files[f.Name] = &fstest.MapFile{Data: f.Data}
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(f.Data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	files[publishedConfigs] = &fstest.MapFile{Data: packed.Bytes()}
	l, err := LoadLibrary(files)
	if err != nil {
		t.Fatal(err)
	}
	return l, files
}

// TestReportsOfALibrary prints the models, the measures and a comparison of a library that is small enough to count by hand.
func TestReportsOfALibrary(t *testing.T) {
	l, files := smallLibrary(t)
	models, err := Published(files)
	if err != nil {
		t.Fatal(err)
	}
	survey := Summaries(l, models, onCPU)
	compareGolden(t, "testdata/survey.txt", survey.Table())
	compareGolden(t, "testdata/survey.md", survey.Markdown())
	lab, err := Lab(l, files, survey)
	if err != nil {
		t.Fatal(err)
	}
	lab = regexp.MustCompile(`ops of Σ: \d+`).ReplaceAllString(lab, "ops of Σ: N")
	lab = regexp.MustCompile(`(in no known model:) .*`).ReplaceAllString(lab, "$1 …")
	compareGolden(t, "testdata/lab.txt", lab)
	var in []*Instance
	for _, name := range []string{"maker/alpha-2", "beta"} {
		m, err := Known(files, name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Whole(l, m.Config)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, x)
	}
	compareGolden(t, "testdata/venn.txt", Venn("maker/alpha-2", "beta", in[0], in[1]))
	if _, err := Known(files, "omega"); !diag.Is(err, diag.NotFound) {
		t.Errorf("a model that is not known: %v", err)
	}
}

// TestAModelSharesAllWithItself also with its parts.
func TestAModelSharesAllWithItself(t *testing.T) {
	for _, name := range []string{"qwen3_5_moe", "deepseek_v3", "gemma4_moe", "Qwen/Qwen3-VL-2B-Instruct"} {
		m, err := Known(kernels.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Whole(lib(t), m.Config)
		if err != nil {
			t.Fatal(err)
		}
		text := Venn(name, name, in, in)
		if strings.Count(text, "(100 %)") != 2 || strings.Contains(text, "×") {
			t.Errorf("%s is not itself:\n%s", name, text)
		}
		if len(in.parts) > 0 == strings.HasPrefix(name, "gemma4") {
			t.Errorf("%s has %d parts", name, len(in.parts))
		}
	}
}

// TestLabOfTheLibrary: every model_type is counted once, and every op that a known model uses is named by a block.
func TestLabOfTheLibrary(t *testing.T) {
	text, err := Lab(lib(t), kernels.FS, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "lines of each model_type")
	variants, ops, _ := strings.Cut(text, "ops of Σ")
	for mt := range lib(t).Variants {
		if n := len(regexp.MustCompile(` `+regexp.QuoteMeta(mt)+` [1-9]\d*[,\n]`).FindAllString(variants, -1)); n != 1 {
			t.Errorf("%s is counted %d times", mt, n)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^  (\w+) +\d+ +(\d+|–)`).FindAllStringSubmatch(ops, -1) {
		if row[2] == "–" {
			t.Errorf("no block names op %s", row[1])
		}
	}
}
