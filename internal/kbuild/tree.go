// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"io/fs"
	"os"
	"path"
	"sort"

	"github.com/metrale/metrale/internal/kernel"
)

// Source is one translation unit of a class.
type Source struct {
	Name string // "<family>.<stem>"
	Path string // below root, slashes
}

// Sources lists a class's translation units: its own and those it inherits, by name.
func Sources(root string, c *kernel.Class) ([]Source, error) {
	byName := map[string]Source{}
	for _, class := range c.Chain {
		files, err := fs.Glob(os.DirFS(root), path.Join(class, "common", "*", "*.cu"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			stem := path.Base(f)
			name := path.Base(path.Dir(f)) + "." + stem[:len(stem)-len(".cu")]
			if _, hidden := byName[name]; !hidden {
				byName[name] = Source{name, f}
			}
		}
	}
	list := make([]Source, 0, len(byName))
	for _, s := range byName {
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}
