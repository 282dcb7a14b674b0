// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"sync"
	"time"
)

// states are kept for the next render with what they have grown to.
var states = sync.Pool{New: func() any { return &state{} }}

// maxKept bounds what a kept state may hold on to: bytes of output.
const maxKept = 1 << 20

// Render renders the template with those variables; a later one of the same name wins. now is what strftime_now shows.
// Errors are *diag.Error; see the package's contract.
func (t *Template) Render(vars []Field, now time.Time) (string, error) {
	return t.RenderWithin(MaxSteps, vars, now)
}

// RenderWithin is Render with its own limit on steps.
func (t *Template) RenderWithin(steps int64, vars []Field, now time.Time) (text string, err error) {
	st := states.Get().(*state)
	*st = state{
		tpl: t, now: now, steps: steps, heap: MaxHeap,
		out: st.out[:0], stack: st.stack[:0], globals: st.globals[:0], exported: st.exported[:0],
	}
	defer func() {
		if r := recover(); r != nil {
			text, err = "", recovered(t.name, st.line, r)
			return // the state is dropped: its stack is not clean
		}
		clear(st.globals)
		clear(st.exported)
		st.frame, st.captured, st.tpl = nil, Value{}, nil
		if cap(st.out) <= maxKept {
			states.Put(st)
		}
	}()
	st.globals = append(st.globals, make([]Value, len(t.names))...)
	st.exported = append(st.exported, make([]Value, len(t.names))...)
	for i, name := range t.names {
		st.globals[i] = globals[name]
	}
	for _, v := range vars {
		if i, ok := t.lookup[v.Name]; ok {
			st.globals[i] = v.Value
		}
	}
	t.root.run(st, "")
	return string(st.out), nil
}
