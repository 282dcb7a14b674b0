// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// Event is a step of a download.
type Event struct {
	File        string
	Done, Total int64 // bytes; Total is -1 if it is not known
	Cached      bool  // nothing had to be fetched
}

// Options of Resolve.
type Options struct {
	Env       Env
	GGUF      string            // of a repository with GGUF files, which one: its name, or a part of it like "Q4_K_M"
	Parallel  int               // files at a time; 0 is 4
	Progress  func(Event)       // called from one goroutine at a time; may be nil
	Warn      func(msg string)  // told what Resolve worked around; may be nil
	Transport http.RoundTripper // nil: the network

	pause func(context.Context, time.Duration) error // nil: a clock; tests do not wait
	stall time.Duration                              // 0: the client's
}

// run is one Resolve.
type run struct {
	id     ID
	commit string
	cache  repoCache
	client *client
	opts   Options
	mu     sync.Mutex // over Progress
}

func (r *run) report(e Event) {
	if r.opts.Progress != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.opts.Progress(e)
	}
}

// Resolve gives the snapshot folder of a model ("org/name" or "org/name@revision") that has all files which weights.Open
// wants, and fetches those that the cache lacks. Errors: Invalid for the id, NotFound, Denied, IO, Canceled.
func Resolve(ctx context.Context, model string, o Options) (dir string, err error) {
	id, err := ParseID(model)
	if err != nil {
		return "", err
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	r := &run{id: id, cache: cacheOf(o.Env.Cache, id.Repo), client: newClient(o.Env, o.Transport), opts: o}
	if o.pause != nil {
		r.client.pause = o.pause
	}
	if o.stall != 0 {
		r.client.stall = o.stall
	}
	if o.Env.Offline {
		dir, err := r.cached()
		if e, ok := diag.As(err); ok && e.Code == diag.NotFound {
			e.Msg += ", and HF_HUB_OFFLINE is set"
		}
		return dir, err
	}
	dir, local := r.cached()
	if local == nil && commit.MatchString(id.Revision) { // a commit does not change
		return dir, nil
	}
	tries := r.client.tries
	if local == nil {
		r.client.tries = 1 // there is something to fall back to
	}
	l, err := r.client.list(ctx, id)
	r.client.tries = tries
	switch {
	case err == nil:
		return r.download(ctx, l)
	case local == nil && errors.Is(err, errUnreachable):
		if o.Warn != nil {
			o.Warn(err.Error() + "; using what the cache has of " + id.String())
		}
		return dir, nil
	}
	return "", err
}

// cached is the snapshot folder if the cache has all of it.
func (r *run) cached() (string, error) {
	at := r.cache.commitOf(r.id.Revision)
	if at == "" {
		return "", diag.Errorf(diag.NotFound, "%v is not in the cache", r.id).For("model")
	}
	lost, err := r.cache.lost(at, r.id, r.opts.GGUF)
	if err != nil {
		return "", err
	}
	if lost != "" {
		return "", diag.Errorf(diag.NotFound, "%v is not complete in the cache: %s is missing", r.id, lost).For("model")
	}
	return r.cache.snapshot(at), nil
}

// download fetches what is wanted of a listing: first what is known at once, then the shards that an index names.
func (r *run) download(ctx context.Context, l listing) (string, error) {
	r.commit = l.commit
	sel, err := l.choose(r.id, r.opts.GGUF)
	if err != nil {
		return "", err
	}
	first := sel.files
	if sel.index != "" {
		first = append(first, sel.index)
	}
	if err := r.files(ctx, first); err != nil {
		return "", err
	}
	dir := r.cache.snapshot(l.commit)
	if sel.index != "" {
		data, err := os.ReadFile(filepath.Join(dir, sel.index))
		if err != nil {
			return "", fsError(sel.index, err)
		}
		more, err := shards(sel.index, data)
		if err != nil {
			return "", err
		}
		if err := r.files(ctx, more); err != nil {
			return "", err
		}
	}
	return dir, r.cache.setRef(r.id.Revision, l.commit)
}

// files brings files into the snapshot, several at a time; the first error ends the others.
func (r *run) files(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan string)
	var wg sync.WaitGroup
	for range min(r.opts.Parallel, len(names)) {
		wg.Go(func() {
			for name := range work {
				if err := r.file(ctx, name); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, name := range names {
		select {
		case work <- name:
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
	err := context.Cause(ctx)
	if _, typed := diag.As(err); err != nil && !typed {
		err = diag.Errorf(diag.Canceled, "the download was cancelled").Because(err)
	}
	return err
}

// file brings one file into the snapshot.
func (r *run) file(ctx context.Context, name string) error {
	if st, err := os.Stat(filepath.Join(r.cache.snapshot(r.commit), filepath.FromSlash(name))); err == nil {
		r.report(Event{File: name, Done: st.Size(), Total: st.Size(), Cached: true})
		return nil
	}
	e, err := r.client.head(ctx, r.id, r.commit, name)
	if err != nil {
		return err
	}
	if err := r.blob(ctx, name, e); err != nil {
		return err
	}
	return r.cache.link(r.commit, name, e.etag)
}
