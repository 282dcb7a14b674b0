// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// TestDeviceAndFilesOpenBesideEachOther: whichever fails, nothing of the other is left, and a device that fails ends a download.
func TestDeviceAndFilesOpenBesideEachOther(t *testing.T) {
	unread := diag.Errorf(diag.NotFound, "no such model")
	for _, c := range []struct {
		name, device string
		read         reader
		want         diag.Code // "": both are there
	}{
		{"both open", "cpu", func(context.Context, func() (string, bool)) error { return nil }, ""},
		{"both open, when the class is known", "cpu", func(_ context.Context, class func() (string, bool)) error {
			if name, ok := class(); name != "cpu" || !ok {
				return diag.Errorf(diag.Internal, "class %q, %v", name, ok)
			}
			return nil
		}, ""},
		{"files fail", "cpu", func(context.Context, func() (string, bool)) error { return unread }, diag.NotFound},
		{"the device fails, which ends reading", "cuda:99", func(ctx context.Context, _ func() (string, bool)) error { <-ctx.Done(); return ctx.Err() }, diag.Unsupported},
		{"the device fails, whose class read waits for", "cuda:99", func(_ context.Context, class func() (string, bool)) error {
			if name, ok := class(); ok {
				panic("class " + name)
			}
			return nil
		}, diag.Unsupported},
		{"both fail: the device's is told", "cuda:99", func(context.Context, func() (string, bool)) error { return unread }, diag.Unsupported},
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

// TestPlansAreMadeWhileTheDeviceOpens: those that were foreseen are those that are loaded, unless the device turns out to be another.
func TestPlansAreMadeWhileTheDeviceOpens(t *testing.T) {
	c := understood(t, llama8B+"}", tensor.BF16)
	var err error
	if c.store, err = dummyStore(c.instance, nil); err != nil {
		t.Fatal(err)
	}
	o := modelOptions{opening: "hopper", compute: "declared", limits: plan.Limits{Rows: 2, Seqs: 1, Outs: 1, PageSize: 16, Pages: 4}}
	if err := c.choose("hopper", &deviceFlags{kernelTarget: "hopper"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	c.foresee(o)
	made := maps.Clone(c.plans.made)
	if len(made) != 2 { // of 1 row and of 2
		t.Fatalf("%d plans", len(made))
	}
	dev := &classDevice{class: "hopper"}
	o.device = dev
	if err := c.target(dev, &deviceFlags{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	list, err := c.lowerBuckets(o)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d plans, %v", len(list), err)
	}
	for _, p := range list {
		if !slices.Contains(slices.Collect(maps.Values(made)), p) {
			t.Errorf("the plan of %d rows was made again", p.Limits.Rows)
		}
	}
	dev.class = "cpu"
	if err := c.target(dev, &deviceFlags{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if p, err := c.lower(o, 2); err != nil || p.Class != "cpu" {
		t.Errorf("%v, %v", p, err)
	}
}
