// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/plan"
)

// images are grids of patches as a step has them.
type images [][3]int32

func (m images) rows() (n int) {
	for _, g := range m {
		n += int(g[0] * g[1] * g[2])
	}
	return n
}

// bind gives a rig the step fields of the images: coordinates row by row of each frame, grids, sequences.
func (m images) bind(r *rig, fields ...string) {
	var coords, grids, seqs []int32
	cu := []int32{0}
	for q, g := range m {
		for i := range g[0] * g[1] * g[2] {
			coords = append(coords, i/(g[1]*g[2]), i/g[2]%g[1], i%g[2])
			seqs = append(seqs, int32(q))
		}
		grids = append(grids, g[:]...)
		cu = append(cu, int32(len(seqs)))
	}
	size := func(a plan.Axis, by int64) plan.Axis { return plan.Axis{Name: a.Name, Size: a.Size * by} }
	for _, f := range fields {
		switch f {
		case "coords":
			r.ints(f, plan.In, size(r.rows(), 3), coords...)
		case "grids":
			r.ints(f, plan.In, ax("grids", int(3*r.b.Limits.Seqs)), grids...)
		case "row_seq":
			r.ints(f, plan.In, r.rows(), seqs...)
		case "cu_rows":
			r.ints(f, plan.In, ax("cu", int(r.b.Limits.Seqs+1)), cu...)
		}
	}
}

// Angles take each frequency's coordinate, and for equal coordinates are those of positions, bit for bit.
func TestGridAngles(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		m := images{{2, 3, 5}}
		rows := m.rows()
		freq, axis := []float32{1, 0.3, 0.01, 2.5}, []float32{0, 1, 2, 1}
		r := newRig(t, d, "grid_angles", rows, 1, 0)
		m.bind(r, "coords")
		r.floats("inv_freq", plan.In, freq, ax("half", 4))
		r.floats("axis", plan.In, axis, ax("half", 4))
		y := r.floats("y", plan.Out, nil, r.rows(), ax("n", 8))
		r.attr("scale", 1.25).run()
		for i := range rows {
			at := []int{i / 15, i / 5 % 3, i % 5}
			for j, f := range freq {
				p := float64(float32(at[int(axis[j])]) * f)
				near(t, fmt.Sprint("row ", i), []float32{y[i*8+j], y[i*8+4+j]}, []float64{1.25 * math.Cos(p), 1.25 * math.Sin(p)}, tolOnce)
			}
		}
		allPoison(t, "y", y[rows*8:])

		text, angles := newRig(t, d, "grid_angles", 9, 1, 0), newRig(t, d, "rope_angles", 9, 1, 0)
		var same, pos []int32
		for i := range int32(9) {
			same, pos = append(same, 7*i, 7*i, 7*i), append(pos, 7*i)
		}
		text.ints("coords", plan.In, ax("coords", 3*11), same...)
		text.floats("axis", plan.In, axis, ax("half", 4))
		angles.ints("positions", plan.In, angles.rows(), pos...)
		var got [2][]float32
		for i, r := range []*rig{text, angles} {
			r.floats("inv_freq", plan.In, freq, ax("half", 4))
			got[i] = r.floats("y", plan.Out, nil, r.rows(), ax("n", 8))
			r.run()
		}
		sameBits(t, "text", got[0], got[1])
	})
}

// The table is stretched over each image, corners on corners.
func TestGridEmbed(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		m := images{{1, 4, 7}, {1, 1, 1}, {2, 9, 2}, {1, 5, 5}}
		const side, n = 5, 37
		w := normals(rand.New(rand.NewPCG(3, 3)), side*side*n)
		r := newRig(t, d, "grid_embed", m.rows(), len(m), 0)
		m.bind(r, "coords", "grids", "row_seq")
		r.floats("w", plan.In, w, ax("side*side", side*side), ax("n", n))
		y := r.floats("y", plan.Out, nil, r.rows(), ax("n", n))
		r.run()
		at := 0
		for _, g := range m {
			for i := range int(g[0] * g[1] * g[2]) {
				row, col := i/int(g[2])%int(g[1]), i%int(g[2])
				want := make([]float64, n)
				for p := range side * side { // a hat over every point of the table
					h := 1 - math.Abs(float64(row)*(side-1)/math.Max(float64(g[1]-1), 1)-float64(p/side))
					v := 1 - math.Abs(float64(col)*(side-1)/math.Max(float64(g[2]-1), 1)-float64(p%side))
					for j := range want {
						want[j] += math.Max(h, 0) * math.Max(v, 0) * float64(w[p*n+j])
					}
				}
				near(t, fmt.Sprint("row ", at), y[at*n:(at+1)*n], want, 2e-6)
				at++
			}
		}
		allPoison(t, "y", y[at*n:])
	})
}

