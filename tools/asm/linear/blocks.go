// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import "fmt"

// blockType mirrors the package's format of a block type.
type blockType struct {
	name      string
	low, high int
	group     int
	affine    bool
	super     bool
	bf16      bool
	book      string // Go variable
	signed    bool   // codes have 128 added
}

var blockTypes = []blockType{
	{name: "Q4_0", low: 4, group: 32},
	{name: "Q4_1", low: 4, affine: true, group: 32},
	{name: "Q5_0", low: 4, high: 1, group: 32},
	{name: "Q5_1", low: 4, high: 1, affine: true, group: 32},
	{name: "Q8_0", low: 8, group: 32, signed: true},
	{name: "Q2_K", low: 2, affine: true, super: true, group: 16},
	{name: "Q3_K", low: 2, high: 1, super: true, group: 16},
	{name: "Q4_K", low: 4, affine: true, super: true, group: 32},
	{name: "Q5_K", low: 4, high: 1, affine: true, super: true, group: 32},
	{name: "Q6_K", low: 4, high: 2, super: true, group: 16},
	{name: "IQ4_NL", low: 4, book: "bookIQ4", group: 32, signed: true},
	{name: "MXFP4", low: 4, book: "bookMX", bf16: true, group: 32},
	{name: "INT4_B32", low: 4, bf16: true, group: 32},
	{name: "NVFP4", low: 4, book: "bookMX", group: 16},
}

func (f blockType) groups() int     { return 32 / f.group }
func (f blockType) planeBytes() int { return 64 * (f.low + f.high) }

// mins, ints, intMins and planes are offsets in a record, end is its size.
func (f blockType) mins() int { return 32 }

func (f blockType) ints() int {
	switch {
	case f.affine:
		return 64
	case !f.super:
		return 32 * f.groups()
	}
	return 32
}

func (f blockType) intMins() int { return f.ints() + 256/f.group*16 }

func (f blockType) planes() int {
	switch {
	case !f.super:
		return f.ints()
	case f.affine:
		return f.intMins() + 256/f.group*16
	}
	return f.intMins()
}

func (f blockType) end() int {
	if f.super {
		return f.planes() + 8*f.planeBytes()
	}
	return f.planes() + f.planeBytes()
}

// decoder holds what taking a format's codes apart needs.
type decoder struct {
	blockType
	mask, highMask, book string
	line, high0, high1   string
	code, tmp            string
}

func (g *gen) newDecoder(f blockType) *decoder {
	d := &decoder{blockType: f, code: g.reg()}
	if f.low < 8 {
		d.mask, d.line = g.constant(bytesOf(1<<f.low-1)), g.reg()
	}
	switch f.high {
	case 1:
		d.highMask, d.high0, d.tmp = g.constant(bytesOf(1<<f.low)), g.reg(), g.reg()
	case 2:
		d.highMask, d.high0, d.high1, d.tmp = g.constant(bytesOf(3<<f.low)), g.reg(), g.reg(), g.reg()
	}
	if f.book != "" {
		d.book = g.reg()
		if g.width == 64 {
			g.f("VBROADCASTI32X4 ·%s(SB), %s", f.book, d.book)
		} else {
			g.f("VBROADCASTI128 ·%s(SB), %s", f.book, d.book)
		}
	}
	return d
}

// codes calls use for each vector t of a block's codes, which lies in d.code then; base points to the planes.
func (g *gen) codes(d *decoder, base string, use func(t int)) {
	line := func(i int) string { return g.at(64*i, 4, base) }
	if d.low == 8 {
		for t := range 8 {
			g.load(line(t), d.code)
			use(t)
		}
		return
	}
	lines := d.low // of the low plane
	high := []string{d.high0, d.high1}[:d.high]
	for i, r := range high {
		g.load(line(lines+i), r)
	}
	for i := range lines {
		g.load(line(i), d.line)
		for j := range 8 / d.low {
			t := i + lines*j
			if j == 0 {
				g.and(d.mask, d.line, d.code)
			} else {
				g.f("VPSRLW $%d, %s, %s", d.low*j, d.line, d.code)
				g.and(d.mask, d.code, d.code)
			}
			if d.high > 0 {
				g.addHigh(d, t, high)
			}
			if d.book != "" {
				g.f("VPSHUFB %s, %s, %s", d.code, d.book, d.code)
			}
			use(t)
		}
	}
}

