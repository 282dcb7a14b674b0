// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// bombs are templates that would take forever, or all memory, or the stack.
var bombs = []struct{ name, template string }{
	{"endless macro", `{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}`},
	{"two macros", `{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`},
	{"endless caller", `{% macro a() %}{{ caller() }}{% call a() %}x{% endcall %}{% endmacro %}{% call a() %}y{% endcall %}`},
	{"macro as its own default", `{% macro a(x=a()) %}{% endmacro %}{{ a() }}`},
	{"recursive loop", `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`},
	{"block within itself", `{% block a %}{{ self.a() }}{% endblock %}`},
	{"forking macros", `{% macro a(n) %}{% if n %}{{ a(n-1) }}{{ a(n-1) }}{% endif %}{% endmacro %}{{ a(100) }}`},
	{"loops in loops", `{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}`},
	{"loops with break", `{% for a in range(100000) %}{% for b in range(100000) %}{% break %}{% endfor %}{% for b in range(100000) %}{% continue %}{% endfor %}{% endfor %}`},
	{"filtered loops", `{% for a in range(100000) if false %}{% endfor %}{% for a in range(100000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}`},
	{"huge range", `{{ range(100000000) }}`},
	{"repeated text", `{{ "x" * 10000000000 }}`},
	{"repeated text of a variable", `{% set n = 10000000000 %}{% set s = "x" %}{{ s * n }}`},
	{"repeated list", `{% set l = [0] %}{{ (l * 10000000000)|length }}`},
	{"doubled text", `{% set ns = namespace(s="x") %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}`},
	{"concatenated text", `{% set ns = namespace(s="x") %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}`},
	{"doubled list", `{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}`},
	{"replaced text", `{% set ns = namespace(s="xxxx") %}{% for i in range(64) %}{% set ns.s = ns.s.replace("x", "xxxxxxxxxxxxxxxx") %}{% endfor %}`},
	{"joined text", `{% set ns = namespace(s="xxxx") %}{% for i in range(64) %}{% set ns.s = ns.s.join(ns.s) %}{% endfor %}`},
	{"padded text", `{{ "x".ljust(10000000000) }}`},
	{"centered text", `{{ "x"|center(10000000000) }}`},
	{"zeros", `{{ "x".zfill(10000000000) }}`},
	{"indent", `{{ "x\ny"|indent(10000000000) }}`},
	{"printf width", `{{ "%10000000000d" % 1 }}`},
	{"printf precision", `{{ "%.10000000000f" % 1 }}`},
	{"printf star", `{{ "%*d" % (10000000000, 1) }}`},
	{"format width", `{{ "{:10000000000}".format(1) }}`},
	{"format nested width", `{{ "{:{w}}".format(1, w=10000000000) }}`},
	{"JSON indent", `{{ [1]|tojson(indent=10000000000) }}`},
	{"tabs", `{{ "\t\t\t\t".expandtabs(1000000000) }}`},
	{"long message", `{% set s = "x" * 10000000 %}{{ raise_exception(s) if false }}{{ {}[s].y }}`},
	{"large power", `{{ 9 ** (9 ** 9) }}`},
	{"large product", `{% set ns = namespace(n=99) %}{% for i in range(64) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}`},
	{"long integer", `{{ 10 ** 5000 }}`},
	{"list in a list, printed", `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}`},
	{"list in a list, as JSON", `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}`},
	{"list in a list, compared", `{% set ns = namespace(l=[], m=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}`},
	{"twice in itself, printed", `{% set ns = namespace(l=[]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}`},
	{"twice in itself, as JSON", `{% set ns = namespace(l=[]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}`},
	{"twice in itself, compared", `{% set ns = namespace(l=[], m=[]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}`},
	{"twice in itself, hashed", `{% set ns = namespace(l=()) %}{% for i in range(64) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}`},
	{"twice in itself, in a message", `{% set ns = namespace(l=()) %}{% for i in range(64) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ [][ns.l].x }}`},
	{"namespace in itself", `{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`},
	{"giant output", `{% for i in range(100000) %}{{ "x" * 1000 }}{% endfor %}`},
	{"giant output from text", `{% for i in range(100000) %}` + strings.Repeat("text ", 200) + `{% endfor %}`},
	{"giant capture", `{% set x %}{% for i in range(100000) %}` + strings.Repeat("text ", 200) + `{% endfor %}{% endset %}`},
	{"map in a map", `{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = ns.l|map("string") %}{% endfor %}{{ ns.l|list }}`},
	{"sorted in a loop", `{% set l = range(100000)|list %}{% for i in range(100000) %}{% set m = l|sort %}{% endfor %}`},
	{"scanned in a loop", `{% set s = "x" * 10000000 %}{% for i in range(100000) %}{% set m = s[-1] ~ s.count("y") ~ s.find("z") ~ ("y" in s) %}{% endfor %}`},
	{"searched in a loop", `{% set l = range(100000)|list %}{% for i in range(100000) %}{% set m = -1 in l %}{% endfor %}`},
	{"split in a loop", `{% set s = "x," * 1000000 %}{% for i in range(100000) %}{% set m = s.split(",") %}{% endfor %}`},
	{"stripped of much", `{% set s = "x" * 1000000 %}{% for i in range(100000) %}{% set m = s.strip("abcdefghijklmnopqrstuvwxyz") %}{% endfor %}`},
	{"many arguments", `{% set l = range(100000)|list %}{% macro f() %}{{ varargs|length }}{% endmacro %}{% for i in range(100000) %}{{ f(*l) }}{% endfor %}`},
	{"batches", `{{ range(100000)|batch(10000000000, 0)|list }}`},
	{"slices", `{{ range(100000)|slice(10000000000, 0)|list|length }}`},
	{"keys", `{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{"k" ~ i: i}) %}{% endfor %}`},
	{"wrapped text", `{% set s = "x " * 1000000 %}{% for i in range(1000) %}{% set m = s|wordwrap(10) %}{% endfor %}`},
}

