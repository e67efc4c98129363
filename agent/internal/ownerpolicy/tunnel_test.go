package ownerpolicy_test

import (
	"net/url"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/kuberequest"
)

// covers: P2 (the owner of the cluster has the last word)
func TestOwnerRestrictsTheTunnel(t *testing.T) {
	t.Parallel()
	const (
		getPod    = "GET /api/v1/namespaces/team-a/pods/web"
		patchPod  = "PATCH /api/v1/namespaces/team-a/pods/web"
		execByGet = "GET /api/v1/namespaces/team-a/pods/web/exec"
		execPost  = "POST /api/v1/namespaces/team-a/pods/web/exec"
		debug     = "PATCH /api/v1/namespaces/team-a/pods/web/ephemeralcontainers"
		oldProxy  = "GET /api/v1/proxy/namespaces/team-a/pods/web/x"
		nodeProxy = "GET /api/v1/nodes/n/proxy/x"
		secret    = "GET /api/v1/namespaces/team-a/secrets/s"
		newToken  = "POST /api/v1/namespaces/team-a/serviceaccounts/default/token"
		otherPod  = "GET /api/v1/namespaces/other/pods/web"
		allPods   = "GET /api/v1/pods"
		nodes     = "GET /api/v1/nodes"
		discovery = "GET /apis"
		review    = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	)
	cases := map[string]struct {
		policy          string
		allowed, denied []string
	}{
		"Nothing":    {"{}", []string{getPod, patchPod, execByGet, secret, nodes, discovery}, nil},
		"Off":        {"tunnel: {enabled: false}", nil, []string{getPod, discovery, review}},
		"ReadOnly":   {"tunnel: {readOnly: true}", []string{getPod, secret, discovery, review}, []string{patchPod, execByGet, execPost, debug, oldProxy, nodeProxy, newToken}},
		"NoExec":     {"tunnel: {exec: false}", []string{getPod, patchPod}, []string{execByGet, execPost, debug, oldProxy, nodeProxy}},
		"NoSecrets":  {"tunnel: {secrets: false}", []string{getPod, execByGet}, []string{secret, newToken}},
		"Namespaces": {"tunnel: {namespaces: {allow: ['team-*']}}", []string{getPod, execByGet, discovery}, []string{otherPod, allPods, nodes, nodeProxy}},
		"Denied":     {"tunnel: {namespaces: {deny: [other]}}", []string{getPod}, []string{otherPod, allPods}},
		"Deploying":  {"namespaces: {allow: [x]}", []string{getPod, nodes}, nil}, // the other settings are about deployments
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := ownerpolicy.Parse([]byte(tc.policy))
			if err != nil {
				t.Fatal(err)
			}
			for want, requests := range map[bool][]string{true: tc.allowed, false: tc.denied} {
				for _, r := range requests {
					if got := policy.RefuseRequest(request(t, r)).Reason == ""; got != want {
						t.Errorf("%s: allowed %v, want %v", r, got, want)
					}
				}
			}
		})
	}
}

func request(t *testing.T, line string) kuberequest.Request {
	t.Helper()
	var method, path string
	for i := range line {
		if line[i] == ' ' {
			method, path = line[:i], line[i+1:]
		}
	}
	r, err := kuberequest.Of(method, &url.URL{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
