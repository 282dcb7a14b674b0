// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

const instancesFile = "../../kernels/circuits/INSTANCES.toml"

type instanceDecl struct {
	Model   string   `toml:"model"`
	Config  string   `toml:"config"`
	Class   string   `toml:"class"` // cpu unless given
	With    []string `toml:"with"`  // parts beside the decoder
	Part    string   `toml:"part"`
	Compute string   `toml:"compute"`
	KV      string   `toml:"kv"`
	Stored  string   `toml:"stored"`
	Limits  [5]int64 `toml:"limits"`
	Plan    string   `toml:"plan"`
	Digest  string   `toml:"digest"`
}

// TestKnownInstances lowers every model of INSTANCES.toml and compares digests, and texts where they are committed.
func TestKnownInstances(t *testing.T) {
	src, err := os.ReadFile(instancesFile)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Instances []instanceDecl `toml:"instance"`
	}
	if _, err := kernel.DecodeTOML("INSTANCES.toml", src, &doc); err != nil {
		t.Fatal(err)
	}
	configs := fixture.Files(t, fixture.Configs)
	for _, d := range doc.Instances {
		t.Run(d.Model, func(t *testing.T) {
			folder, name, _ := strings.Cut(d.Config, "/")
			json := configs[name]
			if folder == "tiny" {
				json = fixture.Files(t, fixture.Tiny(name))["config.json"]
			}
			if json == nil {
				t.Fatalf("testdata has no %s", d.Config)
			}
			whole, err := Instantiate(lib(t), readConfig(t, json), d.With...)
			if err != nil {
				t.Fatal(err)
			}
			in := whole.InPart(d.Part)
			if in == nil {
				t.Fatalf("the config has no part %s", d.Part)
			}
			stored, _ := tensor.ParseDType(d.Stored)
			kv, _ := tensor.ParseDType(d.KV)
			p, err := in.Lower(lib(t), in.SyntheticCatalog(stored), Options{Class: cmp.Or(d.Class, "cpu"), Compute: d.Compute, KV: kv,
				Limits: plan.Limits{Rows: d.Limits[0], Seqs: d.Limits[1], Outs: d.Limits[2], PageSize: d.Limits[3], Pages: d.Limits[4]}})
			if err != nil {
				t.Fatal(err)
			}
			text := p.Print()
			back, err := plan.Parse(d.Plan, text)
			if err != nil {
				t.Fatal(err)
			}
			if back.Print() != text || back.Verify() != nil {
				t.Error("the text does not read back as the same plan")
			}
			if got := p.Digest(); got != d.Digest {
				if *update {
					at := bytes.Index(src, []byte(`model = "`+d.Model+`"`))
					src = slices.Concat(src[:at], bytes.Replace(src[at:], []byte(`digest = "`+d.Digest+`"`), []byte(`digest = "`+got+`"`), 1))
				} else {
					t.Errorf("digest %s, INSTANCES.toml says %s (rewrite with -update)", got, d.Digest)
				}
			}
			if d.Plan != "" {
				compareGolden(t, filepath.Join("../../kernels/circuits", d.Plan), text)
			}
		})
	}
	if *update {
		if err := os.WriteFile(instancesFile, src, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Errorf("%s:%d differs (rewrite with -update):\n got %s\nwant %s", file, i+1, g[i], w[min(i, len(w)-1)])
			return
		}
	}
	t.Errorf("%s has %d lines, now there are %d (rewrite with -update)", file, len(w), len(g))
}
