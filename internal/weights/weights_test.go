// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// u8 is a tensor of n bytes that count up from first.
func u8(name string, first byte, n int) safetensors.NamedTensor {
	data := make([]byte, n)
	for i := range data {
		data[i] = first + byte(i)
	}
	return safetensors.NamedTensor{Name: name, DType: tensor.U8, Shape: tensor.Shape{int64(n)}, Data: data}
}

// dir writes files (strings, or slices of tensors as safetensors) into a fresh directory.
func dir(t testing.TB, files map[string]any) string {
	t.Helper()
	d := t.TempDir()
	for name, content := range files {
		var b bytes.Buffer
		switch c := content.(type) {
		case string:
			b.WriteString(c)
		case []safetensors.NamedTensor:
			if err := safetensors.Write(&b, c); err != nil {
				t.Fatal(err)
			}
		}
		p := filepath.Join(d, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

type tensors = []safetensors.NamedTensor

func TestOpenDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]any
		names string
	}{
		"single":          {map[string]any{"model.safetensors": tensors{u8("b", 1, 3), u8("a", 9, 2)}, "ref.safetensors": tensors{u8("logits", 0, 1)}}, "a b"},
		"all, no index":   {map[string]any{"x.safetensors": tensors{u8("a", 9, 2)}, "y.safetensors": tensors{u8("b", 1, 3)}}, "a b"},
		"numbered shards": {map[string]any{"m-00001-of-00002.safetensors": tensors{u8("a", 9, 2)}, "m-00002-of-00002.safetensors": tensors{u8("b", 1, 3)}}, "a b"},
		"index with an extra shard": {map[string]any{
			"model.safetensors.index.json": `{"weight_map":{"a":"model.safetensors","b":"model-mtp.safetensors"}}`,
			"model.safetensors":            tensors{u8("a", 9, 2)}, "model-mtp.safetensors": tensors{u8("b", 1, 3)},
			"consolidated.safetensors": tensors{u8("a", 0, 2)}}, "a b"},
		"index decides between copies": {map[string]any{
			"model.safetensors.index.json": `{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`,
			"1.safetensors":                tensors{u8("a", 9, 2), u8("b", 77, 3)}, "2.safetensors": tensors{u8("b", 1, 3)}}, "a b"},
	} {
		for _, mmap := range []bool{false, true} {
			s, _, err := Open(dir(t, c.files), Options{Mmap: mmap})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := strings.Join(s.Names(), " "); got != c.names || s.TotalBytes() != 5 {
				t.Errorf("%s: %s, %d bytes", name, got, s.TotalBytes())
			}
			got := make([]byte, 2)
			if err := s.Read("b", 1, got); err != nil || got[0] != 2 || got[1] != 3 {
				t.Errorf("%s: read %v %v", name, got, err)
			}
			if view, ok := s.Bytes("b"); ok != mmap || ok && !bytes.Equal(view, []byte{1, 2, 3}) {
				t.Errorf("%s: view %v %v", name, view, ok)
			}
			s.Drop("b")
			if err := s.Read("b", 0, got); err != nil || got[0] != 1 {
				t.Errorf("%s: after Drop %v %v", name, got, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestOpenBringsSideFiles(t *testing.T) {
	d := dir(t, map[string]any{"model.safetensors": tensors{u8("a", 0, 1)}, "config.json": "{}", "README.md": "no",
		"chat_template.jinja": "x", "additional_chat_templates/tool.jinja": "y"})
	for _, path := range []string{d, filepath.Join(d, "model.safetensors")} {
		s, f, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if len(f.Side) != 3 || string(f.Side["additional_chat_templates/tool.jinja"]) != "y" {
			t.Errorf("%v", f.Side)
		}
	}
}

// TestOpenFS: a directory that is no folder, as an embedded one, reads as the same folder does, and its faults name it.
func TestOpenFS(t *testing.T) {
	d := dir(t, map[string]any{
		"config.json": "{}", "additional_chat_templates/tool.jinja": "t", "other.txt": "o",
		"x.safetensors": tensors{u8("a", 9, 2)}, "y.safetensors": tensors{u8("b", 1, 300)},
	})
	memory := fstest.MapFS{}
	for _, name := range []string{"config.json", "additional_chat_templates/tool.jinja", "other.txt", "x.safetensors", "y.safetensors"} {
		data, err := os.ReadFile(filepath.Join(d, name))
		if err != nil {
			t.Fatal(err)
		}
		memory[name] = &fstest.MapFile{Data: data}
	}
	s, files, err := OpenFS(memory, "inside")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(files.Side) != 2 || string(files.Side["additional_chat_templates/tool.jinja"]) != "t" || files.Path != "inside" {
		t.Errorf("beside the tensors are %q of %s", files.Side, files.Path)
	}
	got := make([]byte, 3)
	if err := s.Read("b", 297, got); err != nil || !bytes.Equal(got, []byte{42, 43, 44}) || s.TotalBytes() != 302 {
		t.Errorf("b ends with %v of %d bytes in all, %v", got, s.TotalBytes(), err)
	}
	if _, ok := s.Bytes("b"); ok {
		t.Error("a view of what is not mapped")
	}
	delete(memory, "x.safetensors")
	delete(memory, "y.safetensors")
	if _, _, err := OpenFS(memory, "inside"); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), "inside") {
		t.Errorf("without tensors: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]any
		code  diag.Code
		want  string
	}{
		"empty directory": {map[string]any{}, diag.NotFound, "no *.safetensors file in it"},
		"missing shard": {map[string]any{"model.safetensors.index.json": `{"weight_map":{"a":"1.safetensors"}}`},
			diag.NotFound, "1.safetensors: no such file"},
		"missing numbered shard": {map[string]any{"m-00001-of-00003.safetensors": tensors{u8("a", 0, 1)}, "m-00002-of-00003.safetensors": tensors{}},
			diag.NotFound, "m-00001-of-00003.safetensors: only 2 of the 3 shards"},
		"missing tensor": {map[string]any{"model.safetensors.index.json": `{"weight_map":{"a":"1.safetensors","b":"1.safetensors"}}`, "1.safetensors": tensors{u8("a", 0, 1)}},
			diag.Format, "1.safetensors: the index promises tensor b (and 0 more)"},
		"the same tensor twice": {map[string]any{"1.safetensors": tensors{u8("a", 0, 1)}, "2.safetensors": tensors{u8("a", 0, 1)}},
			diag.Format, "2.safetensors: tensor a is also in 1.safetensors"},
		"two indices": {map[string]any{"x.safetensors.index.json": `{}`, "y.safetensors.index.json": `{}`}, diag.Format, "several indices"},
		"empty shard": {map[string]any{"model.safetensors": ""}, diag.Format, "model.safetensors: 0 bytes are too few"},
	} {
		_, _, err := Open(dir(t, c.files), Options{Mmap: true})
		if err == nil || diag.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v (%s), want %s", name, err, diag.CodeOf(err), c.want)
		}
	}
	if _, _, err := Open(filepath.Join(t.TempDir(), "nowhere"), Options{}); !diag.Is(err, diag.NotFound) {
		t.Errorf("a path that is not there: %v", err)
	}
	if _, _, err := Open(filepath.Join(dir(t, map[string]any{"x.bin": ""}), "x.bin"), Options{}); !diag.Is(err, diag.Unsupported) {
		t.Errorf("another kind of file: %v", err)
	}
}

// eachStore runs a test over the three kinds of Store, all with the same two tensors.
func eachStore(t *testing.T, test func(t *testing.T, s Store)) {
	ts := tensors{u8("a", 0, 100), {Name: "e", DType: tensor.F32, Shape: tensor.Shape{0, 3}}}
	d := dir(t, map[string]any{"model.safetensors": ts})
	for name, open := range map[string]func() (Store, error){
		"memory": func() (Store, error) { return Memory(ts...) },
		"read":   func() (Store, error) { s, _, err := Open(d, Options{}); return s, err },
		"mapped": func() (Store, error) { s, _, err := Open(d, Options{Mmap: true}); return s, err },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			test(t, s)
		})
	}
}

func TestStoreChecksNamesAndRanges(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		buf := make([]byte, 10)
		if err := s.Read("zzz", 0, buf); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), "zzz") {
			t.Errorf("unknown name: %v", err)
		}
		for _, off := range []int64{-1, 91, 1 << 62, -1 << 63} {
			if err := s.Read("a", off, buf); !diag.Is(err, diag.Invalid) {
				t.Errorf("offset %d: %v", off, err)
			}
		}
		if err := s.Read("a", 90, buf); err != nil || buf[9] != 99 {
			t.Errorf("the last bytes: %v %v", buf, err)
		}
		if err := s.Read("e", 0, nil); err != nil {
			t.Errorf("nothing of an empty tensor: %v", err)
		}
		if _, ok := s.Lookup("zzz"); ok {
			t.Error("looked up a tensor that is not there")
		}
		if x, ok := s.Lookup("e"); !ok || x.Size() != 0 || !x.Shape.Equal(tensor.Shape{0, 3}) {
			t.Errorf("%+v", x)
		}
		if _, ok := s.Bytes("zzz"); ok {
			t.Error("a view of a tensor that is not there")
		}
		s.Drop("zzz")
	})
}

func TestStoreServesManyAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				one := make([]byte, 1)
				for i := range 100 {
					at := (i*7 + g) % 100
					if err := s.Read("a", int64(at), one); err != nil || one[0] != byte(at) {
						t.Errorf("byte %d is %d: %v", at, one[0], err)
					}
					s.Drop("a")
				}
			})
		}
		wg.Wait()
	})
}

func TestAShrinkingFileIsAnErrorNotACrash(t *testing.T) {
	d := dir(t, map[string]any{"model.safetensors": tensors{u8("a", 0, 100)}})
	s, _, err := Open(d, Options{Mmap: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(filepath.Join(d, "model.safetensors"), 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Read("a", 0, make([]byte, 100)); !diag.Is(err, diag.IO) || !strings.Contains(err.Error(), "shorter than when it was opened") {
		t.Errorf("%v", err)
	}
}
