// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"html"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters are jinja2's, with the tojson of transformers. In fn, a[0] is the piped value. It is filled in init because
// map, select and friends look filters up.
var filters map[string]*builtin

func init() {
	filters = table(slices.Concat(valueFilters, textFilters, seqFilters)...)
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		filters[alias] = filters[name]
	}
}

var valueFilters = []*builtin{
	define("abs()", filterAbs),
	define("attr(name)", func(st *state, a []Value) Value {
		if !a[1].isStr() {
			failType("attribute name must be string, not %s", quote(a[1].typeName()))
		}
		if v := st.attribute(a[0], a[1].str); v.kind != kAbsent {
			return v
		}
		if a[0].kind == kUndefined {
			a[0].failUndefined()
		}
		return undefinedAttr(a[0], a[1].str)
	}),
	define("default(default_value=, boolean=)", func(st *state, a []Value) Value {
		if a[0].kind != kUndefined && !(st.argBool(a[2], false) && !st.truth(a[0])) {
			return a[0]
		}
		if a[1].kind == kAbsent {
			return String("")
		}
		return a[1]
	}),
	define("filesizeformat(binary=)", filterFileSize),
	define("float(default=)", func(st *state, a []Value) Value {
		if f, ok := st.toFloat(a[0]); ok {
			return Float(f)
		}
		if a[1].kind == kAbsent {
			return Float(0)
		}
		return a[1]
	}),
	define("int(default=, base=)", filterInt),
	define("length()", func(st *state, a []Value) Value { return Int(int64(st.length(a[0]))) }),
	define("pprint()", filterPprint),
	define("round(precision=, method=)", filterRound),
	define("string()", func(st *state, a []Value) Value {
		if a[0].isStr() {
			return a[0]
		}
		return String(st.text(a[0]))
	}),
	{name: "tojson", params: []string{"ensure_ascii", "indent", "separators", "sort_keys"}, emit: filterJSON},
}

func filterAbs(st *state, a []Value) Value {
	v := a[0]
	switch {
	case v.kind == kUndefined || !v.isNumber():
		failType("bad operand type for abs(): %s", quote(v.typeName()))
	case v.kind == kFloat:
		return Float(math.Abs(v.float()))
	case v.kind == kBool || v.int() >= 0 && v.kind == kInt:
		return Int(v.int())
	case v.kind == kBigInt && v.big().Sign() > 0:
		return v
	}
	return negate(v)
}

func filterFileSize(st *state, a []Value) Value {
	f, ok := st.toFloat(a[0])
	if !ok && !a[0].isStr() {
		failType("float() argument must be a string or a real number, not %s", quote(a[0].typeName()))
	}
	if !ok {
		failValue("could not convert string to float: %s", reprText(a[0]))
	}
	base, binary := 1000.0, st.argBool(a[1], false)
	units := []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if binary {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case f == 1:
		return String("1 Byte")
	case f < base:
		return String(strconv.FormatInt(int64(f), 10) + " Bytes")
	}
	unit := base
	for i, name := range units {
		unit *= base
		if f < unit || i == len(units)-1 {
			return String(strconv.FormatFloat(base*f/unit, 'f', 1, 64) + " " + name)
		}
	}
	return Value{}
}

// toFloat is Python's float(v); ok is false where that raises TypeError or ValueError.
func (st *state) toFloat(v Value) (f float64, ok bool) {
	switch {
	case v.kind == kUndefined:
		v.failUndefined()
	case v.isNumber():
		return v.toFloat(), true
	case v.isStr():
		st.scan(len(v.str))
		s := trimLeft(trimRight(v.str))
		if strings.ContainsAny(s, "xXpP") || strings.Contains(s, "__") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") {
			return 0, false
		}
		for i := 1; i+1 < len(s); i++ {
			if s[i] == '_' && (!decimal(s[i-1]) || !decimal(s[i+1])) {
				return 0, false
			}
		}
		f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		if e, isNum := err.(*strconv.NumError); isNum && e.Err == strconv.ErrRange {
			return f, true
		}
		return f, err == nil
	}
	return 0, false
}

