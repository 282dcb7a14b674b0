// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// world is sequences with their whole keys, values and queries, from which tests cut steps.
type world struct {
	heads, kv, kd, vd int
	window            int
	softcap           float64
	sinks             []float32 // [heads]
	dtype             tensor.DType
	pages             int       // in the pool
	table             [][]int32 // [seq] pages
	q, k, v           [][]float32
	lists             [][][]int32 // [seq][position] the positions that it sees; nil: all up to its own
	twins             map[span][]float64
}

const pageSize = 32 // two blocks a page

func newWorld(rng *rand.Rand, heads, kv, kd, vd int, lengths ...int) *world {
	w := &world{heads: heads, kv: kv, kd: kd, vd: vd, dtype: tensor.F32}
	for _, n := range lengths {
		w.q = append(w.q, normals(rng, n*heads*kd))
		w.k = append(w.k, normals(rng, n*kv*kd))
		w.v = append(w.v, normals(rng, n*kv*vd))
		w.pages += (n + pageSize - 1) / pageSize
	}
	w.pages += 2
	perm := rng.Perm(w.pages)
	for _, n := range lengths {
		var t []int32
		for range (n + pageSize - 1) / pageSize {
			t = append(t, int32(perm[0]))
			perm = perm[1:]
		}
		w.table = append(w.table, t)
	}
	return w
}

// span is rows [lo, hi) of a sequence.
type span struct{ seq, lo, hi int }

// pools are the paged states that steps share. They start as NaN: nothing unwritten may leak.
type pools struct{ k, v gpu.HostBuffer }

func (w *world) newPools(t *testing.T, d *Device) (p pools) {
	t.Helper()
	for _, x := range []struct {
		into *gpu.HostBuffer
		dim  int
	}{{&p.k, w.kd}, {&p.v, w.vd}} {
		*x.into = alloc(t, d, "pool", w.dtype.Bytes(int64(w.pages*pageSize*w.kv*x.dim)))
		for i := range (*x.into).Bytes() {
			(*x.into).Bytes()[i] = 0xff
		}
	}
	return p
}

// rows are the rows of the spans, as a step has them.
type rows struct {
	w               *world
	spans           []span
	q, k, v         []float32
	pos, seq, slots []int32
}

func (w *world) rows(spans []span) *rows {
	x := &rows{w: w, spans: spans}
	for i, s := range spans {
		x.q = append(x.q, w.q[s.seq][s.lo*w.heads*w.kd:s.hi*w.heads*w.kd]...)
		x.k = append(x.k, w.k[s.seq][s.lo*w.kv*w.kd:s.hi*w.kv*w.kd]...)
		x.v = append(x.v, w.v[s.seq][s.lo*w.kv*w.vd:s.hi*w.kv*w.vd]...)
		for at := s.lo; at < s.hi; at++ {
			x.pos, x.seq = append(x.pos, int32(at)), append(x.seq, int32(i))
			x.slots = append(x.slots, w.table[s.seq][at/pageSize]*pageSize+int32(at%pageSize))
		}
	}
	return x
}

// rig is a launch over the rows.
func (x *rows) rig(t *testing.T, d *Device, kernel string) *rig {
	return newRig(t, d, kernel, len(x.pos), len(x.spans), 0)
}

// state binds a pool.
func (x *rows) state(r *rig, param string, access plan.Access, pool gpu.HostBuffer, dim int) {
	axes := plan.Axes{ax("num_pages", x.w.pages), ax("page_size", pageSize), ax("kv_heads", x.w.kv), ax("dim", dim)}
	r.b.Args = append(r.b.Args, gpu.Arg{Param: param, Buf: pool, DType: x.w.dtype, Axes: axes, Access: access})
}

// places binds where the rows and their pages are.
func (x *rows) places(r *rig) {
	w := x.w
	r.ints("positions", plan.In, r.rows(), x.pos...)
	r.ints("row_seq", plan.In, r.rows(), x.seq...)
	stride := int(r.b.Limits.Pages)
	table := view[int32](r.arg("block_table", plan.In, tensor.I32, "", int64(4*(len(x.spans)+1)*stride), plan.Axes{ax("seqs", len(x.spans)+1), ax("pages", stride)}))
	for i := range table {
		table[i] = -1
	}
	for i, s := range x.spans {
		// Pages behind the first row's window are gone.
		gone := 0
		if w.window > 0 {
			gone = max(0, s.lo-w.window+1) / pageSize
		}
		copy(table[i*stride+gone:], w.table[s.seq][gone:])
	}
}

