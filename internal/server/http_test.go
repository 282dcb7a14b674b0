// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/engine/script"
)

func TestCredentials(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{Tokens: []string{"alpha", "beta"}}})
	for _, c := range []struct {
		method, path, body, auth string
		status                   int
	}{
		{"POST", chatPath, say("x", ""), "Bearer alpha", 200},
		{"POST", chatPath, say("x", ""), "Bearer beta", 200},
		{"POST", chatPath, say("x", ""), "Bearer gamma", 401},
		{"POST", chatPath, say("x", ""), "alpha", 401},
		{"POST", chatPath, say("x", ""), "", 401},
		{"POST", "/tokenize", `{"prompt":"x"}`, "", 401},
		{"GET", "/v1/models", "", "", 401},
		{"GET", "/v1/models", "", "Bearer alpha", 200},
		{"GET", "/health", "", "", 200},
		{"GET", "/health/live", "", "", 200},
		{"GET", "/metrics", "", "", 200},
		{"GET", "/nothing", "", "", 404},
	} {
		var header []string
		if c.auth != "" {
			header = []string{"Authorization", c.auth}
		}
		a := r.do(t, c.method, c.path, c.body, header...)
		if a.status != c.status {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.auth, a.status, c.status)
		}
		if c.status == 401 && (a.header.Get("WWW-Authenticate") == "" || !strings.Contains(a.body, `"code":"invalid_api_key"`)) {
			t.Errorf("%v %s", a.header, a.body)
		}
	}
}

func TestBodies(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{MaxBody: 1000}})
	long := say(strings.Repeat("x", 1000), "")
	if a := r.do(t, "POST", chatPath, long); a.status != 413 || !strings.Contains(a.body, "1000 bytes") {
		t.Errorf("a long body: %d %s", a.status, a.body)
	}
	chunked := func(body string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n", chatPath)
		for _, part := range []string{body[:1], body[1:]} {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
		}
		return b.String() + "0\r\n\r\n"
	}
	for _, c := range []struct {
		name, text string
		want       []string // lines that the answer has
	}{
		{"chunks", chunked(say("x", "")), []string{"HTTP/1.1 200 OK", "Content-Type: application/json"}},
		{"long chunks", chunked(long), []string{"HTTP/1.1 413 Request Entity Too Large"}},
		{"HTTP/1.0", strings.Replace(raw(chatPath, say("x", ""), 1), "HTTP/1.1", "HTTP/1.0", 1), []string{"HTTP/1.0 200 OK", "Content-Type: application/json"}},
		{"HTTP/1.0 stream", strings.Replace(raw(chatPath, say("x", `,"stream":true`), 1), "HTTP/1.1", "HTTP/1.0", 1), []string{"HTTP/1.0 200 OK", "data: [DONE]"}},
		{"expect", strings.Replace(raw(chatPath, say("x", ""), 1), "Host", "Connection: close\r\nExpect: 100-continue\r\nHost", 1), []string{"HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"}},
		{"HEAD", "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []string{"HTTP/1.1 200 OK"}},
		{"trailing slash", "GET /v1/models/ HTTP/1.0\r\n\r\n", []string{"HTTP/1.0 200 OK"}},
		{"method", "DELETE /v1/chat/completions HTTP/1.0\r\n\r\n", []string{"HTTP/1.0 405 Method Not Allowed", "Allow: POST"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial(t, c.text)
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection was kept")
			}
			for _, want := range c.want {
				if !bytes.Contains(got, []byte(want+"\r\n")) && !bytes.Contains(got, []byte(want+"\n")) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
		})
	}
	r.settled(t)
}

