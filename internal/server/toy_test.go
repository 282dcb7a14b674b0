// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tokenizer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The toy model: a token per byte, three special tokens, and a script that says what the last message tells it to:
//
//	"say TEXT"    TEXT, then the end token
//	"count"       abc…zabc… without end
//	anything else the same as count
const (
	toyStart = 256 // <|im_start|>
	toyEnd   = 257 // <|im_end|>
	toyImage = 258 // <|image|>
	toyVocab = 259
)

// byteLetters is the byte-level alphabet: printable bytes are themselves, the others letters from U+0100 on.
func byteLetters() [256]rune {
	var out [256]rune
	next := rune(0x100)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			out[b] = rune(b)
		} else {
			out[b] = next
			next++
		}
	}
	return out
}

// toyTokenizer has a token for each byte, whose id is the byte, the toy's special tokens, and more of them.
func toyTokenizer(t testing.TB, more ...string) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for b, r := range byteLetters() {
		vocab[string(r)] = b
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	special := func(id int, s string) map[string]any {
		return map[string]any{"id": id, "content": s, "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}
	}
	added := []any{special(toyStart, "<|im_start|>"), special(toyEnd, "<|im_end|>"), special(toyImage, "<|image|>")}
	for i, s := range more {
		added = append(added, special(toyVocab+i, s))
	}
	file, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens":  added,
		"pre_tokenizer": level, "decoder": level,
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(file, []byte(`{"eos_token":"<|im_end|>"}`))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// toyTemplate renders as ChatML.
type toyTemplate struct{}

func (toyTemplate) Render(c *openai.Conversation, mark func(string) string) (string, error) {
	var messages []struct {
		Role    string
		Content json.RawMessage
	}
	if err := json.Unmarshal(c.Messages, &messages); err != nil {
		return "", err
	}
	var b strings.Builder
	for i, m := range messages {
		var text string
		var parts []struct{ Type, Text string }
		if json.Unmarshal(m.Content, &text) != nil && json.Unmarshal(m.Content, &parts) == nil {
			for _, p := range parts {
				if text += mark(p.Text); p.Type == "image" {
					text += "<|image|>"
				}
			}
		} else {
			text = mark(text)
		}
		if text == "raise" {
			return "", diag.Errorf(diag.Invalid, "the template does not like this message")
		}
		b.WriteString("<|im_start|>" + m.Role + "\n" + text)
		if i < len(messages)-1 || !c.ContinueFinal {
			b.WriteString("<|im_end|>\n")
		}
	}
	if c.AddGeneration {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String(), nil
}

// toyNext is the script.
func toyNext(history []int32) int32 {
	marker := []byte("assistant\n")
	text := make([]byte, len(history))
	for i, id := range history {
		text[i] = byte(id)
		if id >= 256 {
			text[i] = 0
		}
	}
	if i := bytes.LastIndex(text, append([]byte{0}, marker...)); i >= 0 {
		said := text[i+1+len(marker):]
		message := text[:i]
		if j := bytes.LastIndex(message, []byte("\x00user\nsay ")); j >= 0 {
			reply := message[j+len("\x00user\nsay "):]
			if end := bytes.IndexByte(reply, 0); end >= 0 {
				reply = reply[:end]
			}
			if len(said) < len(reply) {
				return int32(reply[len(said)])
			}
			return toyEnd
		}
		return 'a' + int32(len(said)%26)
	}
	return 'a' + int32(len(history)%26)
}

// rig is a server over the toy model.
type rig struct {
	*httptest.Server
	s      *Server
	engine *engine.Engine
	runner *script.Runner
}

// rigOptions change what newRig makes.
type rigOptions struct {
	server  Options
	engine  engine.Options
	script  script.Options
	loading bool
	model   func(*Model)
	runner  func(*script.Runner) exec.Runner // nil: the script itself
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	if o.script.Next == nil && o.script.Logits == nil {
		o.script.Next = toyNext
	}
	o.script.Vocab = toyVocab
	if o.script.Limits == (exec.Limits{}) {
		o.script.Limits = exec.Limits{Limits: plan.Limits{Rows: 512, Seqs: 64, Outs: 512}}
	}
	r := &rig{runner: script.New(o.script), s: New(o.server)}
	runner := exec.Runner(r.runner)
	if o.runner != nil {
		runner = o.runner(r.runner)
	}
	e, err := engine.New(runner, o.engine)
	if err != nil {
		t.Fatal(err)
	}
	r.engine = e
	if !o.loading {
		r.s.Ready(r.model(t, o.model))
	}
	r.Server = httptest.NewUnstartedServer(r.s)
	r.Server.Config = r.s.http
	r.Start()
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) model(t testing.TB, change func(*Model)) *Model {
	m := &Model{
		Name: "toy/model", Aliases: []string{"toy"}, Created: time.Unix(1_800_000_000, 0), Engine: r.engine, Tokenizer: toyTokenizer(t),
		Template: toyTemplate{}, EOS: []int32{toyEnd}, Vocab: toyVocab, PageSize: 16, MaxSequences: 64 + 128, Fingerprint: "fp_toy",
	}
	if change != nil {
		change(m)
	}
	return m
}

// reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request and reads the answer.
func (r *rig) do(t testing.TB, method, path, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequest(method, r.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}
}

// patience is how long tests wait for what takes milliseconds: a machine that starves must not fail them.
const patience = 30 * time.Second

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// settled waits until nothing runs or waits, and checks that nothing is held.
func (r *rig) settled(t testing.TB) {
	t.Helper()
	eventually(t, "nothing is held", func() bool {
		st := r.engine.Stats()
		return st.Running == 0 && st.Waiting == 0 && st.PagesUsed == 0 && st.SlotsUsed == 0
	})
}

// running waits until so many sequences run or wait.
func (r *rig) running(t testing.TB, n int) {
	t.Helper()
	eventually(t, "sequences run", func() bool { st := r.engine.Stats(); return st.Running+st.Waiting >= n })
}

// say is a chat body that makes the model say a text.
func say(text, more string) string {
	content, _ := json.Marshal("say " + text)
	return `{"messages":[{"role":"user","content":` + string(content) + `}]` + more + `}`
}

const count = `{"messages":[{"role":"user","content":"count"}],"max_tokens":`
