// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// familiesFile is a KERNEL_FAMILIES.toml, or the file of one family.
type familiesFile struct {
	Formats  map[string][]string `toml:"formats"`
	Families []*Family           `toml:"family"`
	Kernels  []*Kernel           `toml:"kernel"`

	file *File
	only string // the family that the file is named after; "" for any
}

// fusionsFile has rules by which ops become kernels; package circuit reads it.
const fusionsFile = "FUSIONS.toml"

// readFamilies reads a class's families: dir/KERNEL_FAMILIES.toml, then dir/<folder>/<family>.toml, all with the first one's
// formats. Families are known before any kernel is read.
func (c *Class) readFamilies(fsys fs.FS, dir string) error {
	names, err := fs.Glob(fsys, dir+"/*/*.toml")
	if err != nil {
		return diag.Errorf(diag.IO, "kernel tree: %w", err)
	}
	if whole := dir + "/KERNEL_FAMILIES.toml"; exists(fsys, whole) {
		names = append([]string{whole}, names...)
	}
	var docs []*familiesFile
	var formats map[string][]string
	own := map[string]bool{}
	for _, name := range names {
		if path.Base(name) == fusionsFile {
			continue
		}
		doc := &familiesFile{}
		if doc.file, err = ReadTOML(fsys, name, doc); err != nil {
			return err
		}
		if path.Dir(name) == dir {
			formats = doc.Formats
		} else {
			doc.only = strings.TrimSuffix(path.Base(name), ".toml")
			if doc.Formats != nil {
				return doc.file.Errorf("formats", "formats are the class's: they stand in %s/KERNEL_FAMILIES.toml", dir)
			}
		}
		if err := c.families(doc, own); err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	clear(own)
	for _, doc := range docs {
		if err := c.declare(doc, formats, own); err != nil {
			return err
		}
	}
	return nil
}

// families takes a file's families into the class; own are the names that its files gave before.
func (c *Class) families(doc *familiesFile, own map[string]bool) error {
	f := doc.file
	for i, fam := range doc.Families {
		at := "family." + strconv.Itoa(i)
		if doc.only != "" && fam.Name != doc.only {
			return f.Errorf(at+".name", "family %s lies in the file of family %s", fam.Name, doc.only)
		}
		if fam.Name == "" || own[fam.Name] {
			return f.Errorf(at, "family %q has no name of its own", fam.Name)
		}
		for j, p := range fam.Params {
			if !slices.Contains([]string{"runtime", "compile", "policy", "numerics"}, p.Kind) {
				return f.Errorf(at+".params."+strconv.Itoa(j), "parameter %s has kind %q; it is runtime, compile, policy or numerics", p.Name, p.Kind)
			}
		}
		own[fam.Name] = true
		c.Families[fam.Name] = fam
	}
	return nil
}

// declare takes a file's kernels into the class; own are the names that its files gave before.
func (c *Class) declare(doc *familiesFile, formats map[string][]string, own map[string]bool) error {
	f := doc.file
	for i, k := range doc.Kernels {
		at := "kernel." + strconv.Itoa(i)
		if doc.only != "" && k.Family != doc.only {
			return f.Errorf(at+".family", "kernel %s of family %s lies in the file of family %s", k.Name, k.Family, doc.only)
		}
		if k.Name == "" || own[k.Name] {
			return f.Errorf(at, "kernel %q has no name of its own", k.Name)
		}
		if c.Families[k.Family] == nil {
			return f.Errorf(at+".family", "kernel %s is of family %q, which is not declared", k.Name, k.Family)
		}
		if k.Launch != nil {
			k.constants = k.constantsOf(c.layers)
		}
		if err := k.check(f, at, formats); err != nil {
			return err
		}
		if k.Launch == nil && c.Vendor != AnyVendor {
			return f.Errorf(at, "kernel %s has no [kernel.launch]; class %s needs one", k.Name, c.Name)
		}
		own[k.Name] = true
		c.declared[k.Name] = k
	}
	return nil
}