// addHigh puts the high bits of vector t over the low ones in d.code.
func (g *gen) addHigh(d *decoder, t int, high []string) {
	bits := d.high
	src, shift := high[t%bits], t/bits*bits-d.low // how far right the bits must go
	switch {
	case shift > 0:
		g.f("VPSRLW $%d, %s, %s", shift, src, d.tmp)
		src = d.tmp
	case shift < 0:
		g.f("VPSLLW $%d, %s, %s", -shift, src, d.tmp)
		src = d.tmp
	}
	if g.width == 64 {
		g.f("VPTERNLOGD $0xf8, %s, %s, %s", d.highMask, src, d.code) // code | src&mask
		return
	}
	g.and(d.highMask, src, d.tmp)
	g.f("VPOR %s, %s, %s", d.tmp, d.code, d.code)
}

// number widens 16 stored scales at off.
func (g *gen) number(f blockType, off int, base, dst string) {
	if f.bf16 {
		g.f("VPMOVZXWD %s, %s", g.at(off, 2, base), dst)
		g.f("VPSLLD $16, %s, %s", dst, dst)
		return
	}
	g.f("VCVTPH2PS %s, %s", g.at(off, 2, base), dst)
}

// integer widens 16 integer scales to float32.
func (g *gen) integer(op string, off int, base, dst string) {
	g.f("%s %s, %s", op, g.at(off, 1, base), dst)
	g.f("VCVTDQ2PS %s, %s", dst, dst)
}

// walk is a loop over the blocks of a panel. Before body, SI points to the record; in a format with superblocks R10
// points to the block's integer scales, and R11 to its planes.
type walk struct {
	blockType
	planes, ints  string // base registers
	planeOff      int
	d, m          string // scales of the superblock
	intMinsOffset int    // from ints
}

func (g *gen) walk(f blockType, count string, body func(w *walk)) {
	w := &walk{blockType: f, planes: "SI", planeOff: f.planes()}
	if !f.super {
		g.label("block")
		g.f("LEAQ %d(SI), R11", f.planes())
		w.planes, w.planeOff = "R11", 0
		body(w)
		g.f("ADDQ $%d, SI", f.end())
		g.f("DECQ %s", count)
		g.jump("JNZ", "block")
		return
	}
	w.planes, w.planeOff, w.ints, w.intMinsOffset = "R11", 0, "R10", f.intMins()-f.ints()
	w.d = g.reg()
	if f.affine {
		w.m = g.reg()
	}
	g.label("super")
	g.number(f, 0, "SI", w.d)
	if f.affine {
		g.number(f, f.mins(), "SI", w.m)
	}
	g.f("LEAQ %d(SI), R10", f.ints())
	g.f("LEAQ %d(SI), R11", f.planes())
	g.f("MOVQ $8, R12")
	g.label("block")
	body(w)
	g.f("ADDQ $%d, R10", 16*f.groups())
	g.f("ADDQ $%d, R11", f.planeBytes())
	g.f("DECQ R12")
	g.jump("JNZ", "block")
	g.f("ADDQ $%d, SI", f.end())
	g.f("SUBQ $8, %s", count)
	g.jump("JNZ", "super")
}

// scale puts the scale of group gr into dst.
func (g *gen) scale(w *walk, gr int, dst string) {
	if !w.super {
		g.number(w.blockType, 32*gr, "SI", dst)
		return
	}
	g.integer("VPMOVSXBD", 16*gr, w.ints, dst)
	g.f("VMULPS %s, %s, %s", w.d, dst, dst)
}

// min puts the min of group gr into dst; of superblocks it is negated.
func (g *gen) min(w *walk, gr int, dst string) {
	if !w.super {
		g.number(w.blockType, w.mins(), "SI", dst)
		return
	}
	g.integer("VPMOVZXBD", w.intMinsOffset+16*gr, w.ints, dst)
	g.f("VMULPS %s, %s, %s", w.m, dst, dst)
}

