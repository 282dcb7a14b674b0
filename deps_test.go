// SPDX-License-Identifier: MIT OR Apache-2.0

package metrale

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/metrale/metrale/"

// lattice orders the packages: one may import only what stands above it, or its own family (parent and children).
// Several on a line may not import each other.
const lattice = `
	internal/fixture
	internal/diag
	internal/tensor
	internal/seq
	internal/telemetry
	internal/modelconf
	internal/kernel
	internal/weights
	internal/tokenizer internal/chat internal/vision
	internal/plan
	internal/circuit
	internal/gpu
	internal/coll
	internal/exec
	internal/kv internal/sample internal/grammar
	internal/spec
	internal/sched
	internal/engine
	internal/api
	internal/server
	internal/bench internal/governance
	internal/certify
	internal/tui
	kernels models
	internal/kbuild
	internal/cli
	cmd
`

// never lists imports that a package must not have, with the reason.
var never = []struct{ pkgs, imports, why string }{
	{"internal/sched internal/kv internal/spec internal/grammar internal/sample internal/circuit internal/plan",
		"os net net/http sync sync/atomic time log log/slog internal/gpu", "the core is pure: events in, work as data out"},
	{"internal/exec", "internal/circuit", "a plan must be enough to run"},
	{"internal/api", "internal/engine", "wire formats know no engine"},
	{"internal/diag internal/tensor internal/seq internal/modelconf internal/kernel internal/weights internal/tokenizer internal/chat internal/plan internal/circuit internal/gpu internal/coll internal/exec internal/kv internal/sample internal/grammar internal/spec internal/sched internal/engine internal/api internal/server internal/bench internal/governance internal/tui",
		"kernels models", "the kernel tree and the built-in model enter as data, through cli"},
	{"internal/gpu/cpu/linear internal/gpu/cpu/attn internal/gpu/cpu/recur internal/gpu/cpu/vec internal/gpu/cpu/pool",
		"internal/gpu internal/plan internal/exec", "the CPU's kernels know slices and workers, no device"},
	{"cmd/met", "internal/engine internal/server internal/circuit", "main calls internal/cli and nothing else"},
}

// unsafeAllowed are the only packages that may import unsafe.
var unsafeAllowed = []string{"internal/gpu/cuda", "internal/gpu/cpu", "internal/coll/nccl", "internal/weights"}

// imports maps each package folder to the imports of its non-test files, and each import to a file that has it.
func imports(t *testing.T) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	walkSource(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if out[dir] == nil {
			out[dir] = map[string]string{}
		}
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			out[dir][strings.TrimPrefix(name, module)] = path
		}
	})
	return out
}

// walkSource visits every file of this module, but not of nested modules, fixtures and build outputs.
func walkSource(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build" || name == "node_modules") {
				return filepath.SkipDir
			}
			if m, _ := filepath.Glob(filepath.Join(path, "go.mod")); path != "." && len(m) > 0 {
				return filepath.SkipDir
			}
			return nil
		}
		visit(path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// siblings says whether both are parts of the CPU driver.
func siblings(a, b string) bool {
	return within(a, "internal/gpu/cpu") && within(b, "internal/gpu/cpu")
}

// within says whether pkg is the folder or lies below it.
func within(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

func TestImportsPointUpTheLattice(t *testing.T) {
	rank := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(lattice), "\n") {
		for _, p := range strings.Fields(line) {
			rank[p] = i
		}
	}
	family := func(pkg string) (string, bool) {
		for p := pkg; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
			if _, ok := rank[p]; ok {
				return p, true
			}
		}
		return "", false
	}
	for pkg, list := range imports(t) {
		if within(pkg, "tools") {
			continue
		}
		from, ok := family(pkg)
		if !ok {
			t.Errorf("%s has no place in the lattice of deps_test.go", pkg)
			continue
		}
		for name, file := range list {
			if !within(name, "internal") && !within(name, "kernels") && !within(name, "models") && !within(name, "cmd") {
				continue
			}
			to, ok := family(name)
			switch {
			case !ok:
				t.Errorf("%s imports %s, which has no place in the lattice", file, name)
			case to != from && rank[to] >= rank[from]:
				t.Errorf("%s imports %s: %s does not stand above %s", file, name, to, from)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	all := imports(t)
	for _, rule := range never {
		for _, folder := range strings.Fields(rule.pkgs) {
			for pkg, list := range all {
				if !within(pkg, folder) {
					continue
				}
				for _, banned := range strings.Fields(rule.imports) {
					for name, file := range list {
						if name == banned || strings.HasPrefix(banned, "internal/") && within(name, banned) && !siblings(pkg, name) {
							t.Errorf("%s imports %s: %s", file, name, rule.why)
						}
					}
				}
			}
		}
	}
}

func TestUnsafeStaysAtTheRim(t *testing.T) {
	for pkg, list := range imports(t) {
		if file, ok := list["unsafe"]; ok && !slices.ContainsFunc(unsafeAllowed, func(a string) bool { return within(pkg, a) }) {
			t.Errorf("%s imports unsafe; only %s may", file, strings.Join(unsafeAllowed, ", "))
		}
	}
}