func filterInt(st *state, a []Value) Value {
	base := argInt(a[2], 10)
	v := a[0]
	if v.isStr() {
		if base != 0 && base < 2 || base > 36 {
			failValue("int() base must be >= 2 and <= 36, or 0")
		}
		if n := st.parseInt(v.str, int(base)); n != nil {
			return bigInt(n)
		}
	} else if v.isInt() {
		return positive(v)
	}
	f, ok := st.toFloat(v)
	switch {
	case ok && math.IsInf(f, 0) && !v.isStr():
		fail("OverflowError", "cannot convert float infinity to integer")
	case ok && !math.IsInf(f, 0) && f == f:
		n, _ := big.NewFloat(f).Int(nil)
		return bigInt(n)
	case a[1].kind == kAbsent:
		return Int(0)
	}
	return a[1]
}

// parseInt is Python's int(s, base); nil where that raises ValueError.
func (st *state) parseInt(s string, base int) *big.Int {
	st.scan(len(s))
	s = strings.ToLower(trimLeft(trimRight(s)))
	if len(s) > MaxIntWidth {
		return nil
	}
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	for prefix, b := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if (base == b || base == 0) && strings.HasPrefix(s, prefix) {
			s, base = strings.TrimPrefix(s[2:], "_"), b
			break
		}
	}
	if base == 0 {
		if strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil
		}
		base = 10
	}
	if s == "" || s[0] == '_' || s[0] == '+' || s[0] == '-' || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil
	}
	n, ok := new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return nil
	}
	return n
}

// filterPprint prints what fits on a line as pprint.pformat does.
func filterPprint(st *state, a []Value) Value {
	s := st.repr(st.sortedDicts(a[0], 0))
	if st.runeLen(s) > 80 && !a[0].isNumber() {
		fail(unsupportedError, "pprint of a value wider than 80 columns")
	}
	return String(s)
}

// sortedDicts gives v with the keys of all dicts sorted.
func (st *state) sortedDicts(v Value, depth int) Value {
	nested(depth)
	st.spend(1)
	switch v.kind {
	case kList, kTuple:
		st.allocValues(len(v.items()))
		items := make([]Value, len(v.items()))
		for i, item := range v.items() {
			items[i] = st.sortedDicts(item, depth+1)
		}
		return Value{kind: v.kind, ref: &seq{items: items}}
	case kDict:
		d := newDict(v.dict().len())
		for _, pair := range st.sort(st.pairs(v.dict()), func(p Value) Value { return p.items()[0] }, false) {
			d.set(st, pair.items()[0], st.sortedDicts(pair.items()[1], depth+1))
		}
		return d.value()
	}
	return v
}

func filterRound(st *state, a []Value) Value {
	digits := argInt(a[1], 0)
	method := "common"
	if a[2].kind != kAbsent {
		method = st.text(a[2])
	}
	v := a[0]
	if v.kind == kUndefined || !v.isNumber() {
		if method == "common" {
			failType("type %s doesn't define __round__ method", v.typeName())
		}
		if v.kind == kUndefined {
			v.failUndefined()
		}
		failType("must be real number, not %s", v.typeName())
	}
	switch method {
	case "common":
		if v.kind == kFloat {
			return roundFloat(v.float(), digits)
		}
		return roundInt(v, digits)
	case "ceil", "floor":
		scale := arith(tokPow, Int(10), Int(min(max(digits, -400), 400)))
		scaled := arith(tokMul, v, scale)
		if scaled.isInt() {
			return arith(tokDiv, scaled, scale)
		}
		f := scaled.float()
		if method == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		if math.IsInf(f, 0) || f != f {
			fail("OverflowError", "cannot convert float infinity to integer")
		}
		n, _ := big.NewFloat(f).Int(nil)
		return arith(tokDiv, bigInt(n), scale)
	}
	fail("FilterArgumentError", "method must be common, ceil or floor")
	return Value{}
}

// roundFloat is round(f, digits): to the nearest decimal, ties to even.
func roundFloat(f float64, digits int64) Value {
	switch {
	case math.IsInf(f, 0) || f != f || digits > 323:
		return Float(f)
	case digits < -308:
		return Float(math.Copysign(0, f))
	case digits >= 0:
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
		if err != nil {
			fail("OverflowError", "rounded value too large to represent")
		}
		return Float(r)
	}
	exact, _ := new(big.Float).SetFloat64(f).Rat(nil)
	unit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil))
	n := roundRat(exact.Quo(exact, unit))
	r, _ := new(big.Rat).Mul(new(big.Rat).SetInt(n), unit).Float64()
	if r == 0 {
		r = math.Copysign(0, f)
	}
	return Float(r)
}

