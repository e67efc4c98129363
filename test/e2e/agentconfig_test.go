package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// awaitConfig waits until the configuration of an agent is in a state at a commit.
func (s *testServer) awaitConfig(t *testing.T, agent, state, commit string) apiv1.AgentConfig {
	t.Helper()
	d := tenantClient{Server: s.Server, tenant: "default"}
	var c apiv1.AgentConfig
	testkit.Eventually(t, patience, func(context.Context) error {
		if c = get[apiv1.AgentConfig](t, d, "agents/"+agent+"/config"); c.State != state || c.Commit != commit {
			return fmt.Errorf("it is %s at %s: %+v", c.State, c.Commit, c.Errors)
		}
		return nil
	})
	return c
}

func valueOf(t *testing.T, cluster *testkit.Cluster, namespace, name string) string {
	t.Helper()
	return cluster.Kubectl(t, "-n", namespace, "get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.value}")
}

// deletionsIn leaves out what an agent keeps for itself.
func deletionsIn(requests []testkit.Request, namespace string) []testkit.Request {
	return slices.DeleteFunc(deletions(requests), func(r testkit.Request) bool { return r.Namespace != namespace })
}

// covers: F3, F1
func TestAGitLabUserMovesOverUnchanged(t *testing.T) {
	t.Parallel()
	cluster, s, config := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	app := newRepoOn(t, config.server, "mygroup/mysub/myproject")
	commit := app.push(t, map[string]string{"manifests/page.yaml": configMap(ns, "page", "one"), "README.md": "# not a manifest"})
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "from-gitlab", ConfigRepoURL: config.url})
	config.webhooks(t, s)

	// The file of GitLab's own introduction, and a section that is about something else.
	const path = ".gitlab/agents/from-gitlab/config.yaml"
	const file = "gitops:\n  manifest_projects:\n  - id: \"mygroup/mysub/myproject\"\n    paths:\n    - glob: '/manifests/*.{yaml,yml,json}'\n" +
		"observability:\n  logging:\n    level: debug\n"
	first := config.push(t, map[string]string{path: file})
	s.awaitConfig(t, "from-gitlab", "Applied", first)
	const name = "from-gitlab.mygroup.mysub.myproject"
	s.awaitDeployment(t, name, healthyAt(commit, 1))
	if got := valueOf(t, cluster, ns, "page"); got != "one" {
		t.Fatalf("the object is %q", got)
	}
	out, err := s.kedge(t, "agent", "config", "get", "from-gitlab")
	if err != nil || !strings.Contains(out, "observability: is not used") || !strings.Contains(out, name) {
		t.Errorf("kedge agent config get (%v) says:\n%s", err, out)
	}

	// A number is nothing that a path could be, until somebody says where it is.
	wrong := config.push(t, map[string]string{path: strings.ReplaceAll(file, "mygroup/mysub/myproject", "4711") + "prune: maybe\n"})
	s.awaitConfig(t, "from-gitlab", "Invalid", wrong)
	out, err = s.kedge(t, "agent", "config", "get", "from-gitlab")
	if err != nil || !strings.Contains(out, "line 9: prune: is not known here") || !strings.Contains(out, "the configuration that was applied before stays in force") {
		t.Errorf("kedge agent config get (%v) says:\n%s", err, out)
	}
	mapped := config.push(t, map[string]string{path: strings.ReplaceAll(file, "mygroup/mysub/myproject", "4711")})
	unknown := s.awaitConfig(t, "from-gitlab", "Invalid", mapped)
	if len(unknown.Errors) != 1 || unknown.Errors[0].Field != "gitops.manifest_projects[0].id" || unknown.Errors[0].Line != 3 {
		t.Errorf("errors are %+v", unknown.Errors)
	}
	s.awaitEvent(t, "ConfigInvalid", "4711")
	if d, err := s.deployment(t.Context(), name); err != nil || healthyAt(commit, 1)(d) != nil {
		t.Errorf("what ran before is %+v, %v", d, err)
	}
	if out, err := s.kedge(t, "gitlab-project", "set", "4711", app.url); err != nil {
		t.Fatalf("kedge gitlab-project set: %v\n%s", err, out)
	}
	s.awaitConfig(t, "from-gitlab", "Applied", mapped)
	s.awaitDeployment(t, "from-gitlab.4711", func(d apiv1.Deployment) error {
		if d.Commit != commit {
			return errors.New("not rendered")
		}
		return nil
	})
	s.awaitDeployment(t, name, func(d apiv1.Deployment) error {
		if d.Sync != "Detached" || d.DeclaredBy.ReleasedAt.IsZero() {
			return fmt.Errorf("it is %s", d.Sync)
		}
		return nil
	})
	if got := valueOf(t, cluster, ns, "page"); got != "one" {
		t.Errorf("after its project left the file the object is %q", got)
	}
	if deleted := deletionsIn(a.writes(t), ns); len(deleted) > 0 {
		t.Errorf("moving over deleted %+v", deleted)
	}
}

