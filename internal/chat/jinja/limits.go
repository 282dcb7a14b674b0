// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// What a template may use. The first group bounds a template's source, the second one render. They are far above what
// real templates need (the largest seen is 33 KB; a chat of a thousand messages takes under a million steps).
const (
	MaxSource   = 1 << 20 // bytes of a template
	MaxNesting  = 150     // expressions within expressions, and statements within statements
	MaxChain    = 1000    // operators, filters or calls in one unparenthesised row
	MaxSteps    = 100_000_000
	MaxCalls    = 200       // macros, callers and recursive loops that are active at once; Python stops near there too
	MaxOutput   = 32 << 20  // bytes of the result
	MaxHeap     = 256 << 20 // bytes of all strings, lists and dicts that one render builds, dropped ones included
	MaxRange    = 100_000   // items of range(); the sandbox of jinja2 has the same limit
	MaxDepth    = 500       // lists within lists when values are printed, compared or parsed
	MaxIntBits  = 1 << 16   // bits of an integer
	MaxIntWidth = 4300      // decimal digits of an integer that is printed or read; Python's limit
)

// spend takes n steps: about one per node of the tree that is evaluated, and one per 16 bytes or 4 values that a built-in
// walks over.
func (st *state) spend(n int64) {
	st.steps -= n
	if st.steps < 0 {
		fail(limitError, "the template takes too many steps (%d at most)", MaxSteps)
	}
}

// scan charges a walk over n bytes of text.
func (st *state) scan(n int) { st.spend(int64(n)/16 + 1) }

// walk charges a visit of n values.
func (st *state) walk(n int) { st.spend(int64(n)/4 + 1) }

// alloc charges n bytes of new memory and the time to fill them.
func (st *state) alloc(n int) {
	st.heap -= int64(n)
	if st.heap < 0 || n < 0 {
		fail(limitError, "the template builds more than %d MiB of values", MaxHeap>>20)
	}
	st.scan(n)
}

// allocValues charges a new list of n values.
func (st *state) allocValues(n int) {
	if n > MaxHeap/valueSize {
		n = MaxHeap / valueSize // refused just below, without an overflow
		st.heap = 0
	}
	st.alloc(n * valueSize)
}

// enter counts a call; leave it with st.depth--.
func (st *state) enter() {
	st.depth++
	if st.depth > MaxCalls {
		fail("RecursionError", "maximum recursion depth exceeded (%d calls)", MaxCalls)
	}
}

// nested refuses data that is nested too deeply to be walked.
func nested(depth int) {
	if depth > MaxDepth {
		fail("RecursionError", "maximum recursion depth exceeded: values nested more than %d deep", MaxDepth)
	}
}
