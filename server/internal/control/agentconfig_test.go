package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func kedgeFile(agent string) string  { return ".kedge/agents/" + agent + "/config.yaml" }
func gitLabFile(agent string) string { return ".gitlab/agents/" + agent + "/config.yaml" }

// declares is a file of Kedge's with these deployments, "name" or "name!" for one to be pruned, each
// from the folder of its name.
func declares(names ...string) string {
	out := "deployments:\n"
	if len(names) == 0 {
		return "deployments: []\n"
	}
	for _, name := range names {
		short := strings.TrimSuffix(name, "!")
		out += fmt.Sprintf("- name: %s\n  source: {path: %s}\n", short, short)
		if short != name {
			out += "  onRemove: prune\n"
		}
	}
	return out
}

// manifests are the folders of some deployments.
func manifests(names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name+"/cm.yaml"] = configMap(name, "1")
	}
	return out
}

func (r *replica) configure(t *testing.T, agent string) {
	t.Helper()
	_, err := r.SetAgentConfig(t.Context(), admin, "default", agent, r.url)
	ok(t, err)
}

// awaitConfig waits until check accepts the configuration of an agent.
func (r *replica) awaitConfig(t *testing.T, agent string, check func(control.AgentConfigView) error) control.AgentConfigView {
	t.Helper()
	var c control.AgentConfigView
	testkit.Eventually(t, patience, func(ctx context.Context) (err error) {
		if c, err = r.AgentConfig(ctx, admin, "default", agent); err != nil {
			return err
		}
		return check(c)
	})
	return c
}

func inState(state fleet.ConfigState, commit string) func(control.AgentConfigView) error {
	return func(c control.AgentConfigView) error {
		if c.State != state || c.Commit != commit {
			return fmt.Errorf("it is %q at %q, not %q at %q: %v %s", c.State, c.Commit, state, commit, c.Errors, c.RepositoryError)
		}
		return nil
	}
}

// declared returns the declared deployments of an agent, and the released ones with a dash.
func declared(c control.AgentConfigView) []string {
	out := []string{}
	for _, d := range c.Declarations {
		if d.ReleasedAt.IsZero() {
			out = append(out, d.Name)
		} else {
			out = append(out, "-"+d.Name)
		}
	}
	slices.Sort(out)
	return out
}

func wantDeclared(t *testing.T, c control.AgentConfigView, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, declared(c), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("declared deployments differ (-want +got):\n%s", diff)
	}
}

// covers: F1, F2
func TestAFileDeclaresDeploymentsOfItsAgent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		paris := r.enroll(t, "paris")
		r.enroll(t, "oslo")
		r.push(t, manifests("web", "db"))
		first := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db")})
		r.configure(t, "paris")
		wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first)), "db", "web")
		web := r.await(t, "paris.web", atCommit(first))
		if len(web.Targets) != 1 || web.Targets[0].AgentID != paris.ID || web.Targets[0].Desired.Digest == "" {
			t.Fatalf("targets of web: %+v, want one on paris that has a bundle", web.Targets)
		}
		if web.Declared == nil || web.Declared.File != kedgeFile("paris") || web.Declared.RepoURL != r.url {
			t.Errorf("web says that it is declared by %+v", web.Declared)
		}

		// A change touches only what it is about.
		second := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "cache"), "cache/cm.yaml": configMap("cache", "1")})
		wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, second)), "-db", "cache", "web")
		r.await(t, "paris.cache", atCommit(second))
		again := r.await(t, "paris.web", func(control.DeploymentView) error { return nil })
		if again.SpecRevision != web.SpecRevision || again.Targets[0].Desired.Version != web.Targets[0].Desired.Version {
			t.Errorf("web was disturbed: %+v became %+v", web.Targets[0].Desired, again.Targets[0].Desired)
		}
		gone := r.await(t, "paris.db", func(control.DeploymentView) error { return nil })
		if want := gone.Targets[0].Desired; !want.Detached || want.Tombstone {
			t.Errorf("db left the file, and its target got %+v, want it detached", want)
		}

		// A deployment that is declared again continues with its target.
		third := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db")})
		wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, third)), "-cache", "db", "web")
		back := r.await(t, "paris.db", func(d control.DeploymentView) error {
			if d.Targets[0].Desired.Digest == "" {
				return errors.New("it has no bundle yet")
			}
			return nil
		})
		if back.ID != gone.ID || back.Targets[0].ID != gone.Targets[0].ID || back.Targets[0].Desired.Detached {
			t.Errorf("db came back as %s on %+v, was %s on %s", back.ID, back.Targets[0], gone.ID, gone.Targets[0].ID)
		}
	})
}

