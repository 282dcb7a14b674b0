// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// groupSize are the sizes of groups and blocks in the configs of layers.
var groupSize = regexp.MustCompile(`("group_size": |\[|, )-?\d+`)

// FuzzQuantised edits names, types and shapes of checkpoints, and joins their configs, some with groups of another size, with the tensors
// of others: whatever comes is shown and read, or refused with a code, and never panics.
func FuzzQuantised(f *testing.F) {
	all := layers()
	names := slices.Sorted(maps.Keys(all))
	for i := range names {
		f.Add(byte(i), byte(i), int64(0), []byte{})
		f.Add(byte(i), byte(i), int64(24), []byte{})
	}
	f.Add(byte(0), byte(3), int64(0), []byte{0, 1, 200, 1, 2, 7, 1, 3, 1})
	f.Add(byte(9), byte(9), int64(0), []byte{1, 0, 5, 0, 4, 2, 2, 1, 9})
	f.Fuzz(func(t *testing.T, config, base byte, group int64, edits []byte) {
		l := all[names[int(base)%len(names)]]
		list := map[string]safetensors.NamedTensor{}
		for _, m := range l.tensors {
			x := m.NamedTensor
			x.Shape = slices.Clone(x.Shape)
			list[x.Name] = x
		}
		for ; len(edits) >= 3; edits = edits[3:] {
			keys := slices.Sorted(maps.Keys(list))
			x := list[keys[int(edits[0])%len(keys)]]
			delete(list, x.Name)
			switch v := int(edits[2]); edits[1] % 5 {
			case 0:
				x.DType = tensor.Bool + tensor.DType(v)%(tensor.E2M1-tensor.Bool+1) // what safetensors has
			case 1:
				if len(x.Shape) > 0 {
					x.Shape[v%len(x.Shape)] = int64(v / 8)
				}
			case 2:
				x.Shape = append(x.Shape, int64(v%5))
			case 3:
				x.Shape = x.Shape[:len(x.Shape)/2]
			case 4:
				ends := append(append(slices.Clone(besides), inputs...), caches...)
				x.Name = "m.q" + append(ends, ".weight", ".weight_packed", ".qweight", ".scale", ".scales", "_blocks")[v%(len(ends)+6)]
			}
			if elems, _ := x.DType.Block(); x.Shape.Elems() > 1<<16 || x.Shape.Elems()%int64(elems) != 0 {
				return
			}
			data := make([]byte, x.DType.Bytes(x.Shape.Elems()))
			for i := range data {
				data[i] = 0x38 // a positive number in all types
			}
			copy(data, x.Data)
			x.Data = data
			list[x.Name] = x
			if len(list) == 0 {
				return
			}
		}
		s, err := Memory(slices.Collect(maps.Values(list))...)
		if err != nil {
			t.Fatal(err)
		}
		var q *modelconf.Quant
		if int(config) != 255 {
			text := all[names[int(config)%len(names)]].config
			if group != 0 {
				text = groupSize.ReplaceAllString(text, fmt.Sprintf("${1}%d", group))
			}
			c, err := modelconf.Read(map[string][]byte{"config.json": []byte(`{"model_type": "llama", "quantization_config": ` + text + `}`)})
			switch {
			case err == nil:
				q = c.Quant
			case group == 0:
				t.Fatal(err)
			default:
				return
			}
		}
		if s, err = Quantised(s, q); err == nil {
			for _, name := range s.Names() {
				for _, n := range []string{name, name + ScaleOf, name + FloatOf} {
					if x, ok := s.Lookup(n); ok && err == nil {
						err = s.Read(n, 0, make([]byte, x.Size()))
					}
				}
			}
		}
		if e, ours := diag.As(err); err != nil && (!ours || e.Code == diag.Internal || e.Code == diag.Invalid) {
			t.Errorf("%v", err)
		}
	})
}
