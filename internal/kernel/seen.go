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
# Kernels that gave right results on a device, and a hash of the form in which they did: machine code and launches.
# Tests write this file where there is a device (docs/formats/kernels.md); nobody edits it.
`

// ReadSeen reads a list; that there is none is not an error.
func ReadSeen(fsys fs.FS, name string) (*Seen, error) {
	s := &Seen{}
	src, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, Unread(name, err)
	}
	_, err = DecodeTOML(name, src, s)
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

// Forms are hashes of what runs as each kernel: its launches without their ceilings, and registers and machine code of their entries.
func (c *Code) Forms(kernels ...*Kernel) (map[string]string, error) {
	out := map[string]string{}
	for _, k := range kernels {
		h := sha256.New()
		for _, l := range k.Launches() {
			x := *l
			x.Registers, x.SpillBytes, x.StaticShared = 0, nil, nil
			text, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(h, "launch %s\n", text)
		}
		for _, e := range c.Index.Entries(c.Target, k) {
			machine, err := c.machine(e.Module)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(h, "entry %s %s %d %s\n", e.Module, e.Name, e.Usage.Registers, machine[e.Name])
		}
		out[k.Name] = hex.EncodeToString(h.Sum(nil))[:16]
	}
	return out, nil
}

// Unseen are the kernels, by class, that no device ran in the form that they were compiled to. A class without a list is left out: nobody
// has had such a device. Where one with a list is not compiled, or of other sources, it is among the second, with the reason.
func (t *Tree) Unseen(fsys fs.FS) (map[string][]string, map[string]error, error) {
	unseen, unknown := map[string][]string{}, map[string]error{}
	for _, class := range slices.Sorted(maps.Keys(t.Classes)) {
		file := path.Join(class, SeenFile)
		tg := t.Targets[class]
		if _, err := fs.Stat(fsys, file); err != nil || tg == nil {
			continue
		}
		seen, err := ReadSeen(fsys, file)
		if err != nil {
			return nil, nil, err
		}
		code, err := OpenCode(fsys, tg)
		if err != nil {
			unknown[class] = err
			continue
		}
		forms, err := code.Forms(slices.Collect(maps.Values(tg.Kernels))...)
		if err != nil {
			return nil, nil, err
		}
		for name, k := range tg.Kernels {
			ran := func(r SeenRun) bool { return r.Kernels[name] == forms[name] }
			if k.Launch != nil && !slices.ContainsFunc(seen.Runs, ran) {
				unseen[class] = append(unseen[class], name)
			}
		}
		slices.Sort(unseen[class])
	}
	return unseen, unknown, nil
}
