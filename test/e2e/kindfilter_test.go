package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

func secretText(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData: {key: one}\n", name, namespace)
}

// targetOn returns the target of a deployment on an agent.
func targetOn(d apiv1.Deployment, agent string) apiv1.Target {
	for _, t := range d.Targets {
		if t.Agent == agent {
			return t
		}
	}
	return apiv1.Target{}
}

// refusedKind is true of a deployment that an agent refuses at a commit, with the words in the message. An empty commit means
// that nothing was sent.
func refusedKind(agent, commit string, words ...string) func(apiv1.Deployment) error {
	return func(d apiv1.Deployment) error {
		got := targetOn(d, agent)
		if got.Sync != "Failed" || got.Reason != "KindNotAllowed" || got.Commit != commit {
			return fmt.Errorf("the target is %s/%s at %q: %s", got.Sync, got.Reason, got.Commit, got.Message)
		}
		for _, word := range words {
			if !strings.Contains(got.Message, word) {
				return fmt.Errorf("%q is not in %q", word, got.Message)
			}
		}
		return nil
	}
}

// syncedOn is true of a deployment whose target on an agent is at a commit, in a state.
func syncedOn(agent, commit, sync string) func(apiv1.Deployment) error {
	return func(d apiv1.Deployment) error {
		if got := targetOn(d, agent); got.Sync != sync || got.Commit != commit {
			return fmt.Errorf("the target is %s/%s at %q: %s", got.Sync, got.Reason, got.Commit, got.Message)
		}
		return nil
	}
}

func (s *testServer) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.kedge(t, args...)
	if err != nil {
		t.Fatalf("kedge %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func objectNamed(t apiv1.Target, name string) apiv1.Object {
	for _, o := range t.Objects {
		if o.Name == name {
			return o
		}
	}
	return apiv1.Object{}
}

// awaitKinds waits until an agent has an exclusion and is connected with it: every edit ends its connection.
func (s *testServer) awaitKinds(t *testing.T, agent string, check func(apiv1.Agent) error) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		a, err := s.agent(ctx, agent)
		if err != nil {
			return err
		}
		return check(a)
	})
}

