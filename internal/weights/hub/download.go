// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// digest computes what an etag of that length claims: SHA-256, or git's SHA-1 over a header and the content. Nil for an
// etag that is no checksum (some mirrors give such), where only the size can be held against.
func (e entry) digest() hash.Hash {
	if _, err := hex.DecodeString(e.etag); err != nil {
		return nil
	}
	switch {
	case len(e.etag) == 2*sha256.Size:
		return sha256.New()
	case len(e.etag) == 2*sha1.Size && e.size >= 0:
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", e.size)
		return h
	}
	return nil
}

// errChecksum is content that is not what its etag says.
var errChecksum = errors.New("checksum")

// blob makes sure that the cache has the blob of a file.
func (r *run) blob(ctx context.Context, file string, e entry) error {
	name := r.cache.blob(e.etag)
	unlock, err := r.cache.lock(ctx, e.etag)
	if err != nil {
		return err
	}
	defer unlock()
	if st, err := os.Stat(name); err == nil && (e.size < 0 || st.Size() == e.size) {
		r.report(Event{File: file, Done: st.Size(), Total: st.Size(), Cached: true})
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fsError(name, err)
	}
	partial := name + ".incomplete"
	for try := range 2 { // content that is wrong is fetched once more, from its start
		err = r.fetch(ctx, file, e, partial)
		if !errors.Is(err, errChecksum) {
			break
		}
		os.Remove(partial)
		if try == 1 {
			return diag.Errorf(diag.IO, "%v: %s arrives with other content than announced (checksum)", r.id, file).For("model")
		}
	}
	if err != nil {
		return err
	}
	if err := os.Rename(partial, name); err != nil {
		return fsError(name, err)
	}
	return nil
}

// fetch completes the partial file, over as many connections as it takes, and checks it.
func (r *run) fetch(ctx context.Context, file string, e entry, partial string) error {
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fsError(partial, err)
	}
	defer f.Close()
	sum := e.digest()
	at, err := rehash(f, sum, e.size)
	if err != nil {
		return fsError(partial, err)
	}
	err = r.client.retry(ctx, func() (bool, error) {
		before := at
		err := r.receive(ctx, file, e, f, &sum, &at)
		return at > before, err
	})
	if err != nil {
		return err
	}
	if e.size >= 0 && at != e.size || sum != nil && hex.EncodeToString(sum.Sum(nil)) != e.etag {
		return errChecksum
	}
	if err := f.Sync(); err != nil {
		return fsError(partial, err)
	}
	return nil
}

// rehash reads what is there of a partial file into the checksum and gives its length; a file that is too long starts anew.
func rehash(f *os.File, sum hash.Hash, size int64) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if size >= 0 && st.Size() > size {
		return 0, f.Truncate(0)
	}
	if sum == nil {
		return f.Seek(0, io.SeekEnd)
	}
	return io.Copy(sum, f)
}

// receive asks for the rest of a file from *at on and appends what comes.
func (r *run) receive(ctx context.Context, file string, e entry, f *os.File, sum *hash.Hash, at *int64) error {
	if e.size >= 0 && *at == e.size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := map[string]string{}
	if *at > 0 {
		header["Range"] = fmt.Sprintf("bytes=%d-", *at)
	}
	resp, err := r.client.do(ctx, r.client.http, http.MethodGet, r.client.fileURL(r.id, r.commit, file), header, r.id, file)
	if errors.Is(err, errRange) { // what is there is not a beginning of the file
		if err := restart(f, sum, e, at); err != nil {
			return err
		}
		return again{error: diag.Errorf(diag.IO, "%v: the download of %s had to start anew", r.id, file).For("model")}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent && startsAt(resp, *at):
	case resp.StatusCode == http.StatusOK && *at == 0:
	case resp.StatusCode == http.StatusOK: // it sends the whole file: take it
		if err := restart(f, sum, e, at); err != nil {
			return err
		}
	default:
		return again{error: diag.Errorf(diag.IO, "%s sends something else than the part of %s that was asked for", resp.Request.URL.Host, file).For("model")}
	}
	stalled := time.AfterFunc(r.client.stall, func() { cancel(errors.New("stalled")) })
	defer stalled.Stop()
	buf := make([]byte, 1<<18)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			stalled.Reset(r.client.stall)
			if e.size >= 0 && *at+int64(n) > e.size {
				return errChecksum
			}
			if _, err := f.WriteAt(buf[:n], *at); err != nil {
				return fsError(f.Name(), err)
			}
			if *sum != nil {
				(*sum).Write(buf[:n])
			}
			*at += int64(n)
			r.report(Event{File: file, Done: *at, Total: e.size})
		}
		switch {
		case err == io.EOF && e.size >= 0 && *at < e.size:
			return again{error: unreachable(resp.Request.URL.Host, io.ErrUnexpectedEOF)}
		case err == io.EOF:
			return nil
		case err != nil:
			return again{error: unreachable(resp.Request.URL.Host, err)}
		}
	}
}

// restart empties a partial file.
func restart(f *os.File, sum *hash.Hash, e entry, at *int64) error {
	if err := f.Truncate(0); err != nil {
		return fsError(f.Name(), err)
	}
	*at, *sum = 0, e.digest()
	return nil
}

// startsAt says whether a partial answer begins at that byte.
func startsAt(resp *http.Response, at int64) bool {
	var first int64
	n, _ := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &first)
	return n == 1 && first == at
}
