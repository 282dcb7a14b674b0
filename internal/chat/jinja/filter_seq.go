// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

var seqFilters = []*builtin{
	define("list()", func(st *state, a []Value) Value { return List(st.collect(a[0])...) }),
	define("first()", func(st *state, a []Value) Value {
		it := st.iterate(a[0])
		if v, ok := it.next(st); ok {
			return v
		}
		return undefinedHint("No first item, sequence was empty.")
	}),
	define("last()", func(st *state, a []Value) Value {
		if items := st.reversible(a[0]); len(items) > 0 {
			return items[len(items)-1]
		}
		return undefinedHint("No last item, sequence was empty.")
	}),
	define("random()", func(st *state, a []Value) Value {
		n := st.length(a[0])
		if n == 0 {
			return undefinedHint("No random item, sequence was empty.")
		}
		return st.item(a[0], Int(rand.Int64N(int64(n))))
	}),
	define("reverse()", filterReverse),
	define("items()", filterItems),
	define("dictsort(case_sensitive=, by=, reverse=)", filterDictSort),
	define("sort(reverse=, case_sensitive=, attribute=)", filterSort),
	define("unique(case_sensitive=, attribute=)", filterUnique),
	define("min(case_sensitive=, attribute=)", extreme(tokLt)),
	define("max(case_sensitive=, attribute=)", extreme(tokGt)),
	define("join(d=, attribute=)", filterJoin),
	define("sum(attribute=, start=)", filterSum),
	define("groupby(attribute, default=, case_sensitive=)", filterGroupBy),
	define("batch(linecount, fill_with=)", filterBatch),
	define("slice(slices, fill_with=)", filterSlice),
	{name: "map", raw: filterMap},
	{name: "select", raw: selector("select", false, false)},
	{name: "reject", raw: selector("reject", true, false)},
	{name: "selectattr", raw: selector("selectattr", false, true)},
	{name: "rejectattr", raw: selector("rejectattr", true, true)},
}

// reversible is Python's reversed(v), as a list in the order of v.
func (st *state) reversible(v Value) []Value {
	if g, ok := v.ref.(*generator); ok && v.kind == kOther {
		failType("%s object is not reversible", quote(g.typeName()))
	}
	if _, ok := st.iterator(v); !ok {
		failType("%s object is not reversible", quote(v.typeName()))
	}
	return st.collect(v)
}

func filterReverse(st *state, a []Value) Value {
	v := a[0]
	if v.isStr() {
		v.str = st.sliceText(v.str, Value{}, Value{}, -1)
		return v
	}
	if _, ok := st.iterator(v); !ok {
		fail("FilterArgumentError", "argument must be iterable")
	}
	items := st.collect(v)
	i := len(items)
	kind := map[kind]string{kList: "list_reverseiterator", kDict: "dict_reversekeyiterator", kRange: "range_iterator"}[v.kind]
	if kind == "" {
		kind = "reversed"
	}
	return other(&generator{kind: kind, pull: func(st *state) (Value, bool) {
		if i == 0 {
			return Value{}, false
		}
		i--
		return items[i], true
	}})
}

// lazy gives a generator over what start gives when the first item is asked for.
func lazy(name string, start func(st *state) iterator) Value {
	var it iterator
	started := false
	return newGenerator(name, func(st *state) (Value, bool) {
		if !started {
			started = true
			it = start(st)
		}
		return it.next(st)
	})
}

func filterItems(st *state, a []Value) Value {
	v := a[0]
	return lazy("do_items", func(st *state) iterator {
		if v.kind == kUndefined {
			return iterator{}
		}
		if v.kind != kDict {
			failType("Can only get item pairs from a mapping.")
		}
		return iterator{items: st.pairs(v.dict())}
	})
}

// ignoreCase is what sorting and grouping compare by default.
func (st *state) ignoreCase(v Value) Value {
	if v.isStr() {
		st.alloc(len(v.str))
		v.str = lower(v.str)
	}
	return v
}