// covers: A1 (kind filters at the server, by REST and the CLI, and again at the agent), A6
func TestKindFilterRefusesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns, open := cluster.Namespace(t), cluster.Namespace(t)
	exists := func(kind, name string) bool {
		return cluster.Kubectl(t, "-n", ns, "get", kind, name, "--ignore-not-found", "-o", "name") != ""
	}
	a := enroll(t, s, cluster, apiv1.EnrollAgent{
		Name: "strict", Labels: map[string]string{"at": "strict"}, KindFilter: &apiv1.KindFilter{Exclude: []string{"Secret", "*.rbac.authorization.k8s.io"}},
	})
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "open", Labels: map[string]string{"at": "open"}})
	first := repo.push(t, map[string]string{
		"strict/cm.yaml": configMap(ns, "page", "one"), "strict/secret.yaml": secretText(ns, "s"),
		"open/cm.yaml": configMap(open, "page", "one"), "open/secret.yaml": secretText(open, "s"),
		"other/cm.yaml":   configMap(ns, "other", "one"),
		"lease/turn.yaml": "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: turn, namespace: " + ns + "}\n",
	})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "{agent.labels.at}"}})
	repo.webhooks(t, s)
	d := s.awaitDeployment(t, "app", refusedKind("strict", "", `agent "strict"`, "Secret "+ns+"/s", "rule Secret"))
	if d.Sync != "Failed" || d.Reason != "KindNotAllowed" {
		t.Errorf("the deployment is %s/%s", d.Sync, d.Reason)
	}
	// Nothing else is held up: neither the other agent, nor another deployment on this one.
	s.awaitDeployment(t, "app", syncedOn("open", first, "Synced"))
	s.tenantClient(t, "default").want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "strict-only", Agents: []string{"strict"}})
	s.deploy(t, apiv1.CreateDeployment{Name: "other", Environment: "strict-only", Source: apiv1.Source{RepoURL: repo.url, Path: "other"}})
	s.deploy(t, apiv1.CreateDeployment{Name: "lease", Environment: "strict-only", Source: apiv1.Source{RepoURL: repo.url, Path: "lease"}})
	s.awaitDeployment(t, "other", healthyAt(first, 1))
	s.awaitDeployment(t, "lease", refusedKind("strict", "", "Lease.coordination.k8s.io", "built-in rule *.coordination.k8s.io"))
	if exists("secret", "s") || exists("configmap", "page") {
		t.Error("something of a state that was refused is in the cluster")
	}
	s.awaitEvent(t, "KindNotAllowed", "Secret "+ns+"/s")
	for _, query := range []string{"reason=KindNotAllowed", "sync=Failed"} {
		list := get[apiv1.List[apiv1.Deployment]](t, s.tenantClient(t, "default"), "deployments?"+query).Items
		if len(list) != 2 || list[0].Name != "app" || list[1].Name != "lease" {
			t.Errorf("%s finds %d deployments, want app and lease", query, len(list))
		}
	}
	if out := s.run(t, "describe", "agent", "strict"); !strings.Contains(out, "*.rbac.authorization.k8s.io,Secret") {
		t.Errorf("kedge describe agent says\n%s", out)
	}
	out, err := s.kedge(t, "agent", "set", "strict", "--exclude-kind", "secrets")
	if err == nil || !strings.Contains(out+err.Error(), `"secrets" is not a kind`) {
		t.Errorf("a plural is accepted: %v\n%s", err, out)
	}

	// A wider filter takes effect without a commit.
	s.run(t, "agent", "set", "strict", "--exclude-kind=", "--include-kind", "Lease.*")
	s.awaitDeployment(t, "app", syncedOn("strict", first, "Synced"))
	s.awaitDeployment(t, "lease", syncedOn("strict", first, "Synced"))

	// A narrower one deletes nothing, whatever happens to the source, the agent and the server.
	before := len(a.writes(t))
	s.run(t, "agent", "set", "strict", "--exclude-kind", "Secret")
	s.awaitDeployment(t, "app", refusedKind("strict", first, "Secret "+ns+"/s"))
	second := repo.push(t, map[string]string{"strict/secret.yaml": gitserver.Deleted, "strict/cm.yaml": configMap(ns, "page", "two")})
	d = s.awaitDeployment(t, "app", syncedOn("strict", second, "Synced"))
	if o := objectNamed(targetOn(d, "strict"), "s"); o.Reason != "KindNotAllowed" || !exists("secret", "s") {
		t.Errorf("the object that left is %+v, want it kept and why", o)
	}
	if got := valueOf(t, cluster, ns, "page"); got != "two" {
		t.Errorf("page is %q, want the rest applied", got)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	s.Kill()
	s.restart(t)
	a.run(t)
	a.awaitConnected(t, s)
	third := repo.push(t, map[string]string{"strict/cm.yaml": configMap(ns, "page", "three")})
	s.tenantClient(t, "default").look(t, repo.url)
	s.awaitDeployment(t, "app", syncedOn("strict", third, "Synced"))
	// Nor does the wider filter: the deletion waits until somebody confirms it.
	s.run(t, "agent", "set", "strict", "--exclude-kind=")
	d = s.awaitDeployment(t, "app", syncedOn("strict", third, "OutOfSync"))
	if o := objectNamed(targetOn(d, "strict"), "s"); o.Sync != "Held" || o.Reason != "HeldByKindFilter" || !exists("secret", "s") {
		t.Errorf("the object that left is %+v, want it held", o)
	}
	if deleted := deletionsIn(a.writes(t)[before:], ns); len(deleted) > 0 {
		t.Errorf("changes of the filter deleted %+v", deleted)
	}
	fourth := repo.push(t, map[string]string{"strict/secret.yaml": secretText(ns, "s")})
	s.tenantClient(t, "default").look(t, repo.url)
	s.awaitDeployment(t, "app", syncedOn("strict", fourth, "Synced"))
}

