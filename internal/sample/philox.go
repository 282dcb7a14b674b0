// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "math/bits"

// philox is Philox4x32-10: a keyed bijection of 128-bit counters.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // multipliers
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // Weyl increments of the key
	)
	for range 10 {
		hi0, lo0 := bits.Mul32(m0, ctr[0])
		hi1, lo1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}

// Random is the 64 bits that draw the index-th generated token of a sequence with that seed.
func Random(seed, index uint64) uint64 {
	r := philox([4]uint32{uint32(index), uint32(index >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return uint64(r[0])<<32 | uint64(r[1])
}
