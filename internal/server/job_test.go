// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"testing"

	"github.com/metrale/metrale/internal/diag"
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