// sort is Python's sorted(items, key=key, reverse=reverse): stable. The result is a new slice.
func (st *state) sort(items []Value, key func(Value) Value, reverse bool) []Value {
	type keyed struct{ key, item Value }
	st.allocValues(3 * len(items))
	list := make([]keyed, len(items))
	for i, item := range items {
		list[i] = keyed{key(item), item}
	}
	if reverse {
		slices.Reverse(list)
	}
	slices.SortStableFunc(list, func(a, b keyed) int {
		switch {
		case st.order(tokLt, a.key, b.key):
			return -1
		case st.order(tokLt, b.key, a.key):
			return 1
		}
		return 0
	})
	if reverse {
		slices.Reverse(list)
	}
	out := make([]Value, len(items))
	for i := range list {
		out[i] = list[i].item
	}
	return out
}

func filterDictSort(st *state, a []Value) Value {
	position := 0
	switch by := argStr("dictsort", a[2], "key"); by {
	case "key":
	case "value":
		position = 1
	default:
		fail("FilterArgumentError", `You can only sort by either "key" or "value"`)
	}
	if a[0].kind == kUndefined {
		a[0].failUndefined()
	}
	if a[0].kind != kDict {
		fail("AttributeError", "%s object has no attribute 'items'", quote(a[0].typeName()))
	}
	exact := st.argBool(a[1], false)
	return List(st.sort(st.pairs(a[0].dict()), func(pair Value) Value {
		v := pair.items()[position]
		if !exact {
			v = st.ignoreCase(v)
		}
		return v
	}, st.argBool(a[3], false))...)
}

// path is the attribute argument of a filter: a name with dots, an index, or nothing.
type path []Value

func (st *state) path(v Value) path {
	switch {
	case !v.given():
		return nil
	case !v.isStr():
		return path{v}
	}
	var p path
	st.scan(len(v.str))
	for part := range strings.SplitSeq(v.str, ".") {
		if part != "" && strings.IndexFunc(part, func(r rune) bool { return !isDigit(r) }) < 0 {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil {
				p = append(p, Int(n))
				continue
			}
		}
		p = append(p, String(part))
	}
	return p
}

// follow gives the attribute of v that p leads to; a default replaces what is undefined on the way.
func (st *state) follow(v Value, p path, orElse Value) Value {
	for _, key := range p {
		v = st.item(v, key)
		if v.kind == kUndefined && orElse.given() {
			v = orElse
		}
	}
	return v
}

// keyFunc is what sorting, grouping and comparing look at.
func (st *state) keyFunc(attribute, caseSensitive Value) func(Value) Value {
	p, exact := st.path(attribute), st.argBool(caseSensitive, false)
	return func(v Value) Value {
		v = st.follow(v, p, Value{})
		if !exact {
			v = st.ignoreCase(v)
		}
		return v
	}
}

func filterSort(st *state, a []Value) Value {
	exact := st.argBool(a[2], false)
	paths := []path{st.path(a[3])}
	if a[3].isStr() && strings.Contains(a[3].str, ",") {
		paths = nil
		for part := range strings.SplitSeq(a[3].str, ",") {
			paths = append(paths, st.path(String(part)))
		}
	}
	return List(st.sort(st.collect(a[0]), func(v Value) Value {
		keys := make([]Value, len(paths))
		for i, p := range paths {
			if keys[i] = st.follow(v, p, Value{}); !exact {
				keys[i] = st.ignoreCase(keys[i])
			}
		}
		return List(keys...)
	}, st.argBool(a[1], false))...)
}

func filterUnique(st *state, a []Value) Value {
	key, v := st.keyFunc(a[2], a[1]), a[0]
	seen := map[hashKey]bool{}
	var it iterator
	started := false
	return newGenerator("sync_do_unique", func(st *state) (Value, bool) {
		if !started {
			started, it = true, st.iterate(v)
		}
		for {
			item, ok := it.next(st)
			if !ok {
				return item, false
			}
			st.allocValues(2)
			if h := st.hash(key(item)); !seen[h] {
				seen[h] = true
				return item, true
			}
		}
	})
}

