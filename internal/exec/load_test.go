// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/record"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// brokenStore panics where one tensor is read from some offset on.
type brokenStore struct {
	Store
	name string
	from int64
}

func (s *brokenStore) Read(name string, off int64, dst []byte) error {
	if name == s.name && off >= s.from {
		panic("index out of range")
	}
	return s.Store.Read(name, off, dst)
}

// brokenLayout panics where it packs.
type brokenLayout struct{ asStored }

func (brokenLayout) Pack(gpu.Buffer, int64, tensor.DType, tensor.Shape, int64, int64, int64, []byte) error {
	panic("index out of range")
}

type brokenPacking struct{ *record.Device }

func (brokenPacking) Layout(string) (gpu.Layout, error) { return brokenLayout{}, nil }

// TestAPanicWhileLoadingNamesTheTensor: whatever reads or packs it, nothing stays allocated and nobody waits.
func TestAPanicWhileLoadingNamesTheTensor(t *testing.T) {
	check := func(err error, tensor string) {
		t.Helper()
		if want := "weight embed: at tensor " + tensor + ": index out of range"; !diag.Is(err, diag.Internal) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if e, ok := diag.As(err); !ok || !strings.Contains(e.Detail(), "broken") {
			t.Errorf("its detail has no stack: %v", err)
		}
	}
	dev := record.New("cpu")
	o := tinyOptions(t, dev)
	o.Store = &brokenStore{Store: o.Store, name: "a"}
	_, err := Load(context.Background(), o)
	check(err, "a")
	o = tinyOptions(t, brokenPacking{dev})
	_, err = Load(context.Background(), o)
	check(err, "a")
	if live := dev.Live(); len(live) > 0 {
		t.Errorf("still allocated: %v", live)
	}

	list := []tensor.Info{{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{1 << 11, 1 << 15}}, {Name: "b", DType: tensor.BF16, Shape: tensor.Shape{1 << 11, 1 << 15}}}
	store, err := weights.Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	staged := &own{}
	p := &plan.Plan{Weights: []plan.Weight{{Name: "embed", DType: tensor.BF16, Axes: plan.Axes{{Name: "n", Size: 1 << 12}, {Name: "k", Size: 1 << 15}}, Sources: []string{"a", "b"}}}}
	b := &binder{model: &Model{}, opts: Options{Device: staged, Store: &brokenStore{store, "b", 1 << 26}}, weights: map[string]*loadJob{}}
	jobs, stored, err := b.placeWeights([]*plan.Plan{p})
	if err != nil {
		t.Fatal(err)
	}
	check(b.runJobs(context.Background(), jobs, 0, stored), "b")
	if n := staged.live.Load(); n != 1 { // the weights' memory, which the caller frees
		t.Errorf("%d things are left", n)
	}
}
