// SPDX-License-Identifier: MIT OR Apache-2.0

package diag

import (
	"errors"
	"fmt"
	"testing"
)

// TestDetailTellsEveryCauseOnce: logs see the private causes, however deep, and clients none of them.
func TestDetailTellsEveryCauseOnce(t *testing.T) {
	fault := func() *Error { return Errorf(Internal, "tensor x: broken").Because(errors.New("goroutine 1")) }
	for name, c := range map[string]struct {
		err            *Error
		public, detail string
	}{
		"no cause":      {Errorf(IO, "a is unreadable"), "a is unreadable", "a is unreadable"},
		"a cause":       {fault(), "tensor x: broken", "tensor x: broken: goroutine 1"},
		"told already":  {Errorf(IO, "reading: %w", errors.New("no disk")), "reading: no disk", "reading: no disk"},
		"deep":          {Errorf(Internal, "weight w: %w", fault()), "weight w: tensor x: broken", "weight w: tensor x: broken: goroutine 1"},
		"behind others": {Errorf(Internal, "loading").Because(fmt.Errorf("worker 2: %w", fault())), "loading", "loading: worker 2: tensor x: broken: goroutine 1"},
	} {
		if c.err.Error() != c.public || c.err.Detail() != c.detail {
			t.Errorf("%s: %q, %q", name, c.err.Error(), c.err.Detail())
		}
	}
}
