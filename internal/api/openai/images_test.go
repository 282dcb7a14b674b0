// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// withParts is a body whose first message has these parts.
func withParts(parts string) []byte {
	return []byte(`{"messages":[ {"role":"user","content":[` + parts + `]},{"role":"assistant","content":"a {\"type\":\"image_url\"}"},
		{"role":"user","content":[{"type":"image_url","image_url":"data:image/gif;base64,R0lG"} , {"type":"text","text":"and this?"}]} ] }`)
}

func TestImagesAreTakenOutOfMessages(t *testing.T) {
	sees := Scope{Vocab: 1000, Images: 2}
	r, err := DecodeChat(withParts(`{"type":"text","text":"what is"}, {"image_url":{"detail":"low","url":"data:image\/png;base64,AQID"},"type":"image_url"}`), sees)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[ {"role":"user","content":[{"type":"text","text":"what is"}, {"type":"image"}]},{"role":"assistant","content":"a {\"type\":\"image_url\"}"},
		{"role":"user","content":[{"type":"image"} , {"type":"text","text":"and this?"}]} ]`
	if string(r.Messages) != want {
		t.Errorf("%s", r.Messages)
	}
	if len(r.Images) != 2 || string(r.Images[0].Data) != "\x01\x02\x03" || string(r.Images[1].Data) != "GIF" {
		t.Errorf("%+v", r.Images)
	}
	if a, b := r.Images[0].Field, r.Images[1].Field; a != "messages.0.content.1.image_url.url" || b != "messages.2.content.0.image_url" {
		t.Errorf("%s, %s", a, b)
	}
	if len(r.Unknown) > 0 {
		t.Errorf("unknown %v", r.Unknown)
	}
}

func TestImagesOfAllowedHosts(t *testing.T) {
	sees := Scope{Vocab: 1000, Images: 2, Hosts: []string{"pictures.example", "10.0.0.1:8080"}}
	for url, ok := range map[string]bool{
		"https://pictures.example/a/b.png?c=d": true, "HTTPS://Pictures.Example/a.png": true, "http://10.0.0.1:8080/x": true,
		"https://pictures.example:444/a.png": false, "https://pictures.example.org/a.png": false, "http://10.0.0.1/x": false, "https://example/a.png": false,
		"ftp://pictures.example/a.png": false, "https://me@pictures.example/a.png": false, "//pictures.example/a.png": false, "https://": false, "https://%zz": false,
	} {
		r, err := DecodeChat(withParts(`{"type":"image_url","image_url":{"url":"`+url+`"}}`), sees)
		if (err == nil) != ok || ok && r.Images[0].URL != url {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestImagesAreRefusedByName(t *testing.T) {
	const url = `messages.0.content.0.image_url.url`
	for _, c := range []struct {
		part, param, says string
		code              diag.Code
	}{
		{`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, url, "scheme https", diag.Unsupported},
		{`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`, url, "scheme file", diag.Unsupported},
		{`{"type":"image_url","image_url":{"url":"picture.png"}}`, url, "scheme no", diag.Unsupported},
		{`{"type":"image_url","image_url":{"url":"data:audio/wav;base64,AAAA"}}`, url, "audio/wav", diag.Unsupported},
		{`{"type":"image_url","image_url":{"url":"data:image/png,AAAA"}}`, url, "base64", diag.Invalid},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64"}}`, url, "base64", diag.Invalid},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64,A-_A"}}`, url, "broken", diag.Invalid},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}`, url, "broken", diag.Invalid},
		{`{"type":"image_url","image_url":{"url":7}}`, url, "a string", diag.Invalid},
		{`{"type":"image_url","image_url":{}}`, url, "missing", diag.Invalid},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID","detail":"lots"}}`, "messages.0.content.0.image_url.detail", "lots", diag.Invalid},
		{`{"type":"image_url"}`, "messages.0.content.0.image_url", "missing", diag.Invalid},
		{`{"type":"image"}`, "messages.0.content.0.type", "image_url", diag.Invalid},
		{`{"type":"input_audio","input_audio":{"data":"","format":"wav"}}`, "messages.0.content.0.type", "input_audio", diag.Unsupported},
		{`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}`, "messages.0.content.0.type", "video_url", diag.Unsupported},
		{`{"type":"file","file":{"file_id":"x"}}`, "messages.0.content.0.type", "file", diag.Unsupported},
		{strings.Repeat(`{"type":"image_url","image_url":"data:image/png;base64,AQID"},`, 2) + `{"type":"text","text":""}`, "messages.2.content.0", "2 that", diag.Invalid},
	} {
		_, err := DecodeChat(withParts(c.part), Scope{Vocab: 1000, Images: 2})
		if e, ok := diag.As(err); !ok || e.Code != c.code || e.Param != c.param || !strings.Contains(e.Error(), c.says) {
			t.Errorf("%s: %v", c.part, err)
		}
	}
}
