// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// timer is a device with a clock of its own.
type timer interface {
	Time(f func() error) (ms float64, err error)
}

// onDevice gives how long the device worked on what f started, in µs.
func onDevice(dev gpu.Device, f func() error) (float64, error) {
	if t, ok := dev.(timer); ok {
		ms, err := t.Time(f)
		return 1000 * ms, err
	}
	began := time.Now()
	err := f()
	if err == nil {
		err = dev.Stream().Sync()
	}
	return micros(time.Since(began)), err
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// median of at least one value; it sorts them.
func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// Sweep reads bytes of the device's memory, as often as it takes for a median, and gives the best GB/s of several grids; 0 on a
// class without the kernel.
func Sweep(dev gpu.Device, bytes int64) (gbs float64, err error) {
	if dev.Info().Class == "cpu" {
		return 0, nil
	}
	n := bytes / 16 * 4 // floats, by whole 16 bytes
	x, err := dev.Alloc("sweep", 4*n)
	if err != nil {
		return 0, err
	}
	defer x.Free()
	out, err := dev.Alloc("sweep out", 64)
	if err != nil {
		return 0, err
	}
	defer out.Free()
	for _, blocks := range []int64{2, 4, 8, 16} {
		l, err := dev.Bind(gpu.Binding{Name: "sweep", Kernel: "read_sweep", Limits: plan.Limits{Rows: 1, Seqs: 1, Outs: 1, PageSize: 1, Pages: 1},
			Attrs: []plan.Attr{{Name: "blocks", Kind: plan.IntAttr, Int: blocks}},
			Args: []gpu.Arg{
				{Param: "x", Buf: x, DType: tensor.F32, Axes: plan.Axes{{Name: "n", Size: n}}},
				{Param: "out", Buf: out, DType: tensor.F32, Axes: plan.Axes{{Name: "out", Size: 1}}, Access: plan.Out},
			}})
		if err != nil {
			return 0, err
		}
		us, err := repeat(dev, 9, 1, func() error { return dev.Stream().Launch(l) })
		if err != nil {
			return 0, err
		}
		gbs = max(gbs, float64(4*n)/us/1000)
	}
	return gbs, nil
}

// repeat gives the median time in µs of one of inner runs of f that are started together, over so many repetitions, after two
// that do not count.
func repeat(dev gpu.Device, times, inner int, f func() error) (float64, error) {
	var list []float64
	for i := range times + 2 {
		us, err := onDevice(dev, func() error {
			for range inner {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if i >= 2 {
			list = append(list, us/float64(inner))
		}
	}
	if us := median(list); us > 0 {
		return us, nil
	}
	return 0, diag.Errorf(diag.Internal, "the device's clock stands still")
}

// share is the part that a floor of bytes at gbs has of µs; 0 where there is no sweep.
func share(bytes int64, gbs, us float64) float64 {
	if gbs == 0 {
		return 0
	}
	return float64(bytes) / gbs / 1000 / us
}
