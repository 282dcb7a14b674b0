// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// pattern is what a Split or a Replace looks for: a text, or a regular expression.
type pattern struct {
	literal string
	re      *regexp2.Regexp // nil: literal
}

// compilePattern compiles a regular expression of tokenizer.json. Those are written for Oniguruma with its own Unicode
// tables. Only what means the same here is translated, with every class spelled out as ranges of code points; the rest is
// an error that names it. The result backtracks, so a pattern can be slow; it comes with the model and not from a request.
func compilePattern(expr string) (*pattern, error) {
	t := translator{src: expr}
	out, err := t.alternatives()
	if err == nil && t.pos < len(t.src) {
		err = t.errorf(`")" without "("`)
	}
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(out, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, err
	}
	return &pattern{re: re}, nil
}

// findAll gives the matches in s, in order, as byte offsets.
func (p *pattern) findAll(s string) []span {
	var out []span
	if p.re == nil {
		for from := 0; ; {
			i := strings.Index(s[from:], p.literal)
			if i < 0 {
				return out
			}
			out = append(out, span{uint32(from + i), uint32(from + i + len(p.literal))})
			from += i + len(p.literal)
		}
	}
	all, err := p.re.FindAllStringIndex(s, -1)
	if err != nil {
		panic("tokenizer: no limit was set on the pattern, and yet: " + err.Error())
	}
	for _, m := range all {
		out = append(out, span{uint32(m[0]), uint32(m[1])})
	}
	return out
}

// translator rewrites Oniguruma's syntax into regexp2's, by recursive descent.
type translator struct {
	src   string
	pos   int
	fold  bool // inside (?i:…)
	depth int
	last  rune // the letter before, inside (?i:…)
}

func (t *translator) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", t.pos, fmt.Sprintf(format, args...))
}

func (t *translator) more() bool { return t.pos < len(t.src) }

func (t *translator) eat(s string) bool {
	if strings.HasPrefix(t.src[t.pos:], s) {
		t.pos += len(s)
		return true
	}
	return false
}

func (t *translator) rune() (rune, error) {
	if !t.more() {
		return 0, t.errorf("unexpected end")
	}
	r, n := utf8.DecodeRuneInString(t.src[t.pos:])
	t.pos += n
	return r, nil
}

func (t *translator) alternatives() (string, error) {
	if t.depth++; t.depth > 100 {
		return "", t.errorf("nested deeper than 100")
	}
	defer func() { t.depth-- }()
	var b strings.Builder
	t.last = 0
	for t.more() && t.src[t.pos] != ')' {
		if t.eat("|") {
			b.WriteByte('|')
			t.last = 0
			continue
		}
		atom, repeats, err := t.atom()
		if err != nil {
			return "", err
		}
		if atom, err = t.quantified(atom, repeats); err != nil {
			return "", err
		}
		b.WriteString(atom)
	}
	return b.String(), nil
}

// quantified adds the quantifier that follows an atom.
func (t *translator) quantified(atom string, repeats bool) (string, error) {
	if !t.more() || strings.IndexByte("*+?{", t.src[t.pos]) < 0 {
		return atom, nil
	}
	if !repeats {
		return "", t.errorf("quantifier after something that has no length")
	}
	t.last = 0
	q, err := t.quantifier()
	if err != nil {
		return "", err
	}
	switch {
	case t.eat("?"):
		if q[0] == '{' && !strings.Contains(q, ",") {
			return "", t.errorf("{n}?")
		}
		atom += q + "?"
	case q[0] != '{' && t.eat("+"):
		atom = "(?>" + atom + q + ")"
	default:
		atom += q
	}
	if t.more() && strings.IndexByte("*+?{", t.src[t.pos]) >= 0 {
		return "", t.errorf("quantifier after a quantifier")
	}
	return atom, nil
}

func (t *translator) quantifier() (string, error) {
	if t.src[t.pos] != '{' {
		t.pos++
		return t.src[t.pos-1 : t.pos], nil
	}
	end := strings.IndexByte(t.src[t.pos:], '}')
	if end < 0 {
		return "", t.errorf(`"{" without "}"`)
	}
	low, high, isRange := strings.Cut(t.src[t.pos+1:t.pos+end], ",")
	if low == "" && isRange {
		low = "0"
	}
	n, err := strconv.ParseUint(low, 10, 16)
	if err != nil || n > 1000 {
		return "", t.errorf("repeat count %q", low)
	}
	if high != "" {
		if m, err := strconv.ParseUint(high, 10, 16); err != nil || m > 1000 || m < n {
			return "", t.errorf("repeat count %q", high)
		}
	}
	t.pos += end + 1
	if !isRange {
		return "{" + low + "}", nil
	}
	return "{" + low + "," + high + "}", nil
}