// cut gives y by span.
func (x *rows) cut(t *testing.T, y []float32) (out [][]float32) {
	width := x.w.heads * x.w.vd
	allPoison(t, "y", y[len(x.pos)*width:])
	at := 0
	for _, s := range x.spans {
		n := (s.hi - s.lo) * width
		out = append(out, slices.Clone(y[at:at+n]))
		at += n
	}
	return out
}

// step appends and attends over the spans and gives y by span. The pools carry over.
func (w *world) step(t *testing.T, d *Device, p pools, spans ...span) [][]float32 {
	x := w.rows(spans)
	r := x.rig(t, d, "kv_append")
	r.floats("k", plan.In, x.k, r.rows(), ax("n", w.kv*w.kd))
	r.floats("v", plan.In, x.v, r.rows(), ax("n", w.kv*w.vd))
	r.ints("slots", plan.In, r.rows(), x.slots...)
	x.state(r, "k_pool", plan.InOut, p.k, w.kd)
	x.state(r, "v_pool", plan.InOut, p.v, w.vd)
	r.attr("kv_heads", w.kv).attr("head_dim", w.kd).attr("v_dim", w.vd).run()

	r = x.rig(t, d, "attention")
	r.floats("q", plan.In, x.q, r.rows(), ax("n", w.heads*w.kd))
	if w.sinks != nil {
		r.floats("sinks", plan.In, w.sinks, ax("heads", w.heads))
	}
	x.state(r, "k_pool", plan.In, p.k, w.kd)
	x.state(r, "v_pool", plan.In, p.v, w.vd)
	x.places(r)
	y := r.floats("y", plan.Out, nil, r.rows(), ax("n", w.heads*w.vd))
	r.attr("heads", w.heads).attr("kv_heads", w.kv).attr("head_dim", w.kd).attr("v_dim", w.vd)
	r.attr("scale", 1/math.Sqrt(float64(w.kd))).attr("window", w.window).attr("softcap", w.softcap).run()
	return x.cut(t, y)
}

// stored is x after the pool's rounding.
func (w *world) stored(x float32) float64 {
	switch w.dtype {
	case tensor.BF16:
		return float64(tensor.FromBF16(tensor.ToBF16(x)))
	case tensor.F16:
		return float64(tensor.FromF16(tensor.ToF16(x)))
	}
	return float64(x)
}

// want is the twin, computed once for all paths.
func (w *world) want(s span) []float64 {
	if w.twins == nil {
		w.twins = map[span][]float64{}
	}
	if w.twins[s] == nil {
		w.twins[s] = w.twin(s)
	}
	return w.twins[s]
}

// twin is attention of rows [lo, hi) in float64, two passes, no pages.
func (w *world) twin(s span) []float64 {
	y := make([]float64, (s.hi-s.lo)*w.heads*w.vd)
	for p := s.lo; p < s.hi; p++ {
		for h := range w.heads {
			g := h / (w.heads / w.kv)
			from := 0
			if w.window > 0 {
				from = max(0, p-w.window+1)
			}
			sum, out := 0.0, y[((p-s.lo)*w.heads+h)*w.vd:][:w.vd]
			for j := from; j <= p; j++ {
				if w.lists != nil && !slices.Contains(w.lists[s.seq][p], int32(j)) {
					continue
				}
				score := 0.0
				for i := range w.kd {
					score += float64(w.q[s.seq][(p*w.heads+h)*w.kd+i]) * w.stored(w.k[s.seq][(j*w.kv+g)*w.kd+i])
				}
				score /= math.Sqrt(float64(w.kd))
				if w.softcap > 0 {
					score = w.softcap * math.Tanh(score/w.softcap)
				}
				e := math.Exp(score) // scores of normals are small: no maximum needed
				sum += e
				for i := range out {
					out[i] += e * w.stored(w.v[s.seq][(j*w.kv+g)*w.vd+i])
				}
			}
			if w.sinks != nil {
				sum += math.Exp(float64(w.sinks[h]))
			}
			for i := range out {
				out[i] /= sum
			}
		}
	}
	return y
}

// A score errs by about sqrt(head_dim)*u relative to its terms, exp passes that on with |score| < 6, and the weighted sum
// of values adds sqrt(keys)*u: some 30 u = 2e-6 in practice. 1e-5 leaves room for the worst of a million outputs.
const tolAttention = 1e-5

