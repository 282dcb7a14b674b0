// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Products group by group against the obvious ones; a row alone gives the bits that it gives among others.
func TestGroupProducts(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, c := range []struct {
			groups, n, k int
			dtype        tensor.DType
		}{{2, 32, 48, tensor.F32}, {5, 20, 32, tensor.BF16}, {3, 7, 19, tensor.F32}, {20, 64, 128, tensor.BF16}, {4, 96, 64, tensor.Q8_0}} {
			for _, kernel := range []string{"group_linear", "group_mul"} {
				t.Run(fmt.Sprintf("%s/%+v", kernel, c), func(t *testing.T) {
					const rows = 37
					x := normals(rand.New(rand.NewPCG(1, 2)), rows*c.groups*c.k)
					run := func(rows int, x []float32) (y []float32, w []float64) {
						r := newRig(t, d, kernel, rows, 1, 0)
						r.floats("x", plan.In, x, r.rows(), ax("n", c.groups*c.k))
						if kernel == "group_linear" {
							w = r.weight(rand.New(rand.NewPCG(3, 4)), "w", "panel", c.dtype, c.groups, c.n, c.k)
							r.attr("compute", "f32")
						} else {
							w = r.weight(rand.New(rand.NewPCG(3, 4)), "w", "f32", c.dtype, c.groups, c.k, c.n)
							r.b.Args[len(r.b.Args)-1].DType = tensor.F32
						}
						y = r.floats("y", plan.Out, nil, r.rows(), ax("n", c.groups*c.n))
						r.run()
						allPoison(t, "y", y[rows*c.groups*c.n:])
						return y[:rows*c.groups*c.n], w
					}
					y, w := run(rows, x)
					for i := range rows {
						want := make([]float64, c.groups*c.n)
						for j := range want {
							for k := range c.k {
								g, n := j/c.n, j%c.n
								at := (g*c.n+n)*c.k + k
								if kernel == "group_mul" {
									at = (g*c.k+k)*c.n + n
								}
								want[j] += float64(x[(i*c.groups+g)*c.k+k]) * w[at]
							}
						}
						near(t, fmt.Sprintf("row %d", i), y[i*len(want):(i+1)*len(want)], want, tolSum)
					}
					for _, i := range []int{0, 18, rows - 1} {
						alone, _ := run(1, x[i*c.groups*c.k:(i+1)*c.groups*c.k])
						sameBits(t, fmt.Sprintf("row %d alone", i), alone, y[i*len(alone):(i+1)*len(alone)])
					}
				})
			}
		}
	})
}
