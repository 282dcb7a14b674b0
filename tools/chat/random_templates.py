# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random small templates: expressions over all filters, tests and methods; statements with scopes; soups of tokens."""

import random

CONTEXT = {
    "x": ["p", "<q>"], "items": [1, 2], "nested": [{"c": [{"c": []}, {"c": []}]}, {"c": []}],
    "msgs": [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}], "d": {"a": "<1>", "b": [1, {"c": None}], "n": 5}, "m": {"update": 1, "k": 2},
}

ATOMS = {
    "str": r'''"" "a" "abc_def" "  Hello World  " "é日本😀x" "a,b,,c" "x\ny\r\nz" "12" "-3.5" "0x1F" "ßİΣαςΣΑΣǆﬁ" "<b>&amp;</b>'q'"
        "%s-%05.2f" "{}-{0}" "foo-bar_baz--qux" "it's" "aXbXc" "½²①" "a\tb\x01\u2028"''',
    "num": "0 1 -1 2 3 7 10 255 1.0 2.5 -0.5 3.14159 1e20 1e-7 123456789012345678901234567890 0.1 -17 true false 1.5e300 2**63 1e16",
    "list": """[] [1,2,3] ["b","A","c","a"] [3,1.5,2,true] [[1,2],[3,4]] (1,"x",none) () range(5) range(10,0,-3) ["",none,0,1] msgs
        [{"n":2,"s":"b"},{"n":1,"s":"B"},{"n":2,"s":"a"}] "abc"|list [1,"a"] [none]""",
    "dict": """{} {"b":1,"a":2,"C":3} {"x":{"y":[1,2]}} {1:"one","1":"uno",2.5:"f",none:"n"} d {"items":5,"get":6} m""",
    "other": "none nope d.nope ns loop",
}
METHODS = {
    "str": """upper() lower() title() capitalize() swapcase() casefold() strip() lstrip() rstrip() strip("x_") lstrip("ab") split()
        split(",") split(none,1) split(",",1) rsplit(",",1) rsplit(none,1) split("") splitlines() splitlines(true) partition(",")
        rpartition("_") startswith("a") startswith(("a","b"),1) endswith("c") endswith("c",0,3) find("b") rfind("b",1) index("b")
        rindex("zz") count("") count("a") replace("a","bb") replace("","-") replace("b","",1) removeprefix("a") removesuffix("c")
        join(["1","2"]) join([1]) center(11) center(12,"*") ljust(8,".") rjust(8) zfill(6) expandtabs() expandtabs(4) isalpha()
        isdigit() isdecimal() isnumeric() isalnum() isspace() islower() isupper() istitle() isidentifier() isprintable() isascii()
        format(1,2) format(*[1,"a"]) nope __class__""",
    "list": "index(1) count(1) copy() append(1) index(99) pop sort() nope __len__",
    "dict": """get("a") get("zz") get("zz",5) get(none) keys() values() items() copy() update({}) pop("a") keys a nope setdefault
        values()|list items()|list keys()|list|sort""",
    "num": "bit_length() is_integer() nope real",
    "other": "a nope x()",
}
FILTERS = """abs attr("upper") batch(2)|list batch(2,"z")|list capitalize center(10) count d("x") default("x",true) dictsort
    dictsort(true) dictsort(by="value") dictsort(false,"key",true) e escape filesizeformat filesizeformat(true) first float float(9)
    forceescape groupby("n") groupby("s")|list groupby("s",case_sensitive=true) indent(2,true) indent("--",blank=true) int int(5)
    int(0,16) int(base=2) int(7,0) join join(",") join("-",attribute="n") last length list lower items|list map("upper")|list
    map(attribute="n")|list map(attribute="n",default=0)|list map("nope")|list map("int")|list min max min(attribute="n")
    max(case_sensitive=true) reject("odd")|list rejectattr("n","eq",2)|list replace("a","Z") replace("b","",1) reverse|list round
    round(1) round(-1) round(2,"ceil") round(1,"floor") safe select|list select("odd")|list select("string")|list
    select("in",[1,2])|list selectattr("n")|list selectattr("s","equalto","b")|list slice(2)|list slice(3,"f")|list sort sort(true)
    sort(attribute="n") sort(attribute="s,n") sort(case_sensitive=true) string striptags sum sum(attribute="n") sum(start=[]) title
    tojson tojson(indent=2) tojson(sort_keys=true) tojson(ensure_ascii=true) tojson(separators=[",",":"],indent=1) trim trim("a")
    truncate(5) truncate(6,true) truncate(5,false,"..",0) unique|list unique(true)|list unique(attribute="n")|list upper urlencode
    wordcount wordwrap(7) wordwrap(5,false) wordwrap(4,true,"|") xmlattr xmlattr(false) format(1,"b") map("string")|join(";")
    select("none")|first list|length list|last string|length""".split()
