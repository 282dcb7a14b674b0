// SPDX-License-Identifier: MIT OR Apache-2.0

package hub

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Env is where the hub and its cache are.
type Env struct {
	Endpoint string // "https://huggingface.co", without a slash at the end
	Cache    string // the folder that holds models--…
	Token    string // empty: none
	Offline  bool   // make no connection
}

// ReadEnv reads the variables of Hugging Face's own tools:
//
//	HF_HOME         home of all of its files; default $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface
//	HF_HUB_CACHE    the cache; default $HF_HOME/hub (HUGGINGFACE_HUB_CACHE is its old name)
//	HF_ENDPOINT     default https://huggingface.co
//	HF_TOKEN        default: the content of $HF_TOKEN_PATH, which is $HF_HOME/token
//	HF_HUB_OFFLINE  1, true, yes or on
//
// Proxies are those of net/http (HTTPS_PROXY, NO_PROXY).
func ReadEnv(getenv func(string) string) (Env, error) {
	first := func(values ...string) string {
		for _, v := range values {
			if v = strings.TrimSpace(v); v != "" {
				return v
			}
		}
		return ""
	}
	home := getenv("HF_HOME")
	if home == "" {
		base := getenv("XDG_CACHE_HOME")
		if base == "" {
			base = filepath.Join("~", ".cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	e := Env{
		Endpoint: strings.TrimRight(first(getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"),
		Cache:    first(getenv("HF_HUB_CACHE"), getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")),
		Token:    first(getenv("HF_TOKEN")),
	}
	for _, p := range []*string{&home, &e.Cache} {
		if rest, ok := strings.CutPrefix(*p, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
			user := first(getenv("HOME"), getenv("USERPROFILE"))
			if user == "" {
				return e, diag.Errorf(diag.Invalid, "neither HF_HOME, HF_HUB_CACHE nor HOME says where the cache is").For("HF_HOME")
			}
			*p = filepath.Join(user, rest)
		}
	}
	if e.Token == "" {
		path := first(getenv("HF_TOKEN_PATH"), filepath.Join(home, "token"))
		if data, err := os.ReadFile(path); err == nil {
			e.Token = strings.TrimSpace(string(data))
		}
	}
	if strings.ContainsFunc(e.Token, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
		return e, diag.Errorf(diag.Invalid, "HF_TOKEN has characters that no token has").For("HF_TOKEN")
	}
	switch strings.ToLower(getenv("HF_HUB_OFFLINE")) {
	case "1", "true", "yes", "on":
		e.Offline = true
	}
	if u, err := url.Parse(e.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return e, diag.Errorf(diag.Invalid, "HF_ENDPOINT must be an http or https URL").For("HF_ENDPOINT")
	}
	return e, nil
}
