// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

var update = flag.Bool("update", false, "rewrite testdata/small.plan")

const smallFile = "testdata/small.plan"

func small(t testing.TB) (*Plan, string) {
	t.Helper()
	src, err := os.ReadFile(smallFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(smallFile, string(src))
	if err != nil {
		t.Fatal(err)
	}
	return p, string(src)
}

// TestTextIsStable: a plan that uses every feature of the text form reads, prints and reads back as itself.
func TestTextIsStable(t *testing.T) {
	p, src := small(t)
	text := p.Print()
	if *update {
		if err := os.WriteFile(smallFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != src {
		t.Errorf("printed:\n%s\nfile:\n%s", text, src)
	}
	back, err := Parse("again", text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, back) {
		t.Errorf("%+v\nread back as\n%+v", p, back)
	}
	if p.Digest() != back.Digest() || len(p.Digest()) != 64 {
		t.Errorf("digests %s, %s", p.Digest(), back.Digest())
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	back.Launches[0].Attrs[0].Float = 2
	if p.Digest() == back.Digest() {
		t.Error("the digest does not see an attribute")
	}
	if got := strings.Join(p.Weights[1].Sources, " "); got != "e.0.gate e.0.up e.1.gate e.1.up e.2.gate e.2.up" {
		t.Errorf("sources %s", got)
	}
}

func TestBadTextIsRefusedAtItsLine(t *testing.T) {
	_, src := small(t)
	for _, c := range []struct{ old, new, want string }{
		{"plan demo", "plant demo", `p:1: unknown record "plant"`},
		{"kv=f16", "kv=f17", `p:1: "f17" is no element type`},
		{"class=cpu", "klass=cpu", `p:1: expected "class" at "klass=cpu compute=fl"`},
		{"rows=4", "rows=four", `p:2: "four" is no integer`},
		{"dim hidden 8", "dim hidden 8 9", `p:3: unexpected "9"`},
		{"dim hidden 8", "dim hidden 9223372036854775808", `p:3: "9223372036854775808" is no integer`},
		{"0.5", "0.5x", `p:5: "0.5x" is no float32`},
		{"[vocab 32, hidden 8]", "[vocab, hidden 8]", `p:6: an axis needs a name and a size at "vocab, hidden 8]`},
		{"[vocab 32, hidden 8]", "[vocab 32 hidden 8", `p:6: axes do not end`},
		{"*3", "*99999999", `p:7: 99999999 copies`},
		{"*3 e.{e}.gate", "*3 e.gate", `p:7: "e.gate" has no {e}`},
		{`"a name"`, `"a name`, `p:8: a quoted word does not end`},
		{"paged", "pages", `p:9: "pages" is no kind of state`},
		{"tp:1", "tp:99", `p:13: axis 99`},
		{"buffer y ", "buffer x ", `p:13: "x" is there twice`},
		{"logits logits", "logits logic", `p:15: "logic" was not declared`},
		{"y>%x)", "y!%x)", `p:16: expected one of =>& at "%x)`},
		{"y>%x)", "y>x)", `p:16: expected one of %$~^@ at "x)`},
		{"y>%x)", "y>%z)", `p:16: "z" was not declared`},
		{"{scale=1.0}", "{scale=one}", `p:16: "one" is no value`},
		{"{scale=1.0}", "{scale=1.0", `p:16: expected a word at ""`},
	} {
		if !strings.Contains(src, c.old) {
			t.Fatalf("no %q", c.old)
		}
		_, err := Parse("p", strings.Replace(src, c.old, c.new, 1))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !diag.Is(err, diag.Format) {
			t.Errorf("%q:\n got %v\nwant %s", c.new, err, c.want)
		}
	}
	for _, s := range []string{"", "plan a class=b compute=c kv=f32\n", "logits x\n"} {
		if p, err := Parse("p", s); err == nil {
			t.Errorf("%q is a plan: %+v", s, p)
		}
	}
}

func TestVerifyRefusesWhatCannotRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*Plan)
		wants string
	}{
		{"limits", func(p *Plan) { p.Limits.Seqs = 0 }, "limits"},
		{"empty const", func(p *Plan) { p.Consts[0].Values = nil }, "const rope is empty"},
		{"weight axis", func(p *Plan) { p.Weights[0].Axes[0].Size = 0 }, "weight embed: axis vocab of 0"},
		{"block format", func(p *Plan) { p.Weights[1].Axes[2].Size = 5 }, "weight experts: 120 elements of type q8_0"},
		{"huge", func(p *Plan) { p.Weights[0].Axes[0].Size = 1 << 60 }, "axis"},
		{"bad piece", func(p *Plan) { p.Weights[0].Sources = []string{"e[3:3:6]"} }, `weight embed: "e[3:3:6]" takes no rows`},
		{"no sources", func(p *Plan) { p.Weights[0].Sources = nil }, "weight embed has no sources"},
		{"split", func(p *Plan) { p.Weights[0].Split.Axis = 2 }, `weight embed: split 2 over "tp"`},
		{"split without mesh", func(p *Plan) { p.States[0].Split.Mesh = "" }, "state L00.k: split"},
		{"two of a name", func(p *Plan) { p.Buffers[1].Name = "x" }, `buffer "x" has no name of its own`},
		{"unaligned", func(p *Plan) { p.Buffers[1].Offset = 100 }, "buffer y: 128 bytes at 100"},
		{"outside", func(p *Plan) { p.Arena = 300 }, "buffer y: 128 bytes at 256 of an arena of 300"},
		{"none type", func(p *Plan) { p.Buffers[0].DType = tensor.None }, "buffer x"},
		{"logits index", func(p *Plan) { p.Logits = 9 }, "logits is buffer 9 of 3"},
		{"overlap", func(p *Plan) { p.Buffers[1].Offset = 64 }, "buffers x and y share bytes while both live"},
		{"overlap with logits", func(p *Plan) { p.Launches[0], p.Launches[3] = p.Launches[3], p.Launches[0] }, "reads y before it is written"},
		{"index", func(p *Plan) { p.Launches[0].Args[3].Index = 3 }, "launch embed, argument y: index 3 of 3"},
		{"kind", func(p *Plan) { p.Launches[0].Args[3].Kind = 9 }, "launch embed, argument y"},
		{"writes a weight", func(p *Plan) { p.Launches[0].Args[2].Access = Out }, "launch embed writes w"},
		{"unknown step field", func(p *Plan) { p.Launches[0].Args[0].Step = "heads" }, `launch embed: step field "heads"`},
		{"read before written", func(p *Plan) { p.Launches = p.Launches[1:] }, "launch both reads x before it is written"},
		{"param twice", func(p *Plan) { p.Launches[0].Args[1].Param = "head" }, "launch embed binds head twice"},
		{"attribute twice", func(p *Plan) { p.Launches[1].Attrs[1].Name = "eps" }, `launch both has attribute "eps" twice`},
		{"op twice", func(p *Plan) { p.Launches[2].Ops = []string{"norm"} }, "op norm is in two launches"},
		{"launch twice", func(p *Plan) { p.Launches[2].Name = "both" }, `launch "both"`},
		{"nobody writes logits", func(p *Plan) { p.Launches = p.Launches[:3] }, "no launch writes the logits"},
	} {
		p, _ := small(t)
		c.edit(p)
		err := p.Verify()
		if err == nil || !strings.Contains(err.Error(), c.wants) || !diag.Is(err, diag.Internal) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.wants)
		}
	}
}