// extreme is min or max: the first item that no other one is before.
func extreme(before token) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		it, key := st.iterate(a[0]), st.keyFunc(a[2], a[1])
		best, ok := it.next(st)
		if !ok {
			return undefinedHint("No aggregated item, sequence was empty.")
		}
		bestKey := key(best)
		for {
			v, ok := it.next(st)
			if !ok {
				return best
			}
			if k := key(v); st.order(before, k, bestKey) {
				best, bestKey = v, k
			}
		}
	}
}

func filterJoin(st *state, a []Value) Value {
	it, p := st.iterate(a[0]), st.path(a[2])
	markups := st.autoescape && a[1].kind == kMarkup
	if st.autoescape {
		rest := st.drain(&it)
		for i := range rest {
			rest[i] = st.follow(rest[i], p, Value{})
			markups = markups || rest[i].kind == kMarkup
		}
		it, p = iterator{items: rest}, nil
	}
	sep := ""
	if a[1].kind != kAbsent {
		sep = st.text(a[1])
		if markups {
			sep = st.escape(a[1])
		}
	}
	start := len(st.out)
	for i := 0; ; i++ {
		v, ok := it.next(st)
		if !ok {
			break
		}
		st.spend(1)
		if i > 0 {
			st.write(sep)
		}
		if v = st.follow(v, p, Value{}); markups {
			st.write(st.escape(v))
		} else {
			st.appendText(v)
		}
	}
	kind := kStr
	if markups {
		kind = kMarkup
	}
	return Value{kind: kind, str: st.take(start)}
}

