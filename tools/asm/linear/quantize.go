// SPDX-License-Identifier: MIT OR Apache-2.0

package main

// tiny is the package's: a smaller max|x| counts as zero.
const tiny = 0x04000000

// quantize writes blocks of a row as codes and scales, and the sums of its codes by 16.
func (g *gen) quantize() {
	g.begin("quantize", "", "", "quantises blocks of a row; codes and scales lie step bytes apart.",
		arg{"codes", "DI"}, arg{"scales", "R8"}, arg{"stepN", "R9"}, arg{"sums", "BX"}, arg{"src", "SI"}, arg{"blocksN", "CX"})
	in, most, t := g.regs(128/g.width), g.reg(), g.reg()
	abs, limit, ones, words := g.constant(0x7fffffff), g.constant(0x42fe0000), g.constant(bytesOf(1)), g.constant(0x00010001)
	order := g.reg()
	if g.width == 32 {
		g.load("·packOrder(SB)", order)
	}
	g.label("loop")
	for i, r := range in {
		g.load(at(g.width*i, "SI"), r)
		if i == 0 {
			g.and(abs, r, most)
			continue
		}
		g.and(abs, r, t)
		g.f("VPMAXUD %s, %s, %s", t, most, most)
	}
	if g.width == 64 {
		g.f("VEXTRACTI64X4 $1, %s, %s", most, y(t))
		g.f("VPMAXUD %s, %s, %s", y(t), y(most), y(most))
	}
	g.f("VEXTRACTI128 $1, %s, %s", y(most), x(t))
	g.f("VPMAXUD %s, %s, %s", x(t), x(most), x(most))
	for _, shuffle := range []int{0x4e, 0xb1} {
		g.f("VPSHUFD $%#x, %s, %s", shuffle, x(most), x(t))
		g.f("VPMAXUD %s, %s, %s", x(t), x(most), x(most))
	}
	g.f("VMOVD %s, AX", x(most))
	g.f("CMPL AX, $%#x", tiny)
	g.jump("JCS", "tiny")
	g.f("VDIVSS %s, %s, %s", x(limit), x(most), x(t))
	g.f("VMOVSS %s, (R8)", x(t))
	g.f("VDIVSS %s, %s, %s", x(most), x(limit), x(t))
	g.f("VBROADCASTSS %s, %s", x(t), t)
	for _, r := range in {
		g.f("VMULPS %s, %s, %s", t, r, r)
		g.f("VCVTPS2DQ %s, %s", r, r)
	}
	codes := y(in[0])
	if g.width == 64 {
		g.f("VPMOVSDB %s, %s", in[0], x(in[0]))
		g.f("VPMOVSDB %s, %s", in[1], x(in[1]))
		g.f("VINSERTI128 $1, %s, %s, %s", x(in[1]), codes, codes)
	} else { // packing works on halves of 16 bytes: order puts their words in a row
		g.f("VPACKSSDW %s, %s, %s", in[1], in[0], in[0])
		g.f("VPACKSSDW %s, %s, %s", in[3], in[2], in[2])
		g.f("VPACKSSWB %s, %s, %s", in[2], in[0], in[0])
		g.f("VPERMD %s, %s, %s", in[0], order, in[0])
	}
	g.f("VMOVDQU %s, (DI)", codes)
	g.f("VPMADDUBSW %s, %s, %s", codes, y(ones), y(t))
	g.f("VPMADDWD %s, %s, %s", y(words), y(t), y(t))
	g.f("VPHADDD %s, %s, %s", y(t), y(t), y(t))
	g.f("VPHADDD %s, %s, %s", y(t), y(t), y(t))
	g.f("VMOVD %s, (BX)", x(t))
	g.f("VEXTRACTI128 $1, %s, %s", y(t), x(t))
	g.f("VMOVD %s, 4(BX)", x(t))
	g.label("next")
	g.f("ADDQ R9, DI")
	g.f("ADDQ R9, R8")
	g.f("ADDQ $8, BX")
	g.f("ADDQ $128, SI")
	g.f("DECQ CX")
	g.jump("JNZ", "loop")
	g.end()
	g.label("tiny")
	g.f("VPXOR %s, %s, %s", x(t), x(t), x(t))
	g.f("VMOVDQU %s, (DI)", y(t))
	g.f("MOVL $0, (R8)")
	g.f("MOVQ $0, (BX)")
	g.jump("JMP", "next")
}
