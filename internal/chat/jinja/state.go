// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "time"

// state is one render: what is left of its budget, the text so far, and where it stands.
type state struct {
	tpl        *Template
	globals    []Value // by Template.names: what a name means when no scope assigns it; absent when nothing
	exported   []Value // by Template.names: what the top level assigned, for blocks and macros; absent when nothing
	frame      *frame
	out        []byte // the output; while a macro or an expression builds a str, that is its tail
	stack      []Value
	captured   Value // the body that the filter of a block works on
	autoescape bool
	now        time.Time
	line       int // of the statement that runs
	steps      int64
	heap       int64
	depth      int
}

// frame is the activation record of a function unit: the template, a macro, a caller, a recursive loop, a loop's filter.
type frame struct {
	slots  []Value
	parent *frame // of the unit that this one is written in
}

// write appends s to the output.
func (st *state) write(s string) {
	if len(st.out)+len(s) > MaxOutput {
		fail(limitError, "the output exceeds %d MiB", MaxOutput>>20)
	}
	st.out = append(st.out, s...)
}

// reserve checks that n more bytes may be written.
func (st *state) reserve(n int) {
	if len(st.out)+n > MaxOutput {
		fail(limitError, "the output exceeds %d MiB", MaxOutput>>20)
	}
}

// take cuts the tail of the output that begins at start and gives it as a str.
func (st *state) take(start int) string {
	st.reserve(0)
	st.alloc(len(st.out) - start)
	s := string(st.out[start:])
	st.out = st.out[:start]
	return s
}

// push gives n absent values that stay valid until the matching pop.
func (st *state) push(n int) []Value {
	top := len(st.stack)
	if top+n > cap(st.stack) {
		// What lies below stays where its owners hold it; only the room above is used.
		st.stack = make([]Value, top, 2*(top+n)+64)
	}
	st.stack = st.stack[:top+n]
	return st.stack[top : top+n : top+n]
}

// pop gives back the values of the last push.
func (st *state) pop(n int) {
	top := len(st.stack) - n
	clear(st.stack[top:])
	st.stack = st.stack[:top]
}
