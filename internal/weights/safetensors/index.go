// SPDX-License-Identifier: MIT OR Apache-2.0

package safetensors

import (
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
)

// Index is a model.safetensors.index.json: which shard holds which tensor.
type Index struct {
	Shards []string          // file names in the order of their first mention
	Where  map[string]string // tensor → shard
}

// ParseIndex reads an index. Shards are plain file names: a path separator or a leading dot is refused.
func ParseIndex(file string, data []byte) (*Index, error) {
	root, err := modelconf.ParseJSON(file, data)
	if err != nil {
		return nil, err
	}
	m, ok := root.Child("weight_map")
	if !ok || m.Kind() != modelconf.Object {
		return nil, root.Errorf("weight_map is missing or no object")
	}
	ix := &Index{Where: make(map[string]string, m.Len())}
	seen := map[string]bool{}
	for i, name := range m.Keys() {
		n := m.Items()[i]
		shard, ok := n.Str()
		switch {
		case !ok:
			return nil, n.Errorf("the shard of tensor %s is %v, not a string", name, n.Kind())
		case shard == "" || strings.HasPrefix(shard, ".") || strings.ContainsAny(shard, "/\\\x00"):
			return nil, n.Errorf("the shard of tensor %s, %q, is no plain file name", name, shard)
		}
		ix.Where[name] = shard
		if !seen[shard] {
			seen[shard] = true
			ix.Shards = append(ix.Shards, shard)
		}
	}
	if len(ix.Shards) == 0 {
		return nil, m.Errorf("weight_map names no tensor")
	}
	return ix, nil
}
