// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"encoding/binary"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

const (
	runBytes   = 56        // of a run in the kernel dummy's table
	sliceBytes = 256 << 10 // of a run to a block
)

// Generate launches the kernel dummy over all runs.
func (d *Device) Generate(dst gpu.Buffer, runs []gpu.Run) error {
	var table []byte
	slices := int64(0)
	for _, r := range runs {
		if r.Bytes == 0 {
			continue
		}
		for _, v := range []uint64{uint64(r.Off), uint64(r.First), uint64(r.Bytes), uint64(slices), r.Words.Seed, r.Words.Mask, r.Words.Base} {
			table = binary.LittleEndian.AppendUint64(table, v)
		}
		slices += (r.Bytes + sliceBytes - 1) / sliceBytes
	}
	if slices == 0 {
		return nil
	}
	buf, err := d.Alloc("runs of random weights", int64(len(table)))
	if err != nil {
		return err
	}
	defer buf.Free()
	if err := buf.Write(0, table); err != nil {
		return err
	}
	l, err := d.Bind(gpu.Binding{Name: "weights", Kernel: "dummy", Limits: plan.Limits{Rows: 1, Seqs: 1, Outs: 1, PageSize: 1, Pages: 1},
		Attrs: []plan.Attr{{Name: "slices", Kind: plan.IntAttr, Int: slices}},
		Args: []gpu.Arg{
			{Param: "runs", Buf: buf, DType: tensor.I32, Axes: plan.Axes{{Name: "num", Size: int64(len(table) / runBytes)}, {Name: "words", Size: runBytes / 4}}},
			{Param: "out", Buf: dst, DType: tensor.U8, Axes: plan.Axes{{Name: "size", Size: dst.Size()}}, Access: plan.Out},
		}})
	if err != nil {
		return err
	}
	if err := d.Launch(l); err != nil {
		return err
	}
	return d.Sync()
}