// covers: F1
func TestAWrongFileLeavesTheOldOneLive(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		files  map[string]string
		state  fleet.ConfigState
		want   string // part of the error
	}{
		"unknown key": {"", map[string]string{kedgeFile("paris"): "deployments:\n- name: web\n  prune: x\n"}, fleet.ConfigInvalid, "line 3: deployments[0].prune: is not a known key"},
		"leaves the tree": {"what only the server can check is named by field too", map[string]string{kedgeFile("paris"): "deployments:\n- name: web\n  source: {path: ../x}\n"},
			fleet.ConfigInvalid, "line 3: deployments[0].source.path: "},
		"two files": {"", map[string]string{gitLabFile("paris"): ""}, fleet.ConfigInvalid, "there are two files"},
		"too big":   {"", map[string]string{kedgeFile("paris"): strings.Repeat("#", 128<<10+1)}, fleet.ConfigInvalid, "more than 131072 bytes"},
		"a link": {"it would lead elsewhere", map[string]string{kedgeFile("paris"): gitserver.Symlink("../../../web/cm.yaml")},
			fleet.ConfigInvalid, "is not a regular file"},
		"singular folder": {"an article of GitLab's says so", map[string]string{kedgeFile("paris"): gitserver.Deleted, ".gitlab/agent/paris/config.yaml": "gitops: {}"},
			fleet.ConfigInvalid, "the folder is .gitlab/agents"},
		"another ending": {"", map[string]string{kedgeFile("paris"): gitserver.Deleted, ".kedge/agents/paris/config.yml": ""},
			fleet.ConfigInvalid, "rename it to config.yaml"},
		"an unknown number": {"", map[string]string{kedgeFile("paris"): gitserver.Deleted, gitLabFile("paris"): "gitops:\n  manifest_projects:\n  - id: '42'\n"},
			fleet.ConfigInvalid, "line 3: gitops.manifest_projects[0].id: the URL of project 42 is unknown"},
		"a project twice": {"by its path and as the default", map[string]string{kedgeFile("paris"): gitserver.Deleted, gitLabFile("paris"): "gitops:\n  manifest_projects:\n  - {}\n  - id: x/y\n"},
			fleet.ConfigInvalid, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t)
			r.enroll(t, "paris")
			first := r.push(t, map[string]string{kedgeFile("paris"): declares("web!"), "web/cm.yaml": configMap("web", "1")})
			r.configure(t, "paris")
			r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
			before := r.await(t, "paris.web", atCommit(first))
			if tt.want == "" { // the repository of the file, under its other name
				ok(t, errIgnored(r.SetGitLabProject(t.Context(), admin, "default", "x/y", r.url)))
				tt.want = "the repository is the same as gitops.manifest_projects[0]"
			}

			second := r.push(t, tt.files)
			c := r.awaitConfig(t, "paris", inState(tt.state, second))
			wantDeclared(t, c, "web")
			if len(c.Errors) == 0 || !strings.Contains(c.Errors[0].String(), tt.want) {
				t.Errorf("%s: got errors %v, want one with %q", tt.reason, c.Errors, tt.want)
			}
			if c.Live != first {
				t.Errorf("live is %s, want %s", c.Live, first)
			}
			after := r.await(t, "paris.web", func(control.DeploymentView) error { return nil })
			if after.Targets[0].Desired.Tombstone || after.Targets[0].Desired.Detached || after.SpecRevision != before.SpecRevision {
				t.Errorf("web was touched: %+v", after.Targets[0].Desired)
			}
			agent, err := r.Agent(t.Context(), admin, "default", "paris")
			ok(t, err)
			if c := agent.Conditions(); len(c) != 2 || c[1].Type != fleet.ConditionConfigReady || c[1].Status != fleet.ConditionFalse || c[1].Reason != tt.state.Reason() {
				t.Errorf("conditions of the agent are %+v, want ConfigReady False with the reason %s", c, tt.state.Reason())
			}
			if !slices.ContainsFunc(agent.Warnings, func(w fleet.Cause) bool { return w.Reason == tt.state.Reason() && strings.Contains(w.Message, tt.want) }) {
				t.Errorf("warnings of the agent are %+v, want one with %q", agent.Warnings, tt.want)
			}

			// A fixed file is applied immediately.
			clean := map[string]string{kedgeFile("paris"): declares("web")}
			for name := range tt.files {
				if name != kedgeFile("paris") {
					clean[name] = gitserver.Deleted
				}
			}
			third := r.push(t, clean)
			wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, third)), "web")
		})
	}
}