// TestBodiesOfAllRequestsAreBounded: a body takes memory for what came of it, whatever it promises, until its exchange ends;
// when all together take too much, the next is told to come again.
func TestBodiesOfAllRequestsAreBounded(t *testing.T) {
	r := newRig(t, rigOptions{})
	held := func(want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("bodies hold %d bytes", want), func() bool { return r.s.bodies.Load() == want })
	}
	var slow []net.Conn
	for range 4 {
		head, _, _ := strings.Cut(raw(chatPath, strings.Repeat(" ", 20<<20), 0), "\r\n\r\n")
		slow = append(slow, r.dial(t, head+"\r\n\r\n"))
	}
	held(4 * firstRead)
	const sent, doubled = 200_000, 64 * firstRead // sent is between that and its half
	for _, c := range slow {
		if _, err := io.WriteString(c, strings.Repeat(" ", sent)); err != nil {
			t.Fatal(err)
		}
	}
	held(4 * doubled)
	r.s.bodies.Add(maxBodies - 4*doubled - 100)
	for _, body := range []string{say("ok", ""), say(strings.Repeat("x", 500), "")} {
		a := r.do(t, "POST", chatPath, body)
		want := 200
		if len(body) > 100 {
			want = 503
		}
		if a.status != want || want == 503 && (a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"code":"overloaded"`)) {
			t.Errorf("a body of %d bytes where 100 are left: %d %v %s", len(body), a.status, a.header, a.body)
		}
	}
	held(maxBodies - 100)
	r.s.bodies.Add(4*doubled + 100 - maxBodies)
	for _, c := range slow {
		c.Close()
	}
	held(0)
	if a := r.do(t, "POST", chatPath, say("ok", "")); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
	held(0)
}

func TestConnectionIsKept(t *testing.T) {
	r := newRig(t, rigOptions{})
	conn := r.dial(t, "")
	in := bufio.NewReader(conn)
	for i := range 4 {
		body := say("hello", "")
		if i%2 == 1 {
			body = say("hello", `,"stream":true`)
		}
		if _, err := io.WriteString(conn, raw(chatPath, body, 1)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || resp.Close || len(text) == 0 {
			t.Fatalf("request %d: %v %d close=%v", i, err, resp.StatusCode, resp.Close)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, rigOptions{server: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}})
	if a := r.do(t, "POST", chatPath, say("x", ""), "X-Request-Id", "mine-1"); a.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("%v", a.header)
	}
	for _, bad := range []string{"", strings.Repeat("x", 200), "a b"} {
		if a := r.do(t, "POST", chatPath, say("x", ""), "X-Request-Id", bad); len(a.header.Get("X-Request-Id")) != 26 {
			t.Errorf("%q: %v", bad, a.header)
		}
	}
	r.CloseClientConnections()
	r.Close()
	if !strings.Contains(log.String(), "id=mine-1") || !strings.Contains(log.String(), "prompt_tokens=24 completion_tokens=1") {
		t.Errorf("log: %s", log.String())
	}
}

// TestLongPromptsAreRefusedAtOnce: a prompt of many megabytes costs no time.
func TestLongPromptsAreRefusedAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	begun := time.Now()
	text := `{"prompt":"` + strings.Repeat("word ", 200_000) + `"}`
	for _, c := range []struct{ path, body, param string }{
		{chatPath, say(strings.Repeat("word ", 200_000), ""), "messages"},
		{"/v1/completions", text, "prompt"},
		{"/tokenize", text, "prompt"},
		{"/tokenize", say(strings.Repeat("word ", 200_000), ""), "messages"},
		{"/detokenize", `{"tokens":[1` + strings.Repeat(",1", 1024) + `]}`, "tokens"},
	} {
		a := r.do(t, "POST", c.path, c.body)
		if a.status != 400 || !strings.Contains(a.body, `"param":"`+c.param+`","code":"context_length_exceeded"`) || !strings.Contains(a.body, "1024") {
			t.Errorf("%s: %d %.300s", c.path, a.status, a.body)
		}
	}
	// Each is refused by its length alone, in milliseconds; only a machine that starves takes longer.
	if took := time.Since(begun); took > patience {
		t.Errorf("it took %v", took)
	}
	if a := r.do(t, "POST", "/detokenize", `{"tokens":[97`+strings.Repeat(",97", 1023)+`]}`); a.status != 200 || !strings.Contains(a.body, `"`+strings.Repeat("a", 1024)+`"`) {
		t.Errorf("a whole context: %d %.300s", a.status, a.body)
	}
}

// TestWaitingIsTold: a client whose prompt takes long hears something.
func TestWaitingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		e, err := engine.New(script.New(script.Options{Vocab: toyVocab, Next: toyNext, Delay: idleAfter + time.Second}), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r := &rig{s: s, engine: e}
		s.Ready(r.model(t, nil))
		w := &recorder{header: http.Header{}}
		req, _ := http.NewRequestWithContext(t.Context(), "POST", chatPath, strings.NewReader(count+`1,"stream":true}`))
		s.ServeHTTP(w, req)
		if !strings.HasPrefix(w.body.String(), ": waiting\n\ndata: {") {
			t.Errorf("%s", w.body.String())
		}
	})
}

// recorder is a ResponseWriter that can flush.
type recorder struct {
	header http.Header
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(int)             {}
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }
func (w *recorder) Flush()                      {}

// bomb is a ResponseWriter that panics when it was written to so often.
type bomb struct {
	http.ResponseWriter
	left int
}

func (b *bomb) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *bomb) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		panic("a broken writer")
	}
	return b.ResponseWriter.Write(p)
}

// TestAPanicCutsWhatHasBegun: an answer that ends by a panic cannot be taken for a whole one.
func TestAPanicCutsWhatHasBegun(t *testing.T) {
	for _, c := range []struct {
		body   string
		writes int
	}{
		{count + `50,"stream":true}`, 1}, {count + `50,"stream":true}`, 7}, {count + `50,"stream":true,"n":3}`, 7}, {count + `50}`, 0}, {count + `50,"n":2}`, 0},
	} {
		r := newRig(t, slowly(time.Millisecond)) // an event a write
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.s.ServeHTTP(&bomb{w, c.writes}, req) }))
		resp, err := s.Client().Post(s.URL+chatPath, "application/json", strings.NewReader(c.body))
		var text []byte
		if err == nil {
			text, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil || bytes.Contains(text, []byte("[DONE]")) {
			t.Errorf("%s: %v after %s", c.body, err, text)
		}
		s.Close()
		r.settled(t)
		page := r.do(t, "GET", "/metrics", "").body
		if !strings.Contains(page, `metrale_http_requests_total{route="/v1/chat/completions",status="200"} 1`) {
			t.Errorf("%s: it was not counted", c.body)
		}
		if strings.Contains(page, `metrale_sequences_finished_total{reason=""}`) {
			t.Errorf("%s: a sequence ended for no reason", c.body)
		}
		if a := r.do(t, "POST", chatPath, say("x", "")); a.status != 200 {
			t.Errorf("%s: afterwards %d %s", c.body, a.status, a.body)
		}
	}
}

// TestPanicsAreAnswered: a handler that panics answers 500, and the server goes on.
func TestPanicsAreAnswered(t *testing.T) {
	r := newRig(t, rigOptions{model: func(m *Model) { m.Template = nil }})
	if a := r.do(t, "POST", chatPath, say("x", "")); a.status != 400 || !strings.Contains(a.body, "no chat template") {
		t.Errorf("without a template: %d %s", a.status, a.body)
	}
	r.s.model.Load().Engine = nil
	if a := r.do(t, "POST", "/v1/completions", `{"prompt":"x"}`); a.status != 500 || !strings.Contains(a.body, "server_error") {
		t.Errorf("a panic: %d %s", a.status, a.body)
	}
	r.s.model.Load().Engine = r.engine
	if a := r.do(t, "POST", "/v1/completions", `{"prompt":"x"}`); a.status != 200 {
		t.Errorf("after it: %d %s", a.status, a.body)
	}
}
