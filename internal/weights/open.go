// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// Options of Open. The zero value reads files and maps nothing.
type Options struct {
	Mmap bool // map the files, so that Bytes can give views
}

// Files is what stands beside the tensors.
type Files struct {
	Path string              // what was opened
	Side map[string][]byte   // config.json, tokenizer.json, …: those of sideFiles that are there, by name
	GGUF *modelconf.Metadata // what a GGUF file says of itself; nil for other checkpoints
}

// sideFiles are the files of a checkpoint directory that Open brings along, by name or pattern.
var sideFiles = []string{
	"config.json", "generation_config.json", "hf_quant_config.json",
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "tiktoken.model",
	"chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja",
	"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
}

// SideFiles are the names and patterns of the files that Open looks for beside the tensors.
func SideFiles() []string { return slices.Clone(sideFiles) }

// maxSide is the longest side file that is read. The longest seen, a tokenizer.json, has 33 MB.
const maxSide = 256 << 20

// Open opens a checkpoint: a directory with *.safetensors or a GGUF file, or one such file (of a split GGUF file, any part;
// the files beside it are not looked at, since it describes itself). In a directory, an index
// (model.safetensors.index.json) decides which files and tensors belong to it; without one it is model.safetensors alone,
// or else every *.safetensors file. Errors name the file and the tensor at fault.
func Open(path string, o Options) (Store, *Files, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, osError(path, err)
	}
	file, err := soleGGUF(path, st.IsDir())
	if err != nil {
		return nil, nil, err
	}
	if file != "" {
		return openGGUF(file, o)
	}
	dir, single := path, ""
	if !st.IsDir() {
		dir, single = filepath.Split(path)
		if !strings.HasSuffix(single, ".safetensors") {
			return nil, nil, diag.Errorf(diag.Unsupported, "neither a directory nor a .safetensors or .gguf file").At(diag.Pos{File: path})
		}
	}
	return openFolder(folder(dir), path, single, o)
}

// OpenFS is Open of the directory with *.safetensors that fsys is; errors call it name. Its files must be io.ReaderAt, as
// those of embed.FS are; what they hold is read where it lies.
func OpenFS(fsys fs.FS, name string) (Store, *Files, error) {
	return openFolder(fsys, name, "", Options{})
}

// folder is a directory of the operating system.
func folder(dir string) fs.FS { return os.DirFS(cmp.Or(dir, ".")) }

// openFolder opens a directory's checkpoint, or that of the one file that is named.
func openFolder(fsys fs.FS, path, single string, o Options) (Store, *Files, error) {
	files, err := SideFS(fsys, path)
	if err != nil {
		return nil, nil, err
	}
	var index *safetensors.Index
	shards := []string{single}
	if single == "" {
		if shards, index, err = findShards(fsys, path); err != nil {
			return nil, nil, err
		}
	}
	store, err := openShards(fsys, shards, index, o)
	if err != nil {
		return nil, nil, err
	}
	return store, files, nil
}

// Side reads what stands beside the tensors of a checkpoint directory, which need not be there.
func Side(dir string) (*Files, error) { return SideFS(folder(dir), dir) }

// SideFS is Side of the directory that fsys is; errors call it name.
func SideFS(fsys fs.FS, name string) (*Files, error) {
	files := &Files{Path: name, Side: map[string][]byte{}}
	for _, pattern := range sideFiles {
		found, err := fs.Glob(fsys, pattern)
		if err != nil {
			return nil, osError(name, err)
		}
		for _, file := range found {
			st, err := fs.Stat(fsys, file)
			if err != nil {
				return nil, osError(file, err)
			}
			if st.Size() > maxSide {
				return nil, diag.Errorf(diag.Format, "%d bytes are too many for this file", st.Size()).At(diag.Pos{File: file})
			}
			if files.Side[file], err = fs.ReadFile(fsys, file); err != nil {
				return nil, osError(file, err)
			}
		}
	}
	return files, nil
}

