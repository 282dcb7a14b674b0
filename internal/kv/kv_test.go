// SPDX-License-Identifier: MIT OR Apache-2.0

package kv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTableGrowsByNeed(t *testing.T) {
	p := NewPool(4, 5, 0)
	var a, b Table
	for _, step := range []struct {
		table  *Table
		tokens int
		ok     bool
		pages  []Page
		free   int
	}{
		{&a, 1, true, []Page{0}, 4},
		{&a, 4, true, []Page{0}, 4},
		{&b, 5, true, []Page{1, 2}, 2},
		{&a, 5, true, []Page{0, 3}, 1},
		{&b, 17, false, []Page{1, 2}, 1}, // all or nothing
		{&a, 2, true, []Page{0, 3}, 1},   // never shrinks
	} {
		if ok := step.table.Grow(p, step.tokens); ok != step.ok || !slices.Equal(step.table.Pages(), step.pages) || p.Free() != step.free {
			t.Fatalf("to %d tokens: %v, pages %v, %d free; want %+v", step.tokens, ok, step.table.Pages(), p.Free(), step)
		}
	}
	a.Release(p)
	b.Release(p)
	if p.Free() != p.Pages() {
		t.Fatalf("%d of %d free", p.Free(), p.Pages())
	}
}

func TestShareTakesWholePagesOnly(t *testing.T) {
	p := NewPool(4, 8, 0)
	var a, b, c Table
	a.Grow(p, 11)
	if n := b.Share(p, &a, 11); n != 8 || !slices.Equal(b.Pages(), a.Pages()[:2]) {
		t.Fatalf("%d tokens in %v of %v", n, b.Pages(), a.Pages())
	}
	if n := c.Share(p, &a, 3); n != 0 || len(c.Pages()) != 0 {
		t.Fatalf("%d tokens in %v", n, c.Pages())
	}
	b.Grow(p, 12)
	a.Release(p)
	if p.Free() != 5 || p.Refs(b.Pages()[0]) != 1 {
		t.Fatalf("%d free, %d references", p.Free(), p.Refs(b.Pages()[0]))
	}
	b.Release(p)
	if p.Free() != 8 {
		t.Fatalf("%d free", p.Free())
	}
}

func TestSlots(t *testing.T) {
	p := NewPool(1, 1, 2)
	a, _ := p.AllocSlot()
	b, _ := p.AllocSlot()
	if s, ok := p.AllocSlot(); ok || s != NoSlot || a == b {
		t.Fatal(a, b, s)
	}
	p.FreeSlot(a)
	p.FreeSlot(NoSlot)
	if s, ok := p.AllocSlot(); !ok || s != a {
		t.Fatal(s, ok)
	}
}

// TestPoolAgainstSets plays random histories against sets of references.
func TestPoolAgainstSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pages := rapid.IntRange(1, 20).Draw(t, "pages")
		p := NewPool(rapid.IntRange(1, 5).Draw(t, "pageSize"), pages, 3)
		tables := make([]Table, 4)
		var slots []int32
		t.Repeat(map[string]func(*rapid.T){
			"grow": func(t *rapid.T) {
				tab := &tables[rapid.IntRange(0, 3).Draw(t, "table")]
				n := rapid.IntRange(0, 40).Draw(t, "tokens")
				before, missing, free := slices.Clone(tab.Pages()), tab.Missing(p, n), p.Free()
				if ok := tab.Grow(p, n); ok != (missing <= free) || ok && len(tab.Pages()) != len(before)+missing {
					t.Fatalf("grow by %d of %d free: %v", missing, free, ok)
				}
				if !slices.Equal(before, tab.Pages()[:len(before)]) {
					t.Fatalf("%v became %v", before, tab.Pages())
				}
			},
			"share": func(t *rapid.T) {
				to, from := rapid.IntRange(0, 3).Draw(t, "to"), rapid.IntRange(0, 3).Draw(t, "from")
				if to != from && len(tables[to].Pages()) == 0 {
					tables[to].Share(p, &tables[from], rapid.IntRange(0, 40).Draw(t, "tokens"))
				}
			},
			"release": func(t *rapid.T) { tables[rapid.IntRange(0, 3).Draw(t, "table")].Release(p) },
			"slot": func(t *rapid.T) {
				if s, ok := p.AllocSlot(); ok {
					slots = append(slots, s)
				}
			},
			"unslot": func(t *rapid.T) {
				if n := len(slots); n > 0 {
					p.FreeSlot(slots[n-1])
					slots = slots[:n-1]
				}
			},
			"": func(t *rapid.T) {
				refs := map[Page]int{}
				for i := range tables {
					for _, page := range tables[i].Pages() {
						refs[page]++
					}
				}
				if len(refs)+p.Free() != pages || len(slots)+p.FreeSlots() != 3 {
					t.Fatalf("%d held, %d free of %d; %d slots, %d free", len(refs), p.Free(), pages, len(slots), p.FreeSlots())
				}
				for page, n := range refs {
					if p.Refs(page) != n {
						t.Fatalf("page %d has %d references, stands in %d tables", page, p.Refs(page), n)
					}
				}
				seen := map[int32]bool{}
				for _, s := range slots {
					if seen[s] {
						t.Fatalf("slot %d twice", s)
					}
					seen[s] = true
				}
			},
		})
	})
}

func TestMisusePanicsInInvariantBuilds(t *testing.T) {
	if !Invariants {
		t.Skip("needs -tags invariants")
	}
	for name, misuse := range map[string]func(*Pool){
		"double free":       func(p *Pool) { p.Release(0) },
		"retain a free one": func(p *Pool) { p.Retain(1) },
		"free a free slot":  func(p *Pool) { p.FreeSlot(0) },
		"share into a full": func(p *Pool) { var a, b Table; a.Grow(p, 1); b.Grow(p, 1); a.Share(p, &b, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			misuse(NewPool(1, 4, 2))
		}()
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if Invariants {
		t.Skip("assertions allocate")
	}
	p := NewPool(16, 256, 8)
	var a, b Table
	round := func() {
		for n := range 2000 {
			a.Grow(p, n)
		}
		b.Share(p, &a, 1000)
		b.Grow(p, 1500)
		s, _ := p.AllocSlot()
		p.FreeSlot(s)
		a.Release(p)
		b.Release(p)
	}
	round()
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
