// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

var scope = Scope{Vocab: 1000}

const hello = `"messages":[{"role":"user","content":"Hello"}]`

// TestRefusals: each body is refused with a fault of that field; code Invalid unless the name ends in "unsupported".
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ name, body, param string }{
		{"empty", ``, ""},
		{"blank", " \n", ""},
		{"malformed", `{` + hello, ""},
		{"no comma", `{"a":1 "b":2}`, ""},
		{"no colon", `{"a" 1}`, ""},
		{"no name", `{1:2}`, ""},
		{"trailing comma", `{"a":[1,]}`, ""},
		{"trailing text", `{` + hello + `} x`, ""},
		{"array", `[{` + hello + `}]`, ""},
		{"NaN", `{` + hello + `,"temperature":NaN}`, ""},
		{"Infinity", `{` + hello + `,"temperature":-Infinity}`, ""},
		{"bad number", `{"a":01}`, ""},
		{"bad fraction", `{"a":1.}`, ""},
		{"bad exponent", `{"a":1e}`, ""},
		{"bad escape", `{"a":"\x"}`, ""},
		{"bad unicode escape", `{"a":"\u12g4"}`, ""},
		{"control character", "{\"a\":\"\n\"}", ""},
		{"open string", `{"a":"b`, ""},
		{"open escape", `{"a":"\`, ""},
		{"deep", `{"messages":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, ""},
		{"invalid UTF-8", `{"a":"` + "ri\xff\xfever" + `"}`, ""},
		{"messages missing", `{}`, "messages"},
		{"messages null", `{"messages":null}`, "messages"},
		{"messages empty", `{"messages":[]}`, "messages"},
		{"messages no list", `{"messages":"hello"}`, "messages"},
		{"messages not objects", `{"messages":[1,2]}`, "messages.0"},
		{"role missing", `{"messages":[{"content":"x"}]}`, "messages.0.role"},
		{"role unknown", `{"messages":[{"role":"wizard","content":"x"}]}`, "messages.0.role"},
		{"role number", `{"messages":[{"role":5,"content":"x"}]}`, "messages.0.role"},
		{"content missing", `{"messages":[{"role":"user"}]}`, "messages.0.content"},
		{"content number", `{"messages":[{"role":"user","content":7}]}`, "messages.0.content"},
		{"second content", `{"messages":[{"role":"user","content":"x"},{"role":"user","content":{}}]}`, "messages.1.content"},
		{"part unknown", `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, "messages.0.content.0.type"},
		{"part without type", `{"messages":[{"role":"user","content":[{"text":"x"}]}]}`, "messages.0.content.0.type"},
		{"part without text", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages.0.content.0.text"},
		{"image unsupported", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages.0.content.0.type"},
		{"calls of a user", `{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]}`, "messages.0.tool_calls"},
		{"call without function", `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]}`, "messages.0.tool_calls.0.function"},
		{"call without name", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]}`, "messages.0.tool_calls.0.function.name"},
		{"max_tokens text", `{` + hello + `,"max_tokens":"a"}`, "max_tokens"},
		{"max_tokens negative", `{` + hello + `,"max_tokens":-1}`, "max_tokens"},
		{"max_tokens zero", `{` + hello + `,"max_tokens":0}`, "max_tokens"},
		{"max_tokens huge", `{` + hello + `,"max_tokens":1e30}`, "max_tokens"},
		{"max_tokens fraction", `{` + hello + `,"max_tokens":1.5}`, "max_tokens"},
		{"max_completion_tokens", `{` + hello + `,"max_completion_tokens":0}`, "max_completion_tokens"},
		{"min_tokens above", `{` + hello + `,"max_tokens":3,"min_tokens":4}`, "min_tokens"},
		{"temperature text", `{` + hello + `,"temperature":"hot"}`, "temperature"},
		{"temperature negative", `{` + hello + `,"temperature":-1}`, "temperature"},
		{"temperature huge", `{` + hello + `,"temperature":1e999}`, "temperature"},
		{"top_p two", `{` + hello + `,"top_p":2}`, "top_p"},
		{"min_p", `{` + hello + `,"min_p":1.5}`, "min_p"},
		{"top_k", `{` + hello + `,"top_k":-2}`, "top_k"},
		{"repetition_penalty", `{` + hello + `,"repetition_penalty":0}`, "repetition_penalty"},
		{"presence_penalty", `{` + hello + `,"presence_penalty":5}`, "presence_penalty"},
		{"frequency_penalty", `{` + hello + `,"frequency_penalty":-2.1}`, "frequency_penalty"},
		{"n zero", `{` + hello + `,"n":0}`, "n"},
		{"n huge", `{` + hello + `,"n":100000}`, "n"},
		{"best_of unsupported", `{` + hello + `,"best_of":2}`, "best_of"},
		{"stop number", `{` + hello + `,"stop":5}`, "stop"},
		{"stop of numbers", `{` + hello + `,"stop":["a",5]}`, "stop"},
		{"stop empty", `{` + hello + `,"stop":""}`, "stop"},
		{"stop many", `{` + hello + `,"stop":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 17), ",") + `]}`, "stop"},
		{"stream text", `{` + hello + `,"stream":"maybe"}`, "stream"},
		{"stream_options alone", `{` + hello + `,"stream_options":{"include_usage":true}}`, "stream_options"},
		{"include_usage", `{` + hello + `,"stream":true,"stream_options":{"include_usage":1}}`, "stream_options.include_usage"},
		{"seed huge", `{` + hello + `,"seed":1e40}`, "seed"},
		{"seed beyond int64", `{` + hello + `,"seed":9223372036854775808}`, "seed"},
		{"bias word", `{` + hello + `,"logit_bias":{"river":1}}`, "logit_bias"},
		{"bias fraction", `{` + hello + `,"logit_bias":{"5.0":1}}`, "logit_bias"},
		{"bias sign", `{` + hello + `,"logit_bias":{"+5":1}}`, "logit_bias"},
		{"bias beyond the vocabulary", `{` + hello + `,"logit_bias":{"1000":1}}`, "logit_bias"},
		{"bias value", `{` + hello + `,"logit_bias":{"5":1000}}`, "logit_bias"},
		{"bias text", `{` + hello + `,"logit_bias":{"5":"1"}}`, "logit_bias"},
		{"bias list", `{` + hello + `,"logit_bias":[1]}`, "logit_bias"},
		{"top_logprobs alone", `{` + hello + `,"top_logprobs":5}`, "top_logprobs"},
		{"top_logprobs large", `{` + hello + `,"logprobs":true,"top_logprobs":50}`, "top_logprobs"},
		{"logprobs number", `{` + hello + `,"logprobs":2}`, "logprobs"},
		{"prompt_logprobs streamed", `{` + hello + `,"stream":true,"prompt_logprobs":1}`, "prompt_logprobs"},
		{"stop_token_ids", `{` + hello + `,"stop_token_ids":[1,1000]}`, "stop_token_ids"},
		{"response_format poem", `{` + hello + `,"response_format":{"type":"poem"}}`, "response_format.type"},
		{"response_format empty", `{` + hello + `,"response_format":{}}`, "response_format.type"},
		{"response_format unsupported", `{` + hello + `,"response_format":{"type":"json_object"}}`, "response_format.type"},
		{"guided_json unsupported", `{` + hello + `,"guided_json":{"type":"object"}}`, "guided_json"},
		{"allowed_token_ids unsupported", `{` + hello + `,"allowed_token_ids":[5]}`, "allowed_token_ids"},
		{"bad_words unsupported", `{` + hello + `,"bad_words":["a"]}`, "bad_words"},
		{"use_beam_search unsupported", `{` + hello + `,"use_beam_search":true}`, "use_beam_search"},
		{"truncate_prompt_tokens unsupported", `{` + hello + `,"truncate_prompt_tokens":4}`, "truncate_prompt_tokens"},
		{"grammar unsupported", `{` + hello + `,"grammar":"root ::= \"a\""}`, "grammar"},
		{"ebnf unsupported", `{` + hello + `,"ebnf":"root ::= \"a\""}`, "ebnf"},
		{"mirostat unsupported", `{` + hello + `,"mirostat":2}`, "mirostat"},
		{"typical_p unsupported", `{` + hello + `,"typical_p":0.9}`, "typical_p"},
		{"repeat_penalty unsupported", `{` + hello + `,"repeat_penalty":1.1}`, "repeat_penalty"},
		{"n_predict unsupported", `{` + hello + `,"n_predict":5}`, "n_predict"},
		{"chat_template unsupported", `{` + hello + `,"chat_template":"x"}`, "chat_template"},
		{"modalities unsupported", `{` + hello + `,"modalities":["text","audio"]}`, "modalities"},
		{"tools object", `{` + hello + `,"tools":{}}`, "tools"},
		{"tool type", `{` + hello + `,"tools":[{"type":"custom"}]}`, "tools.0.type"},
		{"tool without name", `{` + hello + `,"tools":[{"type":"function","function":{}}]}`, "tools.0.function.name"},
		{"tool parameters", `{` + hello + `,"tools":[{"type":"function","function":{"name":"f","parameters":"x"}}]}`, "tools.0.function.parameters"},
		{"tool_choice word", `{` + hello + `,"tool_choice":"maybe"}`, "tool_choice"},
		{"tool_choice without tools", `{` + hello + `,"tool_choice":"required"}`, "tool_choice"},
		{"tool_choice absent", `{` + hello + `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}}`, "tool_choice.function.name"},
		{"tool_choice required unsupported", `{` + hello + `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"}`, "tool_choice"},
		{"tool_choice named unsupported", `{` + hello + `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, "tool_choice"},
		{"continue without assistant", `{` + hello + `,"continue_final_message":true}`, "continue_final_message"},
		{"continue and generate", `{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":true}`, "continue_final_message"},
		{"reasoning_effort", `{` + hello + `,"reasoning_effort":"extreme"}`, "reasoning_effort"},
		{"chat_template_kwargs", `{` + hello + `,"chat_template_kwargs":1}`, "chat_template_kwargs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeChat([]byte(c.body), scope)
			checkFault(t, err, c.name, c.param)
		})
	}
}

