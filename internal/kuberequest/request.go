// Package kuberequest identifies what an HTTP request to a Kubernetes API server does, from its method and URL, in the
// same way as the API server. The server records it in the audit log, and the agent checks it against the policy of the
// cluster's owner.
package kuberequest

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ErrPath means that the path of a request is ambiguous. It is not sent to an API server.
var ErrPath = errors.New("the path has empty, \".\" or \"..\" segments")

// Request is what a request does.
type Request struct {
	// Verb is the verb that the API server authorizes: get, list, watch, create, update, patch, delete or
	// deletecollection; for paths that are no resources, the method in lower case.
	Verb        string
	Path        string // decoded
	Group       string
	Version     string
	Namespace   string
	Resource    string // "" for a path that is no resource
	Subresource string
	Name        string
}

// Class is how much a request can do, independent of the permissions of its caller.
type Class int

// The classes, ordered.
const (
	Read    Class = iota
	Write         // it can change an object, or cannot be classified
	Session       // it opens a connection into a container or a network: exec, attach, port-forward, proxy
)

// Of identifies a request.
func Of(method string, u *url.URL) (Request, error) {
	r := Request{Path: u.Path}
	if slices.Contains(methods, method) {
		r.Verb = strings.ToLower(method)
	}
	if !strings.HasPrefix(u.Path, "/") {
		return r, ErrPath
	}
	segments := strings.Split(strings.TrimSuffix(u.Path[1:], "/"), "/")
	if len(segments) == 1 && segments[0] == "" {
		return r, nil
	}
	rest, watch := r.prefix(segments)
	tail := r.parse(rest)
	if r.Subresource != "proxy" {
		tail = nil
	}
	if slices.ContainsFunc(segments[:len(segments)-len(tail)], ambiguous) {
		return r, ErrPath
	}
	if r.Resource != "" {
		r.verb(method, u.Query(), watch)
	}
	return r, nil
}

// methods are those that the API server knows. Another one has no verb.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func ambiguous(segment string) bool { return segment == "" || segment == "." || segment == ".." }

// prefix removes the API group and version, and the obsolete watch prefix. It returns nothing for a path that is no
// resource.
func (r *Request) prefix(segments []string) (rest []string, watch bool) {
	switch {
	case segments[0] == "api" && len(segments) > 2:
		r.Version, rest = segments[1], segments[2:]
	case segments[0] == "apis" && len(segments) > 3:
		r.Group, r.Version, rest = segments[1], segments[2], segments[3:]
	default:
		return nil, false
	}
	switch {
	case rest[0] == "watch" && len(rest) > 1:
		return rest[1:], true
	case rest[0] == "proxy" && len(rest) > 1:
		r.Subresource = "proxy" // obsolete: api/v1/proxy/…
		return rest[1:], false
	}
	return rest, false
}

// parse reads namespace, resource, name and subresource. It returns the segments after them, which belong to the
// destination of a proxy.
func (r *Request) parse(rest []string) (tail []string) {
	if len(rest) == 0 {
		return nil
	}
	if rest[0] == "namespaces" && len(rest) > 1 {
		r.Namespace = rest[1]
		if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	r.Resource = rest[0]
	if len(rest) > 1 {
		r.Name = rest[1]
	}
	if len(rest) > 2 {
		if r.Subresource != "" { // the obsolete proxy prefix
			return rest[2:]
		}
		r.Subresource = rest[2]
	}
	if len(rest) > 3 {
		return rest[3:]
	}
	return nil
}

func (r *Request) verb(method string, query url.Values, watch bool) {
	switch method {
	case http.MethodGet, http.MethodHead:
		r.Verb = "get"
	case http.MethodPost:
		r.Verb = "create"
	case http.MethodPut:
		r.Verb = "update"
	}
	switch {
	case r.Verb == "get" && (watch || r.Name == "" && watching(query)):
		r.Verb = "watch"
	case r.Verb == "get" && r.Name == "":
		r.Verb = "list"
	case r.Verb == "delete" && r.Name == "":
		r.Verb = "deletecollection"
	}
}

func watching(query url.Values) bool {
	v := query.Get("watch")
	return query.Has("watch") && v != "0" && !strings.EqualFold(v, "false")
}

// sessions are the subresources that open a connection. The method does not matter: a WebSocket is opened with GET.
var sessions = []string{"exec", "attach", "portforward", "proxy"}

// reviews are created to ask a question about the caller, and change nothing.
var reviews = []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}

// readable are the first segments of the paths without a resource that everybody may read: discovery, versions, health.
var readable = []string{"", "api", "apis", "version", "openapi", "healthz", "livez", "readyz", "metrics"}

// Class returns how much the request can do.
func (r Request) Class() Class {
	switch {
	case slices.Contains(sessions, r.Subresource):
		return Session
	case r.Resource == "":
		first, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
		if (r.Verb == "get" || r.Verb == "head") && slices.Contains(readable, first) {
			return Read
		}
		return Write
	case r.Verb == "create" && (r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io") && slices.Contains(reviews, r.Resource):
		return Read
	case r.Verb == "get" || r.Verb == "list" || r.Verb == "watch":
		return Read
	default:
		return Write
	}
}

// Long reports whether the response may take for as long as the caller wants.
func (r Request) Long(query url.Values) bool {
	follow := query.Get("follow")
	return r.Verb == "watch" || r.Class() == Session || r.Subresource == "log" && follow != "" && follow != "0" && !strings.EqualFold(follow, "false")
}

// Object returns the object of the request, for people: "pods/exec default/web-0".
func (r Request) Object() string {
	if r.Resource == "" {
		return r.Path
	}
	out := r.Resource
	if r.Group != "" {
		out += "." + r.Group
	}
	if r.Subresource != "" {
		out += "/" + r.Subresource
	}
	switch {
	case r.Namespace != "" && r.Resource != "namespaces":
		out += " " + r.Namespace + "/" + r.Name
	case r.Name != "":
		out += " " + r.Name
	}
	return out
}
