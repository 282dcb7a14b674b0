// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// filterWordWrap is textwrap.wrap, line by line.
func filterWordWrap(st *state, a []Value) Value {
	if a[0].kind == kUndefined {
		a[0].failUndefined()
	}
	if !a[0].isStr() {
		fail("AttributeError", "%s object has no attribute 'splitlines'", quote(a[0].typeName()))
	}
	w := wrapper{st: st, width: int(argInt(a[1], 79)), breakLong: st.argBool(a[2], true), hyphens: st.argBool(a[4], true)}
	sep := "\n"
	if a[3].given() {
		sep = argStr("wordwrap", a[3], "\n")
	}
	start := len(st.out)
	for i, text := range st.splitLines(a[0].str, false) {
		if i > 0 {
			st.write(sep)
		}
		for j, l := range w.wrap(text) {
			if j > 0 {
				st.write(sep)
			}
			st.write(l)
		}
	}
	return String(st.take(start))
}

type wrapper struct {
	st                 *state
	width              int
	breakLong, hyphens bool
}

// wrap gives the lines of one paragraph.
func (w *wrapper) wrap(text string) (lines []string) {
	if w.width <= 0 {
		failValue("invalid width %d (must be > 0)", w.width)
	}
	w.st.alloc(16 * len(text))
	chunks := w.chunks(text)
	size := utf8.RuneCountInString
	for len(chunks) > 0 {
		if len(lines) > 0 && strings.Trim(chunks[0], wrapSpace) == "" {
			chunks = chunks[1:]
		}
		var row []string
		n := 0
		for len(chunks) > 0 && n+size(chunks[0]) <= w.width {
			n += size(chunks[0])
			row, chunks = append(row, chunks[0]), chunks[1:]
		}
		if len(chunks) > 0 && size(chunks[0]) > w.width {
			row, chunks = w.long(row, chunks, w.width-n)
		}
		if len(row) > 0 && strings.Trim(row[len(row)-1], wrapSpace) == "" {
			row = row[:len(row)-1]
		}
		if len(row) > 0 {
			lines = append(lines, strings.Join(row, ""))
		}
	}
	return lines
}

// long puts what fits of a chunk that is wider than a line into the row.
func (w *wrapper) long(row, chunks []string, room int) ([]string, []string) {
	if !w.breakLong {
		if len(row) == 0 {
			return chunks[:1], chunks[1:]
		}
		return row, chunks
	}
	chunk := chunks[0]
	end := byteAt(chunk, room)
	if w.hyphens {
		if i := strings.LastIndexByte(chunk[:end], '-'); i > 0 && strings.Trim(chunk[:i], "-") != "" {
			end = i + 1
		}
	}
	rest := append([]string{chunk[end:]}, chunks[1:]...)
	return append(row, chunk[:end]), rest
}

const wrapSpace = "\t\n\v\f\r "

// chunks cuts text into words and white space; words are cut after hyphens between letters, and around dashes.
func (w *wrapper) chunks(text string) (out []string) {
	rs := []rune(text)
	space := func(i int) bool { return strings.ContainsRune(wrapSpace, rs[i]) }
	for i := 0; i < len(rs); {
		end := i + 1
		switch {
		case space(i):
			for end < len(rs) && space(end) {
				end++
			}
		case !w.hyphens:
			for end < len(rs) && !space(end) {
				end++
			}
		case dash(rs, i) > 0:
			end = dash(rs, i)
		default:
			for end < len(rs) && !space(end) && !hyphenEnd(rs, i, end) && dash(rs, end) == 0 {
				end++
			}
		}
		out = append(out, string(rs[i:end]))
		i = end
	}
	return out
}

// dash gives the end of a dash (two hyphens or more between words) at i; 0 when there is none.
func dash(rs []rune, i int) int {
	if i == 0 || i >= len(rs) || rs[i] != '-' || !(isWord(rs[i-1]) || strings.ContainsRune(`!"'&.,?`, rs[i-1])) {
		return 0
	}
	end := i
	for end < len(rs) && rs[end] == '-' {
		end++
	}
	if end-i < 2 || end == len(rs) || !isWord(rs[end]) {
		return 0
	}
	return end
}

// hyphenEnd says whether a word that begins at start may be cut at end, right after a hyphen between letters.
func hyphenEnd(rs []rune, start, end int) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(rs) && isWord(rs[i]) && rs[i] != '_' && !unicode.IsDigit(rs[i])
	}
	punct := func(i int) bool { return i >= 0 && (isWord(rs[i]) || strings.ContainsRune(`!"'&.,?`, rs[i])) }
	if rs[end-1] != '-' || end-1 <= start {
		return false
	}
	before := letter(end-2) && letter(end-3) || letter(end-4) && rs[max(end-3, 0)] == '-' && punct(end-2)
	after := letter(end) && (letter(end+1) || end+2 < len(rs) && rs[end+1] == '-' && letter(end+2))
	return before && after
}
