package restapi

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

// operation describes one route; others are the statuses of its responses in addition to the common ones.
func operation(id, method, path, summary string, status int, others ...int) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: status,
		Errors: append([]int{
			http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests,
		}, others...),
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}
	if method == http.MethodPost {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: headerIdempotencyKey, In: "header", Schema: &huma.Schema{Type: huma.TypeString, MaxLength: new(maxKey)},
			Description: "Repeating a request with the same key has no effect and returns the first response.",
		})
	}
	if method != http.MethodGet && !slices.Contains(op.Errors, http.StatusConflict) {
		op.Errors = append(op.Errors, http.StatusConflict)
	}
	return op
}

// resource is a kind of resource with the path of its collection.
type resource struct{ kind, path string }

// located is an input that identifies the resource of a request.
type located interface{ at() (tenant, name string) }

// register adds a route of a resource.
func register[I, O any](a *api, op huma.Operation, of resource, fn func(context.Context, auth.Principal, *I) (*O, error)) {
	registerIn(a.huma, op, of, func(ctx context.Context, info *requestInfo, in *I) (*O, error) {
		return fn(ctx, info.principal, in)
	})
}

// registerIn adds a route to one of the two APIs of this package: that of users and that of agents.
func registerIn[I, O any](into huma.API, op huma.Operation, of resource, fn func(context.Context, *requestInfo, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = problemResponse(into.OpenAPI(), "The error and its remedy.")
	huma.Register(into, op, func(ctx context.Context, in *I) (*O, error) {
		cleanInput(in)
		info := infoFrom(ctx)
		tenantName, name := "", ""
		if in, ok := any(in).(located); ok {
			tenantName, name = in.at()
		}
		if info.about == (subject{}) {
			info.about = about(of, tenantName, name)
		}
		out, err := fn(ctx, info, in)
		if throttled := (*throttledError)(nil); errors.As(err, &throttled) {
			return nil, withHeaders(mapError(ctx, err, info.about), throttled)
		}
		if err != nil {
			return nil, mapError(ctx, err, info.about)
		}
		return out, nil
	})
}

// naming returns the name of the resource that a request creates, which is not in its path.
func naming(ctx context.Context, name string) { infoFrom(ctx).about.name = name }

// about returns the subject of requests to one collection.
func about(of resource, tenantName, name string) subject {
	return subject{kind: of.kind, name: name, tenant: tenantName, list: strings.ReplaceAll(of.path, "{tenant}", tenantName)}
}

// tidy refuses paths that a mux would redirect, in plain text, to a cleaner one. Escaped slashes are part of a
// name.
func tidy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.URL.EscapedPath(); path.Clean(given) != given && path.Clean(given)+"/" != given {
			writeProblem(w, noRoute(r, http.StatusNotFound))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routed responds with a problem document instead of plain text if no route matches.
func (a *api) routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			_, infoFrom(r.Context()).route, _ = strings.Cut(pattern, " ")
			mux.ServeHTTP(w, r) // not the handler itself, because only the mux sets path values
			return
		}
		probe := &statusProbe{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(probe, r)
		for _, name := range []string{"Allow", "Location"} {
			if v := probe.header.Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		writeProblem(w, noRoute(r, probe.status))
	})
}

// statusProbe records the status of a response and discards the rest.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
