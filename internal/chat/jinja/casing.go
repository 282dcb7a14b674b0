// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Upper and lower case as Python has them: full mappings (ß becomes SS), final sigma.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	if !strings.ContainsRune(s, 'Σ') {
		return cases.Lower(language.Und).String(s)
	}
	var b strings.Builder
	for i, r := range s {
		b.WriteString(lowerRune(s, i, r))
	}
	return b.String()
}

// lowerRune is the lower case of the code point r at s[i:]. A capital sigma at the end of a word is ς.
func lowerRune(s string, i int, r rune) string {
	switch {
	case r == 'Σ' && finalSigma(s[:i], s[i+len("Σ"):]):
		return "ς"
	case r == 'İ':
		return "i̇"
	}
	return string(unicode.ToLower(r))
}

func finalSigma(before, after string) bool {
	i := strings.LastIndexFunc(before, func(r rune) bool { return !caseIgnorable(r) })
	if i < 0 || !isCased([]rune(before[i:])[0]) {
		return false
	}
	j := strings.IndexFunc(after, func(r rune) bool { return !caseIgnorable(r) })
	return j < 0 || !isCased([]rune(after[j:])[0])
}

func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·’․﹒．﹕：՟״‧", r)
}

func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) ||
		unicode.In(r, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// titleRune is the title case of one code point.
func titleRune(r rune) string {
	if r < 0x80 {
		return string(unicode.ToUpper(r))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(r))
}

func casefold(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

func swapcase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r):
			b.WriteString(lowerRune(s, i, r))
		case unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func capitalize(s string) string {
	for i, r := range s {
		if i > 0 {
			return titleRune([]rune(s[:i])[0]) + lowerFrom(s, i)
		}
		if len(s) == len(string(r)) {
			return titleRune(r)
		}
	}
	return s
}

// lowerFrom is the lower case of s[i:] as a part of s.
func lowerFrom(s string, i int) string {
	if isASCII(s) {
		return strings.ToLower(s[i:])
	}
	var b strings.Builder
	for j, r := range s[i:] {
		b.WriteString(lowerRune(s, i+j, r))
	}
	return b.String()
}

func title(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		if inWord {
			b.WriteString(lowerRune(s, i, r))
		} else {
			b.WriteString(titleRune(r))
		}
		inWord = isCased(r)
	}
	return b.String()
}

// isLower, isUpper and isTitle want at least one cased code point, and all cased ones of that case.

func isLower(s string) bool {
	found := false
	for _, r := range s {
		if unicode.IsUpper(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Uppercase, r) {
			return false
		}
		found = found || isCased(r)
	}
	return found
}

func isUpper(s string) bool {
	found := false
	for _, r := range s {
		if unicode.IsLower(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Lowercase, r) {
			return false
		}
		found = found || isCased(r)
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		cased := isCased(r)
		upper := unicode.IsUpper(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Uppercase, r)
		if cased && upper == inWord {
			return false
		}
		inWord, found = cased, found || cased
	}
	return found
}
