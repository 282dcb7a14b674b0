// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import "testing"

// benchInput is a chat of ten messages with two tools, two calls and their results.
func benchInput(t testing.TB) Input {
	return Input{Messages: parse(t, `[
		{"role": "system", "content": "You are a careful assistant. Answer in one sentence."},
		{"role": "user", "content": "What is the weather in Bern?"},
		{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\", \"days\": 2}"}}]},
		{"role": "tool", "tool_call_id": "call_1", "content": "{\"temp\": 3, \"sky\": \"grey\", \"wind\": 12.5}"},
		{"role": "assistant", "content": "It is 3 degrees and grey in Bern."},
		{"role": "user", "content": "And what time is it?"},
		{"role": "assistant", "content": "", "reasoning_content": "The user wants the time.", "tool_calls": [{"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "call_2", "content": "12:00"},
		{"role": "assistant", "content": "<think>\nNoon.\n</think>\n\nIt is noon."},
		{"role": "user", "content": "Thank you. Will it rain tomorrow, and should I take an umbrella with me?"}
	]`), Tools: readChats(t).Tools, AddGenerationPrompt: true, Now: now}
}

func BenchmarkRender(b *testing.B) {
	for _, name := range []string{"qwen3", "qwen3.8", "gpt-oss", "glm-4.6", "deepseek-v3.1"} {
		b.Run(name, func(b *testing.B) {
			tpl, in := compile(b, source(b, name)), benchInput(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tpl.Render(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	text := source(b, "qwen3")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile("qwen3", text); err != nil {
			b.Fatal(err)
		}
	}
}