func filterSum(st *state, a []Value) Value {
	it, p, sum := st.iterate(a[0]), st.path(a[1]), a[2]
	if sum.kind == kAbsent {
		sum = Int(0)
	}
	if sum.isStr() {
		failType("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for {
		v, ok := it.next(st)
		if !ok {
			return sum
		}
		st.spend(1)
		sum = st.binary(tokAdd, sum, st.follow(v, p, Value{}))
	}
}

func filterGroupBy(st *state, a []Value) Value {
	p, orElse, exact := st.path(a[1]), a[2], st.argBool(a[3], false)
	key := func(v Value) Value {
		if v = st.follow(v, p, orElse); !exact {
			v = st.ignoreCase(v)
		}
		return v
	}
	var groups []Value
	var last Value
	for _, item := range st.sort(st.collect(a[0]), key, false) {
		k := key(item)
		st.allocValues(2)
		if len(groups) == 0 || !st.equal(k, last) {
			last = k
			st.allocValues(4)
			groups = append(groups, Value{kind: kTuple, ref: &seq{
				items: []Value{st.follow(item, p, orElse), List()},
				names: []string{"grouper", "list"},
			}})
		}
		members := groups[len(groups)-1].items()[1].seq()
		members.items = append(members.items, item)
	}
	return List(groups...)
}

func filterBatch(st *state, a []Value) Value {
	v, size, fill := a[0], argInt(a[1], 0), a[2]
	var it iterator
	started := false
	var held Value // read too early, as there
	return newGenerator("do_batch", func(st *state) (Value, bool) {
		if !started {
			started, it = true, st.iterate(v)
		}
		var row []Value
		if held.kind != kAbsent {
			row, held = []Value{held}, Value{}
		}
		for {
			item, ok := it.next(st)
			if !ok {
				break
			}
			st.allocValues(1)
			if int64(len(row)) == size {
				held = item
				return List(row...), true
			}
			row = append(row, item)
		}
		if len(row) == 0 {
			return Value{}, false
		}
		if missing := size - int64(len(row)); fill.given() && missing > 0 {
			st.allocValues(int(min(missing, MaxHeap)))
			for ; missing > 0; missing-- {
				row = append(row, fill)
			}
		}
		return List(row...), true
	})
}

func filterSlice(st *state, a []Value) Value {
	v, n, fill := a[0], argInt(a[1], 0), a[2]
	var items []Value
	i, offset := int64(-1), int64(0)
	return newGenerator("sync_do_slice", func(st *state) (Value, bool) {
		if i++; i == 0 {
			items = st.collect(v)
			if n == 0 {
				fail("ZeroDivisionError", "integer division or modulo by zero")
			}
		}
		if i >= n {
			return Value{}, false
		}
		each, extra := int64(len(items))/n, int64(len(items))%n
		start := offset + i*each
		if i < extra {
			offset++
		}
		end := offset + (i+1)*each
		st.allocValues(int(end-start) + 2)
		row := append([]Value(nil), items[start:end]...)
		if fill.given() && i >= extra {
			row = append(row, fill)
		}
		return List(row...), true
	})
}

// keep copies arguments that outlive the call.
func (a arguments) keep() arguments {
	return arguments{append([]Value(nil), a.pos...), append([]keyword(nil), a.kw...)}
}

func filterMap(st *state, self Value, a arguments) Value {
	a = a.keep()
	return lazyEach("sync_do_map", self, func(st *state) func(Value) (Value, bool) {
		if len(a.pos) == 0 {
			if attribute := a.take("attribute"); attribute.kind != kAbsent {
				orElse := a.take("default")
				if len(a.kw) > 0 {
					fail("FilterArgumentError", "Unexpected keyword argument %s", quote(a.kw[0].name))
				}
				p := st.path(attribute)
				return func(v Value) (Value, bool) { return st.follow(v, p, orElse), true }
			}
			fail("FilterArgumentError", "map requires a filter argument")
		}
		rest := arguments{a.pos[1:], a.kw}
		var fn *builtin
		return func(v Value) (Value, bool) {
			if fn == nil {
				fn = lookUp(filters, "filter", a.pos[0])
			}
			return st.invoke(fn, v, rest), true
		}
	})
}

// lookUp finds a filter or test that is named at run time.
func lookUp(in map[string]*builtin, what string, name Value) *builtin {
	if fn := in[name.str]; fn != nil && name.isStr() {
		return fn
	}
	fail("TemplateRuntimeError", "No %s named %s.", what, reprText(name))
	return nil
}

// lazyEach gives a generator of what each makes of the items of v, which it drops where ok is false. As there, nothing is
// looked at before the first item is asked for, and nothing at all when v is falsy.
func lazyEach(name string, v Value, prepare func(st *state) func(Value) (Value, bool)) Value {
	var it iterator
	var each func(Value) (Value, bool)
	return newGenerator(name, func(st *state) (Value, bool) {
		if each == nil {
			if !st.truth(v) {
				return Value{}, false
			}
			each, it = prepare(st), st.iterate(v)
		}
		for {
			item, ok := it.next(st)
			if !ok {
				return item, false
			}
			st.spend(1)
			if out, ok := each(item); ok {
				return out, true
			}
		}
	})
}

// selector is select, reject, selectattr or rejectattr.
func selector(name string, reject, byAttribute bool) func(*state, Value, arguments) Value {
	return func(st *state, self Value, a arguments) Value {
		a = a.keep()
		return lazyEach("select_or_reject", self, func(st *state) func(Value) (Value, bool) {
			pos, p := a.pos, path(nil)
			if byAttribute {
				if len(pos) == 0 {
					fail("FilterArgumentError", "Missing parameter for attribute name")
				}
				p, pos = st.path(pos[0]), pos[1:]
			}
			if len(pos) == 0 {
				return func(v Value) (Value, bool) { return v, st.truth(st.follow(v, p, Value{})) != reject }
			}
			rest := arguments{pos[1:], a.kw}
			var fn *builtin
			return func(v Value) (Value, bool) {
				of := st.follow(v, p, Value{})
				if fn == nil {
					fn = lookUp(tests, "test", pos[0])
				}
				return v, st.truth(st.invoke(fn, of, rest)) != reject
			}
		})
	}
}
