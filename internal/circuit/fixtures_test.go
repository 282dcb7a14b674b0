// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

var update = flag.Bool("update", false, "rewrite golden plans and INSTANCES.toml")

var library = sync.OnceValues(func() (*Library, error) { return LoadLibrary(kernels.FS) })

func lib(t testing.TB) *Library {
	t.Helper()
	l, err := library()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tiny is a reference checkpoint: its config, and its tensors' names, types and shapes.
func tiny(t testing.TB, family string) (*modelconf.Config, *Synthetic) {
	t.Helper()
	files := fixture.Files(t, fixture.Tiny(family))
	cat := header(t, files["model.safetensors"])
	if file, ok := files["model-mtp.safetensors"]; ok {
		more := header(t, file)
		cat = edited(cat, nil, more.shapes)
	}
	return readConfig(t, files["config.json"]), cat
}

// serve makes an instance of everything that a config describes.
func serve(t testing.TB, cfg *modelconf.Config) *Instance {
	t.Helper()
	in, err := Instantiate(lib(t), cfg, instantiate(t, cfg).PartNames()...)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func readConfig(t testing.TB, src []byte) *modelconf.Config {
	t.Helper()
	cfg, err := modelconf.Read(map[string][]byte{"config.json": src})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// header lists the tensors of a safetensors file.
func header(t testing.TB, file []byte) *Synthetic {
	t.Helper()
	var h map[string]struct {
		DType string       `json:"dtype"`
		Shape tensor.Shape `json:"shape"`
	}
	n := binary.LittleEndian.Uint64(file)
	if err := json.Unmarshal(file[8:8+n], &h); err != nil {
		t.Fatal(err)
	}
	s := &Synthetic{dtypes: map[string]tensor.DType{}, shapes: map[string]tensor.Shape{}}
	for name, x := range h {
		if name == "__metadata__" {
			continue
		}
		d, ok := tensor.ParseDType(strings.ToLower(x.DType))
		if !ok {
			t.Fatalf("%s is %s", name, x.DType)
		}
		s.names = append(s.names, name)
		s.dtypes[name], s.shapes[name] = d, x.Shape
	}
	slices.Sort(s.names)
	return s
}

func instantiate(t testing.TB, cfg *modelconf.Config) *Instance {
	t.Helper()
	in, err := Instantiate(lib(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// small are limits that fit the reference checkpoints.
var small = plan.Limits{Rows: 16, Seqs: 4, Outs: 4, PageSize: 16, Pages: 16}

func lower(t testing.TB, in *Instance, cat Catalog, noFusion bool) *plan.Plan {
	t.Helper()
	p, err := in.Lower(lib(t), cat, Options{Class: "cpu", Compute: Float32, KV: tensor.F32, Limits: small, NoFusion: noFusion})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// replaceJSON edits a config as text: each pair is old, new.
func replaceJSON(t testing.TB, src []byte, pairs ...string) []byte {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !bytes.Contains(src, []byte(pairs[i])) {
			t.Fatalf("the config has no %q", pairs[i])
		}
		src = bytes.Replace(src, []byte(pairs[i]), []byte(pairs[i+1]), 1)
	}
	return src
}
