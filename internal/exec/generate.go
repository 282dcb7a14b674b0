// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
)

// random is a Store some of whose tensors are random words, which the device may make.
type random interface {
	Words(name string) (tensor.Words, bool)
}

// generate makes on the device, at once, what can be made there. It gives the jobs that are left, and the bytes that are done.
func (b *binder) generate(jobs []*loadJob) (left []*loadJob, done int64, err error) {
	store, ok := b.opts.Store.(random)
	dev, able := b.opts.Device.(gpu.Generator)
	if !ok || !able {
		return jobs, 0, nil
	}
	var runs []gpu.Run
	for _, j := range jobs {
		own, ok := j.runs(store)
		if layout, rows := j.layout.(gpu.RowLayout); !ok || !rows || !layout.Keeps(j.w.DType) {
			left = append(left, j)
			continue
		}
		runs = append(runs, own...)
		done += j.size
	}
	if len(runs) == 0 {
		return jobs, 0, nil
	}
	return left, done, dev.Generate(jobs[0].dst, runs)
}

// runs are a weight's bytes as words of its tensors; ok is false where it has others, or a matrix that is transposed.
func (j *loadJob) runs(store random) (runs []gpu.Run, ok bool) {
	off := j.off
	for _, p := range j.sources {
		words, ok := store.Words(p.name)
		if !ok || p.matrix > 0 {
			return nil, false
		}
		for g := range p.groups {
			runs = append(runs, gpu.Run{Off: off, First: p.base + p.first + g*p.stride, Bytes: p.run, Words: words})
			off += p.run
		}
	}
	return runs, true
}
