// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// client speaks the hub's API.
type client struct {
	env   Env
	http  *http.Client
	pause func(context.Context, time.Duration) error
	stall time.Duration // how long a body may bring nothing
	tries int           // how often one thing is tried in a row
}

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 60 * time.Second
	maxJSON    = 64 << 20 // of an API answer
)

func newClient(env Env, transport http.RoundTripper) *client {
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		t.ResponseHeaderTimeout = 30 * time.Second
		t.DisableCompression = true // sizes and checksums are of the files themselves
		transport = t
	}
	return &client{env: env, pause: pause, stall: 30 * time.Second, tries: 5, http: &http.Client{Transport: transport, CheckRedirect: keepToken}}
}

// keepToken drops the token from a request that a redirect sends to another host, or from https to http, and from all that
// follow it.
func keepToken(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	home := via[0].URL
	for _, u := range append([]*url.URL{req.URL}, urls(via)...) {
		if u.Host != home.Host || u.Scheme != home.Scheme {
			req.Header.Del("Authorization")
		}
	}
	return nil
}

func urls(rs []*http.Request) (out []*url.URL) {
	for _, r := range rs {
		out = append(out, r.URL)
	}
	return out
}

// again is an error that another try may mend; after is the least pause that the server asked for.
type again struct {
	error
	after time.Duration
}

func (a again) Unwrap() error { return a.error }

// retry calls f until it succeeds, fails for good, or has failed c.tries times in a row. f says whether it got ahead; then
// the count starts anew.
func (c *client) retry(ctx context.Context, f func() (ahead bool, err error)) error {
	wait := firstPause
	for try := 1; ; try++ {
		ahead, err := f()
		var a again
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return diag.Errorf(diag.Canceled, "the download was cancelled").Because(ctx.Err())
		case !errors.As(err, &a):
			return err
		}
		if ahead {
			try, wait = 1, firstPause
		}
		if try >= c.tries {
			return a.error
		}
		jitter := time.Duration(rand.Int64N(int64(wait)/2 + 1))
		if err := c.pause(ctx, min(max(wait+jitter, a.after), maxPause)); err != nil {
			return err
		}
		wait *= 2
	}
}

// do sends a request and types every failure. The caller closes the body.
func (c *client) do(ctx context.Context, hc *http.Client, method, target string, header map[string]string, id ID, file string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, diag.Errorf(diag.Invalid, "%s is no URL", target).Because(err)
	}
	req.Header.Set("User-Agent", "met")
	req.Header.Set("Accept-Encoding", "identity")
	if c.env.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.env.Token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, again{error: unreachable(req.URL.Host, err)}
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.statusError(resp, id, file)
}

// errUnreachable marks that no real answer was got: connections that fail, and servers that are down or busy.
var errUnreachable = errors.New("unreachable")

// unreachable types a failed connection. The cause may name the URL; the token is in none.
func unreachable(host string, err error) error {
	why := "the connection failed"
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		why = "no answer in time"
	}
	return diag.Errorf(diag.IO, "%s: %s", host, why).Because(errors.Join(errUnreachable, err))
}

