// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var cancelChecks = []check{
	{"cancel: streams that are left end on the server, which goes on answering", func(ctx context.Context, s *server) error {
		want, err := s.say(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		for range 4 {
			if err := s.leave(ctx); err != nil {
				return err
			}
		}
		got, err := s.say(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		return errors.Join(equal("content", got, want), s.idle(ctx))
	}},
}

// leave begins a stream that would be long and goes away after a few chunks.
func (s *server) leave(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := s.asking(func(p *openai.ChatCompletionNewParams) { p.MaxTokens = openai.Int(s.context - 256) })
	stream := s.client.Chat.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true))
	defer stream.Close()
	for range 3 {
		if !stream.Next() {
			return fmt.Errorf("the stream ended early: %w", stream.Err())
		}
	}
	cancel()
	for stream.Next() { // what had come already
	}
	return holds(errors.Is(stream.Err(), context.Canceled), "a canceled stream ends with %v", stream.Err())
}

// idle waits until the server computes nothing, which must be long before the abandoned answers would have ended.
func (s *server) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		running, err := s.gauge(ctx, "metrale_requests_running")
		if err != nil {
			return err
		}
		if running == "0" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s sequences still run", running)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// gauge is a value of /metrics.
func (s *server) gauge(ctx context.Context, name string) (string, error) {
	base, err := url.Parse(s.url)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.ResolveReference(&url.URL{Path: "/metrics"}).String(), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+"{"); ok {
			return rest[strings.LastIndexByte(rest, ' ')+1:], nil
		}
	}
	return "", fmt.Errorf("/metrics has no %s", name)
}
