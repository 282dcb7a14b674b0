// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// ID names a repository and a revision of it.
type ID struct {
	Repo     string // "org/name", or "name" for the oldest ones
	Revision string // branch, tag or commit; "main" if none is given
}

// namePart is an organisation or a repository's own name.
var namePart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}$`)

// commit is a full git commit.
var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// ParseID reads "org/name" or "org/name@revision".
func ParseID(s string) (ID, error) {
	repo, rev, has := strings.Cut(s, "@")
	if !has {
		rev = "main"
	}
	parts := strings.Split(repo, "/")
	ok := len(parts) <= 2
	for _, p := range parts {
		ok = ok && namePart.MatchString(p) && !strings.Contains(p, "--") && !strings.Contains(p, "..") && !strings.HasSuffix(p, ".") && !strings.HasSuffix(p, "-")
	}
	if !ok {
		return ID{}, diag.Errorf(diag.Invalid, "%q is no model id (org/name or org/name@revision)", s).For("model")
	}
	if !safeName(rev) || len(rev) > 200 {
		return ID{}, diag.Errorf(diag.Invalid, "%q is no revision of a model", rev).For("model")
	}
	return ID{repo, rev}, nil
}

// String is "org/name", with "@revision" if that is not main.
func (id ID) String() string {
	if id.Revision == "main" {
		return id.Repo
	}
	return id.Repo + "@" + id.Revision
}

// safeName says whether a slash-separated name stays below the folder that it is put into, on every system.
func safeName(name string) bool {
	if name == "" || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7F || strings.ContainsRune(`\:*?"<>|`, r) })
}

// listing is what a revision has: its commit and its files.
type listing struct {
	commit string
	files  []string
}

const indexSuffix = ".safetensors.index.json"

// selection is what to fetch of a listing: files that are wanted at once, and an index that says what else is.
type selection struct {
	files []string
	index string
}

// choose selects by the rules that weights.Open finds files with; gguf chooses a GGUF file by its name or by a part of it
// that stands between separators ("Q4_K_M").
func (l listing) choose(id ID, gguf string) (selection, error) {
	var sel selection
	var models, indices, ggufs []string
	for _, f := range l.files {
		switch {
		case strings.HasSuffix(f, ".gguf"):
			ggufs = append(ggufs, f)
		case strings.Contains(f, "/"):
		case strings.HasSuffix(f, indexSuffix):
			indices = append(indices, f)
		case strings.HasSuffix(f, ".safetensors"):
			models = append(models, f)
		}
		for _, pattern := range weights.SideFiles() {
			if ok, _ := path.Match(pattern, f); ok {
				sel.files = append(sel.files, f)
			}
		}
	}
	if gguf != "" || len(models) == 0 && len(ggufs) > 0 {
		chosen, err := chooseGGUF(id, ggufs, gguf)
		return selection{files: chosen}, err
	}
	main := "model" + indexSuffix
	switch {
	case slices.Contains(indices, main):
		sel.index = main
	case len(indices) == 1:
		sel.index = indices[0]
	case slices.Contains(models, "model.safetensors"):
		sel.files = append(sel.files, "model.safetensors")
	case len(models) > 0:
		sel.files = append(sel.files, models...)
	default:
		return sel, diag.Errorf(diag.Unsupported, "%v has neither safetensors nor GGUF files", id).For("model")
	}
	return sel, nil
}

// part is the tail of one of several parts of a GGUF file.
var part = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// chooseGGUF gives all parts of the one file that want means.
func chooseGGUF(id ID, files []string, want string) ([]string, error) {
	bare := func(f string) string { return part.ReplaceAllString(f, ".gguf") }
	groups := map[string][]string{}
	token := regexp.MustCompile(`(?i)(^|[-._/])` + regexp.QuoteMeta(want) + `($|[-._/])`)
	for _, f := range files {
		if strings.HasPrefix(path.Base(f), "mmproj") {
			continue // the vision tower of a model, not a model
		}
		if want == "" || bare(f) == bare(want) || token.MatchString(bare(f)) {
			groups[bare(f)] = append(groups[bare(f)], f)
		}
	}
	if _, exact := groups[bare(want)]; exact {
		return groups[bare(want)], nil
	}
	var names []string
	for g := range groups {
		names = append(names, g)
	}
	sort.Strings(names)
	switch {
	case len(names) == 1:
		return groups[names[0]], nil
	case len(names) == 0:
		return nil, diag.Errorf(diag.NotFound, "%v has no GGUF file %q", id, want).For("gguf")
	}
	return nil, diag.Errorf(diag.Invalid, "%v has several GGUF files; choose one of: %s", id, strings.Join(names, ", ")).For("gguf")
}

// shards are the files that an index names.
func shards(name string, data []byte) ([]string, error) {
	ix, err := safetensors.ParseIndex(name, data)
	if err != nil {
		return nil, err
	}
	return ix.Shards, nil
}