func worlds() map[string]*world {
	rng := rand.New(rand.NewPCG(3, 5))
	ws := map[string]*world{
		"gqa 3":        newWorld(rng, 9, 3, 64, 64, 140, 33, 1),
		"mha":          newWorld(rng, 2, 2, 16, 16, 80, 130),
		"gqa 8":        newWorld(rng, 8, 1, 128, 128, 65, 3),
		"odd dims":     newWorld(rng, 4, 2, 20, 36, 70, 20),
		"wide head":    newWorld(rng, 2, 1, 256, 256, 40),
		"k and v":      newWorld(rng, 5, 1, 96, 80, 60),
		"many queries": newWorld(rng, 40, 1, 32, 32, 40),
	}
	for name, window := range map[string]int{"window 16": 16, "window 40": 40, "window 1": 1} {
		w := newWorld(rng, 6, 2, 32, 48, 110, 20)
		w.window = window
		ws[name] = w
	}
	w := newWorld(rng, 4, 2, 32, 32, 70)
	w.softcap = 1.5
	ws["softcap"] = w
	w = newWorld(rng, 6, 2, 32, 32, 70, 9)
	w.sinks = []float32{-20, -1, 0, 1, 5, 60}
	ws["sinks"] = w
	for _, d := range []tensor.DType{tensor.BF16, tensor.F16} {
		w := newWorld(rng, 6, 2, 64, 32, 70, 10)
		w.dtype = d
		ws["pool "+d.String()] = w
	}
	return ws
}

func TestAttention(t *testing.T) {
	all := worlds()
	eachPath(t, func(t *testing.T, d *Device) {
		for name, w := range all {
			t.Run(name, func(t *testing.T) { w.check(t, d, w.step) })
		}
	})
}

// check holds a step's rows against their twin; one by one, and in ragged steps beside other sequences, they give the same bits.
func (w *world) check(t *testing.T, d *Device, step func(*testing.T, *Device, pools, ...span) [][]float32) {
	var all []span
	for s := range w.table {
		all = append(all, span{s, 0, len(w.q[s]) / (w.heads * w.kd)})
	}
	whole := step(t, d, w.newPools(t, d), all...)
	for i, s := range all {
		near(t, fmt.Sprintf("sequence %d", i), whole[i], w.want(s), tolAttention)
	}
	p := w.newPools(t, d)
	var alone []float32
	for lo, hi := 0, max(1, all[0].hi-150); lo < all[0].hi; lo, hi = hi, hi+1 { // all of a short sequence, the last ones of a long
		alone = append(alone, step(t, d, p, span{0, lo, hi})[0]...)
	}
	sameBits(t, "row by row", alone, whole[0])
	if len(all) < 2 {
		return
	}
	p = w.newPools(t, d)
	var ragged [2][]float32
	at := [2]int{}
	for _, n := range [][2]int{{5, 1}, {1, 7}, {30, 1}, {1, 1}, {1000, 1000}} {
		var spans []span
		for s := range 2 {
			hi := min(at[s]+n[s], all[s].hi)
			spans = append(spans, span{s, at[s], hi})
			at[s] = hi
		}
		for s, y := range step(t, d, p, spans...) {
			ragged[s] = append(ragged[s], y...)
		}
	}
	sameBits(t, "ragged 0", ragged[0], whole[0])
	sameBits(t, "ragged 1", ragged[1], whole[1])
}

// Pages and slots outside the pool are errors with the launch's name, and write nothing.
func TestAttentionBadStep(t *testing.T) {
	d := open(t, Options{Threads: 2})
	w := newWorld(rand.New(rand.NewPCG(1, 2)), 2, 2, 16, 16, 40)
	for name, c := range map[string]struct {
		kernel string
		spoil  func(r *rig)
		want   string
	}{
		"slot":     {"kv_append", func(r *rig) { r.b.Args[3].Buf.Write(64, []byte{0xff, 0xff, 0xff, 0x7f}) }, "slot 2147483647 of a pool of"},
		"negative": {"kv_append", func(r *rig) { r.b.Args[3].Buf.Write(64, []byte{0xff, 0xff, 0xff, 0xff}) }, "slot -1 of a pool of"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, d, c.kernel, 1, 1, 0)
			r.floats("k", plan.In, w.k[0], r.rows(), ax("n", 32))
			r.floats("v", plan.In, w.v[0], r.rows(), ax("n", 32))
			r.ints("slots", plan.In, r.rows(), 0)
			axes := plan.Axes{ax("num_pages", 2), ax("page_size", pageSize), ax("n", 32)}
			kp := r.floats("k_pool", plan.InOut, nil, axes...)
			r.floats("v_pool", plan.InOut, nil, axes...)
			r.attr("kv_heads", 2).attr("head_dim", 16).attr("v_dim", 16)
			c.spoil(r)
			err := d.Launch(r.bind())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "L00.test") {
				t.Errorf("got %v, want %q and the launch's name", err, c.want)
			}
			allPoison(t, "k_pool", kp)
		})
	}
}