// Ports read and print as such, and the arrays that they name are nobody's scratch.
func TestPorts(t *testing.T) {
	src := `plan demo/demo part=mtp class=cpu compute=float32 kv=f16
limits rows=4 seqs=2 outs=2 page_size=16 pages=8
arena 128
buffer old @in:hidden [pool 4, hidden 8] f32 all
buffer x @0 [rows 4, hidden 8] f32 all
buffer new @out:hidden [rows 4, hidden 8] f32 all
launch take take_rows take_rows reference (pool=%old y>%x)
launch norm norm norm reference (x=%x y>%new)
`
	parse := func() *Plan {
		p, err := Parse("ports", src)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := parse()
	if got := p.Print(); got != src {
		t.Errorf("printed:\n%s\nfile:\n%s", got, src)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		edit func(*Plan)
		want string
	}{
		{func(p *Plan) { p.Launches[1].Args[0].Index = 0 }, "port hidden is written before its last value is read"},
		{func(p *Plan) { p.Launches[0].Args[0].Access = InOut }, "launch take writes old, which comes in through a port"},
		{func(p *Plan) { p.Buffers[0].Port = Port{} }, "launch take reads old before it is written"},
		{func(p *Plan) { p.Buffers[1].Port = Port{"hidden", Out} }, "have one port"},
		{func(p *Plan) { p.Buffers[2].Offset = 64 }, "buffer new: offset 64"},
		{func(p *Plan) { p.Launches = p.Launches[:1] }, "no launch writes the new"},
		{func(p *Plan) { p.Buffers[2].Port = Port{} }, "it has neither logits nor a port out"},
	} {
		p := parse()
		c.edit(p)
		if err := p.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestNamesPack(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"a", "a"},
		{"a b", "a b"},
		{"e0 e1", "*2 e{e}"},
		{"l.0.e.0.w l.0.e.1.w l.0.e.2.w", "*3 l.0.e.{e}.w"},
		{"e.0.g e.0.u e.1.g e.1.u", "*2 e.{e}.g e.{e}.u"},
		{"e.1 e.2", "e.1 e.2"},
		{"e.0 e.1 e.3", "e.0 e.1 e.3"},
		{"e.0.0 e.1.1", "e.0.0 e.1.1"},
	} {
		if got := strings.Join(packNames(strings.Fields(c.names)), " "); got != c.want {
			t.Errorf("%s: %s", c.names, got)
		}
	}
}

// FuzzParse: whatever parses prints as text that parses to the same text.
func FuzzParse(f *testing.F) {
	_, src := small(f)
	f.Add(src)
	for _, line := range strings.Split(src, "\n") {
		f.Add(line)
	}
	f.Add("plan a part=b class=b compute=c kv=f32\nbuffer x @out:\"y z\" [rows 1] f32 all")
	f.Add("plan a class=b compute=c kv=f32\nbuffer x @0 [] f32 all\nlogits x\nlaunch l k r n () : \"\\x00\" \"é\"")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("f", text)
		if err != nil {
			if !diag.Is(err, diag.Format) {
				t.Fatalf("code %v: %v", diag.CodeOf(err), err)
			}
			return
		}
		_ = p.Verify()
		once := p.Print()
		back, err := Parse("f", once)
		if err != nil {
			t.Fatalf("%v in\n%s", err, once)
		}
		if twice := back.Print(); twice != once {
			t.Fatalf("prints\n%s\nthen\n%s", once, twice)
		}
	})
}
