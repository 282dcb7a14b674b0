// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// freePort is a port that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func request(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 4, "request STATUS METHOD URL [BODY]")
	var body io.Reader
	if len(args) == 4 {
		body = strings.NewReader(ts.ReadFile(args[3]))
	}
	req, err := http.NewRequest(args[1], args[2], body)
	ts.Check(err)
	if token := ts.Getenv("TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	_, err = ts.Stdout().Write(append(answer, '\n'))
	ts.Check(err)
	if want := args[0]; strconv.Itoa(resp.StatusCode) != want {
		ts.Fatalf("the status is %s, not %s: %s", resp.Status, want, answer)
	}
}

func ready(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1, "ready URL")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0]+"/health", nil)
		ts.Check(err)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if ctx.Err() != nil {
			ts.Fatalf("%s is not ready", args[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1, "signal SIGTERM | SIGINT")
	s, ok := map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT}[args[0]]
	if !ok {
		ts.Fatalf("no signal %s", args[0])
	}
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(s))
	}
}

// standin answers a chat with what it was asked, word by word. "fail" in a message breaks the stream after its first word,
// and "refuse" is answered with an error.
func standin(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1, "standin VAR")
	srv := httptest.NewServer(http.HandlerFunc(echo))
	ts.Defer(srv.Close)
	ts.Setenv(args[0], srv.URL)
}

func echo(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages    []chatMessage
		Stream      bool
		MaxTokens   int `json:"max_tokens"`
		Temperature float64
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/chat/completions" || !body.Stream {
		http.Error(w, "no chat", http.StatusNotFound)
		return
	}
	last := body.Messages[len(body.Messages)-1].Content
	if strings.Contains(last, "refuse") {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"messages: not that"}}`)
		return
	}
	var said []string
	for _, m := range body.Messages {
		said = append(said, m.Role+":", m.Content)
	}
	said = append(said, fmt.Sprintf("(%d tokens, temperature %v)", body.MaxTokens, body.Temperature))
	words := strings.SplitAfter(strings.Join(said, " "), " ")
	for i, word := range words {
		delta, _ := json.Marshal(word)
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s}}]}\n\n", delta)
		if i == 0 && strings.Contains(last, "fail") {
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"the device is gone\"}}\n\ndata: [DONE]\n\n")
			return
		}
	}
	fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n")
}