func TestBombsAreRefused(t *testing.T) {
	for _, b := range bombs {
		t.Run(b.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			tpl, err := Compile(b.name, b.template)
			if err == nil {
				_, err = tpl.RenderWithin(4_000_000, nil, fixtureNow)
			}
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			e, ok := diag.As(err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if class := e.Cause.(*Error).Class; class != limitError && class != "RecursionError" && class != "OverflowError" && class != "ValueError" && !strings.HasSuffix(b.name, "message") {
				t.Errorf("got %v", err)
			}
			if len(err.Error()) > 2*maxMessage {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			if took > 30*time.Second { // a second or less, unless the machine is busy
				t.Errorf("took %v", took)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 3*MaxHeap {
				t.Errorf("allocated %d MiB", got>>20)
			}
		})
	}
}

func TestTemplatesThatAreTooLargeOrDeepAreRefused(t *testing.T) {
	deep := func(n int, open, inner, shut string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	for _, c := range []struct{ name, template string }{
		{"size", strings.Repeat("x", MaxSource+1)},
		{"parentheses", "{{ " + deep(100_000, "(", "1", ")") + " }}"},
		{"lists", "{{ " + deep(100_000, "[", "", "]") + " }}"},
		{"dicts", "{{ " + deep(100_000, "{1:", "1", "}") + " }}"},
		{"calls", "{{ " + deep(100_000, "a(", "1", ")") + " }}"},
		{"subscripts", "{{ " + deep(100_000, "a[", "1", "]") + " }}"},
		{"not", "{{ " + strings.Repeat("not ", 100_000) + "1 }}"},
		{"minus", "{{ " + strings.Repeat("-", 100_000) + "1 }}"},
		{"conditions", "{{ " + strings.Repeat("1 if 1 else ", 50_000) + "1 }}"},
		{"sums", "{{ 1" + strings.Repeat(" + a", 100_000) + " }}"},
		{"filters", "{{ 1" + strings.Repeat("|upper", 100_000) + " }}"},
		{"attributes", "{{ a" + strings.Repeat(".b", 100_000) + " }}"},
		{"comparisons", "{{ a" + strings.Repeat(" < b", 100_000) + " }}"},
		{"ifs", deep(20_000, "{% if a %}", "", "{% endif %}")},
		{"loops", deep(20_000, "{% for a in b %}", "", "{% endfor %}")},
		{"macros", deep(20_000, "{% macro a() %}", "", "{% endmacro %}")},
		{"names and branches", func() string {
			var b strings.Builder
			for i := range 8000 {
				name := "n" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + itoa(i)
				b.WriteString("{% set " + name + " = 1 %}{% if " + name + " %}{% set " + name + " = 2 %}{% endif %}")
			}
			return b.String()
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, err := Compile(c.name, c.template)
			if err == nil {
				t.Fatal("compiles")
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// TestConstantsAreBounded: a small source does not compile to much memory.
func TestConstantsAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Compile("constants", strings.Repeat(`{{ "x" * 1000000 }}`, 50_000)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 512<<20 {
		t.Errorf("allocated %d MiB", got>>20)
	}
}

// TestLargeChatsFit: a chat of a thousand long messages is far from the limits.
func TestLargeChatsFit(t *testing.T) {
	tpl, err := Compile("t", `{% for m in messages %}{% for n in messages %}{% if n.role == m.role %}{% endif %}{% endfor %}{{ "<" + m.role + ">" + m.content|trim + "\n" }}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]Value, 1000)
	for i := range messages {
		messages[i] = Dict(Field{"role", String("user")}, Field{"content", String(strings.Repeat("word ", 2000))})
	}
	text, err := tpl.Render([]Field{{"messages", List(messages...)}}, fixtureNow)
	if err != nil || len(text) < 9_000_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
