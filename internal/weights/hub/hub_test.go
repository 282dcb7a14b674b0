// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

var large = strings.Repeat("0123456789abcdef", 40000) // 640 kB

// model is a small repository; with shards, one with an index.
func model(shards bool) map[string]string {
	files := map[string]string{"config.json": `{"model_type":"x"}`, "tokenizer.json": "{}", "README.md": "read me", "pytorch_model.bin": "pickle",
		"modeling_x.py": "code", "additional_chat_templates/tool.jinja": "{{ x }}"}
	if !shards {
		files["model.safetensors"] = large
		files["consolidated.safetensors"] = "twice"
		return files
	}
	files["model.safetensors.index.json"] = `{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`
	files["model-00001-of-00002.safetensors"] = large
	files["model-00002-of-00002.safetensors"] = "short"
	files["consolidated.safetensors"] = "twice"
	return files
}

// tree lists the files of a snapshot, checking each against the hub's content.
func tree(t *testing.T, h *fakeHub, dir string) string {
	t.Helper()
	var names []string
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		names = append(names, name)
		target, err := os.Readlink(p)
		if err != nil || filepath.IsAbs(target) || !strings.HasPrefix(target, "../") {
			t.Errorf("%s is no relative link: %s %v", name, target, err)
		}
		got, err := os.ReadFile(p)
		if err != nil || string(got) != string(h.files[name]) {
			t.Errorf("%s has other content: %d bytes, %v", name, len(got), err)
		}
		if filepath.Base(target) != etagOf(got) {
			t.Errorf("%s points to %s", name, target)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func TestResolveFetchesWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		shards bool
		want   string
	}{
		{false, "additional_chat_templates/tool.jinja config.json model.safetensors tokenizer.json"},
		{true, "additional_chat_templates/tool.jinja config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json tokenizer.json"},
	} {
		h := newHub(t, model(c.shards))
		cache := t.TempDir()
		o := h.options(cache)
		var mu sync.Mutex
		last := map[string]Event{}
		o.Progress = func(e Event) { mu.Lock(); last[e.File] = e; mu.Unlock() }
		dir, err := Resolve(t.Context(), "org/model", o)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(cache, "models--org--model", "snapshots", commitA); dir != want {
			t.Errorf("resolved to %s", dir)
		}
		if got := tree(t, h, dir); got != c.want {
			t.Errorf("\n got %s\nwant %s", got, c.want)
		}
		if ref, _ := os.ReadFile(filepath.Join(cache, "models--org--model", "refs", "main")); string(ref) != commitA {
			t.Errorf("refs/main is %q", ref)
		}
		if len(last) != len(strings.Fields(c.want)) {
			t.Errorf("%d files reported", len(last))
		}
		for f, e := range last {
			if e.Done != e.Total || e.Done != int64(len(h.files[f])) {
				t.Errorf("%s ends at %d of %d", f, e.Done, e.Total)
			}
		}
		// Again: one request for the listing, none for files.
		before := len(h.log)
		if again, err := Resolve(t.Context(), "org/model", h.options(cache)); err != nil || again != dir {
			t.Errorf("again: %s %v", again, err)
		}
		if n := len(h.log) - before; n != 1 {
			t.Errorf("%d requests for what is there", n)
		}
		// By commit: none at all.
		before = len(h.log)
		if again, err := Resolve(t.Context(), "org/model@"+commitA, h.options(cache)); err != nil || again != dir || len(h.log) != before {
			t.Errorf("by commit: %s %v, %d requests", again, err, len(h.log)-before)
		}
	}
}

func TestANewCommitSharesBlobs(t *testing.T) {
	h := newHub(t, model(false))
	cache := t.TempDir()
	old, err := Resolve(t.Context(), "org/model", h.options(cache))
	if err != nil {
		t.Fatal(err)
	}
	h.commit, h.files["config.json"] = commitB, []byte(`{"model_type":"y"}`)
	dir, err := Resolve(t.Context(), "org/model", h.options(cache))
	if err != nil || dir == old {
		t.Fatalf("%s %v", dir, err)
	}
	tree(t, h, dir)
	if n := h.requests("cdn GET /model.safetensors"); n != 1 {
		t.Errorf("the weights were fetched %d times", n)
	}
	if b, _ := os.ReadFile(filepath.Join(old, "config.json")); string(b) != `{"model_type":"x"}` {
		t.Errorf("the old snapshot changed: %s", b)
	}
}

