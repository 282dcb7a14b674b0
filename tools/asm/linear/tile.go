// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import "fmt"

// kind is what code records and their kernels distinguish of formats.
type kind struct {
	name   string
	group  int
	affine bool
	signed bool // codes have 128 added, which AVX2 takes away again
}

var kinds = []kind{{name: "Zero32", group: 32}, {name: "Zero16", group: 16}, {name: "Affine32", group: 32, affine: true},
	{name: "Affine16", group: 16, affine: true}, {name: "Signed32", group: 32, signed: true}}

func (k kind) groups() int { return 32 / k.group }

func (k kind) codeStart() int {
	if k.affine {
		return k.groups() * 128
	}
	return k.groups() * 64
}

func (k kind) codeBytes() int { return k.codeStart() + 512 }

// sums starts a tile's sums: from out if the argument in AX is not 0. R8 becomes out's step in bytes.
func (g *gen) sums(sum []string) {
	g.f("TESTQ AX, AX")
	g.jump("JZ", "zero")
	g.f("MOVQ DI, R10")
	for i, r := range sum {
		if i > 0 {
			g.f("ADDQ R8, R10")
		}
		g.load(g.at(0, 4, "R10"), r)
	}
	g.jump("JMP", "start")
	g.label("zero")
	for _, r := range sum {
		g.zero(r)
	}
	g.label("start")
}

// write stores a tile's sums.
func (g *gen) write(sum []string) {
	g.f("MOVQ DI, R10")
	for i, r := range sum {
		if i > 0 {
			g.f("ADDQ R8, R10")
		}
		g.store(r, g.at(0, 4, "R10"))
	}
}

// tileQ8 multiplies a tile of quantised rows with a panel of code records.
func (g *gen) tileQ8(k kind, rows int) {
	g.begin(fmt.Sprintf("tileQ8%s_%d", k.name, rows), "tileQ8", fmt.Sprintf("tile%s|%d", k.name, rows),
		"multiplies a tile of quantised rows with a panel of code records.",
		arg{"out", "DI"}, arg{"ldN", "R8"}, arg{"w", "R9"}, arg{"a", "R14"}, arg{"aux", "R15"}, arg{"blocksN", "R13"}, arg{"addN", "R11"})
	d := g.newDot(k.signed)
	g.f("SHLQ $2, R8")
	g.halves(func() {
		sum, dots, w, tmp := g.regs(rows), g.regs(rows), g.reg(), g.reg()
		g.f("MOVQ R9, SI")
		g.f("MOVQ R14, DX")
		g.f("MOVQ R15, BX")
		g.f("MOVQ R13, CX")
		g.f("MOVQ R11, AX")
		g.sums(sum)
		g.label("loop")
		for gr := range k.groups() {
			for r, x := range dots {
				if k.affine || k.signed {
					g.zero(x)
				} else {
					g.f("VPBROADCASTD %d(BX), %s", 4*(gr*rows+r), x)
				}
			}
			for t := gr * k.group / 4; t < (gr+1)*k.group/4; t++ {
				g.load(g.at(k.codeStart()+64*t, 4, "SI"), w)
				g.weights(d, w)
				for r, x := range dots {
					g.dot(d, fmt.Sprintf("%d(DX)", 32*r+4*t), w, x)
				}
			}
			g.load(g.at(64*gr, 4, "SI"), w)
			for r, x := range dots {
				g.mulBroadcast(fmt.Sprintf("%d(DX)", 32*rows+4*r), w, tmp)
				g.f("VCVTDQ2PS %s, %s", x, x)
				g.f("VFMADD231PS %s, %s, %s", tmp, x, sum[r])
			}
			if k.affine {
				g.load(g.at(64*(k.groups()+gr), 4, "SI"), w)
				for r := range rows {
					g.fmaBroadcast("VFMADD231PS", fmt.Sprintf("%d(BX)", 4*(gr*rows+r)), w, sum[r], tmp)
				}
			}
		}
		g.f("ADDQ $%d, SI", k.codeBytes())
		g.f("ADDQ $%d, DX", 36*rows)
		g.f("ADDQ $%d, BX", 4*rows*k.groups())
		g.f("DECQ CX")
		g.jump("JNZ", "loop")
		g.write(sum)
	})
	g.end()
}