// atom translates one thing that a quantifier may follow, or (repeats false) an assertion.
func (t *translator) atom() (text string, repeats bool, err error) {
	r, err := t.rune()
	if err != nil {
		return "", false, err
	}
	switch r {
	case '(':
		return t.group()
	case '[':
		set, err := t.class()
		return set.String(), true, err
	case '.':
		return runeSet{{'\n', '\n'}}.negated().String(), true, nil
	case '$':
		return `(?=\n|\z)`, false, nil
	case '\\':
		return t.escape()
	case '^', ')', '*', '+', '?', '{':
		t.pos--
		return "", false, t.errorf("%q", string(r))
	}
	return t.literal(r)
}

func (t *translator) literal(r rune) (string, bool, error) {
	if !t.fold {
		return quoteRune(r), true, nil
	}
	set, err := t.folded(runeSet{{r, r}})
	if err != nil {
		return "", false, err
	}
	pair := strings.ToLower(string([]rune{t.last, r}))
	t.last = r
	switch pair {
	case "ss", "st", "ff", "fi", "fl": // one code point may match both, as ß matches ss
		return "", false, t.errorf("%q without regard to case", pair)
	}
	return set.String(), true, nil
}

// folded adds the other cases of a set's ASCII letters.
func (t *translator) folded(s runeSet) (runeSet, error) {
	for _, r := range s {
		if r.hi >= utf8.RuneSelf {
			return nil, t.errorf("a letter outside ASCII without regard to case")
		}
	}
	out := append(runeSet{}, s...)
	for c := 'a'; c <= 'z'; c++ {
		C := c - 'a' + 'A'
		if !s.has(c) && !s.has(C) {
			continue
		}
		out = append(out, runeRange{c, c}, runeRange{C, C})
		switch c {
		case 'k':
			out = append(out, runeRange{'\u212a', '\u212a'})
		case 's':
			out = append(out, runeRange{'ſ', 'ſ'})
		}
	}
	return out.sorted(), nil
}

var groups = []struct {
	open    string
	out     string
	repeats bool
}{
	{"?:", "(?:", true}, {"?>", "(?>", true},
	{"?=", "(?=", false}, {"?!", "(?!", false}, {"?<=", "(?<=", false}, {"?<!", "(?<!", false},
}

func (t *translator) group() (string, bool, error) {
	open, repeats, fold := "(?:", true, t.fold
	defer func() { t.fold = fold }()
	switch {
	case t.eat("?i:"):
		t.fold = true
	case t.eat("?-i:"):
		t.fold = false
	default:
		for _, g := range groups {
			if t.eat(g.open) {
				open, repeats = g.out, g.repeats
				break
			}
		}
		if t.more() && t.src[t.pos-1] == '(' && t.src[t.pos] == '?' {
			return "", false, t.errorf("group %q", t.src[t.pos-1:min(len(t.src), t.pos+3)])
		}
	}
	inside, err := t.alternatives()
	if err != nil {
		return "", false, err
	}
	if !t.eat(")") {
		return "", false, t.errorf(`"(" without ")"`)
	}
	t.last = 0
	return open + inside + ")", repeats, nil
}

// escape translates what follows a backslash outside of brackets.
func (t *translator) escape() (string, bool, error) {
	for _, a := range []struct{ name, out string }{
		{"A", `\A`}, {"z", `\z`},
		{"b", "(?:(?<=" + wordSet().String() + ")(?!" + wordSet().String() + ")|(?<!" + wordSet().String() + ")(?=" + wordSet().String() + "))"},
	} {
		if t.eat(a.name) {
			return a.out, false, nil
		}
	}
	set, single, err := t.escapedSet()
	if err != nil {
		return "", false, err
	}
	if single {
		return t.literal(set[0].lo)
	}
	return set.String(), true, nil
}

func quoteRune(r rune) string {
	if r < utf8.RuneSelf {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return string(r)
}
