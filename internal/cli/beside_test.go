// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// TestDeviceAndFilesOpenBesideEachOther: whichever fails, nothing of the other is left, and a device that fails ends a download.
func TestDeviceAndFilesOpenBesideEachOther(t *testing.T) {
	unread := diag.Errorf(diag.NotFound, "no such model")
	for _, c := range []struct {
		name, device string
		read         func(context.Context) error
		want         diag.Code // "": both are there
	}{
		{"both open", "cpu", func(context.Context) error { return nil }, ""},
		{"files fail", "cpu", func(context.Context) error { return unread }, diag.NotFound},
		{"the device fails, which ends reading", "cuda:99", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, diag.Unsupported},
		{"both fail: the device's is told", "cuda:99", func(context.Context) error { return unread }, diag.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log strings.Builder
			f := deviceFlags{device: c.device, threads: 1, library: "no-such-driver.so"}
			dev, err := f.openBeside(t.Context(), &log, c.read)
			if (dev != nil) != (c.want == "") || c.want != "" && !diag.Is(err, c.want) {
				t.Fatalf("%v, %v, want %q", dev, err, c.want)
			}
			if dev != nil {
				dev.Close()
			}
		})
	}
}
