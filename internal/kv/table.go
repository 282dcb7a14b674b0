// SPDX-License-Identifier: MIT OR Apache-2.0

package kv

// Table is the pages of one sequence, in order of position. The zero value holds none.
type Table struct{ pages []Page }

// Pages are the table's pages, valid until it changes.
func (t *Table) Pages() []Page { return t.pages }

// Missing is how many pages the table lacks to hold that many tokens.
func (t *Table) Missing(p *Pool, tokens int) int { return max(0, p.PagesFor(tokens)-len(t.pages)) }

// Grow makes room for that many tokens in all; false, and nothing changed, when the pool has too few free pages.
func (t *Table) Grow(p *Pool, tokens int) bool {
	var ok bool
	t.pages, ok = p.Alloc(t.pages, t.Missing(p, tokens))
	return ok
}

// Share begins an empty table with those pages of another that the first tokens fill, and gives how many tokens they hold.
func (t *Table) Share(p *Pool, from *Table, tokens int) int {
	assert(len(t.pages) == 0, "a table with %d pages cannot share", len(t.pages))
	whole := min(tokens/p.pageSize, len(from.pages))
	for _, page := range from.pages[:whole] {
		p.Retain(page)
		t.pages = append(t.pages, page)
	}
	return whole * p.pageSize
}

// Release gives all pages back and keeps the table's room for the next sequence.
func (t *Table) Release(p *Pool) {
	// Backwards, so that the pool hands them out again in order of position.
	for i := len(t.pages) - 1; i >= 0; i-- {
		p.Release(t.pages[i])
	}
	t.pages = t.pages[:0]
	p.check()
}
