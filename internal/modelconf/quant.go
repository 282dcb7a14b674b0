// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Numeric formats of quantised values.
const (
	E4M3 = "e4m3" // float8_e4m3fn
	E2M1 = "e2m1" // float4, two to a byte
	Int4 = "int4"
	Int8 = "int8"
)

// Values says how the numbers of a weight or an activation are quantised. The zero value: they are not.
type Values struct {
	Format  string       // E4M3, E2M1, Int4, Int8
	Group   [2]int64     // rows × columns that share a scale; 0 is the whole axis: {0,0} tensor, {1,0} row or token, {1,16}, {128,128}
	Scale   tensor.DType // what the scales can hold (F32, E4M3, E8M0); None if the checkpoint does not say
	Global  bool         // one more float32 scale lies over the whole tensor
	Dynamic bool         // of an activation: all scales are computed at run time, none lies in the checkpoint
	Zero    bool         // of an integer format: zero points lie beside the scales
}

// String is as "e2m1[1x16]·e4m3·f32" or "e4m3[1x128]·f32 dynamic"; "none" for the zero value.
func (v Values) String() string {
	if v.Format == "" {
		return "none"
	}
	axis := func(n int64) string {
		if n == 0 {
			return "*"
		}
		return fmt.Sprint(n)
	}
	s := v.Format + "[" + axis(v.Group[0]) + "x" + axis(v.Group[1]) + "]"
	if v.Scale != tensor.None {
		s += "·" + v.Scale.String()
	}
	if v.Global {
		s += "·f32"
	}
	if v.Zero {
		s += " zero-points"
	}
	if v.Dynamic {
		s += " dynamic"
	}
	return s
}

// Word is what makers call the format: fp8, nvfp4, mxfp4, int4, int8; "" for the zero value.
func (v Values) Word() string {
	switch v.Format {
	case E4M3:
		return "fp8"
	case E2M1:
		if v.Group[1] == 16 {
			return "nvfp4"
		}
		return "mxfp4"
	}
	return v.Format
}

// Scheme says how one linear layer (or the experts of one layer) is quantised. The zero value: it is not.
type Scheme struct {
	// Method tells names and sense of the tensors beside the weight: "fp8" (weight_scale_inv, in DeepSeek V4 scale,
	// multiplies), "modelopt" (weight_scale, weight_scale_2, input_scale multiply), "compressed-tensors" (weight_packed,
	// weight_scale; global scales divide), "mxfp4" (…_blocks, …_scales), "awq", "gptq" and "gptq_v2" (qweight, qzeros, scales).
	Method string
	Weight Values
	Act    Values // the layer's input
}

// String is as "modelopt: e4m3[*x*]·f32, input e4m3[*x*]·f32".
func (s Scheme) String() string {
	if s.Method == "" {
		return "none"
	}
	if s.Act.Format == "" {
		return s.Method + ": " + s.Weight.String()
	}
	return s.Method + ": " + s.Weight.String() + ", input " + s.Act.String()
}

// Rule gives the modules that match a pattern their scheme; the zero scheme leaves them as they are.
type Rule struct {
	Pattern string // as the checkpoint writes it; "*" is every linear layer
	Kind    Match
	Scheme  Scheme
	Pos     diag.Pos // where it stands; zero for what the method implies
}

// Match is how a Rule's pattern is compared with a module's name, which is a tensor's without ".weight".
type Match uint8

const (
	Under  Match = iota // the module, or anything under it: "model.layers.0.mlp.experts"
	Within              // as a run of whole components anywhere, "*" for any text in one: "gate", "model.layers.*.self_attn"
	Glob                // the whole name, "*" and "?" also across dots: "model.layers.0*"
	Regex               // a regular expression, from the start of the name
)

// Quant says how a checkpoint is quantised.
type Quant struct {
	Method string // quant_method: "fp8", "modelopt", "compressed-tensors", "mxfp4", "awq", "gptq"; "gguf": the tensors' types say
	KV     Values // recommended for the KV cache; zero: nothing said
	Rules  []Rule // the first that matches decides; where none does, the module is not quantised

	under   map[string]int // pattern of an Under rule → its place in Rules
	within  map[string]int // of a Within rule without wildcards
	matches []matcher      // the others, in order
}

// matcher is a compiled rule.
type matcher struct {
	rule int
	ok   func(module string) bool
}

// For is the scheme of a module. Ask for linear layers and groups of experts only: norms and embeddings are not told apart
// where a checkpoint says "every linear layer".
func (q *Quant) For(module string) Scheme { return q.Rule(module).Scheme }

// Rule is the rule that decides about a module; the zero Rule if none does.
func (q *Quant) Rule(module string) Rule {
	if q == nil {
		return Rule{}
	}
	best := len(q.Rules)
	for rest, first := module, true; ; first = false { // runs of components, by where they begin
		for name := rest; ; {
			if i, ok := q.within[name]; ok {
				best = min(best, i)
			}
			if i, ok := q.under[name]; ok && first {
				best = min(best, i)
			}
			dot := strings.LastIndexByte(name, '.')
			if dot < 0 {
				break
			}
			name = name[:dot]
		}
		_, after, ok := strings.Cut(rest, ".")
		if !ok || len(q.within) == 0 {
			break
		}
		rest = after
	}
	for _, m := range q.matches {
		if m.rule > best {
			break
		}
		if m.ok(module) {
			best = m.rule
			break
		}
	}
	if best == len(q.Rules) {
		return Rule{}
	}
	return q.Rules[best]
}

// compile prepares For.
func (q *Quant) compile() error {
	q.under, q.within, q.matches = map[string]int{}, map[string]int{}, nil
	for i, r := range q.Rules {
		var ok func(module string) bool
		switch plain := !strings.ContainsAny(r.Pattern, "*?"); {
		case r.Kind == Under || r.Kind == Within && plain:
			names := q.under
			if r.Kind == Within {
				names = q.within
			}
			if _, dup := names[r.Pattern]; !dup {
				names[r.Pattern] = i
			}
			continue
		case r.Kind == Within:
			run := strings.Split(r.Pattern, ".")
			ok = func(module string) bool { return within(run, strings.Split(module, ".")) }
		case r.Kind == Glob:
			ok = func(module string) bool { return glob(r.Pattern, module) }
		case r.Kind == Regex:
			re, err := regexp.Compile("^(?:" + r.Pattern + ")")
			if err != nil {
				return err
			}
			ok = re.MatchString
		}
		q.matches = append(q.matches, matcher{i, ok})
	}
	return nil
}

// within says whether the components of run lie one after the other in name.
func within(run, name []string) bool {
	for ; len(name) >= len(run); name = name[1:] {
		same := true
		for i := range run {
			same = same && glob(run[i], name[i])
		}
		if same {
			return true
		}
	}
	return false
}

// glob says whether "*" (any text) and "?" (any byte) of pattern can stand for the rest of s.
func glob(pattern, s string) bool {
	star, mark := -1, 0 // the last "*", and what it has taken so far
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
