// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// newLatentWorld is a world with one key per token, whose first part is the value.
func newLatentWorld(rng *rand.Rand, heads, dim, vd int, lengths ...int) *world {
	w := newWorld(rng, heads, 1, dim, vd, lengths...)
	for s, k := range w.k {
		for i := range w.v[s] {
			w.v[s][i] = k[i/vd*dim+i%vd]
		}
	}
	return w
}

// latentStep is world.step with latent attention.
func (w *world) latentStep(t *testing.T, d *Device, p pools, spans ...span) [][]float32 {
	x := w.rows(spans)
	w.appendRows(t, d, x, p.k)
	r := x.rig(t, d, "latent_attention")
	r.floats("q", plan.In, x.q, r.rows(), ax("n", w.heads*w.kd))
	x.state(r, "pool", plan.In, p.k, w.kd)
	x.places(r)
	y := r.floats("y", plan.Out, nil, r.rows(), ax("n", w.heads*w.vd))
	r.attr("heads", w.heads).attr("head_dim", w.kd).attr("v_dim", w.vd).attr("scale", 1/math.Sqrt(float64(w.kd))).attr("window", w.window).run()
	return x.cut(t, y)
}

// appendRows writes the rows' keys to a pool.
func (w *world) appendRows(t *testing.T, d *Device, x *rows, pool []byte) {
	r := x.rig(t, d, "append")
	r.floats("k", plan.In, x.k, r.rows(), ax("n", w.kd))
	r.ints("slots", plan.In, r.rows(), x.slots...)
	dst := x.state(r, "pool", plan.InOut, pool, w.kd)
	r.run()
	copy(pool, dst)
}

func latentWorlds() map[string]*world {
	rng := rand.New(rand.NewPCG(7, 11))
	ws := map[string]*world{
		"4 heads":        newLatentWorld(rng, 4, 48, 32, 140, 33, 1),
		"128 heads":      newLatentWorld(rng, 128, 80, 64, 40, 9),
		"20 heads":       newLatentWorld(rng, 20, 36, 20, 70, 18),
		"37 heads":       newLatentWorld(rng, 37, 24, 24, 20, 3),
		"a long context": newLatentWorld(rng, 2, 20, 16, 600),
	}
	windowed := newLatentWorld(rng, 6, 48, 48, 110, 20)
	windowed.window = 40
	ws["window"] = windowed
	for _, d := range []tensor.DType{tensor.BF16, tensor.F16} {
		w := newLatentWorld(rng, 6, 72, 64, 70, 10)
		w.dtype = d
		ws["pool "+d.String()] = w
	}
	return ws
}

func TestLatentAttention(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for name, w := range latentWorlds() {
			t.Run(name, func(t *testing.T) { w.check(t, d, w.latentStep) })
		}
	})
}
