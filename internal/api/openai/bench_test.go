// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/seq"
)

func BenchmarkDecodeChat(b *testing.B) {
	for name, body := range map[string]string{
		"short": `{` + hello + `,"temperature":0.7,"max_tokens":100,"stream":true,"stop":["a"]}`,
		"long":  `{"messages":[{"role":"user","content":"` + strings.Repeat(`a word and\nanother word\n`, 1<<15) + `"}]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeChat([]byte(body), scope); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPiece(b *testing.B) {
	p := Params{Logprobs: -1, PromptLogprobs: -1}
	r := NewChatRenderer(&Answer{ID: "chatcmpl-ABCDEFGHIJKLMNOPQRSTUVWXYZ", Created: 1_800_000_000, Model: "org/model", Fingerprint: "met-0123456789ab", Params: &p})
	var buf []byte
	usage := Usage{}
	b.ReportAllocs()
	for b.Loop() {
		buf = r.Piece(buf[:0], 0, text.Piece{Text: " word", Tokens: []text.Token{{Token: seq.Token{ID: 1}}}}, &usage)
	}
}