func errIgnored[T any](_ T, err error) error { return err }

// covers: F1, F2 (deletion only on purpose)
func TestObjectsAreDeletedOnlyWhenTheFileSaidSo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		change func(t *testing.T, r *replica)
		gone   bool // it has a tombstone or is gone
	}{
		"left out": {"it was said while it was listed", func(t *testing.T, r *replica) {
			r.push(t, map[string]string{kedgeFile("paris"): declares("other")})
		}, true},
		"left out of a list that is empty": {"an empty list is a list", func(t *testing.T, r *replica) {
			r.push(t, map[string]string{kedgeFile("paris"): declares()})
		}, true},
		"the file is empty": {"nothing was said", func(t *testing.T, r *replica) {
			r.push(t, map[string]string{kedgeFile("paris"): "# nothing\n"})
		}, false},
		"the file is gone": {"", func(t *testing.T, r *replica) {
			r.push(t, map[string]string{kedgeFile("paris"): gitserver.Deleted})
		}, false},
		"another file": {"GitLab's never said so", func(t *testing.T, r *replica) {
			r.push(t, map[string]string{kedgeFile("paris"): gitserver.Deleted, gitLabFile("paris"): "gitops: {manifest_projects: []}"})
		}, false},
		"the setting is gone": {"", func(t *testing.T, r *replica) {
			ok(t, r.UnsetAgentConfig(t.Context(), admin, "default", "paris"))
		}, false},
		"another repository": {"what one said does not count in another", func(t *testing.T, r *replica) {
			repo, err := r.git.CreateHosted("elsewhere")
			ok(t, err)
			ok(t, errIgnored(repo.CommitAndPush(t.Context(), map[string]string{kedgeFile("paris"): declares()}, "elsewhere")))
			ok(t, errIgnored(r.SetAgentConfig(t.Context(), admin, "default", "paris", r.git.URL("elsewhere"))))
		}, false},
		"the agent is gone": {"", func(t *testing.T, r *replica) {
			ok(t, r.DeleteAgent(t.Context(), admin, "default", "paris", control.Match{}))
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t)
			r.enroll(t, "paris")
			first := r.push(t, map[string]string{kedgeFile("paris"): declares("web!"), "web/cm.yaml": configMap("web", "1"), "other/cm.yaml": configMap("o", "1")})
			r.configure(t, "paris")
			r.await(t, "paris.web", func(d control.DeploymentView) error {
				if d.Rendered.Commit != first || d.Targets[0].Desired.Digest == "" {
					return errors.New("it has no bundle yet")
				}
				return nil
			})
			tt.change(t, r)
			testkit.Eventually(t, patience, func(ctx context.Context) error {
				d, err := r.Deployment(ctx, admin, "default", "paris.web")
				switch {
				case errors.Is(err, store.ErrNotFound) && tt.gone:
					return nil // on its way out: its name is free
				case err != nil:
					return err
				}
				got := d.Targets[0].Desired
				if got.Tombstone {
					t.Fatalf("%s: it has a tombstone", tt.reason)
				}
				if tt.gone || !got.Detached || d.Declared.ReleasedAt.IsZero() || d.Environment != "released.paris" {
					return fmt.Errorf("%s: %+v in %s", tt.reason, got, d.Environment)
				}
				return nil
			})
			if !tt.gone { // what was let go can be deleted, and that leaves its objects too
				ok(t, errIgnored(r.DeleteDeployment(t.Context(), admin, "default", "paris.web", control.Match{})))
			}
		})
	}
}