TESTS = """odd even divisibleby(2) defined undefined filter test none boolean true false integer float number string mapping lower upper
    sequence iterable callable sameas(none) sameas(true) escaped in([1,2,"a"]) in("abc") eq(1) ne("a") gt(1) lt("b") ge(2) le(2.5)""".split()
OPERATORS = "+ - * / // % ~ == != < <= > >= in and or".split() + ["not in"]
KEYS = ["0", "-1", '"a"', '"items"', "none", "1.0", "true", "10", "x"]
SLICES = ["1:", "::-1", ":2", "1:-1", "::2", "5:1:-2", "-3:", "none:none:2"]

NAMES = "a b c x m loop caller ns kwargs varargs item _p".split()
TOKENS = """{% {{ %} }} {# #} - + a if else elif endif for in endfor set endset = 1 "s" 't' ( ) [ ] { } , . | upper is not defined and or raw
    endraw macro m endmacro ~ * ** / // % < == != ! text 1.5 .5 0x1 1e3 1_0 007 é "\\n" "\\xe" "open {%- -%} {{- -}} {#- -#} {%+ +%}
    : ; $ none true caller loop""".split() + [
    " ", "\n", "\r\n", "\t", "\u00a0", "\x0b", "\u2028", "{% if a %}", "{% endif %}", "{% set a = 1 %}", "{% raw %}", "{% endraw %}", "{{ a }}",
    "{% for b in a %}", "{% endfor %}", "{% block q %}", "{% endblock %}", "{% with %}", "{% endwith %}", "{% macro m() %}",
    "{% endmacro %}", "{% call m() %}", "{% endcall %}",
]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.blocks = 0

    def one(self, *options):
        return self.r.choice(options)

    def pick(self, text):
        return self.r.choice(text.split() if isinstance(text, str) else text)

    # Expressions over values.

    def value(self, depth):
        k = self.r.random()
        kind = self.one("str", "str", "num", "list", "list", "dict", "other")
        atom = self.pick(ATOMS[kind])
        if depth <= 0 or k < 0.15:
            return atom
        if k < 0.3:
            return f"({atom}).{self.pick(METHODS[kind])}"
        if k < 0.6:
            return f"({self.value(depth - 1)})|{self.pick(FILTERS)}"
        if k < 0.7:
            return f"({self.value(depth - 1)} is {self.one('', 'not ')}{self.pick(TESTS)})"
        if k < 0.9:
            return f"({self.value(depth - 1)} {self.pick(OPERATORS)} {self.value(depth - 1)})"
        if k < 0.93:
            return f"({self.value(depth - 1)})[{self.pick(KEYS)}]"
        if k < 0.95:  # a variable inside: jinja2 treats slices of constants differently
            return f"([x][0]|default({self.value(depth - 1)}))[{self.pick(SLICES)}]"
        if k < 0.97:
            return f"({self.value(depth - 1)} if {self.value(depth - 1)} else {self.value(depth - 1)})"
        return f"[{self.value(depth - 1)},{self.value(depth - 1)}]"

    # Statements: names, scopes and white space.

    def name(self):
        return self.pick(NAMES)

    def space(self):
        return self.one("", "", "", " ", "\n", "  \n  ", "text ", "\n  t\n", "\t")

    def tag(self, text, mark="%"):
        end = "}" if mark == "{" else mark
        return "{" + mark + self.one("", "", "", "-", "+") + f" {text} " + self.one("", "", "", "-", "" if mark == "{" else "+") + end + "}"

    def expression(self, depth=2):
        k = self.r.random()
        if depth <= 0 or k < 0.3:
            return self.one(self.name(), self.name(), "1", '"s"', "[1,2,3]", "none", "true", '""', "0", '{"a":1}', "items", '"xy"')
        e = lambda: self.expression(depth - 1)
        if k < 0.4:
            args = self.one("", e(), e() + "," + e(), "a=" + e(), "q=" + e(), "*items", '**{"b":1}')
            return f"{self.name()}({args})"
        if k < 0.5:
            return f"{self.name()}." + self.pick("a b index first last q length previtem nextitem index0 revindex depth name")
        if k < 0.6:
            return f"{e()} ~ {e()}"
        if k < 0.7:
            return f"({e()} if {e()}" + self.one(")", f" else {e()})")
        if k < 0.8:
            return f"{self.name()} is " + self.pick("defined undefined none string iterable")
        if k < 0.85:
            return f"{e()} == {e()}"
        if k < 0.9:
            return f"({e()})|" + self.pick("default(9) string list length join upper first")
        if k < 0.95:
            return f"{e()} and {e()}"
        return "loop." + self.pick("cycle(1,2) changed(a) length last")

    def body(self, depth, loop):
        return "".join(self.space() + self.statement(depth, loop) for _ in range(self.r.randint(1, 3))) + self.space()

    def block(self, head, depth, loop):
        return self.tag(head) + self.body(depth - 1, loop) + self.tag("end" + head.split()[0].split("(")[0])

    def statement(self, depth, loop):
        k, e = self.r.random(), self.expression
        if depth <= 0 or k < 0.25:
            return self.tag(e(), "{")
        if k < 0.45:
            target = self.one("a", "b", "c", "x", "item", "_p", "a, b", "ns.q", "(a, x)")
            return self.tag(f"set {target} = " + (self.one(e(), e() + ", " + e()) if "," in target else e()))
        if k < 0.5:
            return self.block("set " + self.one("a", "b", "x", "ns.q") + self.one("", " | upper"), depth, loop)
        if k < 0.62:
            more = self.tag("elif " + e()) + self.body(depth - 1, loop) if self.r.random() < 0.3 else ""
            more += self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.4 else ""
            return self.tag("if " + e()) + self.body(depth - 1, loop) + more + self.tag("endif")
        if k < 0.78:
            recursive = self.r.random() < 0.15
            items = self.one("[1,2,3]", "items", '"xyz"', "[]", "[[1,2],[3,4]]", '{"k":1,"j":2}', "x", "range(2)", "nested")
            target = self.one("a", "item", "x", "a, b", "m")
            head = f"for {target} in {'nested' if recursive else items}" + (f" if {e(1)}" if self.r.random() < 0.3 else "")
            again = "{{ loop(" + self.one("a.c", "item.c", "[]") + ") }}" if recursive else ""
            orelse = self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.25 else ""
            return self.tag(head + " recursive" * recursive) + self.body(depth - 1, True) + again + orelse + self.tag("endfor")
        if k < 0.86:
            params = self.one("", "a", "a, b=1", "a=b, b=2", "caller=1", "x=x", "a, kwargs")
            return self.block(f"macro {self.one('m', 'a', 'x', 'c')}({params})", depth, False)
        if k < 0.89:
            return self.block(f"call{self.one('', '(u)', '(a, b=2)')} {self.one('m', 'a', 'c')}({self.one('', '1', 'a=2')})", depth, False)
        if k < 0.91:
            return self.block("filter " + self.one("upper", 'replace("t",a|string)'), depth, loop)
        if k < 0.94:
            return self.block("with " + self.one("a=1", "x=a, b=x", "a=2, a=3"), depth, loop)
        if k < 0.95:
            return self.block("generation", depth, False)
        if k < 0.965:
            self.blocks += 1
            return self.block(f"block q{self.blocks}{self.one('', ' scoped')}", depth, False)
        if k < 0.98:
            return self.one("{# c #}", "{#- c -#}\n", "  {# c #}\n", "{% raw %} {{ x }} {% endraw %}", "{%- raw -%} {% if %} {%- endraw -%}\n")
        if loop:
            return self.one("{% break %}", "{% continue %}")
        return self.block("autoescape " + self.one("true", "false"), depth, loop)

    def statements(self):
        self.blocks = 0
        head = self.one("", "{% set ns=namespace(q=0) %}", "{% macro m(a) %}<{{ a }}{{ caller() if caller }}>{% endmacro %}")
        return head + self.body(3, False)

    def soup(self):
        return "".join(self.r.choice(TOKENS) + self.one("", " ") for _ in range(self.r.randint(1, 14)))


def make(seed, count):
    """Yields names and templates, as many of each sort."""
    m = Maker(seed)
    for i in range(count):
        yield f"expression {i}", "{% set ns=namespace(q=1) %}{{ " + m.value(m.one(1, 1, 2, 3)) + " }}"
        yield f"statements {i}", m.statements()
        yield f"soup {i}", m.soup()