// covers: A1 (kind filters in the agent's configuration file), F1
func TestKindFilterInTheConfigurationFile(t *testing.T) {
	t.Parallel()
	cluster, s, config := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "filed", ConfigRepoURL: config.url})
	config.webhooks(t, s)
	const path = ".kedge/agents/filed/config.yaml"
	app := "deployments:\n- {name: app, source: {path: app}, namespace: " + ns + "}\n"
	first := config.push(t, map[string]string{
		path: app, "app/cm.yaml": configMap(ns, "page", "one"), "app/secret.yaml": secretText(ns, "s"),
	})
	s.awaitDeployment(t, "filed.app", healthyAt(first, 1))
	before := len(a.writes(t))

	wrong := config.push(t, map[string]string{path: "kindFilter: {exclude: [secrets], only: [x]}\n" + app})
	c := s.awaitConfig(t, "filed", "Invalid", wrong)
	if len(c.Errors) != 2 || c.Errors[0].Field != "kindFilter.exclude" && c.Errors[1].Field != "kindFilter.exclude" {
		t.Errorf("errors are %+v", c.Errors)
	}
	second := config.push(t, map[string]string{path: "kindFilter:\n  include: [ConfigMap]\n  exclude: ['*']\n" + app})
	s.awaitConfig(t, "filed", "Applied", second)
	s.awaitDeployment(t, "filed.app", refusedKind("filed", first, "Secret "+ns+"/s", "rule *"))
	if out, err := s.kedge(t, "agent", "set", "filed", "--exclude-kind="); err == nil || !strings.Contains(out+err.Error(), "configuration file") {
		t.Errorf("the filter of a file can be edited: %v\n%s", err, out)
	}
	third := config.push(t, map[string]string{"app/secret.yaml": gitserver.Deleted, "app/cm.yaml": configMap(ns, "page", "two")})
	s.awaitDeployment(t, "filed.app", syncedOn("filed", third, "Synced"))
	// A file that is gone lifts no restriction, and one without a filter lifts it.
	s.awaitKinds(t, "filed", func(a apiv1.Agent) error {
		if a.KindFilter == nil || !a.KindFilterFromConfig {
			return errors.New("the filter is not in force")
		}
		return nil
	})
	gone := config.push(t, map[string]string{path: gitserver.Deleted})
	s.awaitConfig(t, "filed", "Absent", gone)
	if v, err := s.agent(t.Context(), "filed"); err != nil || v.KindFilter == nil || len(v.KindFilter.Include) != 1 {
		t.Errorf("without a file the filter is %+v (%v)", v.KindFilter, err)
	}
	back := config.push(t, map[string]string{path: app})
	s.awaitConfig(t, "filed", "Applied", back)
	s.awaitKinds(t, "filed", func(a apiv1.Agent) error {
		if a.KindFilter != nil || a.KindFilterFromConfig {
			return fmt.Errorf("the filter is %+v", a.KindFilter)
		}
		return nil
	})
	// A file must not lift what an admin has set.
	s.run(t, "agent", "set", "filed", "--exclude-kind", "Secret")
	refused := config.push(t, map[string]string{path: "kindFilter: {include: ['*']}\n" + app})
	s.awaitConfig(t, "filed", "Refused", refused)
	s.run(t, "agent", "set", "filed", "--exclude-kind=")
	s.tenantClient(t, "default").look(t, config.url)
	s.awaitConfig(t, "filed", "Applied", refused)
	if cluster.Kubectl(t, "-n", ns, "get", "secret", "s", "--ignore-not-found", "-o", "name") == "" {
		t.Error("the object of an excluded kind is gone")
	}
	if deleted := deletionsIn(a.writes(t)[before:], ns); len(deleted) > 0 {
		t.Errorf("changes of the filter deleted %+v", deleted)
	}
}
