// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/seq"
)

// dial sends raw HTTP and gives the connection.
func (r *rig) dial(t testing.TB, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// raw is a POST with a body, of which only share is sent.
func raw(path, body string, share float64) string {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	return head + body[:int(share*float64(len(body)))]
}

const chatPath = "/v1/chat/completions"

// started waits for the first event of a stream on a raw connection.
func started(t testing.TB, c net.Conn) {
	t.Helper()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			return
		}
	}
	t.Fatalf("no event: %v", lines.Err())
}

// forever is a delay by which a stream of hundreds of tokens is still running when the test acts.
const forever = 50 * time.Millisecond

// slowly makes a step take a while.
func slowly(d time.Duration) rigOptions { return rigOptions{script: script.Options{Delay: d}} }

func TestDroppedRequestsEnd(t *testing.T) {
	for name, begin := range map[string]func(*rig) net.Conn{
		"stream": func(r *rig) net.Conn {
			c := r.dial(t, raw(chatPath, count+`900,"stream":true}`, 1))
			started(t, c)
			return c
		},
		"whole": func(r *rig) net.Conn { return r.dial(t, raw(chatPath, count+`900}`, 1)) },
		"reset": func(r *rig) net.Conn {
			c := r.dial(t, raw(chatPath, count+`900,"stream":true}`, 1))
			started(t, c)
			_ = c.(*net.TCPConn).SetLinger(0)
			return c
		},
		"n": func(r *rig) net.Conn {
			c := r.dial(t, raw(chatPath, count+`900,"stream":true,"n":4}`, 1))
			started(t, c)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := slowly(forever)
			o.server.Log = slog.New(slog.NewTextHandler(&log, nil))
			r := newRig(t, o)
			c := begin(r)
			r.running(t, 1)
			c.Close()
			r.settled(t)
			m := r.engine.Metrics()
			if m.Finished[seq.Canceled].Load() == 0 {
				t.Error("no sequence was canceled")
			}
			if m.Finished[seq.Length].Load() != 0 {
				t.Error("all tokens were generated, for nobody")
			}
			r.Close()
			if strings.Contains(log.String(), "ERROR") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

func TestTwentyDropped(t *testing.T) {
	r := newRig(t, slowly(time.Millisecond))
	for i := range 20 {
		share := 1.0
		if i%4 == 0 {
			share = 0.5
		}
		c := r.dial(t, raw(chatPath, count+`900,"stream":true}`, share))
		if i%2 == 1 {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		time.Sleep(time.Duration(i%3) * 5 * time.Millisecond)
		c.Close()
	}
	r.settled(t)
	if a := r.do(t, "POST", chatPath, say("still here", "")); a.status != 200 || !strings.Contains(a.body, "still here") {
		t.Errorf("%d %s", a.status, a.body)
	}
	page := r.do(t, "GET", "/metrics", "").body
	for _, want := range []string{
		`metrale_requests_running{model_name="toy/model"} 0`, `metrale_requests_waiting{model_name="toy/model"} 0`,
		`metrale_kv_cache_usage_ratio{model_name="toy/model"} 0`, `vllm:num_requests_running{model_name="toy/model"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("metrics lack %q", want)
		}
	}
}

// TestSlowReadersHoldNobodyUp: clients that read nothing do not slow those that read, and get everything in the end.
func TestSlowReadersHoldNobodyUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	var slow []net.Conn
	for range 4 {
		c := r.dial(t, raw(chatPath, count+`900,"stream":true,"logprobs":true,"top_logprobs":20}`, 1))
		slow = append(slow, c)
	}
	for range 10 {
		if a := r.do(t, "POST", chatPath, say("quick", "")); !strings.Contains(a.body, "quick") {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	r.settled(t) // the engine waits for no reader
	for _, c := range slow {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Count(string(text), "data: ") != 900+3 {
			t.Errorf("%d events, %v", strings.Count(string(text), "data: "), err)
		}
		resp.Body.Close()
	}
}

// TestSpeedDoesNotShow: the bytes of a stream are the same for a model that gives a token a step and for one that is far
// ahead of the reader.
func TestSpeedDoesNotShow(t *testing.T) {
	body := say("the quick 😀 brown fox STOP", `,"stream":true,"stop":["STOP"],"logprobs":true,"temperature":0`)
	var want string
	for _, delay := range []time.Duration{0, 500 * time.Microsecond} {
		r := newRig(t, slowly(delay))
		for range 3 {
			got := steady(r.do(t, "POST", chatPath, body).body)
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("%s\nwant\n%s", got, want)
			}
		}
	}
}

// TestParallelEqualsAlone: many at once, streamed and not, each say what they say alone.
func TestParallelEqualsAlone(t *testing.T) {
	r := newRig(t, rigOptions{engine: engine.Options{MaxBatch: 5}})
	body := func(i int) string {
		stream := ""
		if i%2 == 0 {
			stream = `,"stream":true`
		}
		return say(fmt.Sprintf("answer %d %s", i, strings.Repeat("é", i)), stream+fmt.Sprintf(`,"seed":%d`, i))
	}
	var alone []string
	for i := range 24 {
		alone = append(alone, steady(r.do(t, "POST", chatPath, body(i)).body))
	}
	var all sync.WaitGroup
	for i := range alone {
		all.Go(func() {
			if got := steady(r.do(t, "POST", chatPath, body(i)).body); got != alone[i] {
				t.Errorf("beside others: %s\nalone: %s", got, alone[i])
			}
		})
	}
	all.Wait()
	r.settled(t)
}

// TestPromptsEqualAlone: the choices of a request with many prompts are those of many requests, with the same seed.
func TestPromptsEqualAlone(t *testing.T) {
	flat := func(_ []int32, logits []float32) {
		for i := range logits {
			logits[i] = float32(i % 3)
		}
	}
	r := newRig(t, rigOptions{script: script.Options{Logits: flat}})
	texts := func(body string) string {
		a := r.do(t, "POST", "/v1/completions", body)
		var out []string
		for _, part := range strings.Split(a.body, `"text":`)[1:] {
			out = append(out, part[:strings.Index(part, `,"logprobs"`)])
		}
		return strings.Join(out, " ")
	}
	one, two := texts(`{"prompt":"a","seed":5,"n":2}`), texts(`{"prompt":"b","seed":5,"n":2}`)
	if both := texts(`{"prompt":["a","b"],"seed":5,"n":2}`); both != one+" "+two {
		t.Errorf("together %s, alone %s %s", both, one, two)
	}
	if a, b, ok := strings.Cut(one, " "); !ok || a == b {
		t.Errorf("two choices say the same: %s", one)
	}
	if again := texts(`{"prompt":"a","seed":5,"n":2}`); again != one {
		t.Errorf("the same seed says %s, then %s", one, again)
	}
}

func TestFailuresOfTheEngine(t *testing.T) {
	fault := func(step int) error {
		if step == 0 || step == 6 {
			panic("a broken kernel")
		}
		return nil
	}
	r := newRig(t, rigOptions{script: script.Options{Fault: fault}})
	a := r.do(t, "POST", chatPath, count+`5,"stream":true}`)
	if a.status != 500 || !strings.Contains(a.body, `"type":"server_error"`) || strings.Contains(a.body, "broken") {
		t.Errorf("before the first byte: %d %s", a.status, a.body)
	}
	a = r.do(t, "POST", chatPath, count+`50,"stream":true}`)
	if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || !strings.Contains(a.body, `data: {"error":{`) {
		t.Errorf("within a stream: %d %s", a.status, a.body)
	}
	if a = r.do(t, "POST", chatPath, say("fine", "")); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
	r.settled(t)
}

func TestOverload(t *testing.T) {
	r := newRig(t, rigOptions{engine: engine.Options{MaxBatch: 1, MaxQueue: 1}, script: script.Options{Delay: forever}})
	var held []net.Conn
	for range 2 {
		held = append(held, r.dial(t, raw(chatPath, count+`900,"stream":true}`, 1)))
	}
	r.running(t, 2)
	a := r.do(t, "POST", chatPath, count+`5,"stream":true}`)
	if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"code":"overloaded"`) {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a = r.do(t, "GET", "/health", ""); a.status != 200 {
		t.Errorf("health under load: %d", a.status)
	}
	for _, c := range held {
		c.Close()
	}
	r.settled(t)
}

func TestLoadingAndDraining(t *testing.T) {
	goOn := make(chan struct{})
	goesOn := sync.OnceFunc(func() { close(goOn) })
	defer goesOn()
	r := newRig(t, rigOptions{loading: true, script: script.Options{Fault: func(step int) error {
		if step == 20 {
			<-goOn // the running stream waits for the test
		}
		return nil
	}}})
	for path, want := range map[string]int{"/health": 503, "/health/live": 200, "/metrics": 200, "/v1/models": 200, "/version": 200} {
		if a := r.do(t, "GET", path, ""); a.status != want {
			t.Errorf("%s while loading: %d %s", path, a.status, a.body)
		}
	}
	if a := r.do(t, "POST", chatPath, say("x", "")); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.s.Ready(r.model(t, nil))
	if a := r.do(t, "GET", "/health", ""); a.status != 200 {
		t.Errorf("health when ready: %d", a.status)
	}

	running := r.dial(t, raw(chatPath, count+`300,"stream":true}`, 1))
	started(t, running)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		ended <- r.s.Shutdown(ctx)
	}()
	eventually(t, "it drains", r.s.draining.Load)
	if a := r.do(t, "GET", "/health", ""); a.status != 503 {
		t.Errorf("health while draining: %d", a.status)
	}
	if a := r.do(t, "POST", chatPath, say("x", "")); a.status != 503 {
		t.Errorf("new work while draining: %d %s", a.status, a.body)
	}
	goesOn()
	rest, err := io.ReadAll(running)
	if err != nil || !strings.Contains(string(rest), "data: [DONE]") {
		t.Errorf("the running stream was cut: %v, %d bytes", err, len(rest))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDrainTimesOut(t *testing.T) {
	r := newRig(t, slowly(forever))
	running := r.dial(t, raw(chatPath, count+`900,"stream":true}`, 1))
	started(t, running)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := r.s.Shutdown(ctx); err == nil {
		t.Error("no error, though a request was cut")
	}
	if n := r.s.inFlight.Load(); n != 0 {
		t.Errorf("%d handlers run after Shutdown", n)
	}
	r.settled(t)
}

// slowTemplate renders when it is told to.
type slowTemplate struct {
	begun, goOn chan struct{}
	ended       atomic.Bool
}

func (s *slowTemplate) Render(*openai.Conversation, func(string) string) (string, error) {
	close(s.begun)
	<-s.goOn
	s.ended.Store(true)
	return "", nil
}

// TestShutdownWaitsForHandlers: also for those that do not look at their connection, and no other begins after it.
func TestShutdownWaitsForHandlers(t *testing.T) {
	slow := &slowTemplate{begun: make(chan struct{}), goOn: make(chan struct{})}
	r := newRig(t, rigOptions{model: func(m *Model) { m.Template = slow }})
	r.dial(t, raw(chatPath, say("x", ""), 1))
	<-slow.begun
	time.AfterFunc(50*time.Millisecond, func() { close(slow.goOn) })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.s.Shutdown(ctx); err == nil {
		t.Error("no error, though a request was cut")
	}
	if !slow.ended.Load() || r.s.inFlight.Load() != 0 {
		t.Error("a handler runs after Shutdown")
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("a handler begins after Shutdown")
		}
	}()
	r.s.ServeHTTP(&recorder{header: http.Header{}}, httptest.NewRequest("GET", "/health", nil))
}

func TestEndsAreCounted(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, body := range []string{
		say("x", ""), say("one two", `,"stop":"two"`), count + `2}`, count + `2,"n":3,"stream":true}`,
	} {
		if a := r.do(t, "POST", chatPath, body); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	page := r.do(t, "GET", "/metrics", "").body
	for _, want := range []string{`{reason="stop"} 2`, `{reason="length"} 4`, `{reason="abort"} 0`, `{reason="error"} 0`} {
		if !strings.Contains(page, "metrale_sequences_finished_total"+want+"\n") {
			t.Errorf("metrics lack %q", want)
		}
	}
	if !strings.Contains(page, `metrale_http_requests_total{route="/v1/chat/completions",status="200"} 4`) {
		t.Error("the requests were not counted")
	}
}
