package testkit

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// Request is one request to the API server, from its audit log.
type Request struct {
	User, Verb           string
	Group, Resource, Sub string
	Namespace, Name      string
	URI                  string
	Code                 int
	UserAgent            string
	ImpersonatedUser     string // "" for a request without impersonation
	Stage                string
}

// Write reports whether the request was meant to change something.
func (r Request) Write() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Requests returns, in order, the requests of clients other than the control plane since the start of the
// cluster. Long-running requests appear when they start and when they end. For a span of time, skip the
// requests that existed at its start.
func (c *Cluster) Requests(tb testing.TB) []Request {
	tb.Helper()
	file, err := os.Open(c.AuditLog())
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var requests []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// The last line may be incomplete.
		if r, ok := parseRequest(lines.Bytes()); ok {
			requests = append(requests, r)
		}
	}
	if err := lines.Err(); err != nil {
		tb.Fatalf("reading the audit log: %v", err)
	}
	return requests
}

func parseRequest(line []byte) (Request, bool) {
	var event struct {
		Verb, RequestURI, Stage, UserAgent string
		User, ImpersonatedUser             struct{ Username string }
		ObjectRef                          struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus                     struct{ Code int }
	}
	if json.Unmarshal(line, &event) != nil {
		return Request{}, false
	}
	o := event.ObjectRef
	return Request{
		User: event.User.Username, Verb: event.Verb,
		Group: o.APIGroup, Resource: o.Resource, Sub: o.Subresource,
		Namespace: o.Namespace, Name: o.Name,
		URI: event.RequestURI, Code: event.ResponseStatus.Code,
		UserAgent: event.UserAgent, ImpersonatedUser: event.ImpersonatedUser.Username, Stage: event.Stage,
	}, true
}
