// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// Limits of fetching an image.
const (
	fetchTimeout = 10 * time.Second
	maxRedirects = 3
)

// fetcher fetches images of the hosts that the operator allows, and goes nowhere else, wherever they send it.
type fetcher struct {
	hosts  []string
	client http.Client
}

func newFetcher(hosts []string) *fetcher {
	f := &fetcher{hosts: hosts}
	f.client = http.Client{
		Timeout:       fetchTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: headerBytes, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: f.redirect,
	}
	return f
}

var errRedirect = errors.New("redirected too often, or to where images may not be fetched from")

func (f *fetcher) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || !slices.Contains(f.hosts, strings.ToLower(r.URL.Host)) {
		return errRedirect
	}
	return nil
}

// get gives a file of at most so many bytes.
func (f *fetcher) get(ctx context.Context, url string, most int) ([]byte, error) {
	bad := func(what string, why error) error {
		return diag.Errorf(diag.Invalid, "the image %s", what).Because(why)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, bad("has a broken URL", err)
	}
	resp, err := f.client.Do(r)
	switch {
	case ctx.Err() != nil:
		return nil, gone(ctx.Err())
	case errors.Is(err, errRedirect):
		return nil, bad("was "+errRedirect.Error(), err)
	case err != nil:
		return nil, bad("could not be fetched", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, bad("could not be fetched: its host says "+http.StatusText(resp.StatusCode), nil)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return nil, bad("could not be fetched whole", err)
	}
	return data, nil // one byte too many is refused with the file
}
