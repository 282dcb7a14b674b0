// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// volatile is what differs from run to run, with what stands for it in golden files.
var volatile = []struct {
	re *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`"(chatcmpl|cmpl)-[A-Z2-7]{26}"`), `"$1-ID"`},
	{regexp.MustCompile(`"created":\d+`), `"created":0`},
	{regexp.MustCompile(`-5\.29\d+e-07`), `-5.3e-07`},
}

func steady(s string) string {
	for _, v := range volatile {
		s = v.re.ReplaceAllString(s, v.as)
	}
	return s
}

// TestWire plays testdata/wire: each file is a conversation of requests (METHOD path, headers, empty line, body) and the
// answers' bytes.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	r := newRig(t, rigOptions{server: Options{Version: "1.2.3"}})
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out []txtar.File
			for _, f := range a.Files {
				if !strings.HasPrefix(f.Name, "request") {
					continue
				}
				got := r.play(t, string(f.Data))
				out = append(out, f, txtar.File{Name: "answer" + strings.TrimPrefix(f.Name, "request"), Data: []byte(got)})
			}
			if *update {
				a.Files = out
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(out) != len(a.Files) {
				t.Fatalf("%d files, want %d: run with -update", len(a.Files), len(out))
			}
			for i, f := range a.Files {
				if want := string(out[i].Data); string(f.Data) != want {
					t.Errorf("%s:\n%s\nwant\n%s", f.Name, want, f.Data)
				}
			}
		})
	}
}

// play sends a request as a story writes it and gives the answer as a story wants it.
func (r *rig) play(t *testing.T, request string) string {
	head, body, _ := strings.Cut(request, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	var headers []string
	for _, l := range lines[1:] {
		k, v, _ := strings.Cut(l, ": ")
		headers = append(headers, k, v)
	}
	a := r.do(t, method, path, strings.TrimSuffix(body, "\n"), headers...)
	return fmt.Sprintf("%d %s\n%s\n", a.status, a.header.Get("Content-Type"), strings.TrimSuffix(steady(a.body), "\n"))
}
