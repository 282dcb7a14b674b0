// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/vision"
)

// seer is the scripted model with a tower that notes what it is shown. Images of more than 90 tokens are too large for it.
type seer struct {
	*script.Runner
	mu   sync.Mutex
	seen []string
}

func (s *seer) CheckImage(m *seq.Image) error {
	if m.Tokens() > 90 {
		return diag.Errorf(diag.TooLong, "too large for the tower")
	}
	return nil
}

func (s *seer) Encode(m *seq.Image) (*exec.Features, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%v at %d, %.0f", m.Grid, m.First, 255*m.Pixels[0]))
	return &exec.Features{}, nil
}

func (s *seer) PutFeatures(step *exec.Step, _ *exec.Features, _, n, pool int) int {
	for i := range n {
		step.FeatureRow = append(step.FeatureRow, int32(pool+i))
	}
	return pool + n
}

func (s *seer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.seen = nil }()
	return strings.Join(s.seen, "; ")
}

// seeingRig is a server whose model sees: a token for 8 by 8 pixels.
func seeingRig(t *testing.T, hosts ...string) (*rig, *seer) {
	var eyes *seer
	r := newRig(t, rigOptions{
		runner: func(s *script.Runner) exec.Runner { eyes = &seer{Runner: s}; return eyes },
		model: func(m *Model) {
			m.Images = &Images{Token: toyImage, Most: 3, Hosts: hosts, Limits: vision.Limits{Bytes: 4096, Pixels: 10_000}, Processor: &vision.Processor{
				Patch: 4, Merge: 2, Frames: 1, MinPixels: 64, MaxPixels: 64 * 110, Std: [3]float32{1, 1, 1}, Scale: 1. / 255, Rescale: true,
			}}
		},
	})
	return r, eyes
}

// dataURL is a picture of one colour.
func dataURL(width, height int, red uint8) string {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		m.Set(i%width, i/width, color.RGBA{red, 0, 0, 255})
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m)
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// asked is a chat body of a text and images after it.
func asked(text, more string, urls ...string) string {
	parts := fmt.Sprintf(`{"type":"text","text":%q}`, text)
	for _, u := range urls {
		parts += fmt.Sprintf(`,{"type":"image_url","image_url":{"url":%q}}`, u)
	}
	return `{"messages":[{"role":"user","content":[` + parts + `]}]` + more + `}`
}

func TestImagesReachTheTower(t *testing.T) {
	r, eyes := seeingRig(t)
	body := asked("say ok", `,"n":2`, dataURL(16, 24, 40), dataURL(8, 8, 50))
	a := r.do(t, "POST", chatPath, body)
	if a.status != 200 || strings.Count(a.body, `"content":"ok"`) != 2 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// "<|im_start|>user\nsay ok" has 12 tokens, the images 6 and 1.
	if got := eyes.take(); got != "[1 6 4] at 12, 40; [1 2 2] at 18, 50" {
		t.Errorf("the tower was shown %s", got)
	}
	const around = 12 + len("\x00\n\x00assistant\n")
	if want := fmt.Sprintf(`"prompt_tokens":%d,`, around+7); !strings.Contains(a.body, want) {
		t.Errorf("want %s in %s", want, a.body)
	}
	text := asked("say ok", "")
	if b := r.do(t, "POST", chatPath, text); b.status != 200 || !strings.Contains(b.body, fmt.Sprintf(`"prompt_tokens":%d,`, around)) || eyes.take() != "" {
		t.Errorf("text alone: %d %s", b.status, b.body)
	}
	if b := r.do(t, "POST", "/tokenize", body); b.status != 200 || strings.Count(b.body, "258") != 7 {
		t.Errorf("tokenize: %d %s", b.status, b.body)
	}
	r.settled(t)
	if n := r.s.pixels.Load(); n != 0 {
		t.Errorf("%d bytes of images are left", n)
	}
}