func TestRevisions(t *testing.T) {
	h := newHub(t, model(false))
	cache := t.TempDir()
	dir, err := Resolve(t.Context(), "org/model@refs/pr/1", h.options(cache))
	if err != nil {
		t.Fatal(err)
	}
	if ref, _ := os.ReadFile(filepath.Join(cache, "models--org--model", "refs", "refs", "pr", "1")); string(ref) != commitA {
		t.Errorf("ref %q", ref)
	}
	o := h.options(cache)
	o.Env.Offline = true
	if again, err := Resolve(t.Context(), "org/model@refs/pr/1", o); err != nil || again != dir {
		t.Errorf("offline: %s %v", again, err)
	}
}

func TestGGUFChoice(t *testing.T) {
	files := map[string]string{"m-Q4_K_M.gguf": "a", "m-Q4_K_S.gguf": "b", "m-Q8_0-00001-of-00002.gguf": "c", "m-Q8_0-00002-of-00002.gguf": "d",
		"mmproj-f16.gguf": "e", "BF16/m-BF16.gguf": "f", "config.json": "{}"}
	h := newHub(t, files)
	for want, got := range map[string]string{
		"Q4_K_M": "m-Q4_K_M.gguf", "q8_0": "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf", "m-Q8_0.gguf": "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf",
		"m-Q4_K_S.gguf": "m-Q4_K_S.gguf", "BF16": "BF16/m-BF16.gguf", "m-Q8_0-00002-of-00002.gguf": "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf",
	} {
		o := h.options(t.TempDir())
		o.GGUF = want
		dir, err := Resolve(t.Context(), "org/model", o)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if names := tree(t, h, dir); names != got {
			t.Errorf("%s: %s", want, names)
		}
		o.Env.Offline = true
		if _, err := Resolve(t.Context(), "org/model", o); err != nil {
			t.Errorf("%s, offline: %v", want, err)
		}
	}
	for want, msg := range map[string]string{"Q2_K": `has no GGUF file "Q2_K"`, "": "choose one of: BF16/m-BF16.gguf, m-Q4_K_M.gguf, m-Q4_K_S.gguf, m-Q8_0.gguf", "Q4": "choose one of: m-Q4_K_M.gguf, m-Q4_K_S.gguf"} {
		o := h.options(t.TempDir())
		o.GGUF = want
		if _, err := Resolve(t.Context(), "org/model", o); err == nil || !strings.Contains(err.Error(), msg) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestCutConnectionsAreResumed(t *testing.T) {
	for name, noRange := range map[string]bool{"with ranges": false, "without ranges": true} {
		h := newHub(t, model(false))
		h.cut["model.safetensors"], h.cuts["model.safetensors"], h.noRange = 100_000, 3, noRange
		dir, err := Resolve(t.Context(), "org/model", h.options(t.TempDir()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tree(t, h, dir)
		if n := h.requests("cdn GET /model.safetensors Range"); n != 3 {
			t.Errorf("%s: %d requests had a range", name, n)
		}
	}
}

func TestALaterCallResumes(t *testing.T) {
	h := newHub(t, model(false))
	cache := t.TempDir()
	h.cut["model.safetensors"], h.cuts["model.safetensors"] = 100_000, 1
	ctx, cancel := context.WithCancel(t.Context())
	o := h.options(cache)
	o.pause = func(context.Context, time.Duration) error { cancel(); return ctx.Err() } // the process ends at the cut
	if _, err := Resolve(ctx, "org/model", o); !diag.Is(err, diag.Canceled) && !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	partial := filepath.Join(cache, "models--org--model", "blobs", etagOf([]byte(large))+".incomplete")
	if st, err := os.Stat(partial); err != nil || st.Size() != 100_000 {
		t.Fatalf("the partial file: %v %v", st, err)
	}
	if _, err := os.Stat(strings.TrimSuffix(partial, ".incomplete")); err == nil {
		t.Error("the blob is there though it is not complete")
	}
	var first int64 = -1
	o = h.options(cache)
	o.Progress = func(e Event) {
		if e.File == "model.safetensors" && first < 0 {
			first = e.Done
		}
	}
	dir, err := Resolve(t.Context(), "org/model", o)
	if err != nil || first <= 100_000 {
		t.Fatalf("%v, first progress at %d", err, first)
	}
	tree(t, h, dir)
	if h.requests("cdn GET /model.safetensors Range") != 1 {
		t.Error("it was not resumed")
	}
}

func TestAStalledConnectionIsResumed(t *testing.T) {
	h := newHub(t, model(false))
	h.stall["model.safetensors"] = true
	o := h.options(t.TempDir())
	o.stall = 100 * time.Millisecond
	dir, err := Resolve(t.Context(), "org/model", o)
	if err != nil {
		t.Fatal(err)
	}
	tree(t, h, dir)
}

func TestAWrongRangeIsNotTaken(t *testing.T) {
	h := newHub(t, model(false))
	h.cut["model.safetensors"], h.cuts["model.safetensors"], h.shifted = 100_000, 1, true
	dir, err := Resolve(t.Context(), "org/model", h.options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	tree(t, h, dir)
}

func TestChecksums(t *testing.T) {
	h := newHub(t, model(false))
	h.garble["model.safetensors"] = 1 // once: fetched again
	dir, err := Resolve(t.Context(), "org/model", h.options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	tree(t, h, dir)
	h.garble["model.safetensors"] = 99
	cache := t.TempDir()
	if _, err = Resolve(t.Context(), "org/model", h.options(cache)); err == nil || !strings.Contains(err.Error(), "model.safetensors arrives with other content than announced (checksum)") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "models--org--model", "blobs", etagOf([]byte(large))+"*")); len(left) != 0 {
		t.Errorf("wrong content stays in the cache: %v", left)
	}
	// A partial file of something else is found out and fetched again.
	blob := filepath.Join(cache, "models--org--model", "blobs", etagOf([]byte(large))+".incomplete")
	if err := os.WriteFile(blob, []byte(strings.Repeat("x", 500)), 0o644); err != nil {
		t.Fatal(err)
	}
	h.garble["model.safetensors"] = 0
	if dir, err = Resolve(t.Context(), "org/model", h.options(cache)); err != nil {
		t.Fatal(err)
	}
	tree(t, h, dir)
}

func TestTheTokenStaysAtTheHub(t *testing.T) {
	h := newHub(t, model(false)) // its storage reports a token that it gets
	h.token = "hf_secret"
	o := h.options(t.TempDir())
	o.Env.Token = "hf_secret"
	if _, err := Resolve(t.Context(), "org/model", o); err != nil {
		t.Fatal(err)
	}
	// Across several hops, and back: once it has left, it stays away.
	var seen []string
	var a, b *httptest.Server
	b = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "b:"+r.Header.Get("Authorization"))
		http.Redirect(w, r, a.URL+"/last", http.StatusFound)
	}))
	defer b.Close()
	a = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "a:"+r.Header.Get("Authorization"))
		if r.URL.Path != "/last" {
			http.Redirect(w, r, b.URL+"/hop", http.StatusFound)
		}
	}))
	defer a.Close()
	c := newClient(Env{Endpoint: a.URL, Token: "hf_secret"}, nil)
	resp, err := c.do(t.Context(), c.http, http.MethodGet, a.URL+"/first", nil, ID{}, "")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := strings.Join(seen, " "); got != "a:Bearer hf_secret b: a:" {
		t.Errorf("authorizations: %s", got)
	}
}

func TestAnswersAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		set   func(h *fakeHub, o *Options)
		code  diag.Code
		want  string
	}{
		"private without token": {"org/model", func(h *fakeHub, o *Options) { h.token = "t" }, diag.NotFound, "there is no model org/model at http://127.0.0.1:"},
		"private, wrong token":  {"org/model", func(h *fakeHub, o *Options) { h.token = "t"; o.Env.Token = "u" }, diag.NotFound, "private and not visible to HF_TOKEN"},
		"another repository":    {"org/other", func(*fakeHub, *Options) {}, diag.NotFound, "there is no model org/other"},
		"another revision":      {"org/model@v9", func(*fakeHub, *Options) {}, diag.NotFound, `org/model has no revision "v9"`},
		"gated":                 {"org/model", func(h *fakeHub, o *Options) { h.gated = true }, diag.Denied, "access to org/model is restricted: accept its terms at http"},
		"expired token":         {"org/model", func(h *fakeHub, o *Options) { h.fail = []int{401}; o.Env.Token = "t" }, diag.Denied, "does not accept HF_TOKEN"},
		"forbidden":             {"org/model", func(h *fakeHub, o *Options) { h.fail = []int{403} }, diag.Denied, "access to org/model is not allowed"},
		"plain 404":             {"org/model", func(h *fakeHub, o *Options) { h.fail = []int{404} }, diag.NotFound, "there is no model org/model at http"},
		"always busy":           {"org/model", func(h *fakeHub, o *Options) { h.fail = []int{429, 500, 502, 503, 504} }, diag.IO, "answers 504 Gateway Timeout"},
		"a teapot":              {"org/model", func(h *fakeHub, o *Options) { h.fail = []int{418} }, diag.IO, "answers 418"},
		"nothing to load": {"org/model", func(h *fakeHub, o *Options) {
			delete(h.files, "model.safetensors")
			delete(h.files, "consolidated.safetensors")
		}, diag.Unsupported, "org/model has neither safetensors nor GGUF files"},
		"no such shard": {"org/model", func(h *fakeHub, o *Options) {
			h.files["model.safetensors.index.json"] = []byte(`{"weight_map":{"a":"lost.safetensors"}}`)
		}, diag.NotFound, "org/model has no file lost.safetensors"},
		"shard with a path": {"org/model", func(h *fakeHub, o *Options) {
			h.files["model.safetensors.index.json"] = []byte(`{"weight_map":{"a":"../x.safetensors"}}`)
		}, diag.Format, "is no plain file name"},
		"path in a name":       {"org/model", func(h *fakeHub, o *Options) { h.files["../../x.safetensors"] = nil }, diag.Denied, `a file with the name "../../x.safetensors"`},
		"absolute name":        {"org/model", func(h *fakeHub, o *Options) { h.files["/x.json"] = nil }, diag.Denied, `a file with the name "/x.json"`},
		"backslashes":          {"org/model", func(h *fakeHub, o *Options) { h.files[`..\x.json`] = nil }, diag.Denied, `a file with the name`},
		"path in an etag":      {"org/model", func(h *fakeHub, o *Options) { h.etag = "../../x" }, diag.IO, "no usable etag for"},
		"no etag":              {"org/model", func(h *fakeHub, o *Options) { h.etag = " " }, diag.IO, "no usable etag for"},
		"commits do not match": {"org/model", func(h *fakeHub, o *Options) { h.otherSHA = commitB }, diag.IO, "the hub answers for commit " + commitB},
		"no hub":               {"org/model", func(h *fakeHub, o *Options) { h.commit = "main" }, diag.IO, "does not answer as a model hub does"},
		"not an id":            {"org/model/x", func(*fakeHub, *Options) {}, diag.Invalid, `"org/model/x" is no model id`},
	} {
		h := newHub(t, model(false))
		cache := t.TempDir()
		o := h.options(cache)
		c.set(h, &o)
		_, err := Resolve(t.Context(), c.model, o)
		if !diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v (%s), want %s", name, err, diag.CodeOf(err), c.want)
		}
		if o.Env.Token != "" && strings.Contains(fmt.Sprintf("%+v", err), "Bearer") {
			t.Errorf("%s: the token stands in %v", name, err)
		}
		if refs, _ := os.ReadDir(filepath.Join(cache, "models--org--model", "refs")); len(refs) > 0 {
			t.Errorf("%s: a ref was written", name)
		}
	}
}

