// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

// Block is the number of keys that lie together.
const Block = vec.KeyBlock

// Pool is K or V of one layer. Data's elements are of type D.
type Pool struct {
	D       tensor.DType // F32, BF16 or F16
	F32     []float32    // the elements, when D is F32
	Bits    []uint16     // the elements, when D is BF16 or F16
	KVHeads int
	Dim     int // of one head
}

// Supported says whether pools may have that element type.
func Supported(d tensor.DType) bool { return d == tensor.F32 || d == tensor.BF16 || d == tensor.F16 }

// blocks is the number of blocks.
func (p *Pool) blocks() int { return (len(p.F32) + len(p.Bits)) / (p.KVHeads * p.Dim * Block) }

// at is where the block of a KV head starts, in elements.
func (p *Pool) at(block, head int) int { return (block*p.KVHeads + head) * p.Dim * Block }

// AppendK writes the keys [kv_heads*dim] of one row to a slot.
func (p *Pool) AppendK(l vec.Level, slot int32, k []float32) {
	block, lane := p.place(slot)
	for h := range p.KVHeads {
		x, at, n := k[h*p.Dim:(h+1)*p.Dim], p.at(block, h), p.Dim*Block
		if p.D == tensor.F32 {
			scatter(p.F32[at:at+n], x, lane)
			continue
		}
		var t [64]uint16 // part of the row in the pool's type
		for d := 0; d < len(x); d += len(t) {
			part := x[d:min(d+len(t), len(x))]
			p.narrow(l, t[:len(part)], part)
			scatter(p.Bits[at+d*Block:at+n], t[:len(part)], lane)
		}
	}
}

// AppendV writes the values [kv_heads*dim] of one row to a slot.
func (p *Pool) AppendV(l vec.Level, slot int32, v []float32) {
	block, lane := p.place(slot)
	for h := range p.KVHeads {
		x, at := v[h*p.Dim:(h+1)*p.Dim], p.at(block, h)+lane*p.Dim
		if p.D == tensor.F32 {
			copy(p.F32[at:at+p.Dim], x)
		} else {
			p.narrow(l, p.Bits[at:at+p.Dim], x)
		}
	}
}

// AppendPadded writes the values of one row [kv_heads*n] to a slot of a pool of float32 whose heads are wider: zeros follow.
func (p *Pool) AppendPadded(slot int32, v []float32, n int) {
	block, lane := p.place(slot)
	for h := range p.KVHeads {
		at := p.at(block, h) + lane*p.Dim
		clear(p.F32[at+copy(p.F32[at:at+p.Dim], v[h*n:(h+1)*n]) : at+p.Dim])
	}
}

func (p *Pool) place(slot int32) (block, lane int) {
	if slot < 0 || int(slot) >= p.blocks()*Block {
		panic(fmt.Sprintf("slot %d of a pool of %d", slot, p.blocks()*Block))
	}
	return int(slot) / Block, int(slot) % Block
}

// narrow rounds to the pool's 16-bit type.
func (p *Pool) narrow(l vec.Level, dst []uint16, x []float32) {
	if p.D == tensor.F16 {
		l.ToF16(dst, x)
	} else {
		l.ToBF16(dst, x)
	}
}

// scatter writes x down one lane of a block.
func scatter[T any](block []T, x []T, lane int) {
	for d, v := range x {
		block[d*Block : d*Block+Block][lane] = v
	}
}

// block gives the elements of a head's block as float32: the pool's own, or converted into tmp.
func (p *Pool) block(l vec.Level, block, head int, tmp []float32) []float32 {
	at, n := p.at(block, head), p.Dim*Block
	switch p.D {
	case tensor.F32:
		return p.F32[at : at+n]
	case tensor.BF16:
		l.FromBF16(tmp[:n], p.Bits[at:at+n])
	case tensor.F16:
		l.FromF16(tmp[:n], p.Bits[at:at+n])
	}
	return tmp[:n]
}

// find gives the pool's block that holds a position.
func (p *Pool) find(table []int32, pos, pageSize int) int {
	page := int(table[pos/pageSize])
	at := page*(pageSize/Block) + pos%pageSize/Block
	if page < 0 || at >= p.blocks() {
		panic(fmt.Sprintf("page %d is not in the pool", page))
	}
	return at
}

// column copies one key of a block of one head down a lane: to k[0], k[16], …
func (p *Pool) column(k []float32, block, lane int) {
	at := p.at(block, 0) + lane
	for d := range p.Dim {
		switch p.D {
		case tensor.F32:
			k[d*Block] = p.F32[at+d*Block]
		case tensor.BF16:
			k[d*Block] = tensor.FromBF16(p.Bits[at+d*Block])
		case tensor.F16:
			k[d*Block] = tensor.FromF16(p.Bits[at+d*Block])
		}
	}
}

// transpose makes a block of values [16][dim] of the first dims of a block of keys [head_dim][16].
func transpose(v, k []float32, dim int) []float32 {
	for d := range dim {
		for j, x := range k[d*Block : (d+1)*Block] {
			v[j*dim+d] = x
		}
	}
	return v[:Block*dim]
}
