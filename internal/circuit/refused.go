// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// Refused is an entry of kernels/circuits/REFUSED.toml: models that no circuit computes, and what is missing.
type Refused struct {
	ModelTypes []string `toml:"model_types"`
	Lacks      []Lack   `toml:"lacks"`
}

// Lack is a generator that models need and the library does not have. One of Op, Block, Part and Key is given.
type Lack struct {
	Op   string `toml:"op"`
	Attr string `toml:"attr"` // of Op
	Word string `toml:"word"` // of Attr

	Block string `toml:"block"`
	Dim   string `toml:"dim"` // of Block; a param or string too

	Part string `toml:"part"` // of a model, beside its decoder
	Key  string `toml:"key"`  // of config.json, which config maps cannot say
	Why  string `toml:"why"`
}

// String is as "op glu with act=situ".
func (l Lack) String() string {
	switch {
	case l.Word != "":
		return fmt.Sprintf("op %s with %s=%s", l.Op, l.Attr, l.Word)
	case l.Attr != "":
		return fmt.Sprintf("op %s with %s", l.Op, l.Attr)
	case l.Op != "":
		return "op " + l.Op
	case l.Dim != "":
		return fmt.Sprintf("block %s with %s", l.Block, l.Dim)
	case l.Block != "":
		return "block " + l.Block
	case l.Part != "":
		return "part " + l.Part
	}
	return "key " + l.Key
}

// loadRefused reads REFUSED.toml, which may be absent. An entry about a mapped model, or of something that is there, is an error.
func (lib *Library) loadRefused(fsys fs.FS) error {
	const name = "circuits/REFUSED.toml"
	var doc struct {
		Refused []Refused `toml:"refused"`
	}
	f, err := kernel.ReadTOML(fsys, name, &doc)
	if diag.Is(err, diag.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range doc.Refused {
		r, at := &doc.Refused[i], "refused."+strconv.Itoa(i)
		if len(r.ModelTypes) == 0 || len(r.Lacks) == 0 {
			return f.Errorf(at, "an entry needs model_types and lacks")
		}
		for _, mt := range r.ModelTypes {
			if lib.Variants[mt] != nil {
				return f.Errorf(at+".model_types", "model_type %s is mapped", mt)
			}
			if lib.Refused[mt] != nil {
				return f.Errorf(at+".model_types", "model_type %s is refused twice", mt)
			}
			lib.Refused[mt] = r
		}
		for j := range r.Lacks {
			if err := lib.checkLack(&r.Lacks[j]); err != nil {
				return f.Errorf(at+".lacks."+strconv.Itoa(j), "%s", err)
			}
		}
	}
	return nil
}

// checkLack refuses an entry that says nothing, or that has become untrue.
func (lib *Library) checkLack(l *Lack) error {
	given := 0
	for _, s := range []string{l.Op, l.Block, l.Part, l.Key} {
		if s != "" {
			given++
		}
	}
	if given != 1 || l.Why == "" || l.Attr != "" && l.Op == "" || l.Word != "" && l.Attr == "" || l.Dim != "" && l.Block == "" {
		return fmt.Errorf("one of op (with attr, and word of it), block (with dim), part and key is missing, and why")
	}
	if _, ok := LookupOp(l.Op); !ok && l.Attr != "" {
		return fmt.Errorf("there is no op %s that could lack %s", l.Op, l.Attr)
	}
	if lib.Blocks[l.Block] == nil && l.Dim != "" {
		return fmt.Errorf("there is no block %s that could lack %s", l.Block, l.Dim)
	}
	if l.Key == "" && lib.has(l) {
		return fmt.Errorf("%s is there", l)
	}
	return nil
}

// has says whether the library has what an entry calls missing.
func (lib *Library) has(l *Lack) bool {
	switch {
	case l.Op != "":
		op, ok := LookupOp(l.Op)
		if !ok || l.Attr == "" {
			return ok
		}
		a := op.attr(l.Attr)
		return a != nil && (l.Word == "" || slices.Contains(a.values, l.Word))
	case l.Block != "":
		b, ok := lib.Blocks[l.Block]
		return ok && (l.Dim == "" || b.Dims[l.Dim] != "" || b.Params[l.Dim] != "" || b.Strings[l.Dim] != "")
	}
	for _, c := range lib.Circuits {
		if c.parts[l.Part] != nil {
			return true
		}
	}
	return false
}

// names lists what is missing.
func (r *Refused) names() string {
	var names []string
	for _, l := range r.Lacks {
		names = append(names, l.String())
	}
	return strings.Join(names, ", ")
}

// err is what a config of such a model is told.
func (r *Refused) err(modelType string) *diag.Error {
	var names []string
	for _, l := range r.Lacks {
		names = append(names, fmt.Sprintf("%s (%s)", l, l.Why))
	}
	return diag.Errorf(diag.Unsupported, "no circuit computes model_type %q: it lacks %s", modelType, strings.Join(names, "; "))
}
