// SPDX-License-Identifier: MIT OR Apache-2.0

// Package plan holds the only thing that runs: a flat, typed, printable list of kernel launches with the buffers, weights,
// constants and state that they name, for one (model, class, row bucket).
//
// Contract:
//
//  1. A plan is data: no pointers into a device, no closures. exec binds it, record replays it, tests print it.
//  2. Text is stable and complete: Parse(Print(p)) equals p, and Digest is over Print's bytes.
//  3. Sizes that vary from step to step (rows, seqs, outs) are axes whose extent here is an upper bound; kernels read the
//     real counts from the step block's head.
//  4. Every argument names its access; two launches may only share arena bytes when their lifetimes do not overlap.
//  5. Weights and buffers carry how they split over devices, so that parallelism is a pass over the plan.
//  6. A model has a plan for each of its parts: the decoder, and where there are such a draft head and a vision tower. They
//     share weights, state by name, and arrays outside the arena through ports.
//
// The step block is what the host writes before each step, meet excepted; kernels read it from the device:
//
//	head         i32[8]               rows, seqs, outs, draws, 0 …
//	tokens       i32[rows]            token of each row
//	positions    i32[rows]            its position in its sequence, from 0
//	row_seq      i32[rows]            its sequence's index in this step
//	slots        i32[rows]            where its K and V go: page*page_size + offset
//	cu_rows      i32[seqs+1]          first row of each sequence; rows of a sequence are consecutive and rising in position
//	block_table  i32[seqs, pages]     its pages, in order of position
//	state_slot   i32[seqs]            its recurrent-state slot
//	fresh        i32[seqs]            1: its recurrent state starts from zero in this step
//	out_rows     i32[outs]            rows whose logits are wanted, rising
//	feature_row  i32[rows]            row of the features port whose values replace the row's token embedding; -1: none
//	hidden_row   i32[rows]            row of the hidden port that the row of a draft head continues
//	coords       i32[rows, 3]         place for rotation along several axes: time, height, width
//	grids        i32[seqs, 3]         of an image: frames, rows and columns of patches
//	meet         i32[8192]            counters by which blocks of a launch find each other; the host writes 0, once
//
//	feed         i32[rows]            seat whose newest drawn token the row takes; -1: tokens has it
//	draws        i32[draws, 20]       what the sampler does with rows of logits (kernels/cuda/common/sample/row.cuh)
//
// The last two are for the sampler that exec launches beside a plan. Fields that a part's plans do not name are not written. In a vision tower, rows are patches, sequences are images, and outs
// are the embeddings that they give, each of merge*merge consecutive patches.
package plan
