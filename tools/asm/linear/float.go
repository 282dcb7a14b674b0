// SPDX-License-Identifier: MIT OR Apache-2.0

package main

// decode writes code records as float32 [32][16].
func (g *gen) decode(k kind) {
	if k.signed {
		return
	}
	g.begin("decode"+k.name, "decode", "tile"+k.name, "writes code records as float32.",
		arg{"dst", "R8"}, arg{"rec", "R9"}, arg{"blocksN", "R10"}, arg{"zeroN", "DX"})
	g.halves(func() {
		low, zero, line, v, scale, min := g.constant(255), g.reg(), g.reg(), g.reg(), g.reg(), g.reg()
		g.f("VMOVD DX, %s", x(zero))
		g.f("VPBROADCASTD %s, %s", x(zero), zero)
		g.f("MOVQ R8, DI")
		g.f("MOVQ R9, SI")
		g.f("MOVQ R10, CX")
		g.label("loop")
		for t := range 8 {
			if t%(k.group/4) == 0 {
				gr := 4 * t / k.group
				g.load(g.at(64*gr, 4, "SI"), scale)
				if k.affine {
					g.load(g.at(64*(k.groups()+gr), 4, "SI"), min)
				}
			}
			g.load(g.at(k.codeStart()+64*t, 4, "SI"), line)
			for j := range 4 {
				src := line
				if j > 0 {
					g.f("VPSRLD $%d, %s, %s", 8*j, line, v)
					src = v
				}
				if j < 3 {
					g.and(low, src, v)
				}
				g.f("VPSUBD %s, %s, %s", zero, v, v)
				g.f("VCVTDQ2PS %s, %s", v, v)
				g.f("VMULPS %s, %s, %s", scale, v, v)
				if k.affine {
					g.f("VADDPS %s, %s, %s", min, v, v)
				}
				g.store(v, g.at(64*(4*t+j), 4, "DI"))
			}
		}
		g.f("ADDQ $%d, SI", k.codeBytes())
		g.f("ADDQ $2048, DI")
		g.f("DECQ CX")
		g.jump("JNZ", "loop")
	})
	g.end()
}

// evenBF16 and oddBF16 widen one half of 16 pairs.
func (g *gen) evenBF16(pairs, dst string)      { g.f("VPSLLD $16, %s, %s", pairs, dst) }
func (g *gen) oddBF16(mask, pairs, dst string) { g.and(mask, pairs, dst) }

// widenBF16 writes bf16 pairs as float32; of an odd last pair the first.
func (g *gen) widenBF16() {
	g.begin("widenBF16", "", "", "writes n k of bf16 pairs as float32.", arg{"dst", "R8"}, arg{"src", "R9"}, arg{"kN", "DX"})
	mask := g.constant(0xffff0000)
	g.halves(func() {
		pairs, v := g.reg(), g.reg()
		g.f("MOVQ R8, DI")
		g.f("MOVQ R9, SI")
		g.f("MOVQ DX, CX")
		g.f("SHRQ $1, CX")
		g.jump("JZ", "last")
		g.label("loop")
		g.load(g.at(0, 4, "SI"), pairs)
		g.evenBF16(pairs, v)
		g.store(v, g.at(0, 4, "DI"))
		g.oddBF16(mask, pairs, v)
		g.store(v, g.at(64, 4, "DI"))
		g.f("ADDQ $64, SI")
		g.f("ADDQ $128, DI")
		g.f("DECQ CX")
		g.jump("JNZ", "loop")
		g.label("last")
		g.f("TESTQ $1, DX")
		g.jump("JZ", "done")
		g.load(g.at(0, 4, "SI"), pairs)
		g.evenBF16(pairs, v)
		g.store(v, g.at(0, 4, "DI"))
		g.label("done")
	})
	g.end()
}

