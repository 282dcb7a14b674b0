// SPDX-License-Identifier: MIT OR Apache-2.0

// Package attn is grouped-query attention over paged keys and values, on slices of host memory: causal, or with Last up to one
// position for all rows of a sequence.
//
// The pools. A slot is page*page_size + offset, and page_size is a multiple of 16, so sixteen consecutive slots of one
// sequence are one block, whatever the page size. A pool of f32, bf16 or f16 is
//
//	K  [slots/16] [kv_heads] [head_dim] [16]   keys lie across: one vector holds dimension d of sixteen keys
//	V  [slots/16] [kv_heads] [16] [v_dim]      as they come
//
//	K block of one head            V block of one head
//	     key 0  key 1 … key 15         dim 0  dim 1 … dim v-1
//	d=0   ·      ·       ·        key 0  ·      ·        ·
//	d=1   ·      ·       ·        key 1  ·      ·        ·
//	…                              …
//
// so scores of sixteen keys, and sums over them, need no horizontal step.
//
// A latent pool (multi-head latent attention) is K of one head alone, whose first v_dim dims are the values. Its rows may
// see only listed keys, which Index chooses; a row whose list is all its keys gets the bits of attention without a list. In
// compressed attention a row sees entries, each for so many tokens, and then the tokens of a window.
//
// The algorithm is online softmax over chunks of 64 keys, in segments of 512 that are summed up by themselves and merged in
// order, all counted from position 0. A tile is the query heads that share a KV head, of a few consecutive rows of one
// sequence: it reads each block once.
//
// Contract:
//
//  1. A row's result depends on its query, position and sequence only: a score is a sum over dims in order, the maximum
//     moves once per chunk, weights are summed in sixteen lanes by key mod 16, values key by key in order, segments are
//     merged in order, a sink is added last. Rows of a tile that do not see a key give it weight 0, which leaves their sums as they are.
//  2. Only blocks that hold a key visible to the tile are read, so the block table need not name pages behind a window.
//  3. Slots and pages out of range panic before memory is touched.
//  4. bf16 and f16 keys and values are rounded to nearest even on Append; arithmetic is float32.
package attn