// TestWhatIsOffIsAccepted: clients that send every field they know, with the value that changes nothing, are served.
func TestWhatIsOffIsAccepted(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"x"}],"mirostat":0,"typical_p":1.0,"dry_multiplier":0.0,"xtc_probability":0,"dynatemp_range":0,
		"repeat_penalty":1,"n_predict":-1,"grammar":"","bad_words":[],"use_beam_search":false,"structured_outputs":null,"logits_processors":[]}`
	r, err := DecodeChat([]byte(body), scope)
	if err != nil || len(r.Unknown) > 0 {
		t.Errorf("%v, unknown %v", err, r.Unknown)
	}
}

func checkFault(t *testing.T, err error, name, param string) {
	t.Helper()
	e, ok := diag.As(err)
	if !ok {
		t.Fatalf("error %v, want one for %q", err, param)
	}
	want := diag.Invalid
	if strings.HasSuffix(name, "unsupported") {
		want = diag.Unsupported
	}
	if e.Code != want || e.Param != param {
		t.Errorf("%s %q: %v, want %s %q", e.Code, e.Param, err, want, param)
	}
	if field := param[strings.LastIndexByte(param, '.')+1:]; !strings.Contains(e.Error(), field) {
		t.Errorf("message %q does not name %s", e, field)
	}
}

func TestCompletionRefusals(t *testing.T) {
	for _, c := range []struct{ name, body, param string }{
		{"prompt missing", `{}`, "prompt"},
		{"prompt number", `{"prompt":5}`, "prompt"},
		{"prompt empty list", `{"prompt":[]}`, "prompt"},
		{"prompt mixed", `{"prompt":["a",5]}`, "prompt"},
		{"prompt id beyond", `{"prompt":[1,1000]}`, "prompt"},
		{"prompt id fraction", `{"prompt":[1.5]}`, "prompt"},
		{"prompt id in a list", `{"prompt":[[1],[-1]]}`, "prompt"},
		{"max_tokens zero without echo", `{"prompt":"a","max_tokens":0}`, "max_tokens"},
		{"logprobs large", `{"prompt":"a","logprobs":21}`, "logprobs"},
		{"logprobs bool", `{"prompt":"a","logprobs":true}`, "logprobs"},
		{"best_of unsupported", `{"prompt":"a","best_of":3}`, "best_of"},
		{"suffix unsupported", `{"prompt":"a","suffix":"b"}`, "suffix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeCompletion([]byte(c.body), scope)
			checkFault(t, err, c.name, c.param)
		})
	}
}

func TestChatDefaults(t *testing.T) {
	r, err := DecodeChat([]byte(`{`+hello+`}`), scope)
	if err != nil {
		t.Fatal(err)
	}
	want := &ChatRequest{
		Params: Params{N: 1, MaxTokens: -1, SkipSpecial: true, Logprobs: -1, PromptLogprobs: -1,
			Sampling: seq.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}},
		Conversation: Conversation{Messages: []byte(`[{"role":"user","content":"Hello"}]`), AddGeneration: true},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v\nwant %+v", r, want)
	}
}

func TestChatFields(t *testing.T) {
	half, twenty := 0.5, int64(20)
	s := Scope{Vocab: 1000, Defaults: Defaults{Temperature: &half, TopK: &twenty}}
	r, err := DecodeChat([]byte(`{"model":"m","messages":[
		{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}],"reasoning_content":"hm"},
		{"role":"tool","tool_call_id":"c1","content":"4"}],
		"stream":true,"stream_options":{"include_usage":true},"n":2,"seed":-7,"max_tokens":5e1,"max_completion_tokens":8,"min_tokens":3,
		"stop":["x","\u00e9"],"stop_token_ids":[7],"include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false,
		"logprobs":true,"top_logprobs":2,"top_p":0,"top_k":-1,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":2,
		"logit_bias":{"9":-100,"5":1.5},"tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}],"tool_choice":"auto",
		"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low","user":"u","metadata":{"a":1},"temperature":null,"new_field":{"a":[1]},
		"add_generation_prompt":false,"documents":[{"title":"t"}]}`), s)
	if err != nil {
		t.Fatal(err)
	}
	seed := int64(-7)
	want := Params{Model: "m", Stream: true, IncludeUsage: true, N: 2, Seed: &seed, MaxTokens: 8, MinTokens: 3, Stop: []string{"x", "é"},
		StopTokenIDs: []int32{7}, IncludeStop: true, IgnoreEOS: true, Logprobs: 2, PromptLogprobs: -1, Unknown: []string{"new_field"},
		Sampling: seq.Sampling{Temperature: 0.5, TopP: math.SmallestNonzeroFloat32, MinP: 0.1, RepetitionPenalty: 1.1, PresencePenalty: -1,
			FrequencyPenalty: 2, LogitBias: []seq.Bias{{Token: 5, Value: 1.5}, {Token: 9, Value: -100}}}}
	if !reflect.DeepEqual(r.Params, want) {
		t.Errorf("%+v\nwant %+v", r.Params, want)
	}
	c := r.Conversation
	if len(c.Messages) == 0 || string(c.Tools) != `[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}]` ||
		string(c.Documents) != `[{"title":"t"}]` || string(c.Kwargs) != `{"enable_thinking":false}` || c.ReasoningEffort != "low" || c.AddGeneration {
		t.Errorf("conversation %+v", c)
	}
}

// TestTemplatesAreHandedALimitedNumberOfValues: each could cost much more memory than its byte.
func TestTemplatesAreHandedALimitedNumberOfValues(t *testing.T) {
	many := "[1" + strings.Repeat(",1", maxTemplateValues) + "]"
	_, err := DecodeChat([]byte(`{`+hello+`,"chat_template_kwargs":{"a":`+many+`}}`), scope)
	checkFault(t, err, "", "chat_template_kwargs")
	if n := countValues([]byte(`{"a":[1,"[,\"]",{}]}`)); n != 5 {
		t.Errorf("%d values", n)
	}
}

func TestToolChoiceNoneHidesTools(t *testing.T) {
	r, err := DecodeChat([]byte(`{`+hello+`,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`), scope)
	if err != nil || r.Tools != nil {
		t.Errorf("tools %s, %v", r.Tools, err)
	}
}

func TestPrompts(t *testing.T) {
	for body, want := range map[string][]Prompt{
		`{"prompt":"a"}`:                  {{Text: "a"}},
		`{"prompt":""}`:                   {{}},
		`{"prompt":["a","b"]}`:            {{Text: "a"}, {Text: "b"}},
		`{"prompt":[1, 2]}`:               {{IDs: []int32{1, 2}}},
		`{"prompt":[[1],[2,3]]}`:          {{IDs: []int32{1}}, {IDs: []int32{2, 3}}},
		`{"prompt":["a",[2]],"n":1}`:      {{Text: "a"}, {IDs: []int32{2}}},
		`{"prompt":"x","prompt":"y"}`:     {{Text: "y"}},
		`{"prompt":"\ud83d\ude00\ud83d"}`: {{Text: "😀\uFFFD"}},
		`{"prompt":"ri\ud83dver"}`:        {{Text: "ri\uFFFDver"}},
		`{"prompt":"\ude00\u0000\/"}`:     {{Text: "\uFFFD\x00/"}},
		`{"prompt":"\ud83d\u0041"}`:       {{Text: "\uFFFDA"}},
	} {
		r, err := DecodeCompletion([]byte(body), scope)
		if err != nil || !reflect.DeepEqual(r.Prompts, want) {
			t.Errorf("%s: %+v, %v, want %+v", body, r, err, want)
		}
	}
	r, err := DecodeCompletion([]byte(`{"prompt":"a","echo":true,"max_tokens":0,"logprobs":0}`), scope)
	if err != nil || r.MaxTokens != 0 || r.Logprobs != 0 || !r.Echo {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = DecodeCompletion([]byte(`{"prompt":"a"}`), scope); err != nil || r.MaxTokens != 16 || r.Logprobs != -1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRequestOfAChoice(t *testing.T) {
	p := Params{MaxTokens: 4, Logprobs: -1, PromptLogprobs: 2, StopTokenIDs: []int32{7}, Sampling: seq.Greedy()}
	eos := []int32{2}
	r := p.Request([]int32{1}, 3, 40, p.StopIDs(eos), false)
	if !reflect.DeepEqual(r.Stop, []int32{2, 7}) || r.Sampling.Seed != 43 || !r.Echo || r.Logprobs != 2 {
		t.Errorf("%+v", r)
	}
	p.IgnoreEOS = true
	if r = p.Request([]int32{1}, 0, 40, p.StopIDs(eos), false); !reflect.DeepEqual(r.Stop, []int32{7}) {
		t.Errorf("%+v", r.Limits)
	}
}

// TestJSONLikeTheStandardLibrary: what encoding/json accepts as an object, checkBody accepts, and the other way round, but for
// depth, broken UTF-8 and blank bodies.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,2.5e-3,"x\u00e9\n",null,true,{"b":{}}]}`, `{"a":-0}`, `{"a":1}{`, `{"a":"\ud83d"}`, "{\"a\":\"\x7f\"}", `{"a":[,]}`, `{,}`, `{"a":tru}`, `{"":[1e1000]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var v map[string]json.RawMessage
		want := utf8.Valid(body) && json.Unmarshal(body, &v) == nil && v != nil
		o, err := parseBody(body)
		if err != nil && strings.Contains(err.Error(), "deep") || err != nil && strings.Contains(err.Error(), "fields") {
			return
		}
		if (err == nil) != want {
			t.Fatalf("%q: %v, encoding/json accepts it: %v", body, err, want)
		}
		if err != nil {
			return
		}
		for _, f := range o.fields {
			mine, err := jsonValue(f.raw)
			theirs, theirErr := jsonValue(v[f.key])
			if err != nil || theirErr != nil || !reflect.DeepEqual(mine, theirs) {
				t.Fatalf("%q: field %q is %s, want %s", body, f.key, f.raw, v[f.key])
			}
			if s, ok := mine.(string); ok && unquote(f.raw) != s {
				t.Fatalf("%q reads as %q, want %q", f.raw, unquote(f.raw), s)
			}
		}
	})
}

// jsonValue reads numbers as they are written: some are no float64.
func jsonValue(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// FuzzDecode: no body makes the decoders panic, and what they accept is within its bounds.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{` + hello + `}`, `{` + hello + `,"n":2,"stop":["a"],"logit_bias":{"5":1},"seed":5,"top_k":3,"logprobs":true,"top_logprobs":2}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"prompt":[[1,2],[3]],"echo":true,"max_tokens":0}`, `{"prompt":"x","stream":true,"stream_options":{"include_usage":true}}`,
		`{"tokens":[1,2]}`, `{"prompt":"x","add_special_tokens":false}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"x"}]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		check := func(p *Params) {
			if p.N < 1 || p.N > MaxN || p.Logprobs > MaxLogprobs || len(p.Stop) > MaxStops || !(p.Sampling.Temperature >= 0) {
				t.Fatalf("%q: %+v", body, p)
			}
			for _, b := range p.Sampling.LogitBias {
				if int(b.Token) >= scope.Vocab {
					t.Fatalf("%q: %+v", body, b)
				}
			}
		}
		sees := scope
		sees.Images = 2
		if r, err := DecodeChat(body, sees); err == nil && (len(r.Images) > 2 || !json.Valid(r.Messages)) {
			t.Fatalf("%q: %d images, messages %s", body, len(r.Images), r.Messages)
		}
		if r, err := DecodeChat(body, scope); err == nil {
			check(&r.Params)
			if len(r.Messages) == 0 {
				t.Fatalf("%q: no messages", body)
			}
		}
		if r, err := DecodeCompletion(body, scope); err == nil {
			check(&r.Params)
			for _, p := range r.Prompts {
				if !utf8.ValidString(p.Text) {
					t.Fatalf("%q: prompt %q", body, p.Text)
				}
			}
		}
		_, _ = DecodeTokenize(body, scope)
		_, _ = DecodeDetokenize(body, scope.Vocab)
	})
}
