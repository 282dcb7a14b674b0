// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// SeenFile is the name of a class's list of what ran: <class>/SEEN.toml.
const SeenFile = "SEEN.toml"

// Seen is which kernels of a class gave right results on a device, and in which form. The tests that saw them write it.
type Seen struct {
	Runs []SeenRun `toml:"run"`
}

// SeenRun is a day's runs on a device.
type SeenRun struct {
	Device   string            `toml:"device"`
	Driver   string            `toml:"driver"`
	Compiler string            `toml:"compiler"`
	Date     string            `toml:"date"`
	Kernels  map[string]string `toml:"kernels"` // their forms, by name
}

const seenHead = `# SPDX-License-Identifier: MIT OR Apache-2.0
# Kernels that gave right results on a device, and a hash of the form in which they did: sources, flags, compiler, launches.
# Tests write this file where there is a device (docs/formats/kernels.md); nobody edits it.
`

// ReadSeen reads a list; that there is none is not an error.
func ReadSeen(fsys fs.FS, name string) (*Seen, error) {
	s := &Seen{}
	src, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		_, err = DecodeTOML(name, src, s)
	}
	return s, err
}

// Add takes a run's kernels into the list; what older runs on such a device say of them goes.
func (s *Seen) Add(r SeenRun) {
	for _, old := range s.Runs {
		if old.Device == r.Device {
			maps.DeleteFunc(old.Kernels, func(k, _ string) bool { return r.Kernels[k] != "" })
		}
		if old.Device == r.Device && old.Driver == r.Driver && old.Compiler == r.Compiler && old.Date == r.Date {
			maps.Copy(r.Kernels, old.Kernels)
			clear(old.Kernels)
		}
	}
	s.Runs = append(s.Runs, r)
	s.Runs = slices.DeleteFunc(s.Runs, func(r SeenRun) bool { return len(r.Kernels) == 0 })
	slices.SortStableFunc(s.Runs, func(a, b SeenRun) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Date, b.Date)) })
}

// Text is the list as a file.
func (s *Seen) Text() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(seenHead)
	err := toml.NewEncoder(&b).Encode(s)
	return b.Bytes(), err
}

// Form is a hash of what runs as a kernel: the closures of its modules, and its launches without their ceilings.
func (t *Target) Form(fsys fs.FS, k *Kernel, compiler string) (string, error) {
	h := sha256.New()
	for _, l := range k.Launches() {
		x := *l
		x.Registers, x.SpillBytes, x.StaticShared = 0, nil, nil
		text, err := json.Marshal(x)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "launch %s\n", text)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Modules)) {
		if !slices.ContainsFunc(k.symbols(), func(s symbol) bool { return match(s.module, name) }) {
			continue
		}
		closure, err := t.Modules[name].Closure(fsys, compiler)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "module %s %s\n", name, closure)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// Unseen are the kernels, by class, that no device ran in the form that the tree has. A class without a list is left out: nobody has
// had such a device.
func (t *Tree) Unseen(fsys fs.FS) (map[string][]string, error) {
	out := map[string][]string{}
	for class := range t.Classes {
		file := path.Join(class, SeenFile)
		if _, err := fs.Stat(fsys, file); err != nil {
			continue
		}
		seen, err := ReadSeen(fsys, file)
		if err != nil {
			return nil, err
		}
		tg := t.Targets[class]
		if tg == nil {
			continue
		}
		for name, k := range tg.Kernels {
			ok := k.Launch == nil
			for _, r := range seen.Runs {
				if ok {
					break
				}
				form, err := tg.Form(fsys, k, r.Compiler)
				if err != nil {
					return nil, err
				}
				ok = r.Kernels[name] == form
			}
			if !ok {
				out[class] = append(out[class], name)
			}
		}
		slices.Sort(out[class])
	}
	return out, nil
}