// covers: F1, F2
func TestAFileInGitIsFollowedLive(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "by-file"})
	const path = ".kedge/agents/by-file/config.yaml"
	entry := func(name, more string) string {
		return fmt.Sprintf("- name: %s\n  source: {path: %s}\n  namespace: %s\n%s", name, name, ns, more)
	}
	folder := func(name string) string { return name + "/cm.yaml" }
	first := repo.push(t, map[string]string{
		folder("web"): configMap(ns, "web", "one"), folder("db"): configMap(ns, "db", "one"), folder("old"): configMap(ns, "old", "one"),
		path: "deployments:\n" + entry("web", "") + entry("old", "  onRemove: prune\n"),
	})
	if out, err := s.kedge(t, "agent", "config", "set", "by-file", repo.url); err != nil {
		t.Fatalf("kedge agent config set: %v\n%s", err, out)
	}
	repo.webhooks(t, s)
	s.awaitConfig(t, "by-file", "Applied", first)
	web := s.awaitDeployment(t, "by-file.web", healthyAt(first, 1))
	s.awaitDeployment(t, "by-file.old", healthyAt(first, 1))

	// No other door, and words that say which one.
	d := tenantClient{Server: s.Server, tenant: "default"}
	for method, body := range map[string]any{"PATCH": apiv1.UpdateDeployment{Namespace: new("other")}, "DELETE": nil} {
		answer := d.want(t, 409, method, "deployments/by-file.web", body)
		if text := string(answer.Body); !strings.Contains(text, path) || !strings.Contains(text, repo.url) {
			t.Errorf("%s is refused with %s", method, text)
		}
	}

	// A wrong file changes nothing at all.
	wrong := repo.push(t, map[string]string{path: "deployments:\n" + entry("web", "  policy: {drift: fix}\n")})
	c := s.awaitConfig(t, "by-file", "Invalid", wrong)
	if len(c.Errors) != 1 || c.Errors[0].Field != "deployments[0].policy.drift" || c.Errors[0].Line != 5 || c.LiveCommit != first {
		t.Errorf("the configuration reads %+v", c)
	}
	if out, err := s.kedge(t, "get", "agents"); err != nil || !strings.Contains(out, "deployments[0].policy.drift") {
		t.Errorf("kedge get agents (%v) does not say what is wrong:\n%s", err, out)
	}

	// What is new starts, what is gone is pruned where it said so, the rest is left alone.
	second := repo.push(t, map[string]string{path: "deployments:\n" + entry("web", "") + entry("db", "")})
	s.awaitConfig(t, "by-file", "Applied", second)
	s.awaitDeployment(t, "by-file.db", healthyAt(second, 1))
	testkit.Eventually(t, patience, func(context.Context) error {
		if got := valueOf(t, cluster, ns, "old"); got != "" {
			return errors.New("old is still there")
		}
		return nil
	})
	if now, err := s.deployment(t.Context(), "by-file.web"); err != nil || now.Targets[0].Generation != web.Targets[0].Generation || now.Spec != web.Spec {
		t.Errorf("web was disturbed: %+v, %v", now, err)
	}

	// An entry that is edited is followed: the same deployment, with another folder and policy. The others are left alone.
	db, err := s.deployment(t.Context(), "by-file.db")
	if err != nil {
		t.Fatal(err)
	}
	uid := func() string {
		return cluster.Kubectl(t, "-n", ns, "get", "configmap", "web", "-o", "jsonpath={.metadata.uid}")
	}
	was := uid()
	edited := repo.push(t, map[string]string{
		"next/cm.yaml": configMap(ns, "web", "edited"), "next/more.yaml": configMap(ns, "more", "edited"),
		path: "deployments:\n" + strings.Replace(entry("web", "  policy: {drift: report}\n"), "path: web", "path: next", 1) + entry("db", ""),
	})
	s.awaitConfig(t, "by-file", "Applied", edited)
	now := s.awaitDeployment(t, "by-file.web", healthyAt(edited, 1))
	if now.ID != web.ID || now.Source.Path != "next" || now.Policy.Drift != "report" || now.Spec == web.Spec {
		t.Errorf("after its entry was edited web is %+v", now)
	}
	for name, want := range map[string]string{"web": "edited", "more": "edited", "db": "one"} {
		if got := valueOf(t, cluster, ns, name); got != want {
			t.Errorf("after the edit object %s is %q, want %q", name, got, want)
		}
	}
	if got := uid(); got != was {
		t.Errorf("an object that both folders hold was made anew: %s, and was %s", got, was)
	}
	if after, err := s.deployment(t.Context(), "by-file.db"); err != nil || after.Targets[0].Generation != db.Targets[0].Generation || after.Spec != db.Spec {
		t.Errorf("db was disturbed: %+v, %v", after, err)
	}

	// Without the setting everything stays.
	before := len(a.writes(t))
	if out, err := s.kedge(t, "agent", "config", "unset", "by-file"); err != nil {
		t.Fatalf("kedge agent config unset: %v\n%s", err, out)
	}
	for name, value := range map[string]string{"web": "edited", "db": "one"} {
		s.awaitDeployment(t, "by-file."+name, func(d apiv1.Deployment) error {
			if d.Sync != "Detached" {
				return fmt.Errorf("it is %s", d.Sync)
			}
			return nil
		})
		if got := valueOf(t, cluster, ns, name); got != value {
			t.Errorf("object %s is %q", name, got)
		}
	}
	if deleted := deletionsIn(a.writes(t)[before:], ns); len(deleted) > 0 {
		t.Errorf("letting go deleted %+v", deleted)
	}
}