// statusError says what an answer of 400 and above means.
func (c *client) statusError(resp *http.Response, id ID, file string) error {
	page := c.env.Endpoint + "/" + id.Repo
	var e *diag.Error
	switch code := resp.Header.Get("X-Error-Code"); {
	case code == "GatedRepo":
		why := "access to %s is restricted: accept its terms at %s"
		if c.env.Token == "" {
			why += " and set HF_TOKEN"
		} else {
			why += " with the account that HF_TOKEN belongs to"
		}
		e = diag.Errorf(diag.Denied, why, id.Repo, page)
	case code == "RevisionNotFound":
		e = diag.Errorf(diag.NotFound, "%s has no revision %q", id.Repo, id.Revision)
	case code == "EntryNotFound" || resp.StatusCode == 404 && file != "":
		e = diag.Errorf(diag.NotFound, "%v has no file %s", id, file)
	case resp.StatusCode == 401 && c.env.Token != "" && code != "RepoNotFound":
		e = diag.Errorf(diag.Denied, "%s does not accept HF_TOKEN: it may have expired", resp.Request.URL.Host)
	case resp.StatusCode == 401 || code == "RepoNotFound":
		why := "there is no model %s at %s, or it is private"
		if c.env.Token == "" {
			why += " (set HF_TOKEN)"
		} else {
			why += " and not visible to HF_TOKEN"
		}
		e = diag.Errorf(diag.NotFound, why, id.Repo, c.env.Endpoint)
		if resp.StatusCode == 401 && code == "" {
			e.Code = diag.Denied
		}
	case resp.StatusCode == 403:
		e = diag.Errorf(diag.Denied, "access to %s is not allowed", id.Repo)
	case resp.StatusCode == 404:
		e = diag.Errorf(diag.NotFound, "there is no model %v at %s", id, c.env.Endpoint)
	case resp.StatusCode == 416:
		return errRange
	case resp.StatusCode == 429 || resp.StatusCode == 408 || resp.StatusCode >= 500:
		e = diag.Errorf(diag.IO, "%s answers %d %s", resp.Request.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return again{e.For("model").Because(errUnreachable), time.Duration(max(seconds, 0)) * time.Second}
	default:
		e = diag.Errorf(diag.IO, "%s answers %d %s", resp.Request.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return e.For("model")
}

// errRange is an answer to a range that the file does not have.
var errRange = errors.New("range not satisfiable")

// list asks for a revision's commit and files.
func (c *client) list(ctx context.Context, id ID) (l listing, err error) {
	target := c.env.Endpoint + "/api/models/" + id.Repo + "/revision/" + url.PathEscape(id.Revision)
	err = c.retry(ctx, func() (bool, error) {
		resp, err := c.do(ctx, c.http, http.MethodGet, target, nil, id, "")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON))
		if err != nil {
			return false, again{error: unreachable(resp.Request.URL.Host, err)}
		}
		var answer struct {
			SHA      string `json:"sha"`
			Siblings []struct {
				Name string `json:"rfilename"`
			} `json:"siblings"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || !commit.MatchString(answer.SHA) {
			return false, diag.Errorf(diag.IO, "%s does not answer as a model hub does", resp.Request.URL.Host).Because(err)
		}
		l = listing{commit: answer.SHA}
		for _, s := range answer.Siblings {
			if !safeName(s.Name) {
				return false, diag.Errorf(diag.Denied, "%v has a file with the name %q, which could be put anywhere", id, s.Name).For("model")
			}
			l.files = append(l.files, s.Name)
		}
		return true, nil
	})
	return l, err
}

// fileURL is where a file of a commit is.
func (c *client) fileURL(id ID, at, file string) string {
	parts := strings.Split(file, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", c.env.Endpoint, id.Repo, at, strings.Join(parts, "/"))
}

// entry is what the hub says about a file.
type entry struct {
	etag string
	size int64 // -1: not said
}

// etagForm is what may become the name of a blob.
var etagForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.-]{0,127}$`)

// head asks for a file's etag and size. The answer of the hub itself counts, not that of a storage it redirects to.
func (c *client) head(ctx context.Context, id ID, at, file string) (e entry, err error) {
	stay := *c.http
	stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	err = c.retry(ctx, func() (bool, error) {
		target := c.fileURL(id, at, file)
		for range 5 {
			resp, err := c.do(ctx, &stay, http.MethodHead, target, nil, id, file)
			if err != nil {
				return false, err
			}
			resp.Body.Close()
			next, err := resp.Location()
			moved := resp.StatusCode >= 300 && err == nil && next.Host == resp.Request.URL.Host && next.Scheme == resp.Request.URL.Scheme
			if moved && resp.Header.Get("X-Linked-Etag") == "" { // the repository has another name now
				target = next.String()
				continue
			}
			e, err = readEntry(resp, id, at, file)
			return err == nil, err
		}
		return false, diag.Errorf(diag.IO, "%s redirects %s in circles", id.Repo, file).For("model")
	})
	return e, err
}

func readEntry(resp *http.Response, id ID, at, file string) (entry, error) {
	h := resp.Header
	if got := h.Get("X-Repo-Commit"); got != "" && got != at {
		return entry{}, diag.Errorf(diag.IO, "%v: the hub answers for commit %s instead of %s", id, got, at).For("model")
	}
	e := entry{etag: h.Get("X-Linked-Etag"), size: -1}
	if e.etag == "" {
		e.etag = h.Get("ETag")
	}
	e.etag = strings.Trim(strings.TrimPrefix(e.etag, "W/"), `"`)
	if !etagForm.MatchString(e.etag) || strings.HasSuffix(e.etag, ".incomplete") {
		return entry{}, diag.Errorf(diag.IO, "%v: the hub gives no usable etag for %s", id, file).For("model")
	}
	length := h.Get("X-Linked-Size")
	if length == "" && resp.StatusCode < 300 {
		length = h.Get("Content-Length")
	}
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
		e.size = n
	}
	return e, nil
}
