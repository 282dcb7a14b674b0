// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"bytes"
	"context"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// making is a device that makes random weights, if its layouts keep rows as they are.
type making struct {
	*own
	packs bool
}

func (d *making) Layout(string) (gpu.Layout, error) { return maybeStored{packs: d.packs}, nil }

// maybeStored is asStored, which it may deny.
type maybeStored struct {
	asStored
	packs bool
}

func (l maybeStored) Keeps(tensor.DType) bool { return !l.packs }

func (d *making) Generate(dst gpu.Buffer, runs []gpu.Run) error {
	for _, r := range runs {
		r.Words.Read(r.First, dst.(*ownBuffer).data[r.Off:][:r.Bytes])
	}
	return nil
}

// readStore counts reads.
type readStore struct {
	weights.Store
	reads int
}

func (s *readStore) Words(name string) (tensor.Words, bool) { return s.Store.(random).Words(name) }

func (s *readStore) Read(name string, off int64, dst []byte) error {
	s.reads++
	return s.Store.Read(name, off, dst)
}

// TestADeviceMakesRandomWeights: the same bytes as are read, whatever pieces of tensors a weight has; only those that it cannot make
// are read.
func TestADeviceMakesRandomWeights(t *testing.T) {
	list := []tensor.Info{{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{3, 4}}, {Name: "b", DType: tensor.BF16, Shape: tensor.Shape{3, 4}},
		{Name: "stack", DType: tensor.BF16, Shape: tensor.Shape{2, 6, 4}}, {Name: "columns", DType: tensor.BF16, Shape: tensor.Shape{4, 6}}}
	for _, c := range []struct {
		sources []string
		turned  bool // only the host does that
	}{{[]string{"a", "b"}, false}, {[]string{"stack#1[1:2:3]", "stack#0[0:2:3]"}, false}, {[]string{"columns^T"}, true}} {
		load := func(d gpu.Device) (*Model, int) {
			t.Helper()
			store, err := weights.Dummy(list)
			if err != nil {
				t.Fatal(err)
			}
			o, s := tinyOptions(t, d), &readStore{Store: store}
			for _, p := range o.Plans {
				for i := range p.Weights {
					p.Weights[i].Sources = c.sources
				}
			}
			o.Store = s
			var done, total int64
			o.Progress = func(d, t int64) { done, total = d, t }
			m, err := Load(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if done != total {
				t.Errorf("%d of %d bytes", done, total)
			}
			return m, s.reads
		}
		plain, reads := load(&own{})
		if reads == 0 {
			t.Errorf("%v: nothing was read", c.sources)
		}
		for _, packs := range []bool{false, true} {
			m, n := load(&making{&own{}, packs})
			if byHost := packs || c.turned; byHost != (n > 0) {
				t.Errorf("%v, packed %v: %d reads", c.sources, packs, n)
			}
			for i := range m.buffers {
				if !bytes.Equal(m.buffers[i].(*ownBuffer).data, plain.buffers[i].(*ownBuffer).data) {
					t.Errorf("%v, packed %v: buffer %d differs", c.sources, packs, i)
				}
			}
		}
	}
}
