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

// deletionsIn omits the objects of the agent itself.
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

	// A number cannot be resolved to a path until its URL is set.
	wrong := config.push(t, map[string]string{path: strings.ReplaceAll(file, "mygroup/mysub/myproject", "4711") + "prune: maybe\n"})
	s.awaitConfig(t, "from-gitlab", "Invalid", wrong)
	out, err = s.kedge(t, "agent", "config", "get", "from-gitlab")
	if err != nil || !strings.Contains(out, "line 9: prune: is not a known key") || !strings.Contains(out, "the configuration that was applied before stays in force") {
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

// fileConfig is an agent whose deployments a file in Git declares: web and old at first.
type fileConfig struct {
	*testServer
	cluster *testkit.Cluster
	agent   *testAgent
	repo    *testRepo
	ns      string
	first   string           // the first commit
	web     apiv1.Deployment // at the first commit
}

const byFile = ".kedge/agents/by-file/config.yaml"

func newFileConfig(t *testing.T) *fileConfig {
	t.Helper()
	f := &fileConfig{cluster: testkit.SharedCluster(t), testServer: startServer(t), repo: newRepo(t)}
	f.ns = f.cluster.Namespace(t)
	f.agent = enroll(t, f.testServer, f.cluster, apiv1.EnrollAgent{Name: "by-file"})
	files := map[string]string{byFile: "deployments:\n" + f.entry("web", "") + f.entry("old", "  onRemove: prune\n")}
	for _, name := range []string{"web", "db", "old"} {
		files[name+"/cm.yaml"] = configMap(f.ns, name, "one")
	}
	f.first = f.repo.push(t, files)
	if out, err := f.kedge(t, "agent", "config", "set", "by-file", f.repo.url); err != nil {
		t.Fatalf("kedge agent config set: %v\n%s", err, out)
	}
	f.repo.webhooks(t, f.testServer)
	f.awaitConfig(t, "by-file", "Applied", f.first)
	f.web = f.awaitDeployment(t, "by-file.web", healthyAt(f.first, 1))
	f.awaitDeployment(t, "by-file.old", healthyAt(f.first, 1))
	return f
}

// entry is the declaration of a deployment.
func (f *fileConfig) entry(name, more string) string {
	return fmt.Sprintf("- name: %s\n  source: {path: %s}\n  namespace: %s\n%s", name, name, f.ns, more)
}

// covers: F1, F2
func TestAFileInGitIsFollowedLive(t *testing.T) {
	t.Parallel()
	f := newFileConfig(t)
	f.refusesChangesByAPI(t)
	f.ignoresAnInvalidFile(t)
	f.addsAndRemoves(t)
	f.editsAnEntry(t)
	f.keepsEverythingWhenUnset(t)
}

// refusesChangesByAPI shows that the API refuses changes, with the file in the message.
func (f *fileConfig) refusesChangesByAPI(t *testing.T) {
	t.Helper()
	d := tenantClient{Server: f.Server, tenant: "default"}
	for method, body := range map[string]any{"PATCH": apiv1.UpdateDeployment{Namespace: new("other")}, "DELETE": nil} {
		answer := d.want(t, 409, method, "deployments/by-file.web", body)
		if text := string(answer.Body); !strings.Contains(text, byFile) || !strings.Contains(text, f.repo.url) {
			t.Errorf("%s is refused with %s", method, text)
		}
	}
}

func (f *fileConfig) ignoresAnInvalidFile(t *testing.T) {
	t.Helper()
	wrong := f.repo.push(t, map[string]string{byFile: "deployments:\n" + f.entry("web", "  policy: {drift: fix}\n")})
	c := f.awaitConfig(t, "by-file", "Invalid", wrong)
	if len(c.Errors) != 1 || c.Errors[0].Field != "deployments[0].policy.drift" || c.Errors[0].Line != 5 || c.LiveCommit != f.first {
		t.Errorf("the configuration reads %+v", c)
	}
	if out, err := f.kedge(t, "get", "agents"); err != nil || !strings.Contains(out, "deployments[0].policy.drift") {
		t.Errorf("kedge get agents (%v) does not name the error:\n%s", err, out)
	}
}

// addsAndRemoves shows that new deployments start, that removed ones are pruned if the file demanded it, and that the others
// do not change.
func (f *fileConfig) addsAndRemoves(t *testing.T) {
	t.Helper()
	second := f.repo.push(t, map[string]string{byFile: "deployments:\n" + f.entry("web", "") + f.entry("db", "")})
	f.awaitConfig(t, "by-file", "Applied", second)
	f.awaitDeployment(t, "by-file.db", healthyAt(second, 1))
	testkit.Eventually(t, patience, func(context.Context) error {
		if got := valueOf(t, f.cluster, f.ns, "old"); got != "" {
			return errors.New("old is still there")
		}
		return nil
	})
	f.undisturbed(t, f.web)
}

// undisturbed checks that a deployment was neither edited nor sent again.
func (f *fileConfig) undisturbed(t *testing.T, was apiv1.Deployment) {
	t.Helper()
	now, err := f.deployment(t.Context(), was.Name)
	if err != nil || now.Targets[0].Generation != was.Targets[0].Generation || now.SpecRevision != was.SpecRevision {
		t.Errorf("%s was disturbed: %+v, %v", was.Name, now, err)
	}
}

// editsAnEntry shows that an edited entry is the same deployment, with another folder and policy, and that the others do not
// change.
func (f *fileConfig) editsAnEntry(t *testing.T) {
	t.Helper()
	db, err := f.deployment(t.Context(), "by-file.db")
	if err != nil {
		t.Fatal(err)
	}
	uid := func() string {
		return f.cluster.Kubectl(t, "-n", f.ns, "get", "configmap", "web", "-o", "jsonpath={.metadata.uid}")
	}
	was := uid()
	edited := f.repo.push(t, map[string]string{
		"next/cm.yaml": configMap(f.ns, "web", "edited"), "next/more.yaml": configMap(f.ns, "more", "edited"),
		byFile: "deployments:\n" + strings.Replace(f.entry("web", "  policy: {drift: report}\n"), "path: web", "path: next", 1) + f.entry("db", ""),
	})
	f.awaitConfig(t, "by-file", "Applied", edited)
	now := f.awaitDeployment(t, "by-file.web", healthyAt(edited, 1))
	if now.ID != f.web.ID || now.Source.Path != "next" || now.Policy.Drift != "report" || now.SpecRevision == f.web.SpecRevision {
		t.Errorf("after its entry was edited web is %+v", now)
	}
	for name, want := range map[string]string{"web": "edited", "more": "edited", "db": "one"} {
		if got := valueOf(t, f.cluster, f.ns, name); got != want {
			t.Errorf("after the edit object %s is %q, want %q", name, got, want)
		}
	}
	if got := uid(); got != was {
		t.Errorf("an object of both folders was recreated: %s, and was %s", got, was)
	}
	f.undisturbed(t, db)
}

// keepsEverythingWhenUnset shows that objects stay when the agent has no configuration any more.
func (f *fileConfig) keepsEverythingWhenUnset(t *testing.T) {
	t.Helper()
	before := len(f.agent.writes(t))
	if out, err := f.kedge(t, "agent", "config", "unset", "by-file"); err != nil {
		t.Fatalf("kedge agent config unset: %v\n%s", err, out)
	}
	for name, value := range map[string]string{"web": "edited", "db": "one"} {
		f.awaitDeployment(t, "by-file."+name, func(d apiv1.Deployment) error {
			if d.Sync != "Detached" {
				return fmt.Errorf("it is %s", d.Sync)
			}
			return nil
		})
		if got := valueOf(t, f.cluster, f.ns, name); got != value {
			t.Errorf("object %s is %q", name, got)
		}
	}
	if deleted := deletionsIn(f.agent.writes(t)[before:], f.ns); len(deleted) > 0 {
		t.Errorf("the release of the deployments deleted %+v", deleted)
	}
}
