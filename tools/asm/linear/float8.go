// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import "fmt"

// float8Type mirrors the package's format of an e4m3 type: a record of elems k begins with the rows' scales, unless it is one k.
type float8Type struct {
	name  string
	elems int
}

var float8Types = []float8Type{{"E4M3", 1}, {"E4M3_B32", 32}, {"E4M3_B128", 128}}

// float8 holds what widening e4m3 needs. Moved left, a code is a half of 2^-8 of its value, which scales make up for.
type float8 struct{ mask, up string }

func (g *gen) newFloat8() float8 { return float8{g.constant(0xbfffbfff), g.constant(0x43800000)} }

// code widens the codes of one k.
func (g *gen) code(d float8, mem, dst string) {
	narrow := x
	if g.width == 64 {
		narrow = y
	}
	h := narrow(dst)
	g.f("VPMOVSXBW %s, %s", mem, h)
	g.f("VPSLLW $7, %s, %s", h, h)
	g.and(narrow(d.mask), h, h)
	g.f("VCVTPH2PS %s, %s", h, dst)
}

// scaleUp loads this half's scales at base.
func (g *gen) scaleUp(d float8, base, dst string) {
	g.load(g.at(0, 4, base), dst)
	g.f("VMULPS %s, %s, %s", d.up, dst, dst)
}

// widenFloat8 writes e4m3 records as float32.
func (g *gen) widenFloat8(f float8Type) {
	g.begin("widen"+f.name, "widenFloat8", "tensor."+f.name, "writes n k of records as float32.", arg{"dst", "R8"}, arg{"src", "R9"}, arg{"kN", "R10"})
	d := g.newFloat8()
	g.halves(func() {
		v, scale := g.reg(), d.up
		g.f("MOVQ R8, DI")
		g.f("MOVQ R9, SI")
		g.f("MOVQ R10, DX")
		g.label("record")
		g.f("MOVQ DX, CX")
		if f.elems > 1 {
			scale = g.reg()
			g.scaleUp(d, "SI", scale)
			g.f("ADDQ $64, SI")
			g.f("MOVQ $%d, CX", f.elems)
		}
		g.label("loop")
		g.code(d, g.at(0, 1, "SI"), v)
		g.f("VMULPS %s, %s, %s", scale, v, v)
		g.store(v, g.at(0, 4, "DI"))
		g.f("ADDQ $16, SI")
		g.f("ADDQ $64, DI")
		g.f("DECQ CX")
		g.jump("JNZ", "loop")
		if f.elems > 1 {
			g.f("SUBQ $%d, DX", f.elems)
			g.jump("JNZ", "record")
		}
	})
	g.end()
}

// directFloat8 multiplies rows with panels of e4m3 as they are packed.
func (g *gen) directFloat8(f float8Type, rows int) {
	var d float8
	var w, scale [][]string
	var tmp string
	step := func(i int, x floatRows, sum [][]string) {
		g.each(func(half int) {
			g.code(d, g.at(16*i, 1, "SI"), w[half][0])
			g.f("VMULPS %s, %s, %s", scale[half][0], w[half][0], w[half][0])
		})
		g.fmaRows(x, 4*i, w, sum, tmp)
	}
	if f.elems == 1 {
		g.direct(directKernel{name: f.name, size: 16, per: 1, step: step,
			setup: func() {
				d, w, tmp = g.newFloat8(), g.perHalf(1), g.reg()
				scale = [][]string{{d.up}, {d.up}}
			}}, rows)
		return
	}
	g.beginDirect(f.name, rows)
	d, w, scale, tmp = g.newFloat8(), g.perHalf(1), g.perHalf(1), g.reg()
	sum := g.perHalf(rows)
	g.f("SHLQ $2, R8")
	g.f("SHLQ $2, BX")
	g.label("panel")
	g.f("MOVQ R15, AX")
	x := g.rowsOf("R14", rows)
	g.each(func(half int) {
		for _, r := range sum[half] {
			g.zero(r)
		}
	})
	g.label("record")
	g.each(func(half int) { g.scaleUp(d, "SI", scale[half][0]) })
	g.f("ADDQ $64, SI")
	g.f("MOVQ $%d, CX", f.elems/4)
	g.label("loop")
	for i := range 4 {
		step(i, x, sum)
	}
	g.f("ADDQ $64, SI")
	x.advance(g, 16)
	g.f("DECQ CX")
	g.jump("JNZ", "loop")
	g.f("SUBQ $%d, AX", f.elems)
	g.jump("JNZ", "record")
	g.each(func(half int) { g.write(sum[half]) })
	g.f("ADDQ $64, DI")
	g.f("DECQ R13")
	g.jump("JNZ", "panel")
	g.end()
}

// beginDirect starts a kernel that multiplies a tile of float32 rows with panels.
func (g *gen) beginDirect(name string, rows int) {
	g.begin(fmt.Sprintf("direct%s_%d", name, rows), "directF32", fmt.Sprintf("int(tensor.%s)<<4 | %d", name, rows),
		"multiplies a tile of rows with panels as they are packed.",
		arg{"out", "DI"}, arg{"ldN", "R8"}, arg{"panelsN", "R13"}, arg{"w", "SI"}, arg{"x", "R14"}, arg{"ldxN", "BX"}, arg{"kN", "R15"})
}