// shardName is the name of one of several shards: prefix, number, count.
var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.safetensors$`)

// findShards decides which files of fsys, which errors call dir, make the checkpoint, and gives the index if it has one.
func findShards(fsys fs.FS, dir string) ([]string, *safetensors.Index, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, nil, osError(dir, err)
	}
	var indices, shards []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".safetensors.index.json"):
			indices = append(indices, name)
		case strings.HasSuffix(name, ".safetensors"):
			shards = append(shards, name)
		}
	}
	const main = "model.safetensors"
	if i := sort.SearchStrings(indices, main+".index.json"); i < len(indices) && indices[i] == main+".index.json" {
		indices = indices[i : i+1]
	}
	if len(indices) == 1 {
		data, err := fs.ReadFile(fsys, indices[0])
		if err != nil {
			return nil, nil, osError(indices[0], err)
		}
		index, err := safetensors.ParseIndex(indices[0], data)
		if err != nil {
			return nil, nil, err
		}
		return index.Shards, index, nil
	}
	if len(indices) > 1 {
		return nil, nil, diag.Errorf(diag.Format, "several indices (%s), none of them %s.index.json", strings.Join(indices, ", "), main).At(diag.Pos{File: dir})
	}
	for _, s := range shards {
		if s == main {
			return []string{main}, nil, nil
		}
	}
	if len(shards) == 0 {
		return nil, nil, diag.Errorf(diag.NotFound, "no *.safetensors file in it").At(diag.Pos{File: dir})
	}
	return shards, nil, complete(shards)
}

// complete checks that numbered shards are all there, since no index says so.
func complete(shards []string) error {
	have := map[string]int{}
	for _, s := range shards {
		if m := shardName.FindStringSubmatch(s); m != nil {
			have[m[1]+"-of-"+m[3]]++
		}
	}
	for _, s := range shards {
		if m := shardName.FindStringSubmatch(s); m != nil {
			if want, _ := strconv.Atoi(m[3]); have[m[1]+"-of-"+m[3]] != want {
				return diag.Errorf(diag.NotFound, "only %d of the %d shards that its name promises are there", have[m[1]+"-of-"+m[3]], want).At(diag.Pos{File: s})
			}
		}
	}
	return nil
}

// openShards opens the shards and joins their tensors. With an index, each tensor comes from the shard that it names;
// tensors that it does not name are taken too.
func openShards(fsys fs.FS, shards []string, index *safetensors.Index, o Options) (_ Store, err error) {
	var files []*file
	defer func() {
		if err != nil {
			_ = closeAll(files)
		}
	}()
	var sources []source
	from := map[string]string{} // tensor → shard
	for _, shard := range shards {
		f, err := openFile(fsys, shard, o.Mmap)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		h, err := safetensors.ReadHeader(shard, f.f, f.size)
		if err != nil {
			return nil, err
		}
		for _, t := range h.Tensors {
			if index != nil && index.Where[t.Name] != "" && index.Where[t.Name] != shard {
				continue // the index takes it from another shard
			}
			if first, dup := from[t.Name]; dup {
				return nil, diag.Errorf(diag.Format, "tensor %s is also in %s", t.Name, first).At(diag.Pos{File: shard}).For(t.Name)
			}
			from[t.Name] = shard
			sources = append(sources, source{tensor.Info{Name: t.Name, DType: t.DType, Shape: t.Shape}, f, t.Begin, nil})
		}
	}
	if index != nil {
		if err := indexed(index, from); err != nil {
			return nil, err
		}
	}
	return newCheckpoint(files, sources), nil
}

// indexed checks that every tensor of the index was found.
func indexed(index *safetensors.Index, from map[string]string) error {
	var lost []string
	for name := range index.Where {
		if _, ok := from[name]; !ok {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	sort.Strings(lost)
	return diag.Errorf(diag.Format, "the index promises tensor %s (and %d more), but the file lacks it", lost[0], len(lost)-1).
		At(diag.Pos{File: index.Where[lost[0]]}).For(lost[0])
}
