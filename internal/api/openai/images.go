// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Image is a picture of a conversation. Messages has {"type":"image"} in its place.
type Image struct {
	Data  []byte // of a file, not looked at yet
	URL   string // where to fetch it from, instead of Data
	Field string // path of its URL in the request
}

// imageScope collects the images of messages.
type imageScope struct {
	most  int      // 0: the model takes none
	hosts []string // that images may be fetched from
	found []Image
	parts [][]byte // of found, as the client wrote them
}

// otherMedia are kinds of parts that OpenAI's and vLLM's clients may send and no model here takes.
var otherMedia = []string{"input_audio", "file", "video_url", "audio_url", "audio", "video", "image_embeds", "audio_embeds"}

// image takes a part of type image_url.
func (s *imageScope) image(p *object) {
	if s.most == 0 {
		p.failWith(diag.Unsupported, "type", "it is image_url; this model takes text only")
		return
	}
	if len(s.found) == s.most {
		p.fail("", "it is one image more than the %d that a request may have", s.most)
		return
	}
	from, key := p, "image_url"
	if raw := p.get(key); raw == nil || raw[0] != '"' { // some clients send the URL alone
		if from = p.object(key); from == nil {
			p.fail(key, "it is missing")
			return
		}
		from.oneOf("detail", "auto", "low", "high", "original") // the model's own limits on sizes hold
		key = "url"
	}
	im := Image{Field: from.at(key)}
	text := from.string(key)
	switch scheme, rest, ok := strings.Cut(text, ":"); {
	case text == "":
		from.fail(key, "it is missing")
	case ok && strings.EqualFold(scheme, "data"):
		im.Data = from.dataURL(key, rest)
	case s.mayFetch(text):
		im.URL = text
	default:
		if !ok {
			scheme = "no"
		}
		from.failWith(diag.Unsupported, key, "it is a URL of scheme %s, which this server does not fetch: send the image itself, as data:image/png;base64,…", shown([]byte(scheme)))
	}
	s.found = append(s.found, im)
	s.parts = append(s.parts, p.text)
}

// mayFetch says whether a URL is of a host that images may be fetched from.
func (s *imageScope) mayFetch(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && slices.Contains(s.hosts, strings.ToLower(u.Host))
}

// dataURL reads the bytes that a data: URL of an image has behind its scheme.
func (o *object) dataURL(key, rest string) []byte {
	head, text, ok := strings.Cut(rest, ",")
	media, is64 := strings.CutSuffix(head, ";base64")
	if !ok || !is64 {
		o.fail(key, "it is no data: URL in base64, as data:image/png;base64,…")
		return nil
	}
	if kind, _, _ := strings.Cut(media, "/"); !strings.EqualFold(kind, "image") {
		o.failWith(diag.Unsupported, key, "it holds %s; only images are possible", shown([]byte(media)))
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) == 0 {
		o.fail(key, "its base64 is broken")
		return nil
	}
	return data
}

// take gives the messages with places instead of images. The parts are slices of raw.
func (s *imageScope) take(raw []byte) []byte {
	if len(s.parts) == 0 {
		return raw
	}
	out := make([]byte, 0, 1024)
	at := 0
	for _, part := range s.parts {
		begin := cap(raw) - cap(part) // a slice ends where its array does
		out = append(append(out, raw[at:begin]...), `{"type":"image"}`...)
		at = begin + len(part)
	}
	return append(out, raw[at:]...)
}
