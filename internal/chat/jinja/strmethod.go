// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The methods of str. Those of Markup are the same; like MarkupSafe they give Markup and escape what they insert.

// It is filled in init because str.format looks methods up.
var strMethods map[string]*builtin

func init() {
	strMethods = table(
		define("upper()", mapText(upper)),
		define("lower()", mapText(lower)),
		define("casefold()", mapText(casefold)),
		define("swapcase()", mapText(swapcase)),
		define("title()", mapText(title)),
		define("capitalize()", mapText(capitalize)),
		define("strip(/chars=)", stripper(true, true)),
		define("lstrip(/chars=)", stripper(true, false)),
		define("rstrip(/chars=)", stripper(false, true)),
		define("split(sep=, maxsplit=)", func(st *state, a []Value) Value { return st.split(a[0], a[1], a[2], false) }),
		define("rsplit(sep=, maxsplit=)", func(st *state, a []Value) Value { return st.split(a[0], a[1], a[2], true) }),
		define("splitlines(keepends=)", func(st *state, a []Value) Value {
			return st.texts(a[0].kind, st.splitLines(a[0].str, st.argBool(a[1], false)))
		}),
		define("partition(/sep)", partition(strings.Index, false)),
		define("rpartition(/sep)", partition(strings.LastIndex, true)),
		define("startswith(/prefix, /start=, /end=)", affix("startswith", strings.HasPrefix)),
		define("endswith(/suffix, /start=, /end=)", affix("endswith", strings.HasSuffix)),
		define("find(/sub, /start=, /end=)", finder("find", strings.Index, false)),
		define("rfind(/sub, /start=, /end=)", finder("rfind", strings.LastIndex, false)),
		define("index(/sub, /start=, /end=)", finder("index", strings.Index, true)),
		define("rindex(/sub, /start=, /end=)", finder("rindex", strings.LastIndex, true)),
		define("count(/sub, /start=, /end=)", strCount),
		define("replace(/old, /new, /count=)", strReplace),
		define("removeprefix(/prefix)", func(st *state, a []Value) Value {
			a[0].str = strings.TrimPrefix(a[0].str, argStr("removeprefix", a[1], ""))
			return a[0]
		}),
		define("removesuffix(/suffix)", func(st *state, a []Value) Value {
			a[0].str = strings.TrimSuffix(a[0].str, argStr("removesuffix", a[1], ""))
			return a[0]
		}),
		define("join(/iterable)", strJoin),
		define("center(/width, /fillchar=)", justify(func(room, width int) int { return room/2 + room&width&1 })),
		define("ljust(/width, /fillchar=)", justify(func(room, width int) int { return 0 })),
		define("rjust(/width, /fillchar=)", justify(func(room, width int) int { return room })),
		define("zfill(/width)", zfill),
		define("expandtabs(tabsize=)", expandTabs),
		&builtin{name: "format", raw: func(st *state, self Value, a arguments) Value { return st.formatText(self, a) }},
		define("format_map(/mapping)", func(st *state, a []Value) Value {
			if a[1].kind != kDict {
				failType("format_map() argument must be a mapping, not %s", a[1].typeName())
			}
			return st.formatText(a[0], arguments{kw: keywordsOf(a[1].dict())})
		}),
		define("isalpha()", all(unicode.IsLetter)),
		define("isdecimal()", all(unicode.IsDigit)),
		define("isdigit()", all(isDigit)),
		define("isnumeric()", all(isNumeric)),
		define("isalnum()", all(func(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) })),
		define("isspace()", all(isSpace)),
		define("isascii()", func(st *state, a []Value) Value { return Bool(isASCII(a[0].str)) }),
		define("isprintable()", func(st *state, a []Value) Value {
			return Bool(strings.IndexFunc(a[0].str, func(r rune) bool { return !unicode.IsPrint(r) }) < 0)
		}),
		define("isidentifier()", func(st *state, a []Value) Value { return Bool(isIdentifier(a[0].str)) }),
		define("islower()", func(st *state, a []Value) Value { return Bool(isLower(a[0].str)) }),
		define("isupper()", func(st *state, a []Value) Value { return Bool(isUpper(a[0].str)) }),
		define("istitle()", func(st *state, a []Value) Value { return Bool(isTitle(a[0].str)) }),
		refused("encode", "bytes"), refused("translate", "str.translate"), refused("maketrans", "str.maketrans"),
	)
}

