// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"strings"

	"github.com/metrale/metrale/internal/tensor"
)

// Axis is a named extent.
type Axis struct {
	Name string
	Size int64
}

// Env holds what a shape language's names stand for: sizes, and for names that an array bound also that axis's own name.
type Env struct {
	Sizes map[string]int64
	Names map[string]string
}

// NewEnv starts with the integer attributes.
func NewEnv(attrs map[string]int64) *Env {
	e := &Env{Sizes: map[string]int64{}, Names: map[string]string{}}
	for k, v := range attrs {
		e.Sizes[k] = v
	}
	return e
}

// Bind matches the axes that are plain names: it binds new ones and checks bound ones. Expressions wait for Check.
func (e *Env) Bind(pattern []string, axes []Axis) error {
	if len(pattern) != len(axes) {
		return fmt.Errorf("has %d axes %s, expected [%s]", len(axes), printAxes(axes), strings.Join(pattern, ", "))
	}
	for i, p := range pattern {
		if !isName(p) {
			continue
		}
		if _, ok := e.Sizes[p]; !ok {
			e.Sizes[p], e.Names[p] = axes[i].Size, axes[i].Name
		}
	}
	return nil
}

// Check matches every axis; all names must be bound.
func (e *Env) Check(pattern []string, axes []Axis) error {
	for i, p := range pattern {
		want, err := tensor.Eval(p, e.Sizes)
		if err != nil {
			return err
		}
		if want != axes[i].Size {
			return fmt.Errorf("axis %d is %s=%d, expected %s=%d", i, axes[i].Name, axes[i].Size, p, want)
		}
	}
	return nil
}

// Axes evaluates a pattern of bound names; an axis keeps the name that it was bound with.
func (e *Env) Axes(pattern []string) ([]Axis, error) {
	out := make([]Axis, len(pattern))
	for i, p := range pattern {
		v, err := tensor.Eval(p, e.Sizes)
		if err != nil {
			return nil, err
		}
		name := p
		if n, ok := e.Names[p]; ok {
			name = n
		}
		out[i] = Axis{name, v}
	}
	return out, nil
}

// Array is an argument's axes.
type Array struct {
	Arg  *Arg
	Axes []Axis
}

// BindAbsent makes axes that only absent arguments have 0.
func (k *Kernel) BindAbsent(e *Env) {
	for i := range k.Args {
		for _, p := range k.Args[i].Shape {
			if _, ok := e.Sizes[p]; !ok && k.Args[i].Optional && isName(p) {
				e.Sizes[p] = 0
			}
		}
	}
}

// Unify matches a launch's arrays with the shapes of its kernel: names first, then expressions.
func (e *Env) Unify(k *Kernel, arrays []Array) error {
	for _, a := range arrays {
		if err := e.Bind(a.Arg.Shape, a.Axes); err != nil {
			return fmt.Errorf("argument %s %w", a.Arg.Name, err)
		}
	}
	k.BindAbsent(e)
	for _, a := range arrays {
		if err := e.Check(a.Arg.Shape, a.Axes); err != nil {
			return fmt.Errorf("argument %s: %w", a.Arg.Name, err)
		}
	}
	return nil
}

func printAxes(axes []Axis) string {
	s := make([]string, len(axes))
	for i, a := range axes {
		s[i] = fmt.Sprintf("%s=%d", a.Name, a.Size)
	}
	return "[" + strings.Join(s, ", ") + "]"
}

// isName says whether an axis pattern is a plain name.
func isName(p string) bool {
	for i := range len(p) {
		c := p[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return p != ""
}
