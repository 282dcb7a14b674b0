// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// bindSmall binds what a layer of a 135M-parameter Llama (hidden 576, 9 heads, 3 KV heads of 64) launches beside its
// linears, for a step of rows of one sequence after past tokens.
func bindSmall(b testing.TB, d *Device, past, rows int) map[string]gpu.Launch {
	const hidden, heads, kv, dim, page = 576, 9, 3, 64, 16
	pages := (past + rows + page - 1) / page
	act := func(r *rig, param string, access plan.Access, n int) {
		r.floats(param, access, make([]float32, rows*n), r.rows(), ax("n", n))
	}
	base := func(kernel string) *rig {
		r := newRig(b, d, kernel, rows, 1, 1)
		r.b.Limits.PageSize, r.b.Limits.Pages = page, int64(pages)
		return r
	}
	pool := func(r *rig, access plan.Access) {
		axes := plan.Axes{ax("num_pages", pages), ax("page_size", page), ax("n", kv*dim)}
		for _, param := range []string{"k_pool", "v_pool"} {
			r.arg(param, access, tensor.F16, "", 2*axes.Shape().Elems(), axes)
		}
	}
	step := func(from int) (v []int32) {
		for i := range rows {
			v = append(v, int32(from+i))
		}
		return v
	}
	launches := map[string]gpu.Launch{}

	r := base("add_rms_norm")
	act(r, "x", plan.InOut, hidden)
	act(r, "d", plan.In, hidden)
	act(r, "y", plan.Out, hidden)
	r.floats("w", plan.In, make([]float32, hidden), ax("n", hidden))
	launches["norm"] = r.attr("eps", 1e-5).bind()

	for name, n := range map[string]int{"rope q": heads, "rope k": kv} {
		r = base("rope")
		act(r, "x", plan.InOut, n*dim)
		act(r, "angles", plan.In, dim)
		launches[name] = r.attr("heads", n).attr("head_dim", dim).attr("rot", dim).attr("style", "half").bind()
	}

	r = base("kv_append")
	act(r, "k", plan.In, kv*dim)
	act(r, "v", plan.In, kv*dim)
	r.ints("slots", plan.In, r.rows(), step(past)...)
	pool(r, plan.InOut)
	launches["append"] = r.attr("kv_heads", kv).attr("head_dim", dim).attr("v_dim", dim).bind()

	r = base("attention")
	act(r, "q", plan.In, heads*dim)
	act(r, "y", plan.Out, heads*dim)
	pool(r, plan.In)
	r.ints("positions", plan.In, r.rows(), step(past)...)
	r.ints("row_seq", plan.In, r.rows(), make([]int32, rows)...)
	table := view[int32](r.arg("block_table", plan.In, tensor.I32, "", int64(8*pages), plan.Axes{ax("seqs", 2), ax("pages", pages)}))
	for i := range pages {
		table[i] = int32(i)
	}
	r.attr("heads", heads).attr("kv_heads", kv).attr("head_dim", dim).attr("v_dim", dim).attr("scale", 0.125)
	launches["attention"] = r.bind()

	r = base("glu")
	act(r, "g", plan.In, 1536)
	act(r, "u", plan.In, 1536)
	act(r, "y", plan.Out, 1536)
	launches["glu"] = r.attr("act", "silu").bind()
	return launches
}

// Beside the linears: each kernel, and all of a step of 30 layers.
func BenchmarkSmall(b *testing.B) {
	for _, s := range []struct{ threads, past, rows int }{{1, 127, 1}, {0, 127, 1}, {1, 0, 512}, {0, 0, 512}} {
		d := open(b, Options{Threads: s.threads})
		ls := bindSmall(b, d, s.past, s.rows)
		for _, name := range []string{"norm", "rope q", "append", "attention", "glu"} {
			b.Run(fmt.Sprintf("threads=%d/past=%d/rows=%d/%s", s.threads, s.past, s.rows, name), func(b *testing.B) {
				for b.Loop() {
					d.Launch(ls[name])
				}
			})
		}
		b.Run(fmt.Sprintf("threads=%d/past=%d/rows=%d/step", s.threads, s.past, s.rows), func(b *testing.B) {
			for b.Loop() {
				for range 30 {
					for _, name := range []string{"norm", "rope q", "rope k", "append", "attention", "norm"} {
						if err := d.Launch(ls[name]); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}
