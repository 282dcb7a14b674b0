// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Strings are UTF-8 here and sequences of code points for templates: lengths and positions count code points.

// isASCII says whether positions in s are byte offsets.
func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// runeLen is the length of s in code points.
func (st *state) runeLen(s string) int {
	st.scan(len(s))
	return utf8.RuneCountInString(s)
}

// byteAt is the byte offset of the n-th code point of s; len(s) when there are fewer.
func byteAt(s string, n int) int {
	for i := range s {
		if n <= 0 {
			return i
		}
		n--
	}
	return len(s)
}

// charAt is the code point at position n, which counts from the end when negative; "" when there is none.
func (st *state) charAt(s string, n int64) string {
	st.scan(len(s))
	if isASCII(s) {
		if n < 0 {
			n += int64(len(s))
		}
		if n < 0 || n >= int64(len(s)) {
			return ""
		}
		return s[n : n+1]
	}
	if n < 0 {
		n += int64(utf8.RuneCountInString(s))
	}
	if n < 0 || n >= int64(len(s)) {
		return ""
	}
	s = s[byteAt(s, int(n)):]
	_, size := utf8.DecodeRuneInString(s)
	return s[:size]
}

// slice is Python's v[start:stop:step]; absent bounds are None.
func (st *state) slice(v, start, stop, step Value) Value {
	switch v.kind {
	case kUndefined:
		v.failUndefined()
	case kDict:
		failType("unhashable type: 'slice'")
	}
	if !v.isSequence() && v.kind != kRange {
		failType("%s object is not subscriptable", quote(v.typeName()))
	}
	by := sliceIndex(step, 1)
	if by == 0 {
		failValue("slice step cannot be zero")
	}
	switch v.kind {
	case kList, kTuple:
		items := v.items()
		from, n := sliceBounds(int64(len(items)), start, stop, by)
		if by == 1 {
			return Value{kind: v.kind, ref: &seq{items: items[from : from+n : from+n]}}
		}
		st.allocValues(int(n))
		out := make([]Value, n)
		for i := range out {
			out[i] = items[from+int64(i)*by]
		}
		return Value{kind: v.kind, ref: &seq{items: out}}
	case kRange:
		s := v.ref.(*span)
		from, to, _ := sliceIndices(s.len(), start, stop, by)
		return Value{kind: kRange, ref: &span{s.start + from*s.step, s.start + to*s.step, by * s.step}}
	}
	return Value{kind: v.kind, str: st.sliceText(v.str, start, stop, by)}
}

func (st *state) sliceText(s string, start, stop Value, by int64) string {
	if isASCII(s) {
		st.scan(len(s))
		from, n := sliceBounds(int64(len(s)), start, stop, by)
		if by == 1 {
			return s[from : from+n]
		}
		st.alloc(int(n))
		b := make([]byte, n)
		for i := range b {
			b[i] = s[from+int64(i)*by]
		}
		return string(b)
	}
	from, n := sliceBounds(int64(st.runeLen(s)), start, stop, by)
	if by == 1 {
		s = s[byteAt(s, int(from)):]
		return s[:byteAt(s, int(n))]
	}
	st.alloc(8 * len(s))
	runes := []rune(s)
	out := make([]rune, n)
	for i := range out {
		out[i] = runes[from+int64(i)*by]
	}
	return string(out)
}

// sliceBounds gives the first position and the number of items of a slice of n items.
func sliceBounds(n int64, start, stop Value, by int64) (from, count int64) {
	from, _, count = sliceIndices(n, start, stop, by)
	if count == 0 {
		from = min(max(from, 0), n)
	}
	return from, count
}

// sliceIndices is Python's slice(start, stop, by).indices(n), and how many items that is.
func sliceIndices(n int64, start, stop Value, by int64) (from, to, count int64) {
	low, high := int64(0), n
	first, last := low, high
	if by < 0 {
		low, high = -1, n-1
		first, last = high, low
	}
	clamp := func(v Value, missing int64) int64 {
		i := sliceIndex(v, missing)
		if i < 0 && v.kind != kAbsent && v.kind != kNone {
			i += n
		}
		return min(max(i, low), high)
	}
	from, to = clamp(start, first), clamp(stop, last)
	switch {
	case by > 0 && from < to:
		count = (to-from-1)/by + 1
	case by < 0 && to < from:
		count = (from-to-1)/-max(by, -1<<62) + 1
	}
	return from, to, count
}

func sliceIndex(v Value, missing int64) int64 {
	if v.kind == kAbsent || v.kind == kNone {
		return missing
	}
	n, ok := v.index()
	if !ok {
		failType("slice indices must be integers or None or have an __index__ method")
	}
	return min(max(n, -1<<62), 1<<62)
}

// isSpace is Python's str.isspace for one code point.
func isSpace(r rune) bool {
	if r < 0x80 {
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	}
	return unicode.IsSpace(r)
}

// isDigit is Python's str.isdigit for one code point: decimal digits, and digits in circles, super- and subscripts.
func isDigit(r rune) bool {
	if r < 0x80 {
		return r >= '0' && r <= '9'
	}
	return unicode.IsDigit(r) || unicode.Is(otherDigits, r)
}

// otherDigits have Numeric_Type=Digit: digits that are not used in decimal numbers.
var otherDigits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x00b2, 0x00b3, 1}, {0x00b9, 0x00b9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1},
		{0x2074, 0x2079, 1}, {0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1},
		{0x24ea, 0x24ea, 1}, {0x24f5, 0x24fd, 1}, {0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1},
		{0x278a, 0x2792, 1},
	},
	R32: []unicode.Range32{
		{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1},
	},
	LatinOffset: 2,
}

// isNumeric is Python's str.isnumeric for one code point.
func isNumeric(r rune) bool { return isDigit(r) || unicode.IsNumber(r) || unicode.Is(hanNumbers, r) }

// hanNumbers are ideographs that are numbers.
var hanNumbers = &unicode.RangeTable{R16: hanNumberRanges()}

func hanNumberRanges() (out []unicode.Range16) {
	for _, r := range "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零" {
		out = append(out, unicode.Range16{Lo: uint16(r), Hi: uint16(r), Stride: 1})
	}
	return out
}

// isWord is \w of Python's re.
func isWord(r rune) bool {
	if r < 0x80 {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return unicode.IsLetter(r) || isNumeric(r)
}

// isIdentifier is Python's str.isidentifier.
func isIdentifier(s string) bool {
	for i, r := range s {
		switch {
		case r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) || unicode.Is(unicode.Other_ID_Start, r):
		case i > 0 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue):
		default:
			return false
		}
	}
	return s != ""
}

func trimLeft(s string) string  { return strings.TrimLeftFunc(s, isSpace) }
func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

// lineEnd gives where the first line of s ends and where the next begins, by the ends of line of str.splitlines.
func lineEnd(s string) (end, next int) {
	for i, r := range s {
		switch r {
		case '\r':
			if strings.HasPrefix(s[i+1:], "\n") {
				return i, i + 2
			}
			return i, i + 1
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e:
			return i, i + 1
		case 0x85, 0x2028, 0x2029:
			return i, i + utf8.RuneLen(r)
		}
	}
	return len(s), len(s)
}

// splitLines is str.splitlines.
func (st *state) splitLines(s string, keepEnds bool) []string {
	st.scan(4 * len(s))
	var lines []string
	for s != "" {
		end, next := lineEnd(s)
		if keepEnds {
			end = next
		}
		st.alloc(16)
		lines = append(lines, s[:end])
		s = s[next:]
	}
	return lines
}
