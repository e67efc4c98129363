package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const pushURL = "https://api.example.com:6443"

func kubeconfigWith(token string) string {
	return fmt.Sprintf(`{clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: %q}}], contexts: [{name: x, context: {cluster: c, user: u}}]}`, pushURL, token)
}

func pushWith(token string) *control.PushSpec {
	return &control.PushSpec{APIURL: pushURL, Kubeconfig: kubeconfigWith(token)}
}

// The credential of a push environment is sent only to the engine instance that serves it, and is never returned.
// covers: E5
func TestPushCredentialsAreSentOnlyToTheirInstance(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	enroll := func(name string, instance bool) fleet.Agent {
		made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: name, EngineNamespace: "argocd", Instance: instance})
		ok(t, err)
		return made.Agent
	}
	plain := enroll("plain", false)
	env, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: pushWith("first-token")})
	ok(t, err)
	if env.Ready.Reason != fleet.ReasonNoEngineInstance || env.Instance != "" {
		t.Errorf("without an engine instance the environment is %+v on %q", env.Ready, env.Instance)
	}
	one, two := enroll("one", true), enroll("two", true)
	if env, err = d.Environment(d.ctx, root, "default", "customer"); err != nil || env.Instance != "one" {
		t.Errorf("the environment is on %q, %v", env.Instance, err)
	}
	want := func(agent fleet.Agent, want ...string) {
		t.Helper()
		got := []string{}
		list, err := d.PushEnvironments(d.ctx, agent)
		ok(t, err)
		for _, e := range list {
			got = append(got, e.Name+" "+e.Credential.Token.Reveal())
			if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, "-token") {
				t.Errorf("the token is printed: %s", text)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("agent %s gets %q, want %q", agent.Name, got, want)
		}
	}
	want(plain)
	want(two)
	want(one, "customer first-token")
	_, err = d.UpdateEnvironment(d.ctx, root, "default", "customer", control.UpdateEnvironment{Push: pushWith("second-token")}, control.Match{})
	ok(t, err)
	want(one, "customer second-token")
	if credentials, err := d.Credentials(d.ctx, root, "default", store.Whole()); err != nil || len(credentials) != 0 {
		t.Errorf("the credentials of repositories are %v, %v", credentials, err)
	}
	// A result of an agent that does not serve the environment, or of other settings, does not count.
	check := fleet.EnvironmentCheck{Environment: env.ID, EndpointCheck: fleet.EndpointCheck{Revision: "1.1", Cause: fleet.Cause{Reason: fleet.ReasonEndpointReady}}}
	for _, agent := range []fleet.Agent{two, one} {
		ok(t, d.EndpointsChecked(d.ctx, agent, []fleet.EnvironmentCheck{check}))
	}
	if env, err = d.Environment(d.ctx, root, "default", "customer"); err != nil || env.Ready.Status == fleet.ConditionTrue {
		t.Errorf("the environment is %+v, %v", env.Ready, err)
	}
	if err := d.DeleteAgent(d.ctx, root, "default", "one", control.Match{}); !errors.As(err, new(*fleet.ConflictError)) {
		t.Errorf("the deletion of the engine instance gives %v", err)
	}
	ok(t, d.DeleteEnvironment(d.ctx, root, "default", "customer", control.Match{}))
	want(one)
	ok(t, d.DeleteAgent(d.ctx, root, "default", "one", control.Match{}))
}

// Each mistake of a kubeconfig has its reason, and stores nothing.
// covers: K7
func TestPushEnvironmentsRefuseMistakes(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for reason, text := range map[fleet.Reason]string{
		fleet.ReasonKubeconfigMissing: "", fleet.ReasonKubeconfigInvalid: "{{",
		fleet.ReasonKubeconfigRefused: strings.Replace(kubeconfigWith("x"), "token:", "exec: {command: id}, token:", 1),
		fleet.ReasonContextNotFound:   strings.Replace(kubeconfigWith("x"), pushURL, "https://other.example.com", 1),
	} {
		_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: &control.PushSpec{APIURL: pushURL, Kubeconfig: text}})
		var refused *control.KubeconfigError
		if !errors.As(err, &refused) || refused.Reason != reason || len(fleet.Problems(err)) == 0 {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	for _, push := range []*control.PushSpec{
		{APIURL: "http://api.example.com", Kubeconfig: kubeconfigWith("x")}, {APIURL: "https://kubernetes.default.svc", Kubeconfig: kubeconfigWith("x")},
		{APIURL: pushURL, Kubeconfig: kubeconfigWith("x"), Namespaces: []string{"A b"}}, {APIURL: pushURL, Kubeconfig: kubeconfigWith("x"), ClusterResources: true},
	} {
		if _, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: push}); len(fleet.Problems(err)) == 0 {
			t.Errorf("%+v: got %v", push, err)
		}
	}
	if _, err := d.Environment(d.ctx, root, "default", "customer"); err == nil {
		t.Error("an environment was stored")
	}
}