func TestBusyServersAreAskedAgain(t *testing.T) {
	h := newHub(t, model(false))
	h.fail = []int{503, 429, 500}
	var waits []time.Duration
	o := h.options(t.TempDir())
	o.pause = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	if _, err := Resolve(t.Context(), "org/model", o); err != nil {
		t.Fatal(err)
	}
	if len(waits) != 3 || waits[0] < time.Second || waits[2] < 2*time.Second || waits[2] > 4*time.Second {
		t.Errorf("pauses %v", waits) // at least Retry-After (1 s), growing
	}
}

func TestOffline(t *testing.T) {
	h := newHub(t, model(true))
	cache := t.TempDir()
	offline := h.options(cache)
	offline.Env.Offline = true
	if _, err := Resolve(t.Context(), "org/model", offline); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), "org/model is not in the cache, and HF_HUB_OFFLINE is set") {
		t.Errorf("empty cache: %v", err)
	}
	if len(h.log) != 0 {
		t.Errorf("offline, but %v", h.log)
	}
	dir, err := Resolve(t.Context(), "org/model", h.options(cache))
	if err != nil {
		t.Fatal(err)
	}
	before := len(h.log)
	if got, err := Resolve(t.Context(), "org/model", offline); err != nil || got != dir || len(h.log) != before {
		t.Errorf("full cache: %s %v", got, err)
	}
	if _, err := Resolve(t.Context(), "org/model@v9", offline); !diag.Is(err, diag.NotFound) {
		t.Errorf("another revision: %v", err)
	}
	// The hub goes away: what is complete is used, with a warning.
	h.hub.Close()
	var warning string
	online := h.options(cache)
	online.Warn = func(s string) { warning = s }
	if got, err := Resolve(t.Context(), "org/model", online); err != nil || got != dir || !strings.Contains(warning, "the connection failed; using what the cache has of org/model") {
		t.Errorf("hub gone: %s %v %q", got, err, warning)
	}
	if err := os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(t.Context(), "org/model", offline); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), "model-00002-of-00002.safetensors is missing") {
		t.Errorf("a shard is missing: %v", err)
	}
	if _, err := Resolve(t.Context(), "org/model", online); !diag.Is(err, diag.IO) || !strings.Contains(err.Error(), "the connection failed") {
		t.Errorf("hub gone, a shard missing: %v", err)
	}
}