// refused is a builtin that this package does not have.
func refused(name, what string) *builtin {
	return &builtin{name: name, raw: func(*state, Value, arguments) Value {
		fail(unsupportedError, "%s is not supported in chat templates", what)
		return Value{}
	}}
}

// mapText is a method without arguments that makes another text.
func mapText(f func(string) string) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		st.alloc(2 * len(a[0].str))
		a[0].str = f(a[0].str)
		return a[0]
	}
}

// all is a method that asks a question of every code point; False for the empty str.
func all(is func(rune) bool) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		st.scan(4 * len(a[0].str))
		for _, r := range a[0].str {
			if !is(r) {
				return False
			}
		}
		return Bool(a[0].str != "")
	}
}

func stripper(left, right bool) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		cut := isSpace
		if a[1].given() {
			chars := argStr("strip", a[1], "")
			st.spend(int64(len(chars)))
			cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
			if len(chars) > 16 {
				st.spend(int64(len(chars)) / 16 * int64(len(a[0].str)))
			}
		}
		st.scan(len(a[0].str))
		if left {
			a[0].str = strings.TrimLeftFunc(a[0].str, cut)
		}
		if right {
			a[0].str = strings.TrimRightFunc(a[0].str, cut)
		}
		return a[0]
	}
}

// texts gives a list of str.
func (st *state) texts(k kind, parts []string) Value {
	st.allocValues(len(parts))
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = Value{kind: k, str: p}
	}
	return List(items...)
}

// split is str.split, or str.rsplit when fromRight.
func (st *state) split(s, sep, limit Value, fromRight bool) Value {
	n := argInt(limit, -1)
	if n < 0 {
		n = int64(len(s.str)) + 1
	}
	st.scan(2 * len(s.str))
	var parts []string
	switch {
	case !sep.given():
		parts = splitSpace(s.str, n, fromRight)
	case argStr("split", sep, "") == "":
		failValue("empty separator")
	case fromRight:
		rest := s.str
		for ; n > 0; n-- {
			i := strings.LastIndex(rest, sep.str)
			if i < 0 {
				break
			}
			parts = append(parts, rest[i+len(sep.str):])
			rest = rest[:i]
		}
		parts = append(parts, rest)
		reverse(parts)
	default:
		rest := s.str
		for ; n > 0; n-- {
			i := strings.Index(rest, sep.str)
			if i < 0 {
				break
			}
			parts = append(parts, rest[:i])
			rest = rest[i+len(sep.str):]
		}
		parts = append(parts, rest)
	}
	return st.texts(s.kind, parts)
}

// splitSpace splits at runs of white space.
func splitSpace(s string, n int64, fromRight bool) (parts []string) {
	if fromRight {
		for s = trimRight(s); s != ""; s = trimRight(s) {
			i := strings.LastIndexFunc(s, isSpace)
			if i < 0 || n == 0 {
				parts = append(parts, s)
				break
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+size:])
			s = s[:i]
			n--
		}
		reverse(parts)
		return parts
	}
	for s = trimLeft(s); s != ""; s = trimLeft(s) {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || n == 0 {
			parts = append(parts, s)
			break
		}
		parts = append(parts, s[:i])
		s = s[i:]
		n--
	}
	return parts
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

func partition(index func(s, sep string) int, last bool) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		s, sep := a[0], argStr("partition", a[1], "")
		if sep == "" {
			failValue("empty separator")
		}
		st.scan(len(s.str))
		parts := [3]string{s.str}
		if i := index(s.str, sep); i >= 0 {
			parts = [3]string{s.str[:i], sep, s.str[i+len(sep):]}
		} else if last {
			parts = [3]string{"", "", s.str}
		}
		list := st.texts(s.kind, parts[:])
		return tuple(list.items()...)
	}
}

// window cuts s to the code points [start, end) and gives how many are left out in front; ok is false when the window is
// outside of s.
func (st *state) window(s string, start, end Value) (cut string, before int64, ok bool) {
	if !start.given() && !end.given() {
		return s, 0, true
	}
	n := int64(st.runeLen(s))
	from := sliceIndex(start, 0)
	to := sliceIndex(end, n)
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to = max(to+n, 0)
	}
	to = min(to, n)
	if from > to {
		return "", 0, false
	}
	s = s[byteAt(s, int(from)):]
	return s[:byteAt(s, int(to-from))], from, true
}

