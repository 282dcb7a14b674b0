// SPDX-License-Identifier: MIT OR Apache-2.0

package kv

// Page names a KV page: 0 … total-1.
type Page = int32

// NoSlot is the slot of a sequence that has none.
const NoSlot int32 = -1

// Pool owns the pages and the recurrent-state slots of a model.
type Pool struct {
	pageSize  int
	refs      []int32 // per page; 0: free
	freePages []Page  // stack
	slotHeld  []bool
	freeSlots []int32 // stack
}

// NewPool is a pool with everything free.
func NewPool(pageSize, pages, slots int) *Pool {
	p := &Pool{
		pageSize:  pageSize,
		refs:      make([]int32, pages),
		freePages: make([]Page, pages),
		slotHeld:  make([]bool, slots),
		freeSlots: make([]int32, slots),
	}
	for i := range p.freePages {
		p.freePages[i] = Page(pages - 1 - i)
	}
	for i := range p.freeSlots {
		p.freeSlots[i] = int32(slots - 1 - i)
	}
	return p
}

// PagesFor is how many pages hold that many tokens.
func (p *Pool) PagesFor(tokens int) int { return (tokens + p.pageSize - 1) / p.pageSize }

// PageSize is tokens per page.
func (p *Pool) PageSize() int { return p.pageSize }

// Pages is how many pages there are, Free how many of them nobody holds.
func (p *Pool) Pages() int { return len(p.refs) }

// Free is how many pages nobody holds.
func (p *Pool) Free() int { return len(p.freePages) }

// Slots is how many state slots there are.
func (p *Pool) Slots() int { return len(p.slotHeld) }

// FreeSlots is how many state slots nobody holds.
func (p *Pool) FreeSlots() int { return len(p.freeSlots) }

// Alloc appends n pages with one reference each to dst; false, and dst as it was, when fewer are free.
func (p *Pool) Alloc(dst []Page, n int) ([]Page, bool) {
	if n > len(p.freePages) {
		return dst, false
	}
	rest := len(p.freePages) - n
	for i := len(p.freePages) - 1; i >= rest; i-- {
		page := p.freePages[i]
		assert(p.refs[page] == 0, "page %d is on the free list with %d references", page, p.refs[page])
		p.refs[page] = 1
		dst = append(dst, page)
	}
	p.freePages = p.freePages[:rest]
	p.check()
	return dst, true
}

// Retain adds a reference to a held page.
func (p *Pool) Retain(page Page) {
	assert(p.refs[page] > 0, "page %d is retained but not held", page)
	p.refs[page]++
}

// Release drops a reference; the last one frees the page.
func (p *Pool) Release(page Page) {
	assert(p.refs[page] > 0, "page %d is released but not held", page)
	p.refs[page]--
	if p.refs[page] == 0 {
		p.freePages = append(p.freePages, page)
	}
}

// Refs is how many references a page has.
func (p *Pool) Refs(page Page) int { return int(p.refs[page]) }

// AllocSlot takes a state slot, NoSlot and false when all are held.
func (p *Pool) AllocSlot() (int32, bool) {
	n := len(p.freeSlots)
	if n == 0 {
		return NoSlot, false
	}
	s := p.freeSlots[n-1]
	p.freeSlots = p.freeSlots[:n-1]
	assert(!p.slotHeld[s], "slot %d is on the free list but held", s)
	p.slotHeld[s] = true
	return s, true
}

// FreeSlot gives a state slot back; NoSlot is nothing.
func (p *Pool) FreeSlot(s int32) {
	if s == NoSlot {
		return
	}
	assert(p.slotHeld[s], "slot %d is freed but not held", s)
	p.slotHeld[s] = false
	p.freeSlots = append(p.freeSlots, s)
}

// check asserts contract 1.
func (p *Pool) check() {
	if !Invariants {
		return
	}
	var held, slots int
	for _, r := range p.refs {
		assert(r >= 0, "a page has %d references", r)
		if r > 0 {
			held++
		}
	}
	for _, h := range p.slotHeld {
		if h {
			slots++
		}
	}
	assert(held+len(p.freePages) == len(p.refs), "%d pages held and %d free of %d", held, len(p.freePages), len(p.refs))
	assert(slots+len(p.freeSlots) == len(p.slotHeld), "%d slots held and %d free of %d", slots, len(p.freeSlots), len(p.slotHeld))
}