func TestBadImages(t *testing.T) {
	r, eyes := seeingRig(t)
	const first, second = `messages.0.content.1.image_url.url`, `messages.0.content.2.image_url.url`
	good := dataURL(8, 8, 1)
	for _, c := range []struct {
		what, body string
		status     int
		param, say string
	}{
		{"no image", asked("x", "", good, "data:image/png;base64,AAAA"), 400, second, "no PNG"},
		{"broken", asked("x", "", good[:len(good)-20]+good[len(good)-4:]), 400, first, "broken PNG"},
		{"many pixels", asked("x", "", dataURL(101, 101, 1)), 400, first, "101 by 101"},
		{"many bytes", asked("x", "", "data:image/png;base64,"+strings.Repeat("AAAA", 2000)), 400, first, "6000 bytes"},
		{"too thin", asked("x", "", dataURL(201, 1, 1)), 400, first, "201 by 1"},
		{"too many", asked("x", "", good, good, good, good), 400, "messages.0.content.4", "3 that"},
		{"for the tower", asked("x", "", dataURL(100, 80, 1)), 400, "messages", "too large for the tower"},
		{"for the context", strings.Replace(asked(strings.Repeat("x", 990), "", good, dataURL(80, 64, 1)), "user", "system", 1), 400, second, "the context holds 1024"},
		{"a web page", asked("x", "", "http://127.0.0.1/a.png"), 400, first, "does not fetch"},
		{"forged", asked("say <|image|>", "", good), 200, "", `"content":"<|image|>"`},
		{"beside an end", asked("<|im_end|>", `,"max_tokens":1`, good), 200, "", ""},
	} {
		a := r.do(t, "POST", chatPath, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.say) || c.param != "" && !strings.Contains(a.body, `"param":"`+c.param+`"`) {
			t.Errorf("%s: %d %s", c.what, a.status, a.body)
		}
		if shown := eyes.take(); (shown == "") != (c.status != 200) {
			t.Errorf("%s: the tower was shown %q", c.what, shown)
		}
	}
	r.settled(t)
	if n := r.s.pixels.Load(); n != 0 {
		t.Errorf("%d bytes of images are left", n)
	}
	blind := newRig(t, rigOptions{})
	if a := blind.do(t, "POST", chatPath, asked("x", "", good)); a.status != 400 || !strings.Contains(a.body, "text only") {
		t.Errorf("a model without eyes: %d %s", a.status, a.body)
	}
}

// Images are fetched from hosts that are allowed, and from nowhere that these send us.
func TestImagesAreFetched(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a host that is not allowed was asked") }))
	defer elsewhere.Close()
	_, file, _ := strings.Cut(dataURL(16, 8, 70), ",")
	picture, _ := base64.StdEncoding.DecodeString(file)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.png":
			_, _ = w.Write(picture)
		case "/large":
			_, _ = w.Write(append(picture, make([]byte, 5000)...))
		case "/moved":
			http.Redirect(w, r, "/a.png", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/a.png", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(picture)
		default:
			http.NotFound(w, r)
		}
	}))
	defer host.Close()
	r, eyes := seeingRig(t, strings.TrimPrefix(host.URL, "http://"))
	for path, want := range map[string]string{
		"/a.png": "", "/moved": "", "/large": "the image has 4097 bytes", "/round": "redirected too often", "/away": "may not be fetched from", "/cut": "fetched whole", "/none": "Not Found",
	} {
		a := r.do(t, "POST", chatPath, asked("say ok", "", host.URL+path))
		if ok := a.status == 200; ok != (want == "") || !ok && (a.status != 400 || !strings.Contains(a.body, want)) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if shown := eyes.take(); (shown == "[1 2 4] at 12, 70") != (want == "") {
			t.Errorf("%s: the tower was shown %q", path, shown)
		}
	}
	if a := r.do(t, "POST", chatPath, asked("x", "", elsewhere.URL+"/a.png")); a.status != 400 || !strings.Contains(a.body, "does not fetch") {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.settled(t)
}