// unpack writes code records from a panel's blocks.
func (g *gen) unpack(f blockType) {
	g.begin("unpack"+f.name, "unpack", "tensor."+f.name, "writes code records of blocks, the first of which begins a record.",
		arg{"dst", "R8"}, arg{"src", "R9"}, arg{"blocksN", "BX"})
	k := kind{group: f.group, affine: f.affine}
	g.halves(func() {
		g.f("MOVQ R8, DI")
		g.f("MOVQ R9, SI")
		g.f("MOVQ BX, CX")
		d, s, sign := g.newDecoder(f), g.reg(), ""
		if f.super && f.affine {
			sign = g.constant(1 << 31)
		}
		g.walk(f, "CX", func(w *walk) {
			for gr := range f.groups() {
				g.scale(w, gr, s)
				g.store(s, g.at(64*gr, 4, "DI"))
				if f.affine {
					g.min(w, gr, s)
					if sign != "" {
						g.f("VXORPS %s, %s, %s", sign, s, s)
					}
					g.store(s, g.at(64*(f.groups()+gr), 4, "DI"))
				}
			}
			g.codes(d, w.planes, func(t int) { g.store(d.code, g.at(k.codeStart()+64*t, 4, "DI")) })
			g.f("ADDQ $%d, DI", k.codeBytes())
		})
	})
	g.end()
}

// directQ8 multiplies a tile of quantised rows with panels as they are packed. It asks for nothing ahead of its use: where
// it was tried, the processor's own prefetching was as fast as a bare sweep, and every explicit distance slower or equal.
func (g *gen) directQ8(f blockType, rows int) {
	g.begin(fmt.Sprintf("directQ8%s_%d", f.name, rows), "directQ8", fmt.Sprintf("int(tensor.%s)<<4 | %d", f.name, rows),
		"multiplies a tile of quantised rows with panels as they are packed.",
		arg{"out", "DI"}, arg{"ldN", "R8"}, arg{"panelsN", "R13"}, arg{"w", "R9"}, arg{"a", "R14"}, arg{"aux", "R15"}, arg{"blocksN", "AX"})
	d, dot := g.newDecoder(f), g.newDot(f.signed)
	g.f("SHLQ $2, R8")
	fmt.Fprintln(&g.text, "panel:")
	g.halves(func() {
		g.f("MOVQ R9, SI")
		g.f("MOVQ R14, DX")
		g.f("MOVQ R15, BX")
		g.f("MOVQ AX, CX")
		sum, dots, s, t := g.regs(rows), g.regs(rows*f.groups()), g.reg(), dot.tmp
		if t == "" {
			t = g.reg()
		}
		for _, r := range sum {
			g.zero(r)
		}
		g.walk(f, "CX", func(w *walk) {
			for i, r := range dots {
				if f.affine || dot.signed {
					g.zero(r)
				} else {
					g.f("VPBROADCASTD %d(BX), %s", 4*i, r)
				}
			}
			g.codes(d, w.planes, func(t int) {
				g.weights(dot, d.code)
				for r := range rows {
					g.dot(dot, fmt.Sprintf("%d(DX)", 32*r+4*t), d.code, dots[4*t/f.group*rows+r])
				}
			})
			for gr := range f.groups() {
				g.scale(w, gr, s)
				for r := range rows {
					x := dots[gr*rows+r]
					g.mulBroadcast(fmt.Sprintf("%d(DX)", 32*rows+4*r), s, t)
					g.f("VCVTDQ2PS %s, %s", x, x)
					g.f("VFMADD231PS %s, %s, %s", t, x, sum[r])
				}
				if f.affine {
					op := "VFMADD231PS"
					if f.super {
						op = "VFNMADD231PS"
					}
					g.min(w, gr, s)
					for r := range rows {
						g.fmaBroadcast(op, fmt.Sprintf("%d(BX)", 4*(gr*rows+r)), s, sum[r], t)
					}
				}
			}
			g.f("ADDQ $%d, DX", 36*rows)
			g.f("ADDQ $%d, BX", 4*rows*f.groups())
		})
		g.write(sum)
	})
	g.f("MOVQ SI, R9")
	g.f("ADDQ $64, DI")
	g.f("DECQ R13")
	g.f("JNZ  panel")
	g.end()
}