// Every row sees its whole image and nothing else, whatever else is in the step.
func TestFullAttention(t *testing.T) {
	m := images{{1, 3, 5}, {1, 1, 1}, {1, 4, 16}, {1, 24, 24}}
	for _, c := range []struct{ heads, dim int }{{2, 16}, {3, 72}, {1, 20}} {
		n := c.heads * c.dim
		rng := rand.New(rand.NewPCG(5, 5))
		q, k, v := normals(rng, m.rows()*n), normals(rng, m.rows()*n), normals(rng, m.rows()*n)
		var want []float64
		for _, g := range m {
			lo, hi := len(want), len(want)+int(g[1]*g[2])*n
			want = append(want, fullTwin(q[lo:hi], k[lo:hi], v[lo:hi], int(g[1]*g[2]), c.heads, c.dim, 0.2)...)
		}
		eachPath(t, func(t *testing.T, d *Device) {
			run := func(m images, q, k, v []float32) []float32 {
				r := newRig(t, d, "full_attention", m.rows(), len(m), 0)
				m.bind(r, "cu_rows", "row_seq")
				for name, x := range map[string][]float32{"q": q, "k": k, "v": v} {
					r.floats(name, plan.In, x, r.rows(), ax("n", n))
				}
				y := r.floats("y", plan.Out, nil, r.rows(), ax("n", n))
				r.attr("heads", c.heads).attr("head_dim", c.dim).attr("scale", 0.2).run()
				allPoison(t, "y", y[m.rows()*n:])
				return y[:m.rows()*n]
			}
			y := run(m, q, k, v)
			near(t, fmt.Sprint(c), y, want, 2e-5)
			at := 0
			for i, g := range m {
				lo, hi := at, at+int(g[1]*g[2])*n
				sameBits(t, fmt.Sprint("image ", i, " alone"), run(images{g}, q[lo:hi], k[lo:hi], v[lo:hi]), y[lo:hi])
				at = hi
			}
		})
	}
}

// fullTwin is softmax(scale q kᵀ) v of each head.
func fullTwin(q, k, v []float32, rows, heads, dim int, scale float64) []float64 {
	y := make([]float64, rows*heads*dim)
	for h := range heads {
		for i := range rows {
			p, sum := make([]float64, rows), 0.0
			for j := range rows {
				s := 0.0
				for d := range dim {
					s += float64(q[(i*heads+h)*dim+d]) * float64(k[(j*heads+h)*dim+d])
				}
				p[j] = math.Exp(scale * s)
				sum += p[j]
			}
			for j := range rows {
				for d := range dim {
					y[(i*heads+h)*dim+d] += p[j] / sum * float64(v[(j*heads+h)*dim+d])
				}
			}
		}
	}
	return y
}

// Rows that come from elsewhere: taken, put in the place of others, added, and folded.
func TestRowsFromPorts(t *testing.T) {
	d := open(t, Options{})
	const n, pooled = 6, 9
	pool := normals(rand.New(rand.NewPCG(1, 1)), pooled*n)
	x := normals(rand.New(rand.NewPCG(2, 2)), 5*n)
	from := []int32{3, -1, 8, 0, -1}

	take := newRig(t, d, "take_rows", 3, 1, 0)
	take.floats("pool", plan.In, pool, ax("pool", pooled), ax("n", n))
	rows := take.ints("hidden_row", plan.In, take.rows(), 3, 8, 0)
	y := take.floats("y", plan.Out, nil, take.rows(), ax("n", n))
	take.run()
	for i, at := range []int{3, 8, 0} {
		sameBits(t, "take", y[i*n:(i+1)*n], pool[at*n:(at+1)*n])
	}
	allPoison(t, "take", y[3*n:])
	rows[1] = -1
	if err := d.Launch(take.bind()); err == nil || !strings.Contains(err.Error(), "row 1 takes row -1 of a pool of 9") {
		t.Errorf("take: %v", err)
	}

	for _, mode := range []string{"replace", "add"} {
		r := newRig(t, d, "put_features", 5, 1, 0)
		r.floats("pool", plan.In, pool, ax("pool", pooled), ax("n", n))
		rows := r.ints("feature_row", plan.In, r.rows(), from...)
		got := r.floats("x", plan.InOut, x, r.rows(), ax("n", n))
		r.attr("mode", mode).run()
		for i, at := range from {
			for j := range n {
				want := x[i*n+j]
				if at >= 0 && mode == "replace" {
					want = pool[int(at)*n+j]
				} else if at >= 0 {
					want += pool[int(at)*n+j]
				}
				sameBits(t, mode, got[i*n+j:i*n+j+1], []float32{want})
			}
		}
		rows[4] = pooled
		if err := d.Launch(r.bind()); err == nil || !strings.Contains(err.Error(), "row 4 takes row 9 of a pool of 9") {
			t.Errorf("%s: %v", mode, err)
		}
	}

	fold := newRig(t, d, "fold_rows", 8, 1, 2)
	in := normals(rand.New(rand.NewPCG(3, 3)), 8*n)
	fold.floats("x", plan.In, in, fold.rows(), ax("n", n))
	out := fold.floats("y", plan.Out, nil, fold.outs(), ax("n", 4*n))
	fold.attr("fold", 4).run()
	sameBits(t, "fold", out[:8*n], in)
	allPoison(t, "fold", out[8*n:])
}
