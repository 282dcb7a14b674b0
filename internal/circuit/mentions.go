// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/metrale/metrale/internal/kernel"
)

// known are the dims that plans and the server ask for by name, whether or not a circuit does.
var known = []string{"context", "gated", "hidden", "image_token", "vis_theta"}

var word = regexp.MustCompile(`[A-Za-z_]\w*`)

// addWords adds the words of every string that a value holds, keys of its maps too. What only explains is left out.
func addWords(v reflect.Value, into map[string]bool) {
	switch v.Kind() {
	case reflect.String:
		for _, w := range word.FindAllString(v.String(), -1) {
			into[w] = true
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			addWords(v.Elem(), into)
		}
	case reflect.Slice:
		for i := range v.Len() {
			addWords(v.Index(i), into)
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			addWords(key, into)
			addWords(value, into)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Doc" && f.Name != "Why" && f.Name != "Ignore" {
				addWords(v.Field(i), into)
			}
		}
	}
}

// mentioned are the words of a circuit with its parts and the blocks of all.
func (lib *Library) mentioned(c *Circuit) map[string]bool {
	words := map[string]bool{}
	for _, w := range known {
		words[w] = true
	}
	for _, part := range append(slices.Collect(maps.Values(c.parts)), c) {
		addWords(reflect.ValueOf(part), words)
		uses := [][]Use{part.Begin, part.End}
		for _, list := range part.Layers.Kind {
			uses = append(uses, list)
		}
		for _, u := range slices.Concat(uses...) {
			addWords(reflect.ValueOf(lib.Blocks[u.Block]), words)
		}
	}
	return words
}

// Check loads the library of a kernel tree and holds its names against each other, which starting a model does without.
func Check(fsys fs.FS) error {
	lib, err := LoadLibrary(fsys)
	if err != nil {
		return err
	}
	return lib.checkNames()
}

// checkNames refuses a parameter that a config map sets and no circuit reads: it is misspelt, and what was meant keeps its default.
// What a map sets itself, its circuits must know; a shared set of keys may serve others.
func (lib *Library) checkNames() error {
	of, all := map[*Circuit]map[string]bool{}, map[string]bool{}
	for _, c := range lib.Circuits {
		of[c] = lib.mentioned(c)
		maps.Copy(all, of[c])
	}
	for _, v := range lib.Variants {
		addWords(reflect.ValueOf(v.Rope), all)
	}
	for _, name := range lib.ModelTypes() {
		v := lib.Variants[name]
		own := maps.Clone(of[v.circuit])
		if v.Wraps != "" {
			for _, inner := range v.inners() {
				maps.Copy(own, of[lib.Variants[inner].circuit])
			}
		}
		if err := v.checkNames(own, all); err != nil {
			return err
		}
	}
	return nil
}

// checkNames holds a variant's against the words of its circuits, and of all.
func (v *Variant) checkNames(own, all map[string]bool) error {
	addWords(reflect.ValueOf(v.Rope), own)
	for _, expression := range v.Dims {
		addWords(reflect.ValueOf(expression), own)
	}
	for _, k := range v.keys {
		addWords(reflect.ValueOf(k.Default), own)
	}
	check := func(f *kernel.File, at, name string) error {
		if name == "" || own[name] || f != v.file && all[name] {
			return nil
		}
		return f.Errorf(at, "nothing in circuit %s reads %s", v.circuit.name, name)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Dims)) {
		if err := check(v.file, "variant."+v.ModelType+".dims."+name, name); err != nil {
			return err
		}
	}
	for _, spelling := range slices.Sorted(maps.Keys(v.keys)) {
		k := v.keys[spelling]
		for _, name := range append([]string{k.Dim, k.Switch, k.Param, k.Variant, k.Count}, k.Also...) {
			if err := check(k.file, k.at, name); err != nil {
				return err
			}
		}
	}
	return nil
}