func affix(name string, has func(s, affix string) bool) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		s, _, ok := st.window(a[0].str, a[2], a[3])
		switch {
		case a[1].isStr():
			return Bool(ok && has(s, a[1].str))
		case a[1].kind == kTuple:
			for _, p := range a[1].items() {
				if !p.isStr() {
					failType("tuple for %s must only contain str, not %s", name, p.typeName())
				}
				if ok && has(s, p.str) {
					return True
				}
			}
			return False
		}
		failType("%s first arg must be str or a tuple of str, not %s", name, a[1].typeName())
		return Value{}
	}
}

func finder(name string, index func(s, sub string) int, must bool) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		if !a[1].isStr() {
			failType("must be str, not %s", a[1].typeName())
		}
		st.scan(len(a[0].str))
		if s, before, ok := st.window(a[0].str, a[2], a[3]); ok {
			if i := index(s, a[1].str); i >= 0 {
				return Int(before + int64(st.runeLen(s[:i])))
			}
		}
		if must {
			failValue("substring not found")
		}
		return Int(-1)
	}
}

func strCount(st *state, a []Value) Value {
	if !a[1].isStr() {
		failType("must be str, not %s", a[1].typeName())
	}
	st.scan(len(a[0].str))
	s, _, ok := st.window(a[0].str, a[2], a[3])
	if !ok {
		return Int(0)
	}
	return Int(int64(strings.Count(s, a[1].str)))
}

func strReplace(st *state, a []Value) Value {
	for _, v := range a[1:3] {
		if !v.isStr() {
			failType("replace() argument must be str, not %s", v.typeName())
		}
	}
	if a[0].kind == kMarkup {
		a[2].str = st.escape(a[2])
	}
	a[0].str = st.replace(a[0].str, a[1].str, a[2].str, argInt(a[3], -1))
	return a[0]
}

// replace gives s with the first n (all when negative) occurrences of old replaced.
func (st *state) replace(s, old, to string, n int64) string {
	st.scan(len(s))
	found := int64(strings.Count(s, old))
	if n < 0 || n > found {
		n = found
	}
	if n == 0 {
		return s
	}
	if grow := int64(len(to)); grow > 0 && n > MaxHeap/grow {
		st.alloc(MaxHeap)
	}
	st.alloc(len(s) + int(n)*len(to))
	return strings.Replace(s, old, to, int(n))
}

func strJoin(st *state, a []Value) Value {
	start := len(st.out)
	it, ok := st.iterator(a[1])
	if !ok {
		failType("can only join an iterable")
	}
	for i := 0; ; i++ {
		v, ok := it.next(st)
		if !ok {
			break
		}
		st.spend(1)
		if i > 0 {
			st.write(a[0].str)
		}
		switch {
		case a[0].kind == kMarkup:
			st.write(st.escape(v))
		case v.isStr():
			st.write(v.str)
		default:
			failType("sequence item %d: expected str instance, %s found", i, v.typeName())
		}
	}
	return Value{kind: a[0].kind, str: st.take(start)}
}

// justify pads to a width; before gives how much of the room goes in front.
func justify(before func(room, width int) int) func(*state, []Value) Value {
	return func(st *state, a []Value) Value {
		fill := argStr("justify", a[2], " ")
		if utf8.RuneCountInString(fill) != 1 {
			failType("The fill character must be exactly one character long")
		}
		if a[0].kind == kMarkup {
			fill = st.escape(String(fill))
		}
		width := argWidth(a[1], 0)
		room := width - st.runeLen(a[0].str)
		if room <= 0 {
			return a[0]
		}
		st.alloc(len(a[0].str) + room*len(fill))
		left := before(room, width)
		a[0].str = strings.Repeat(fill, left) + a[0].str + strings.Repeat(fill, room-left)
		return a[0]
	}
}

func zfill(st *state, a []Value) Value {
	room := argWidth(a[1], 0) - st.runeLen(a[0].str)
	if room <= 0 {
		return a[0]
	}
	st.alloc(len(a[0].str) + room)
	sign := ""
	if s := a[0].str; s != "" && (s[0] == '+' || s[0] == '-') {
		sign = s[:1]
	}
	a[0].str = sign + strings.Repeat("0", room) + a[0].str[len(sign):]
	return a[0]
}

func expandTabs(st *state, a []Value) Value {
	size := argWidth(a[1], 8)
	start, column := len(st.out), 0
	for _, r := range a[0].str {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				st.reserve(n)
				for ; n > 0; n-- {
					st.out = append(st.out, ' ')
					column++
				}
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		st.out = utf8.AppendRune(st.out, r)
	}
	return Value{kind: a[0].kind, str: st.take(start)}
}
