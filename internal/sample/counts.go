// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "github.com/metrale/metrale/internal/seq"

// counts is how often each token was seen, in order of first sight, with an open-addressed index.
type counts struct {
	entries []seq.Count
	index   []int32 // entry+1; 0: empty. Its length is a power of two, at least twice that of entries
}

func (c *counts) reset() {
	c.entries = c.entries[:0]
	clear(c.index)
}

// at is the token's entry, made when there is none; valid until the next at.
func (c *counts) at(token int32) *seq.Count {
	if 2*len(c.entries) >= len(c.index) {
		c.grow()
	}
	i := c.slot(token)
	if c.index[i] == 0 {
		c.entries = append(c.entries, seq.Count{Token: token})
		c.index[i] = int32(len(c.entries))
	}
	return &c.entries[c.index[i]-1]
}

// slot is where the token's entry is indexed, or would be.
func (c *counts) slot(token int32) int {
	mask := len(c.index) - 1
	i := int(uint32(token)*0x9E3779B1>>7) & mask
	for c.index[i] != 0 && c.entries[c.index[i]-1].Token != token {
		i = (i + 1) & mask
	}
	return i
}

func (c *counts) grow() {
	c.index = make([]int32, max(64, 2*len(c.index)))
	for i, e := range c.entries {
		c.index[c.slot(e.Token)] = int32(i + 1)
	}
}
