package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
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

// No repository can use the credential of a push environment: an agent would get it as that of a Git server.
func TestRepositoriesCannotUseTheCredentialOfAPushEnvironment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	env, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: pushWith("token")})
	ok(t, err)
	var name string
	ok(t, d.store.View(d.ctx, func(tx store.Tx) error {
		c, err := tx.Credentials().Get(d.ctx, env.TenantID, env.Push.CredentialID)
		name = c.Name
		return err
	}))
	for _, url := range []string{"ssh://git@git.example.com/app.git", "https://git.example.com/app.git"} {
		_, err := d.CreateRepository(d.ctx, root, "default", control.CreateRepository{URL: url, Credential: name})
		if len(fleet.Problems(err)) == 0 {
			t.Errorf("%s with credential %s: got %v", url, name, err)
		}
	}
}

// Another kubeconfig does not lift the limits of an environment.
func TestARotationKeepsTheNamespacesOfAPushEnvironment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	push := pushWith("first")
	push.Namespaces, push.ClusterResources = []string{"shop"}, true
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: push})
	ok(t, err)
	for _, step := range []struct {
		namespaces []string
		want       string
	}{{nil, "[shop] true"}, {[]string{}, "[] false"}} {
		push := pushWith("second")
		push.Namespaces = step.namespaces
		env, err := d.UpdateEnvironment(d.ctx, root, "default", "customer", control.UpdateEnvironment{Push: push}, control.Match{})
		ok(t, err)
		if got := fmt.Sprint(env.Push.Namespaces, env.Push.ClusterResources); got != step.want {
			t.Errorf("after a change with %v the environment has %s, want %s", step.namespaces, got, step.want)
		}
	}
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

// pushed creates a push environment "customer" on the engine instance hub, which is connected, and a deployment "web" in it.
func pushed(t *testing.T) (*fixture, fleet.Agent) {
	t.Helper()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "hub", EngineNamespace: "argocd", Instance: true})
	ok(t, err)
	_, err = d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: pushWith("token")})
	ok(t, err)
	d.deploy(t, "default", "web", "customer")
	d.render(t, "default", "web", "1")
	return d, made.Agent
}

func (d *fixture) narrow(clusterResources bool, namespaces ...string) error {
	push := pushWith("token")
	push.Namespaces, push.ClusterResources = namespaces, clusterResources
	_, err := d.UpdateEnvironment(d.ctx, root, "default", "customer", control.UpdateEnvironment{Push: push}, control.Match{})
	return err
}

// covers: E5, A6 (objects outside of an environment would neither be managed nor held)
func TestAPushEnvironmentIsNotNarrowedWhileObjectsAreOutside(t *testing.T) {
	t.Parallel()
	d, hub := pushed(t)
	wantConflict(t, d.narrow(false, "shop"), `"web" (its objects are not reported yet)`)
	target := d.targets(t, "default", "web")["hub"]
	report := func(refs ...fleet.ObjectRef) {
		t.Helper()
		objects := make([]fleet.ObjectStatus, 0, len(refs))
		for _, ref := range refs {
			objects = append(objects, fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent})
		}
		ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: hub, Reports: []store.Report{{Target: target.ID, Full: true, Objects: objects, Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
		}}}}}))
	}
	inShop, inOther := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}, fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "other", Name: "b"}
	namespace := fleet.ObjectRef{Version: "v1", Kind: "Namespace", Name: "shop"}
	report(inShop, inOther)
	wantConflict(t, d.narrow(true, "shop"), `"web" (ConfigMap other/b)`)
	ok(t, d.narrow(false, "shop", "other"))
	wantConflict(t, d.narrow(false, "shop"), `"web" (ConfigMap other/b)`)
	if env, err := d.Environment(d.ctx, root, "default", "customer"); err != nil || fmt.Sprint(env.Push.Namespaces) != "[other shop]" {
		t.Errorf("a refused change left %+v, %v", env.Push, err)
	}
	report(inShop)
	ok(t, d.narrow(false, "shop"))
	ok(t, d.narrow(true, "shop", "more")) // wider
	report(inShop, namespace)
	wantConflict(t, d.narrow(false, "shop", "more"), `"web" (Namespace shop)`)
	ok(t, d.narrow(true, "shop"))
	// An object that a tombstone has not deleted yet counts too.
	report(inShop)
	ok(t, result(d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})))
	wantConflict(t, d.narrow(false, "elsewhere"), `"web"`)
}

// covers: O4 (doctor), E5
func TestDiagnosisNamesPushEnvironmentsThatAreNotReady(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	env, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "customer", Push: pushWith("token")})
	ok(t, err)
	want := func(severity control.Severity, reason fleet.Reason, next string) {
		t.Helper()
		found, err := d.Diagnose(d.ctx, root, "default")
		ok(t, err)
		for _, f := range found.Findings {
			if f.Part != control.PartEnvironments {
				continue
			}
			if f.Severity != severity || f.Reason != reason || f.Subject != "customer" || !strings.Contains(f.Message, string(reason)) || !strings.Contains(f.Next, next) {
				t.Errorf("the finding is %+v, want %s %s with %q", f, severity, reason, next)
			}
			return
		}
		if reason != fleet.ReasonEndpointReady {
			t.Errorf("there is no finding %s", reason)
		}
	}
	want(control.SeverityProblem, fleet.ReasonNoEngineInstance, "kedge agent set NAME --engine-instance")
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "hub", EngineNamespace: "argocd", Instance: true})
	ok(t, err)
	want(control.SeverityProblem, fleet.ReasonInstanceDisconnected, "kedge describe agent hub")
	d.present(t, made.Agent)
	want(control.SeverityNotice, fleet.ReasonEndpointNotChecked, "kedge describe env customer")
	list, err := d.PushEnvironments(d.ctx, made.Agent)
	ok(t, err)
	for reason, next := range map[fleet.Reason]string{fleet.ReasonEndpointUnauthorized: "Replace the token", fleet.ReasonEndpointReady: ""} {
		ok(t, d.EndpointsChecked(d.ctx, made.Agent, []fleet.EnvironmentCheck{{Environment: env.ID, EndpointCheck: fleet.EndpointCheck{
			Revision: list[0].Revision, AsOf: d.clock.Now(), Cause: fleet.Cause{Reason: reason, Message: "401"},
		}}}))
		want(control.SeverityProblem, reason, next)
	}
}