// roundInt is round(n, digits) of an integer.
func roundInt(v Value, digits int64) Value {
	if digits >= 0 {
		return positive(v)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(min(-digits, MaxIntWidth)), nil)
	n := roundRat(new(big.Rat).SetFrac(v.big(), unit))
	return bigInt(n.Mul(n, unit))
}

// roundRat gives the nearest integer, the even one of two.
func roundRat(r *big.Rat) *big.Int {
	twice := new(big.Int).Lsh(r.Num(), 1)
	floor := new(big.Int).Div(twice.Add(twice, r.Denom()), new(big.Int).Lsh(r.Denom(), 1)) // floor(r + 1/2)
	tie := new(big.Rat).Sub(new(big.Rat).SetInt(floor), r).Cmp(big.NewRat(1, 2)) == 0
	if tie && floor.Bit(0) == 1 {
		floor.Sub(floor, big.NewInt(1))
	}
	return floor
}

var textFilters = []*builtin{
	define("upper()", softText(upper)),
	define("lower()", softText(lower)),
	define("capitalize()", softText(capitalize)),
	define("title()", softText(titleWords)),
	define("trim(chars=)", func(st *state, a []Value) Value {
		a[0] = st.soft(a[0])
		return strMethods["strip"].fn(st, a)
	}),
	define("center(width=)", func(st *state, a []Value) Value {
		if a[1].kind == kAbsent {
			a[1] = Int(80)
		}
		return strMethods["center"].fn(st, []Value{st.soft(a[0]), a[1], {}})
	}),
	define("replace(old, new, count=)", func(st *state, a []Value) Value {
		n := int64(-1)
		if a[3].given() {
			n = argInt(a[3], -1)
		}
		if !st.autoescape {
			return String(st.replace(st.text(a[0]), st.text(a[1]), st.text(a[2]), n))
		}
		s := st.soft(a[0])
		if s.kind != kMarkup && (a[1].kind == kMarkup || a[2].kind == kMarkup) {
			s = markup(st.escape(s))
		}
		to := st.text(a[2])
		if s.kind == kMarkup {
			to = st.escape(st.soft(a[2]))
		}
		return Value{kind: s.kind, str: st.replace(s.str, st.text(a[1]), to, n)}
	}),
	{name: "format", raw: func(st *state, self Value, a arguments) Value {
		if len(a.pos) > 0 && len(a.kw) > 0 {
			fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
		}
		if len(a.kw) > 0 {
			return st.percent(st.soft(self), st.makeDict("dict", arguments{kw: a.kw}).value())
		}
		return st.percent(st.soft(self), tuple(append([]Value(nil), a.pos...)...))
	}},
	define("escape()", func(st *state, a []Value) Value { return markup(st.escape(a[0])) }),
	define("forceescape()", func(st *state, a []Value) Value { return markup(st.escape(String(st.text(a[0])))) }),
	define("safe()", func(st *state, a []Value) Value { return markup(st.text(a[0])) }),
	define("striptags()", func(st *state, a []Value) Value {
		s := st.text(a[0])
		st.alloc(3 * len(s))
		return String(stripTags(s))
	}),
	define("wordcount()", func(st *state, a []Value) Value {
		n, inWord := int64(0), false
		s := st.text(a[0])
		st.scan(4 * len(s))
		for _, r := range s {
			word := isWord(r)
			if word && !inWord {
				n++
			}
			inWord = word
		}
		return Int(n)
	}),
	define("indent(width=, first=, blank=)", filterIndent),
	define("truncate(length=, killwords=, end=, leeway=)", filterTruncate),
	define("wordwrap(width=, break_long_words=, wrapstring=, break_on_hyphens=)", filterWordWrap),
	define("urlencode()", filterURLEncode),
	define("xmlattr(autospace=)", filterXMLAttr),
	refused("urlize", "urlize"),
}

// soft is str(v), but keeps Markup.
func (st *state) soft(v Value) Value {
	if v.isStr() {
		return v
	}
	return String(st.text(v))
}

func softText(f func(string) string) func(*state, []Value) Value {
	method := mapText(f)
	return func(st *state, a []Value) Value {
		a[0] = st.soft(a[0])
		return method(st, a)
	}
}

// titleWords is the title filter: words begin after white space and after - ( { [ <.
func titleWords(s string) string {
	var b strings.Builder
	first := true
	for i, r := range s {
		separator := isSpace(r) || strings.ContainsRune("-({[<", r)
		switch {
		case separator || !first:
			b.WriteString(lowerRune(s, i, r))
		default:
			b.WriteString(upper(string(r)))
		}
		first = separator
	}
	return b.String()
}