// tileF32 multiplies a tile of float32 rows with a panel of float32.
func (g *gen) tileF32(rows int) {
	g.begin(fmt.Sprintf("tileF32_%d", rows), "tileF32", fmt.Sprint(rows), "multiplies a tile of rows with a panel of float32.",
		arg{"out", "DI"}, arg{"ldN", "R8"}, arg{"w", "R9"}, arg{"x", "R14"}, arg{"ldxN", "BX"}, arg{"kN", "R13"}, arg{"addN", "R15"})
	g.f("SHLQ $2, R8")
	g.f("SHLQ $2, BX")
	sum, w, tmp := g.perHalf(rows), g.perHalf(1), g.reg()
	g.f("MOVQ R9, SI")
	g.f("MOVQ R13, CX")
	g.f("MOVQ R15, AX")
	g.each(func(half int) { g.sums(sum[half]) })
	x := g.rowsOf("R14", rows)
	g.unrolled(4, func(i int) {
		g.each(func(half int) { g.load(g.at(64*i, 4, "SI"), w[half][0]) })
		g.fmaRows(x, 4*i, w, sum, tmp)
	}, func(n int) {
		g.f("ADDQ $%d, SI", 64*n)
		x.advance(g, 4*n)
	})
	g.each(func(half int) { g.write(sum[half]) })
	g.end()
}

// floatRows addresses up to nine rows of floats that are BX bytes apart: a register for every third.
type floatRows []string

// rowsOf points to the rows from base.
func (g *gen) rowsOf(base string, rows int) floatRows {
	x := floatRows{"DX", "R11", "R12"}[:(rows+2)/3]
	g.f("MOVQ %s, DX", base)
	for i := 1; i < len(x); i++ {
		g.f("LEAQ (%s)(BX*2), %s", x[i-1], x[i])
		g.f("ADDQ BX, %s", x[i])
	}
	return x
}

// at is the address of the float at off in row r.
func (x floatRows) at(r, off int) string {
	return fmt.Sprintf("%d(%s)%s", off, x[r/3], []string{"", "(BX*1)", "(BX*2)"}[r%3])
}

func (x floatRows) advance(g *gen, n int) {
	for _, r := range x {
		g.f("ADDQ $%d, %s", n, r)
	}
}

// fmaRows adds the products of weights w with the float at off in every row to its sum.
func (g *gen) fmaRows(x floatRows, off int, w, sum [][]string, tmp string) {
	for r := range sum[0] {
		if g.width == 64 {
			g.f("VFMADD231PS.BCST %s, %s, %s", x.at(r, off), w[0][0], sum[0][r])
			continue
		}
		g.f("VBROADCASTSS %s, %s", x.at(r, off), tmp)
		g.each(func(half int) { g.f("VFMADD231PS %s, %s, %s", tmp, w[half][0], sum[half][r]) })
	}
}

// unrolled runs a step CX times, n at a time as long as it goes. advance moves pointers on by a number of steps.
func (g *gen) unrolled(n int, step, advance func(n int)) {
	g.f("SUBQ $%d, CX", n)
	g.jump("JLT", "rest")
	g.label("many")
	for i := range n {
		step(i)
	}
	advance(n)
	g.f("SUBQ $%d, CX", n)
	g.jump("JGE", "many")
	g.label("rest")
	g.f("ADDQ $%d, CX", n)
	g.jump("JZ", "done")
	g.label("one")
	step(0)
	advance(1)
	g.f("DECQ CX")
	g.jump("JNZ", "one")
	g.label("done")
}