func TestTwoAtOnceFetchOnce(t *testing.T) {
	h := newHub(t, model(false))
	h.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(h.hold) })
	defer release()
	cache := t.TempDir()
	done := make(chan error, 3)
	for range 3 {
		go func() {
			o := h.options(cache)
			o.pause = nil // locks are waited for
			_, err := Resolve(t.Context(), "org/model", o)
			done <- err
		}()
	}
	untilHeld(t, done, func() bool {
		return h.requests("cdn GET") > 0 && h.requests("hub HEAD /org/model/resolve/"+commitA+"/model.safetensors") >= 3
	})
	release()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := h.requests("cdn GET"); n != 1 {
		t.Errorf("the weights were fetched %d times", n)
	}
}

// untilHeld waits until requests have come to where the hub holds them. A Resolve that ends before fails the test.
func untilHeld(t *testing.T, done chan error, come func() bool) {
	t.Helper()
	for !come() {
		select {
		case err := <-done:
			t.Fatalf("it ends before the hub answers: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestCancel(t *testing.T) {
	h := newHub(t, model(false))
	h.hold = make(chan struct{})
	defer close(h.hold)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := Resolve(ctx, "org/model", h.options(t.TempDir())); done <- err }()
	untilHeld(t, done, func() bool { return h.requests("cdn GET") > 0 })
	cancel()
	if err := <-done; !diag.Is(err, diag.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestParseID(t *testing.T) {
	for s, want := range map[string]ID{"org/name": {"org/name", "main"}, "gpt2": {"gpt2", "main"}, "a-b/c.d_e@v1.0": {"a-b/c.d_e", "v1.0"}, "o/n@refs/pr/3": {"o/n", "refs/pr/3"}} {
		if got, err := ParseID(s); err != nil || got != want {
			t.Errorf("%s: %+v %v", s, got, err)
		}
	}
	for _, s := range []string{"", "/", "a/b/c", "../x", "a/..", "a--b/c", "a/b@", "a/b@../x", "a/b@/x", "a b/c", "a/b.", "-a/b", "./model", "a/b@x\n"} {
		if got, err := ParseID(s); err == nil {
			t.Errorf("%q became %+v", s, got)
		}
	}
	if s := (ID{"a/b", "v1"}).String(); s != "a/b@v1" {
		t.Error(s)
	}
}

func TestReadEnv(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".cache", "huggingface"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".cache", "huggingface", "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(home, ".cache", "huggingface")
	for name, c := range map[string]struct {
		vars map[string]string
		want Env
	}{
		"defaults":   {map[string]string{}, Env{"https://huggingface.co", filepath.Join(base, "hub"), "hf_file", false}},
		"all given":  {map[string]string{"HF_ENDPOINT": "http://mirror/", "HF_HUB_CACHE": "/c", "HF_TOKEN": " hf_env ", "HF_HUB_OFFLINE": "TRUE"}, Env{"http://mirror", "/c", "hf_env", true}},
		"home":       {map[string]string{"HF_HOME": "/h", "HF_HUB_OFFLINE": "0"}, Env{"https://huggingface.co", "/h/hub", "", false}},
		"xdg":        {map[string]string{"XDG_CACHE_HOME": "/x"}, Env{"https://huggingface.co", "/x/huggingface/hub", "", false}},
		"old name":   {map[string]string{"HUGGINGFACE_HUB_CACHE": "~/c"}, Env{"https://huggingface.co", filepath.Join(home, "c"), "hf_file", false}},
		"token path": {map[string]string{"HF_HOME": "/h", "HF_TOKEN_PATH": filepath.Join(base, "token")}, Env{"https://huggingface.co", "/h/hub", "hf_file", false}},
	} {
		c.vars["HOME"] = home
		got, err := ReadEnv(func(k string) string { return c.vars[k] })
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	for name, vars := range map[string]map[string]string{
		"HF_ENDPOINT": {"HF_ENDPOINT": "ftp://x", "HF_HOME": "/h"}, "HF_TOKEN": {"HF_TOKEN": "a b", "HF_HOME": "/h"}, "HF_HOME": {},
	} {
		_, err := ReadEnv(func(k string) string { return vars[k] })
		if e, ok := diag.As(err); !ok || e.Param != name || e.Code != diag.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
