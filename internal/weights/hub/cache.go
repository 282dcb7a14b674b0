// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// repoCache is the part of the cache that belongs to one repository.
type repoCache struct {
	dir, locks string
}

func cacheOf(root, repo string) repoCache {
	name := "models--" + strings.ReplaceAll(repo, "/", "--")
	return repoCache{filepath.Join(root, name), filepath.Join(root, ".locks", name)}
}

func (c repoCache) blob(etag string) string       { return filepath.Join(c.dir, "blobs", etag) }
func (c repoCache) snapshot(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }

// commitOf is the commit that a revision was last seen at; empty if it never was.
func (c repoCache) commitOf(revision string) string {
	if commit.MatchString(revision) {
		return revision
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "refs", filepath.FromSlash(revision)))
	if at := strings.TrimSpace(string(data)); err == nil && commit.MatchString(at) {
		return at
	}
	return ""
}

// setRef notes the commit of a revision.
func (c repoCache) setRef(revision, at string) error {
	if revision == at || c.commitOf(revision) == at {
		return nil
	}
	return replace(filepath.Join(c.dir, "refs", filepath.FromSlash(revision)), func(tmp string) error {
		return os.WriteFile(tmp, []byte(at), 0o644)
	})
}

// link makes the snapshot's file point to the blob.
func (c repoCache) link(at, file, etag string) error {
	up := strings.Repeat("../", strings.Count(file, "/")+2)
	return replace(filepath.Join(c.snapshot(at), filepath.FromSlash(file)), func(tmp string) error {
		return os.Symlink(filepath.FromSlash(up+"blobs/"+etag), tmp)
	})
}

// replace makes a file by make under a temporary name beside it, and renames it into place.
func replace(name string, make func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fsError(name, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".tmp-*")
	if err != nil {
		return fsError(name, err)
	}
	tmp.Close()
	os.Remove(tmp.Name()) // only its name was wanted
	err = make(tmp.Name())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fsError(name, err)
	}
	return nil
}

// exists says whether a snapshot's file is there, with its content.
func exists(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// lost is the first of the wanted files that a snapshot lacks; empty if it is complete. Without knowing what the
// repository has, the snapshot's own files are asked.
func (c repoCache) lost(at string, id ID, gguf string) (string, error) {
	dir := c.snapshot(at)
	l := listing{commit: at}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, _ := filepath.Rel(dir, p); !d.IsDir() {
			l.files = append(l.files, filepath.ToSlash(name))
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return "", diag.Errorf(diag.NotFound, "%v is not in the cache", id).For("model")
	}
	if err != nil {
		return "", fsError(dir, err)
	}
	sel, err := l.choose(id, gguf)
	if err != nil {
		return "", diag.Errorf(diag.NotFound, "%v is not complete in the cache", id).For("model").Because(err)
	}
	want := sel.files
	isGGUF := len(want) > 0 && path.Ext(want[0]) == ".gguf"
	if !isGGUF {
		want = append(want, "config.json")
	}
	if sel.index != "" {
		data, err := os.ReadFile(filepath.Join(dir, sel.index))
		if err != nil {
			return sel.index, nil
		}
		more, err := shards(sel.index, data)
		if err != nil {
			return "", err
		}
		want = append(want, more...)
	}
	for _, f := range want {
		if !exists(filepath.Join(dir, filepath.FromSlash(f))) {
			return f, nil
		}
	}
	return "", nil
}

// lock takes the lock of a blob; wait until another process gives it up, or ctx ends.
func (c repoCache) lock(ctx context.Context, etag string) (unlock func(), err error) {
	name := filepath.Join(c.locks, etag+".lock")
	if err := os.MkdirAll(c.locks, 0o755); err != nil {
		return nil, fsError(name, err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fsError(name, err)
	}
	for {
		switch ok, err := tryLock(f); {
		case err != nil:
			f.Close()
			return nil, fsError(name, err)
		case ok:
			return func() { f.Close() }, nil // closing gives the lock up
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}

// pause waits, or fails when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return diag.Errorf(diag.Canceled, "the download was cancelled").Because(ctx.Err())
	}
}

// fsError types an error of the file system.
func fsError(name string, err error) error {
	e := diag.Errorf(diag.IO, "the cache cannot be written").At(diag.Pos{File: name}).Because(err)
	if errors.Is(err, fs.ErrPermission) {
		e.Msg = "the cache cannot be written: permission denied"
	}
	if isNoSpace(err) {
		e.Msg = "no space is left for the cache"
	}
	return e
}
