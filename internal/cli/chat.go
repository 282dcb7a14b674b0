// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/metrale/metrale/internal/diag"
)

// chatHelp lists what a person may type besides a message.
const chatHelp = `/system TEXT  set the system message and start anew
/reset        forget the conversation
/help         this list
/exit         leave (so does end of input)
Interrupt stops an answer.`

// newChatCmd is `met chat`: a terminal client of any server that speaks OpenAI's API, or of a model that it serves itself.
func newChatCmd(env environment) *cobra.Command {
	var system string
	var maxTokens int
	var temperature float64
	cmd := &cobra.Command{
		Use:   "chat [URL | demo | id | path | file.gguf]",
		Short: "Talk to a model in the terminal",
		Long: `Talks to the server at URL. Given a model instead, it serves that model for as long as the conversation lasts. Given
neither, it talks to the server at ` + localServer + `, and where none answers it serves a model as "met serve" alone would.
Input that is piped in is taken line by line.

` + chatHelp,
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{ownsInterrupt: "stops an answer"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch f := cmd.Flags(); {
			case f.Changed("max-tokens") && maxTokens < 1:
				return diag.Errorf(diag.Invalid, "--max-tokens %d: want at least 1", maxTokens).For("max-tokens")
			case !(temperature >= 0 && temperature <= 100):
				return diag.Errorf(diag.Invalid, "--temperature %v: want 0 to 100", temperature).For("temperature")
			}
			url, stop, err := chatServer(cmd, env, args)
			if err != nil {
				return err
			}
			defer stop()
			c := &chatClient{url: strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1"), system: system, out: cmd.OutOrStdout()}
			c.params = map[string]any{}
			if cmd.Flags().Changed("max-tokens") {
				c.params["max_tokens"] = maxTokens
			}
			if cmd.Flags().Changed("temperature") {
				c.params["temperature"] = temperature
			}
			return c.loop(cmd.Context(), cmd.InOrStdin(), isTerminal(cmd.InOrStdin()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&system, "system", "", "system message")
	f.IntVar(&maxTokens, "max-tokens", 0, "most tokens of an answer (default: the server's)")
	f.Float64Var(&temperature, "temperature", 0, "sampling temperature (default: the server's)")
	return cmd
}

// localServer is where "met serve" listens if nothing else is said.
const localServer = "http://127.0.0.1:8888"

// chatServer gives the URL to talk to: the one named, that of the model named, which is served until stop, or the default.
func chatServer(cmd *cobra.Command, env environment, args []string) (url string, stop func(), err error) {
	model := ""
	switch {
	case len(args) == 1 && isURL(args[0]):
		return args[0], func() {}, nil
	case len(args) == 1:
		model = args[0]
	case answers(cmd.Context(), localServer):
		return localServer, func() {}, nil
	default:
		if model, err = defaultModel(cmd.InOrStdin(), cmd.ErrOrStderr(), env.hub.Cache); err != nil {
			return "", nil, err
		}
	}
	return serveForChat(cmd.Context(), env, model, cmd.ErrOrStderr())
}

// answers says whether a model can be talked to at a URL.
func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// chatMessage is a turn of the conversation.
type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatClient holds one conversation.
type chatClient struct {
	url, system string
	params      map[string]any // sent with each request
	turns       []chatMessage
	out         io.Writer
}

// isURL tells a server from a model.
func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// loop reads messages and prints answers until the input ends. Of a person it asks for the next message even if one failed.
func (c *chatClient) loop(ctx context.Context, in io.Reader, person bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for {
		if person {
			fmt.Fprint(c.out, "> ")
		}
		if !lines.Scan() {
			return lines.Err()
		}
		line := strings.TrimSpace(lines.Text())
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "":
		case "/exit", "/quit":
			return nil
		case "/help":
			fmt.Fprintln(c.out, chatHelp)
		case "/reset":
			c.turns = nil
		case "/system":
			c.system, c.turns = rest, nil
		default:
			if strings.HasPrefix(word, "/") {
				fmt.Fprintf(c.out, "no command %s; /help lists them\n", word)
				continue
			}
			if err := c.say(ctx, line); err != nil {
				if !person || ctx.Err() != nil {
					return err
				}
				fmt.Fprintln(c.out, err)
			}
		}
	}
}

// say sends a message and streams the answer; an interrupt ends the answer, not the conversation.
func (c *chatClient) say(ctx context.Context, text string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	c.turns = append(c.turns, chatMessage{"user", text})
	answer, err := c.ask(ctx)
	fmt.Fprintln(c.out)
	if err != nil && ctx.Err() == nil {
		c.turns = c.turns[:len(c.turns)-1]
		return err
	}
	c.turns = append(c.turns, chatMessage{"assistant", answer})
	return nil
}

// ask posts the conversation and prints the answer as it comes.
func (c *chatClient) ask(ctx context.Context) (string, error) {
	messages := c.turns
	if c.system != "" {
		messages = append([]chatMessage{{"system", c.system}}, messages...)
	}
	body := map[string]any{"messages": messages, "stream": true}
	for k, v := range c.params {
		body[k] = v
	}
	data, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", bytes.NewReader(data))
	if err != nil {
		return "", diag.Errorf(diag.Invalid, "%q is no URL", c.url)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", diag.Errorf(diag.IO, "no answer from %s; start a server with `met serve <model>`", c.url).Because(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", responseError(resp)
	}
	return c.print(resp.Body)
}

// print copies the deltas of an event stream to the terminal and gives the whole text.
func (c *chatClient) print(events io.Reader) (string, error) {
	var text strings.Builder
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var event struct {
			Choices []struct {
				Delta struct{ Content string }
			}
			Error *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return text.String(), diag.Errorf(diag.Format, "the server sent an event that is no JSON").Because(err)
		}
		if event.Error != nil {
			return text.String(), diag.Errorf(diag.IO, "the server: %s", event.Error.Message)
		}
		for _, choice := range event.Choices {
			text.WriteString(choice.Delta.Content)
			if _, err := io.WriteString(c.out, choice.Delta.Content); err != nil {
				return text.String(), err
			}
		}
	}
	return text.String(), lines.Err()
}

// responseError is what a server says of a request that it refused.
func responseError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	var body struct{ Error struct{ Message string } }
	if json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		return diag.Errorf(diag.IO, "the server: %s", body.Error.Message)
	}
	return diag.Errorf(diag.IO, "the server: %s", resp.Status)
}

// isTerminal says whether a person types or reads there.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
