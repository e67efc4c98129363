package kuberequest_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/kedge-dev/kedge/internal/kuberequest"
)

func TestRequestsAreIdentified(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		method, target, verb, object string
		class                        kuberequest.Class
	}{
		"Get":         {"GET", "/api/v1/namespaces/default/pods/web", "get", "pods default/web", kuberequest.Read},
		"List":        {"GET", "/apis/apps/v1/deployments?limit=500", "list", "deployments.apps", kuberequest.Read},
		"Watch":       {"GET", "/api/v1/pods?watch=true", "watch", "pods", kuberequest.Read},
		"OldWatch":    {"GET", "/api/v1/watch/namespaces/default/pods", "watch", "pods default/", kuberequest.Read},
		"Apply":       {"PATCH", "/apis/apps/v1/namespaces/a/deployments/web", "patch", "deployments.apps a/web", kuberequest.Write},
		"Collection":  {"DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "pods a/", kuberequest.Write},
		"Exec":        {"GET", "/api/v1/namespaces/a/pods/web/exec?command=sh", "get", "pods/exec a/web", kuberequest.Session},
		"ExecPost":    {"POST", "/api/v1/namespaces/a/pods/web/exec", "create", "pods/exec a/web", kuberequest.Session},
		"Attach":      {"GET", "/api/v1/namespaces/a/pods/web/attach", "get", "pods/attach a/web", kuberequest.Session},
		"Forward":     {"GET", "/api/v1/namespaces/a/pods/web/portforward", "get", "pods/portforward a/web", kuberequest.Session},
		"NodeProxy":   {"GET", "/api/v1/nodes/n1/proxy/run/default/web", "get", "nodes/proxy n1", kuberequest.Session},
		"Service":     {"GET", "/api/v1/namespaces/a/services/http:web:80/proxy/a//b/../c", "get", "services/proxy a/http:web:80", kuberequest.Session},
		"OldProxy":    {"GET", "/api/v1/proxy/namespaces/a/pods/web/x", "get", "pods/proxy a/web", kuberequest.Session},
		"Ephemeral":   {"PATCH", "/api/v1/namespaces/a/pods/web/ephemeralcontainers", "patch", "pods/ephemeralcontainers a/web", kuberequest.Write},
		"Log":         {"GET", "/api/v1/namespaces/a/pods/web/log?follow=true", "get", "pods/log a/web", kuberequest.Read},
		"Namespace":   {"GET", "/api/v1/namespaces/a", "get", "namespaces a", kuberequest.Read},
		"Finalize":    {"PUT", "/api/v1/namespaces/a/finalize", "update", "namespaces/finalize a", kuberequest.Write},
		"Review":      {"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "create", "selfsubjectaccessreviews.authorization.k8s.io", kuberequest.Read},
		"OtherReview": {"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "create", "subjectaccessreviews.authorization.k8s.io", kuberequest.Write},
		"Discovery":   {"GET", "/apis", "get", "/apis", kuberequest.Read},
		"Group":       {"GET", "/apis/apps/v1", "get", "/apis/apps/v1", kuberequest.Read},
		"OpenAPI":     {"GET", "/openapi/v3/apis/apps/v1?hash=x", "get", "/openapi/v3/apis/apps/v1", kuberequest.Read},
		"Root":        {"GET", "/", "get", "/", kuberequest.Read},
		"Logs":        {"GET", "/logs/kubelet.log", "get", "/logs/kubelet.log", kuberequest.Write},
		"PostVersion": {"POST", "/version", "post", "/version", kuberequest.Write},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := kuberequest.Of(tc.method, parse(t, tc.target))
			if err != nil || got.Verb != tc.verb || got.Object() != tc.object || got.Class() != tc.class {
				t.Errorf("got %q %q class %d, %v", got.Verb, got.Object(), got.Class(), err)
			}
		})
	}
}

func TestAmbiguousPathsAreRefused(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/api/v1/namespaces/a/../b/pods", "/api/v1//pods", "//api/v1/pods", "/api/v1/namespaces/%2e%2e/pods", "/api/v1/namespaces/a/./pods", "/api/v1/namespaces/a%2F..%2Fb/pods",
	} {
		if got, err := kuberequest.Of("GET", parse(t, path)); !errors.Is(err, kuberequest.ErrPath) {
			t.Errorf("%s: got %+v, %v", path, got, err)
		}
	}
}

func parse(t testing.TB, target string) *url.URL {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
