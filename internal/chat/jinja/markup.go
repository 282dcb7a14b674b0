// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "strings"

// HTML: escaping as MarkupSafe does it.

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape is the text of v, escaped for HTML unless it is Markup.
func (st *state) escape(v Value) string {
	if v.kind == kMarkup {
		return v.str
	}
	s := st.text(v)
	st.scan(len(s))
	if !strings.ContainsAny(s, `&<>'"`) {
		return s
	}
	st.alloc(5 * len(s))
	return htmlEscaper.Replace(s)
}

// stripTags removes tags and comments, collapses white space and resolves entities.
func stripTags(s string) string {
	var b strings.Builder
	pos := 0
	for {
		start := strings.IndexByte(s[pos:], '<')
		if start < 0 {
			break
		}
		start += pos
		var end int
		if strings.HasPrefix(s[start:], "<!--") {
			if end = strings.Index(s[min(start+4, len(s)):], "-->"); end < 0 {
				break
			}
			end += start + 4 + len("-->")
		} else {
			if end = strings.IndexByte(s[start:], '>'); end < 0 {
				break
			}
			end += start + 1
		}
		b.WriteString(s[pos:start])
		pos = end
	}
	b.WriteString(s[pos:])
	return unescapeHTML(strings.Join(splitSpace(b.String(), int64(len(s))+1, false), " "))
}