// covers: F3 (what a file declares, another API cannot change)
func TestNoOtherDoorChangesWhatAFileDeclares(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	r.await(t, "paris.web", atCommit(first))
	namespace, place := "other", "agent.paris"
	_, edit := r.UpdateDeployment(t.Context(), admin, "default", "paris.web", control.UpdateDeployment{Namespace: &namespace}, control.Match{})
	_, remove := r.DeleteDeployment(t.Context(), admin, "default", "paris.web", control.Match{})
	_, aim := r.UpdateEnvironment(t.Context(), admin, "default", place, control.UpdateEnvironment{Agents: &[]string{"paris"}}, control.Match{})
	_, grant := r.CreateGrant(t.Context(), admin, "default", control.CreateGrant{Environment: place, Grantee: "default"})
	for doing, err := range map[string]error{"editing": edit, "deleting": remove} {
		var conflict *control.ConflictError
		if !errors.As(err, &conflict) || !strings.Contains(err.Error(), kedgeFile("paris")) || !strings.Contains(err.Error(), r.url) {
			t.Errorf("%s: got error %v, want a conflict that names file and repository", doing, err)
		}
	}
	for doing, err := range map[string]error{"editing its environment": aim, "granting its environment": grant} {
		if err == nil {
			t.Errorf("%s: got no error", doing)
		}
	}
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "mine", Environment: place, Source: fleet.Source{RepoURL: r.url, Path: "web"}})
	var invalid *fleet.InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("deploying beside it: got error %v, want that the environment is refused", err)
	}
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	err = r.DeleteRepository(t.Context(), admin, "default", repos[0].ID, control.Match{})
	if err == nil || !strings.Contains(err.Error(), "kedge agent config unset paris") {
		t.Errorf("deleting its repository: got error %v, want one with the obstacle", err)
	}
	// To stop it for a while is not to change it.
	ok(t, errIgnored(r.SuspendDeployment(t.Context(), admin, "default", "paris.web", "lunch")))
	ok(t, errIgnored(r.ResumeDeployment(t.Context(), admin, "default", "paris.web")))
}

// covers: F3
func TestAGitLabFileWorksUnchanged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		r.enroll(t, "paris")
		app, err := r.git.CreateHosted("mygroup/mysub/myproject")
		ok(t, err)
		commit, err := app.CommitAndPush(t.Context(), map[string]string{"manifests/cm.yaml": configMap("a", "1"), "other.yaml": "not: [yaml"}, "first")
		ok(t, err)
		ok(t, errIgnored(r.SetGitLabProject(t.Context(), admin, "default", "42", r.url)))
		first := r.push(t, map[string]string{
			"deploy/cm.yaml": configMap("b", "1"),
			gitLabFile("paris"): `gitops:
  manifest_projects:
  - id: "mygroup/mysub/myproject"
    paths:
    - glob: '/manifests/*.{yaml,yml,json}'
  - id: "42"
    default_namespace: shop
    inventory_policy: adopt_all
    paths:
    - glob: '/deploy/**/*.yaml'
observability:
  logging: {level: debug}
`})
		r.configure(t, "paris")
		c := r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
		wantDeclared(t, c, "42", "mygroup.mysub.myproject")
		if len(c.Notices) != 1 || c.Notices[0].Field != "observability" {
			t.Errorf("notices are %v, want one of observability", c.Notices)
		}
		d := r.await(t, "paris.mygroup.mysub.myproject", atCommit(commit))
		if d.Source.RepoURL != r.git.URL("mygroup/mysub/myproject") || !d.Policy.Prune || d.Policy.Adopt || d.SourceError != "" {
			t.Errorf("the project became %+v with policy %+v", d.Source, d.Policy)
		}
		if d := r.await(t, "paris.42", atCommit(first)); d.Namespace != "shop" || !d.Policy.Adopt {
			t.Errorf("project 42 became %+v", d.Deployment)
		}
	})
}

