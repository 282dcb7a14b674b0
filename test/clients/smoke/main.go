// SPDX-License-Identifier: MIT OR Apache-2.0

// Smoke asks a running server what programs ask it through OpenAI's own Go client.
//
//	go run ./smoke http://127.0.0.1:8888/v1/
//
// Any small instruct model will do: no check judges what it says, only that the same question has the same answer however it
// is asked. One line per check; the exit status is 1 if any failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// patience bounds one check.
const patience = 2 * time.Minute

// server is what the checks talk to.
type server struct {
	client  openai.Client
	url     string // of the API, ending in /v1/
	model   string
	context int64 // tokens of a sequence
}

// check is a story about the server, and its line of the report.
type check struct {
	name string
	run  func(context.Context, *server) error
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: smoke URL/v1/")
		os.Exit(2)
	}
	url := os.Args[1]
	s := &server{
		client: openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"), option.WithMaxRetries(0)),
		url:    url,
	}
	failed := 0
	for _, list := range [][]check{modelChecks, chatChecks, completionChecks, refusalChecks, cancelChecks} {
		for _, c := range list {
			begun := time.Now()
			if err := c.attempt(s); err != nil {
				failed++
				fmt.Printf("FAIL %s: %s\n", c.name, explain(err))
				continue
			}
			fmt.Printf("ok   %s (%d ms)\n", c.name, time.Since(begun).Milliseconds())
		}
	}
	if failed > 0 {
		fmt.Printf("%d checks failed\n", failed)
		os.Exit(1)
	}
}

// attempt runs the check. An answer that lacks a part makes the check index beyond a list: that is a failure, no crash.
func (c check) attempt(s *server) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an answer lacks a part: %v", p)
		}
	}()
	return c.run(ctx, s)
}

// explain adds what the server wrote, which the client's errors leave out.
func explain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		text += ": " + e.Message
	}
	return text
}

// equal says that something is not as wanted.
func equal(what string, got, want any) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("%s: got %s, want %s", what, show(got), show(want))
}

// holds says that a condition is broken.
func holds(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// show is a value as JSON.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

var modelChecks = []check{
	{"models: the list has the model", func(ctx context.Context, s *server) error {
		page, err := s.client.Models.List(ctx)
		if err != nil {
			return err
		}
		m := page.Data[0]
		s.model = m.ID
		return errors.Join(
			holds(m.ID != "", "the model has no id"),
			equal("object", string(m.Object), "model"),
			json.Unmarshal([]byte(m.JSON.ExtraFields["max_model_len"].Raw()), &s.context),
			holds(s.context > 0, "max_model_len: %d", s.context),
		)
	}},
	{"models: get finds it by its id", func(ctx context.Context, s *server) error {
		m, err := s.client.Models.Get(ctx, s.model)
		if err != nil {
			return err
		}
		return equal("id", m.ID, s.model)
	}},
	{"models: get of another one is a 404", func(ctx context.Context, s *server) error {
		_, err := s.client.Models.Get(ctx, "no-such-model")
		return refused(err, 404, "model", "")
	}},
}
