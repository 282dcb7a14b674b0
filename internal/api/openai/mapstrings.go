// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import "bytes"

// MapStrings is a copy of the conversation in which f was applied to every text of the client's.
func (c *Conversation) MapStrings(f func(string) string) *Conversation {
	out := *c
	for _, raw := range []*[]byte{&out.Messages, &out.Tools, &out.Documents, &out.Kwargs} {
		*raw = mapJSON(*raw, f)
	}
	return &out
}

// mapJSON applies f to the strings of a JSON text.
func mapJSON(raw []byte, f func(string) string) []byte {
	if raw == nil {
		return nil
	}
	out := make([]byte, 0, len(raw)+64)
	s := scanner{data: raw}
	for {
		n := bytes.IndexByte(raw[s.pos:], '"')
		if n < 0 {
			return append(out, raw[s.pos:]...)
		}
		out = append(out, raw[s.pos:s.pos+n]...)
		s.pos += n
		out = AppendString(out, f(unquote(s.skip())))
	}
}