func filterIndent(st *state, a []Value) Value {
	s := a[0]
	switch {
	case s.kind == kUndefined:
		s.failUndefined()
	case s.kind == kList:
		fail("AttributeError", "'list' object has no attribute 'splitlines'")
	case !s.isStr():
		st.add(s, String("\n")) // fails
	}
	by := ""
	switch {
	case a[1].isStr():
		by = a[1].str
	default:
		width := argWidth(a[1], 4)
		st.alloc(width)
		by = strings.Repeat(" ", width)
	}
	if s.kind == kMarkup {
		by = st.escape(String(by))
	}
	blank := st.argBool(a[3], false)
	start := len(st.out)
	for i, text := range st.splitLines(s.str+"\n", false) {
		if i > 0 {
			st.write("\n")
		}
		if i == 0 && st.argBool(a[2], false) || i > 0 && (blank || text != "") {
			st.write(by)
		}
		st.write(text)
	}
	return Value{kind: s.kind, str: st.take(start)}
}

func filterTruncate(st *state, a []Value) Value {
	length, leeway := argInt(a[1], 255), int64(5)
	if a[4].given() {
		leeway = argInt(a[4], 5)
	}
	end := "..."
	if a[3].kind != kAbsent {
		end = argStr("truncate", a[3], "")
	}
	room := length - int64(utf8.RuneCountInString(end))
	if room < 0 || leeway < 0 {
		fail("AssertionError", "expected length >= %d, got %d", utf8.RuneCountInString(end), length)
	}
	s := a[0]
	if int64(st.length(s)) <= length+leeway {
		return s
	}
	if !s.isStr() {
		failType("can only truncate str, not %s", s.typeName())
	}
	s.str = st.sliceText(s.str, Value{}, Int(room), 1)
	if !st.argBool(a[2], false) {
		if i := strings.LastIndexByte(s.str, ' '); i >= 0 {
			s.str = s.str[:i]
		}
	}
	return st.add(s, String(end))
}

// quoteURL is urllib's quote: bytes other than letters, digits, _.-~ and safe become %XX.
func quoteURL(b []byte, s string, query bool) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < 0x80 && isWord(rune(c)) || strings.IndexByte(".-~", c) >= 0 || c == '/' && !query:
			b = append(b, c)
		case c == ' ' && query:
			b = append(b, '+')
		default:
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return b
}

func filterURLEncode(st *state, a []Value) Value {
	v := a[0]
	it, ok := st.iterator(v)
	if v.isStr() || !ok {
		s := st.text(v)
		st.alloc(3 * len(s))
		return String(string(quoteURL(nil, s, false)))
	}
	if v.kind == kDict {
		it = iterator{items: st.pairs(v.dict())}
	}
	var b []byte
	for i := 0; ; i++ {
		pair, ok := it.next(st)
		if !ok {
			return String(string(b))
		}
		kv := st.unpack(pair, 2)
		if i > 0 {
			b = append(b, '&')
		}
		k, val := st.text(kv[0]), st.text(kv[1])
		st.alloc(3*(len(k)+len(val)) + 2)
		b = quoteURL(append(quoteURL(b, k, true), '='), val, true)
	}
}

func filterXMLAttr(st *state, a []Value) Value {
	if a[0].kind == kUndefined {
		a[0].failUndefined()
	}
	if a[0].kind != kDict {
		fail("AttributeError", "%s object has no attribute 'items'", quote(a[0].typeName()))
	}
	d := a[0].dict()
	start := len(st.out)
	for i, k := range d.keys {
		v := d.vals[i]
		if v.kind == kNone || v.kind == kUndefined {
			continue
		}
		if !k.isStr() {
			failType("expected string or bytes-like object, got %s", quote(k.typeName()))
		}
		if strings.ContainsAny(k.str, " \t\n\r\f\v/>=") {
			failValue("Invalid character in attribute name: %s", reprText(k))
		}
		if len(st.out) > start || st.argBool(a[1], true) {
			st.write(" ")
		}
		st.write(st.escape(k) + `="` + st.escape(v) + `"`)
	}
	return Value{kind: st.textKind(), str: st.take(start)}
}

func unescapeHTML(s string) string { return html.UnescapeString(s) }
