// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
)

// handler answers a request, or gives the error to answer with.
type handler func(*exchange) error

// route is a path with its methods. open ones need no credentials.
type route struct {
	methods map[string]handler
	open    bool
}

const (
	routeHealth  = "/health"
	routeMetrics = "/metrics"
	modelPrefix  = "/v1/models/" // ids may have slashes
)

func get(h handler) map[string]handler {
	return map[string]handler{http.MethodGet: h, http.MethodHead: h}
}

func post(h handler) map[string]handler { return map[string]handler{http.MethodPost: h} }

// routes are all that the server answers.
var routes = map[string]route{
	routeHealth:            {get((*exchange).health), true},
	"/health/live":         {get((*exchange).live), true},
	routeMetrics:           {get((*exchange).metrics), true},
	"/version":             {get((*exchange).version), true},
	"/v1/models":           {get((*exchange).models), false},
	modelPrefix:            {get((*exchange).modelByID), false},
	"/v1/chat/completions": {post((*exchange).chat), false},
	"/v1/completions":      {post((*exchange).completions), false},
	"/tokenize":            {post((*exchange).tokenize), false},
	"/detokenize":          {post((*exchange).detokenize), false},
}

// methodError says which methods a path has.
type methodError struct{ allowed string }

func (e *methodError) Error() string { return "allowed: " + e.allowed }

// find gives the handler of a request.
func (x *exchange) find() (handler, error) {
	path := x.r.URL.Path
	if strings.HasPrefix(path, modelPrefix) && path != modelPrefix {
		path = modelPrefix
	} else if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	r, ok := routes[path]
	if !ok {
		x.route = "other"
		return nil, diag.Errorf(diag.NotFound, "there is nothing at %s", x.r.URL.Path)
	}
	x.route = path
	if !r.open {
		if err := x.authorize(); err != nil {
			return nil, err
		}
	}
	h, ok := r.methods[x.r.Method]
	if !ok {
		allowed := make([]string, 0, len(r.methods))
		for m := range r.methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		e := &methodError{strings.Join(allowed, ", ")}
		return nil, diag.Errorf(diag.Invalid, "%s takes %s, not %s", path, e.allowed, x.r.Method).Because(e)
	}
	return h, nil
}

// authorize compares the bearer token with all accepted ones, in constant time.
func (x *exchange) authorize() error {
	if len(x.s.tokens) == 0 {
		return nil
	}
	token, ok := strings.CutPrefix(x.r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return diag.Errorf(diag.Denied, "an API key is needed, as in Authorization: Bearer KEY")
	}
	sum, good := sha256.Sum256([]byte(token)), 0
	for i := range x.s.tokens {
		good |= subtle.ConstantTimeCompare(sum[:], x.s.tokens[i][:])
	}
	if good == 0 {
		return diag.Errorf(diag.Denied, "the API key is not one of this server's")
	}
	return nil
}

func (x *exchange) health() error {
	if _, err := x.s.current(); err != nil {
		return err
	}
	return x.json(http.StatusOK, []byte(`{"status":"ok"}`))
}

func (x *exchange) live() error { return x.json(http.StatusOK, []byte(`{"status":"ok"}`)) }

func (x *exchange) version() error {
	return x.json(http.StatusOK, append(openai.AppendString([]byte(`{"version":`), x.s.opts.Version), '}'))
}

func (x *exchange) models() error {
	var list []openai.ModelInfo
	if m := x.s.model.Load(); m != nil {
		list = append(list, m.info())
	}
	return x.json(http.StatusOK, openai.AppendModels(nil, list))
}

func (x *exchange) modelByID() error {
	m, err := x.s.current()
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(x.r.URL.Path, modelPrefix)
	if err := m.named(id); err != nil {
		return err
	}
	return x.json(http.StatusOK, openai.AppendModel(nil, m.info()))
}
