// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// runeSet is a set of code points as ranges, rising and apart.
type runeSet []runeRange

func (s runeSet) sorted() runeSet {
	slices.SortFunc(s, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	var out runeSet
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

func (s runeSet) has(r rune) bool { return inRanges(s, r) }

func (s runeSet) negated() runeSet {
	var out runeSet
	from := rune(0)
	for _, r := range s {
		if from < r.lo {
			out = append(out, runeRange{from, r.lo - 1})
		}
		from = r.hi + 1
	}
	if from <= utf8.MaxRune {
		out = append(out, runeRange{from, utf8.MaxRune})
	}
	return out
}

func (s runeSet) and(o runeSet) runeSet {
	return append(s.negated(), o.negated()...).sorted().negated()
}

// String is the set in regexp2's syntax. Surrogates are left out: no text has them.
func (s runeSet) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range s {
		lo, hi := r.lo, r.hi
		if 0xd800 <= lo && lo < 0xe000 {
			lo = 0xe000
		}
		if 0xd800 <= hi && hi < 0xe000 {
			hi = 0xd7ff
		}
		if lo > hi {
			continue
		}
		b.WriteString(quoteRune(lo))
		if lo < hi {
			b.WriteString("-" + quoteRune(hi))
		}
	}
	if b.Len() == 1 {
		return `(?!)` // nothing
	}
	return b.String() + "]"
}

// categorySet is the code points whose general category's name begins with prefix; nil if none does.
func categorySet(prefix string) runeSet {
	var out runeSet
	for i, run := range categoryRuns {
		if !strings.HasPrefix(categoryNames[run&31], prefix) {
			continue
		}
		end := uint32(utf8.MaxRune + 1)
		if i+1 < len(categoryRuns) {
			end = categoryRuns[i+1] >> 5
		}
		out = append(out, runeRange{rune(run >> 5), rune(end) - 1})
	}
	return out.sorted()
}

// wordSet is \w.
func wordSet() runeSet {
	var out runeSet
	for _, c := range []string{"L", "M", "Nd", "Nl", "Pc"} {
		out = append(out, categorySet(c)...)
	}
	out = out.sorted()
	more, less := runeSet{}, runeSet{}
	for _, r := range splitWordDiff {
		for c := r.lo; c <= r.hi; c++ {
			if out.has(c) {
				less = append(less, runeRange{c, c})
			} else {
				more = append(more, runeRange{c, c})
			}
		}
	}
	return append(out.and(less.sorted().negated()), more...).sorted()
}

// propertySet is \p{name}.
func (t *translator) propertySet(name string) (runeSet, error) {
	negated := strings.HasPrefix(name, "^")
	name = strings.TrimPrefix(name, "^")
	set := runeSet(scriptRanges[name])
	if len(name) <= 2 && name != "" {
		set = categorySet(name)
	}
	if len(set) == 0 {
		return nil, t.errorf(`\p{%s}`, name)
	}
	if negated {
		set = set.negated()
	}
	return set, nil
}

// escapedSet is what follows a backslash, inside of brackets or not: a set, or a single character.
func (t *translator) escapedSet(brackets bool) (set runeSet, single bool, err error) {
	r, err := t.rune()
	if err != nil {
		return nil, false, err
	}
	one := func(r rune) (runeSet, bool, error) { return runeSet{{r, r}}, true, nil }
	switch r {
	case 'p', 'P':
		end := strings.IndexByte(t.src[t.pos:], '}')
		if !t.eat("{") || end < 0 {
			return nil, false, t.errorf(`\%c without {name}`, r)
		}
		name := t.src[t.pos : t.pos+end-1]
		set, err = t.propertySet(name)
		t.pos += end
		if r == 'P' {
			set = set.negated()
		}
	case 's', 'S':
		set = spaceRanges
		if r == 'S' {
			set = set.negated()
		}
	case 'd', 'D':
		set = categorySet("Nd")
		if r == 'D' {
			set = set.negated()
		}
	case 'w', 'W':
		set = wordSet()
		if brackets { // there, fractions and superscripts of Latin-1 are no word characters
			set = set.and(runeSet{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}.negated())
		}
		if r == 'W' {
			set = set.negated()
		}
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 't':
		return one('\t')
	case 'f':
		return one('\f')
	case 'v':
		return one('\v')
	case 'x', 'u':
		hex := ""
		switch {
		case r == 'x' && t.eat("{"):
			end := max(0, strings.IndexByte(t.src[t.pos:], '}'))
			hex = t.src[t.pos : t.pos+end]
			t.pos += end + 1
		case r == 'x':
			hex = t.src[t.pos:min(len(t.src), t.pos+2)]
			t.pos += len(hex)
		default:
			hex = t.src[t.pos:min(len(t.src), t.pos+4)]
			t.pos += len(hex)
		}
		v, err := strconv.ParseUint(hex, 16, 32)
		if err != nil || v > utf8.MaxRune || r == 'x' && v >= utf8.RuneSelf && len(hex) == 2 || r == 'u' && len(hex) < 4 {
			return nil, false, t.errorf(`\%c%s`, r, hex)
		}
		return one(rune(v))
	default:
		if r >= utf8.RuneSelf || isWordCategory(r) {
			return nil, false, t.errorf(`\%c`, r)
		}
		return one(r)
	}
	return set, false, err
}

// class translates a set in brackets; the opening one has been read.
func (t *translator) class() (runeSet, error) {
	if t.depth++; t.depth > 100 {
		return nil, t.errorf("nested deeper than 100")
	}
	defer func() { t.depth-- }()
	negated := t.eat("^")
	var set runeSet
	all := runeSet{{0, utf8.MaxRune}} // the sets before each &&
	for first := true; ; first = false {
		if !t.more() {
			return nil, t.errorf(`"[" without "]"`)
		}
		switch {
		case t.eat("]"):
			if first {
				return nil, t.errorf("an empty set")
			}
			set = all.and(set.sorted())
			var err error
			if t.fold {
				if set, err = t.folded(set); err != nil {
					return nil, err
				}
			}
			if negated {
				set = set.negated()
			}
			return set, nil
		case t.eat("&&"):
			all, set = all.and(set.sorted()), nil
			continue
		case t.eat("[:"):
			return nil, t.errorf("a POSIX bracket")
		case t.eat("["):
			inner, err := t.class()
			if err != nil {
				return nil, err
			}
			set = append(set, inner...)
			continue
		}
		lo, single, err := t.member()
		if err != nil {
			return nil, err
		}
		set = append(set, lo...)
		if !single || !t.more() || t.src[t.pos] != '-' || strings.HasPrefix(t.src[t.pos:], "-]") {
			continue
		}
		t.pos++
		hi, single, err := t.member()
		if err != nil {
			return nil, err
		}
		if !single || hi[0].lo < lo[0].lo {
			return nil, t.errorf("a bad range in brackets")
		}
		set = append(set, runeRange{lo[0].lo, hi[0].lo})
	}
}

// member is one character or class inside of brackets.
func (t *translator) member() (runeSet, bool, error) {
	if t.eat(`\`) {
		return t.escapedSet(true)
	}
	r, err := t.rune()
	return runeSet{{r, r}}, true, err
}
