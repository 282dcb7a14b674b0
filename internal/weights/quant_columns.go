// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// columns are the values and scales of a matrix [N, K] that is stored by columns, as AWQ and GPTQ do:
//
//	        qweight i32                                   scales f16    qzeros i32
//	awq     [K, N/8]   8 outputs, in the order of awqOrder  [K/g, N]      [K/g, N/8] in that order
//	gptq    [K/8, N]   8 inputs, in order                   [K/g, N]      [K/g, N/8] in order, less 1 in the first version
//
// It is turned as a whole when its first row is read, and kept until it is dropped.
type columns struct {
	scales, zeros tensor.Info
	symmetric     bool   // all zero points are 8
	order         [8]int // outputs of an i32
	gptq          bool   // values hold 8 inputs
	less          byte   // what is added to stored zero points

	mu     sync.Mutex
	turned []byte // values [N][K/2], two codes to a byte in order
	beside []byte // [N][K/g]: scale, zero point u8
}

var (
	awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	inOrder  = [8]int{0, 1, 2, 3, 4, 5, 6, 7}
)

// byColumns finds the tensors of a matrix of AWQ or GPTQ.
func (f *finder) byColumns(p *packed, module string, s modelconf.Scheme) bool {
	t := p.values
	if t.DType != tensor.I32 || len(t.Shape) != 2 || !strings.HasSuffix(t.Name, ".qweight") {
		f.fault(diag.Format, t.Name, "is %v %v, weights of %s are matrices of i32", t.DType, t.Shape, s.Method)
		return false
	}
	c := &columns{order: awqOrder, symmetric: !s.Weight.Zero}
	k, n := t.Shape[0], t.Shape[1]*8
	if s.Method != "awq" {
		c.gptq, c.order = true, inOrder
		k, n = t.Shape[0]*8, t.Shape[1]
	}
	if s.Method == "gptq" {
		c.less = 1
	}
	if k%8 != 0 || n%8 != 0 || k*n == 0 {
		f.fault(diag.Format, t.Name, "is %v: %d inputs and %d outputs, both must be multiples of 8", t.Shape, k, n)
		return false
	}
	p.Shape, p.shape = tensor.Shape{n, k}, [3]int64{1, n, k}
	p.codes, p.columns, p.group = codesUint4, c, [2]int64{1, k}
	if g := s.Weight.Group[1]; g > 0 {
		p.group[1] = min(g, k)
	}
	scales, ok := f.one(p, []string{module + ".scales"})
	if !ok || !f.fits(p, scales, tensor.Shape{ceil(k, p.group[1]), n}, tensor.F16, tensor.BF16) {
		return false
	}
	c.scales, p.scale = scales, scales
	if c.zeros, ok = f.one(p, []string{module + ".qzeros"}); !ok || !f.fits(p, c.zeros, tensor.Shape{ceil(k, p.group[1]), n / 8}, tensor.I32) {
		return false
	}
	return f.inputOrder(p, module)
}

// inputOrder makes sure that inputs, if their groups are listed, have those that they lie in.
func (f *finder) inputOrder(p *packed, module string) bool {
	name := module + ".g_idx"
	t, ok := f.store.Lookup(name)
	if !ok {
		return true
	}
	f.taken[name] = true
	raw := make([]byte, t.Size())
	if t.DType != tensor.I32 || t.Shape.Elems() != p.shape[2] {
		f.fault(diag.Format, name, "is %v %v, the groups of %d inputs must be i32", t.DType, t.Shape, p.shape[2])
		return false
	}
	if err := f.store.Read(name, 0, raw); err != nil {
		f.fault(diag.CodeOf(err), name, "cannot be read: %v", err)
		return false
	}
	for i := range p.shape[2] {
		if int64(binary.LittleEndian.Uint32(raw[4*i:])) != i/p.group[1] {
			f.fault(diag.Unsupported, name, "puts input %d into another group than the %d-th: permuted inputs cannot be read", i, i/p.group[1])
			return false
		}
	}
	return true
}

// rows gives rows of the turned matrix.
func (c *columns) rows(p *packed, row, n int64) (values, scales []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turned == nil {
		if err := c.turn(p); err != nil {
			return nil, nil, err
		}
	}
	per := p.scaleBytes() * ceil(p.shape[2], p.group[1])
	return c.turned[row*p.rowBytes():][:n*p.rowBytes()], c.beside[row*per:][:n*per], nil
}

func (c *columns) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turned, c.beside = nil, nil
}

// turn reads the tensors and writes them by rows.
func (c *columns) turn(p *packed) error {
	read := func(t tensor.Info) ([]byte, error) {
		raw := make([]byte, t.Size())
		return raw, p.store.Read(t.Name, 0, raw)
	}
	raw, err := read(p.values)
	if err != nil {
		return err
	}
	scales, err := read(c.scales)
	if err != nil {
		return err
	}
	if why := badScale(c.scales.DType, scales); why != "" {
		return diag.Errorf(diag.Format, "tensor %s: a scale is %s", c.scales.Name, why).For(c.scales.Name)
	}
	n, k := p.shape[1], p.shape[2]
	groups, size := ceil(k, p.group[1]), p.scaleBytes()
	beside := make([]byte, n*groups*size)
	for g := range groups {
		for row := range n {
			to := beside[(row*groups+g)*size:][:size]
			copy(to, scales[(g*n+row)*(size-1):][:size-1])
		}
	}
	zeros, err := read(c.zeros)
	if err != nil {
		return err
	}
	for i := range groups * n {
		g, at := i/n, i%n
		row := at/8*8 + int64(c.order[at%8])
		zero := zeros[i/2]>>(i%2*4)&15 + c.less
		if c.symmetric && zero != 8 {
			return diag.Errorf(diag.Format, "tensor %s: a zero point is %d, the config says that all are 8", c.zeros.Name, zero).For(c.zeros.Name)
		}
		beside[(row*groups+g+1)*size-1] = zero
	}
	turned := make([]byte, n*k/2)
	if c.gptq { // a word is 8 inputs of an output
		for j := range k / 8 {
			for row := range n {
				copy(turned[row*k/2+4*j:][:4], raw[4*(j*n+row):])
			}
		}
	} else {
		c.turnWords(turned, raw, n, k)
	}
	c.turned, c.beside = turned, beside
	return nil
}

// turnWords turns words of an input of 8 outputs, 8 inputs at a time.
func (c *columns) turnWords(dst, src []byte, n, k int64) {
	for j := int64(0); j < k; j += 8 {
		for w := range n / 8 {
			var rows [8]uint32 // 8 inputs of each output
			for i := range int64(8) {
				word := binary.LittleEndian.Uint32(src[4*((j+i)*(n/8)+w):])
				for o, row := range c.order {
					rows[row] |= word >> (4 * o) & 15 << (4 * i)
				}
			}
			for o, word := range rows {
				binary.LittleEndian.PutUint32(dst[(8*w+int64(o))*k/2+j/2:], word)
			}
		}
	}
}