// covers: F2, F1 (a push of another branch means nothing)
func TestOnlyTheDefaultBranchCounts(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
	ok(t, r.repo.Switch(t.Context(), "feature"))
	r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db")})
	ok(t, r.repo.Switch(t.Context(), "main"))
	third := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "cache")})
	wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, third)), "cache", "web")
}

func TestTwoAgentsShareARepository(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "oslo")
	_, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: "paris", ConfigRepoURL: r.url})
	ok(t, err)
	r.configure(t, "oslo")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web"), kedgeFile("oslo"): declares("web"), "web/cm.yaml": configMap("web", "1")})
	for _, agent := range []string{"paris", "oslo"} {
		r.awaitConfig(t, agent, inState(fleet.ConfigApplied, first))
		d := r.await(t, agent+".web", atCommit(first))
		if len(d.Targets) != 1 || d.Targets[0].AgentName != agent {
			t.Errorf("%s.web is on %+v", agent, d.Targets)
		}
	}
	// Renaming the file of an agent removes it from one and gives it to none.
	second := r.push(t, map[string]string{kedgeFile("oslo"): gitserver.Deleted, kedgeFile("bergen"): declares("web")})
	wantDeclared(t, r.awaitConfig(t, "oslo", inState(fleet.ConfigAbsent, second)), "-web")
	wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first)), "web")
}

func TestAnAgentEnrolledAgainTakesUpWhatItsFileDeclares(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	before := r.await(t, "paris.web", atCommit(first))
	ok(t, r.DeleteAgent(t.Context(), admin, "default", "paris", control.Match{}))
	paris := r.enroll(t, "paris")
	d := r.await(t, "paris.web", func(control.DeploymentView) error { return nil })
	for _, target := range d.Targets {
		if target.AgentID == paris.ID {
			t.Fatalf("the new agent got %+v without a file that says so", target.Desired)
		}
	}
	r.configure(t, "paris")
	r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
	after := r.await(t, "paris.web", func(d control.DeploymentView) error {
		if !slices.ContainsFunc(d.Targets, func(v control.TargetView) bool { return v.AgentID == paris.ID }) {
			return errors.New("it has no target on the new agent")
		}
		return nil
	})
	if after.ID != before.ID {
		t.Errorf("it is another deployment: %s, was %s", after.ID, before.ID)
	}
}

func TestQuotasHoldForFiles(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	quota := fleet.Quota{Deployments: 1}
	ok(t, errIgnored(r.UpdateTenant(t.Context(), admin, "default", control.UpdateTenant{Quota: &quota}, control.Match{})))
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	c := r.awaitConfig(t, "paris", inState(fleet.ConfigRefused, first))
	wantDeclared(t, c)
	if !strings.Contains(c.Errors[0].Message, "at most 1 deployments") {
		t.Errorf("got errors %v, want one about the quota", c.Errors)
	}
	quota.Deployments = 2
	ok(t, errIgnored(r.UpdateTenant(t.Context(), admin, "default", control.UpdateTenant{Quota: &quota}, control.Match{})))
	r.refresh(t)
	wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first)), "db", "web")
}
