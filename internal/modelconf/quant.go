// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

// Quant says how a checkpoint is quantised.
type Quant struct {
	Method string
}

func readQuant(tree *Node, files map[string][]byte) (*Quant, error) { return nil, nil }
