// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/engine/script"
)

// A panic while one of several choices is followed must reach the handler, which answers 500; in a goroutine of its own it
// would end the process.
func TestAPanicOfOneChoiceReachesTheHandler(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	j := &job{choices: []*choice{{}, {}}} // without streams, which nothing expects
	defer func() {
		if recover() == nil {
			t.Error("nothing panicked")
		}
		if !diag.Is(context.Cause(ctx), diag.Internal) {
			t.Errorf("the others were not ended: %v", context.Cause(ctx))
		}
	}()
	t.Error(j.followAll(ctx, cancel))
}

func TestRenamingAnErrorLeavesTheSharedOneAlone(t *testing.T) {
	shared := diag.Errorf(diag.Invalid, "wrong").For("prompt")
	if e, _ := diag.As(rename(shared, "messages")); e.Param != "messages" || shared.Param != "prompt" {
		t.Errorf("renamed %q, shared %q", e.Param, shared.Param)
	}
}

// TestRefusedChoicesAreCounted: when the engine has no room for the last choices of a request, the first ones end as aborted.
func TestRefusedChoicesAreCounted(t *testing.T) {
	o := rigOptions{engine: engine.Options{MaxBatch: 1, MaxQueue: 2}, script: script.Options{Delay: forever}}
	for _, body := range []string{count + `900,"n":4}`, count + `900,"n":8,"stream":true}`} {
		r := newRig(t, o) // the model believes that the engine takes more
		if a := r.do(t, "POST", chatPath, body); a.status != 503 || !strings.Contains(a.body, `"code":"overloaded"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		page := r.do(t, "GET", "/metrics", "").body
		for _, want := range []string{`{reason="abort"} 3`, `{reason="stop"} 0`, `{reason="length"} 0`, `{reason="error"} 0`} {
			if !strings.Contains(page, "metrale_sequences_finished_total"+want+"\n") {
				t.Errorf("metrics lack %q", want)
			}
		}
		r.settled(t)
	}
}

// TestManyChoicesCostLittle: what prompts times n would multiply is refused before any of it is made, and what stops a text
// is there once for all choices.
func TestManyChoicesCostLittle(t *testing.T) {
	r := newRig(t, rigOptions{})
	stops := make([]string, openai.MaxStops)
	for i := range stops {
		stops[i] = strings.Repeat("-", openai.MaxStopLen-1) + string(rune('a'+i))
	}
	stop, _ := json.Marshal(stops)
	ids := "[" + strings.Repeat("1,", 100_000) + "1]"
	for _, c := range []struct {
		what, path, body string
		status           int
		most             uint64 // bytes
	}{
		{"prompts times n", "/v1/completions", fmt.Sprintf(`{"prompt":["a"%s],"n":128,"stop":%s,"stop_token_ids":%s}`, strings.Repeat(`,"a"`, 2047), stop, ids), 400, 16 << 20},
		{"prompts", "/v1/completions", fmt.Sprintf(`{"prompt":["a"%s],"stop":%s}`, strings.Repeat(`,"a"`, 2047), stop), 400, 16 << 20},
		{"n", chatPath, fmt.Sprintf(`{"messages":[{"role":"user","content":"say ok"}],"n":128,"stop":%s,"stop_token_ids":%s}`, stop, ids), 200, 32 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := r.do(t, "POST", c.path, c.body)
		runtime.ReadMemStats(&after)
		if a.status != c.status || c.status == 400 && !strings.Contains(a.body, `"param":"n"`) {
			t.Errorf("%s: %d %.300s", c.what, a.status, a.body)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > c.most {
			t.Errorf("%s: %d bytes of a body of %d", c.what, n, len(c.body))
		}
	}
	r.settled(t)
}

// panicking is a sink that breaks while the client waits.
type panicking struct{ sink }

func (panicking) idle() error { panic("a broken sink") }

// TestAPanicWhileWaitingLeavesNoLock: the other choices of the request could not end otherwise.
func TestAPanicWhileWaitingLeavesNoLock(t *testing.T) {
	j := &job{sink: panicking{}}
	func() {
		defer func() { _ = recover() }()
		t.Error(j.idle())
	}()
	if !j.mu.TryLock() {
		t.Error("the job is locked")
	}
}
