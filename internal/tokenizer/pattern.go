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
	all, err := t.alternatives()
	if err == nil && t.pos < len(t.src) {
		err = t.errorf(`")" without "("`)
	}
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(all.text, regexp2.OptionMaxBacktrackingStackSize(-1))
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

// atom is one thing that a quantifier may follow, or an assertion.
type atom struct {
	text    string
	empty   bool // may match the empty text
	greater bool // has an atomic group in it
}

// alternatives translates up to a closing parenthesis or the end.
func (t *translator) alternatives() (atom, error) {
	if t.depth++; t.depth > 100 {
		return atom{}, t.errorf("nested deeper than 100")
	}
	defer func() { t.depth-- }()
	var b strings.Builder
	var all atom
	t.last = 0
	empty := true // this alternative matches the empty text so far
	for t.more() && t.src[t.pos] != ')' {
		if t.eat("|") {
			b.WriteByte('|')
			t.last, all.empty, empty = 0, all.empty || empty, true
			continue
		}
		a, err := t.atom()
		if err == nil {
			err = t.quantify(&a)
		}
		if err != nil {
			return atom{}, err
		}
		b.WriteString(a.text)
		empty = empty && a.empty
		all.greater = all.greater || a.greater
	}
	all.text, all.empty = b.String(), all.empty || empty
	return all, nil
}

// quantify adds the quantifier that follows an atom. What may match the empty text and what is atomic takes none: engines
// disagree there.
func (t *translator) quantify(a *atom) error {
	if !t.more() || strings.IndexByte("*+?{", t.src[t.pos]) < 0 {
		return nil
	}
	if a.empty || a.greater {
		return t.errorf("quantifier after what may be empty or is atomic")
	}
	t.last = 0
	q, err := t.quantifier()
	if err != nil {
		return err
	}
	switch {
	case t.eat("?"):
		if q[0] == '{' && !strings.Contains(q, ",") {
			return t.errorf("{n}?")
		}
		a.text += q + "?"
	case q[0] != '{' && t.eat("+"):
		a.text, a.greater = "(?>"+a.text+q+")", true
	default:
		a.text += q
	}
	a.empty = q == "*" || q == "?" || strings.HasPrefix(q, "{0")
	if t.more() && strings.IndexByte("*+?{", t.src[t.pos]) >= 0 {
		return t.errorf("quantifier after a quantifier")
	}
	return nil
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

func (t *translator) atom() (atom, error) {
	r, err := t.rune()
	if err != nil {
		return atom{}, err
	}
	switch r {
	case '(':
		return t.group()
	case '[':
		set, err := t.class()
		return atom{text: set.String()}, err
	case '.':
		return atom{text: runeSet{{'\n', '\n'}}.negated().String()}, nil
	case '$':
		return atom{text: `(?=\n|\z)`, empty: true}, nil
	case '\\':
		return t.escape()
	case '^', ')', '*', '+', '?', '{':
		t.pos--
		return atom{}, t.errorf("%q", string(r))
	}
	return t.literal(r)
}

func (t *translator) literal(r rune) (atom, error) {
	if !t.fold {
		return atom{text: quoteRune(r)}, nil
	}
	set, err := t.folded(runeSet{{r, r}})
	if err != nil {
		return atom{}, err
	}
	pair := strings.ToLower(string([]rune{t.last, r}))
	t.last = r
	switch pair {
	case "ss", "st", "ff", "fi", "fl": // one code point may match both, as ß matches ss
		return atom{}, t.errorf("%q without regard to case", pair)
	}
	return atom{text: set.String()}, nil
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

func (t *translator) group() (atom, error) {
	open, assertion, fold := "(?:", false, t.fold
	defer func() { t.fold = fold }()
	switch {
	case t.eat("?i:"):
		t.fold = true
	case t.eat("?-i:"):
		t.fold = false
	case t.eat("?:"):
	case t.eat("?>"):
		open = "(?>"
	case t.eat("?"):
		assertion = true
		for _, a := range []string{"=", "!", "<=", "<!"} {
			if t.eat(a) {
				open = "(?" + a
			}
		}
		if open == "(?:" {
			return atom{}, t.errorf("this kind of group")
		}
	}
	inside, err := t.alternatives()
	if err != nil {
		return atom{}, err
	}
	if !t.eat(")") {
		return atom{}, t.errorf(`"(" without ")"`)
	}
	t.last = 0
	inside.text = open + inside.text + ")"
	inside.empty = inside.empty || assertion
	inside.greater = inside.greater || open == "(?>"
	return inside, nil
}

// escape translates what follows a backslash outside of brackets.
func (t *translator) escape() (atom, error) {
	switch {
	case t.eat("A"):
		return atom{text: `\A`, empty: true}, nil
	case t.eat("z"):
		return atom{text: `\z`, empty: true}, nil
	case t.eat("b"):
		w := wordSet().String()
		return atom{text: "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))", empty: true}, nil
	}
	set, single, err := t.escapedSet(false)
	if err != nil {
		return atom{}, err
	}
	if single {
		return t.literal(set[0].lo)
	}
	return atom{text: set.String()}, nil
}

func quoteRune(r rune) string {
	if r < utf8.RuneSelf {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return string(r)
}