// widenF16 writes f16 as float32.
func (g *gen) widenF16() {
	g.begin("widenF16", "", "", "writes n k of f16 as float32.", arg{"dst", "R8"}, arg{"src", "R9"}, arg{"kN", "DX"})
	g.halves(func() {
		v := g.reg()
		g.f("MOVQ R8, DI")
		g.f("MOVQ R9, SI")
		g.f("MOVQ DX, CX")
		g.label("loop")
		g.f("VCVTPH2PS %s, %s", g.at(0, 2, "SI"), v)
		g.store(v, g.at(0, 4, "DI"))
		g.f("ADDQ $32, SI")
		g.f("ADDQ $64, DI")
		g.f("DECQ CX")
		g.jump("JNZ", "loop")
	})
	g.end()
}

// directKernel multiplies rows with panels of floats as they are packed: records of size bytes that hold per k. step
// multiplies the record at i, odd the first half of the last one.
type directKernel struct {
	name      string
	size, per int
	setup     func()
	step, odd func(i int, x floatRows, sum [][]string)
}

func (g *gen) direct(k directKernel, rows int) {
	g.beginDirect(k.name, rows)
	k.setup()
	sum := g.perHalf(rows)
	g.f("SHLQ $2, R8")
	g.f("SHLQ $2, BX")
	g.label("panel")
	g.f("MOVQ R15, CX")
	if k.per == 2 {
		g.f("SHRQ $1, CX")
	}
	x := g.rowsOf("R14", rows)
	g.each(func(half int) {
		for _, r := range sum[half] {
			g.zero(r)
		}
	})
	g.unrolled(4, func(i int) { k.step(i, x, sum) }, func(n int) {
		g.f("ADDQ $%d, SI", n*k.size)
		x.advance(g, 4*n*k.per)
	})
	if k.odd != nil {
		g.f("TESTQ $1, R15")
		g.jump("JZ", "even")
		k.odd(0, x, sum)
		g.f("ADDQ $%d, SI", k.size)
		g.label("even")
	}
	g.each(func(half int) { g.write(sum[half]) })
	g.f("ADDQ $64, DI")
	g.f("DECQ R13")
	g.jump("JNZ", "panel")
	g.end()
}

func (g *gen) directFloat(rows int) {
	var w [][]string
	var tmp string
	g.direct(directKernel{name: "F32", size: 64, per: 1,
		setup: func() { w, tmp = g.perHalf(1), g.reg() },
		step: func(i int, x floatRows, sum [][]string) {
			g.each(func(half int) { g.load(g.at(64*i, 4, "SI"), w[half][0]) })
			g.fmaRows(x, 4*i, w, sum, tmp)
		}}, rows)
}

func (g *gen) directF16(rows int) {
	var w [][]string
	var tmp string
	g.direct(directKernel{name: "F16", size: 32, per: 1,
		setup: func() { w, tmp = g.perHalf(1), g.reg() },
		step: func(i int, x floatRows, sum [][]string) {
			g.each(func(half int) { g.f("VCVTPH2PS %s, %s", g.at(32*i, 2, "SI"), w[half][0]) })
			g.fmaRows(x, 4*i, w, sum, tmp)
		}}, rows)
}

func (g *gen) directBF16(rows int) {
	var pairs, w [][]string
	var mask, tmp string
	even := func(i int, x floatRows, sum [][]string) {
		g.each(func(half int) {
			g.load(g.at(64*i, 4, "SI"), pairs[half][0])
			g.evenBF16(pairs[half][0], w[half][0])
		})
		g.fmaRows(x, 8*i, w, sum, tmp)
	}
	g.direct(directKernel{name: "BF16", size: 64, per: 2,
		setup: func() { mask, pairs, w, tmp = g.constant(0xffff0000), g.perHalf(1), g.perHalf(1), g.reg() },
		step: func(i int, x floatRows, sum [][]string) {
			even(i, x, sum)
			g.each(func(half int) { g.oddBF16(mask, pairs[half][0], w[half][0]) })
			g.fmaRows(x, 8*i+4, w, sum, tmp)
		},
		odd: even}, rows)
}
