package agentconfig_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// blogFile is the example from GitLab's introduction to its agent, unchanged.
const blogFile = `gitops:
  manifest_projects:
  - id: "mygroup/mysub/myproject"
    paths:
    - glob: '/manifests/*.{yaml,yml,json}'
`

const wholeGitLabFile = `
gitops:
  manifest_projects:
  - id: gitlab-org/cluster-integration/gitlab-agent
    ref:
      branch: production
    default_namespace: my-ns
    paths:
    - glob: '/team1/app1/*.yaml'
    - glob: '/**/*.json'
    reconcile_timeout: 60s
    dry_run_strategy: server
    prune: false
    prune_timeout: 90s
    prune_propagation_policy: background
    inventory_policy: adopt_all
  - id: "42"
    ref: {tag: v1}
  - {}
observability:
  logging: {level: debug}
ci_access:
  projects: [{id: a/b}]
`

// covers: F3
func TestGitLabFileIsReadWhole(t *testing.T) {
	t.Parallel()
	got, err := agentconfig.ParseGitLab([]byte(wholeGitLabFile))
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	defaults := fleet.Policy{Prune: true, Propagation: fleet.PropagationForeground, PruneTimeout: time.Hour, ReadyTimeout: time.Hour}
	want := agentconfig.File{
		Lists: true, Deployments: []agentconfig.Deployment{
			{
				Name: "gitlab-org.cluster-integration.gitlab-agent", Project: "gitlab-org/cluster-integration/gitlab-agent", Namespace: "my-ns",
				Source: fleet.Source{Kind: fleet.SourcePlain, Revision: "refs/heads/production", Globs: []string{"/team1/app1/*.yaml", "/**/*.json"}},
				Policy: fleet.Policy{Adopt: true, DryRun: true, PruneTimeout: 90 * time.Second, ReadyTimeout: time.Minute, Propagation: fleet.PropagationBackground},
			},
			{Name: "42", Project: "42", Namespace: "default", Source: fleet.Source{Kind: fleet.SourcePlain, Revision: "refs/tags/v1"}, Policy: defaults},
			{Name: "config-project", Namespace: "default", Source: fleet.Source{Kind: fleet.SourcePlain}, Policy: defaults},
		},
		Notices: []fleet.ConfigFinding{
			{Field: "observability", Line: 20, Message: "is not used: it is about the log level of GitLab's agent"},
			{Field: "ci_access", Line: 22, Message: "is not used: it is about access of GitLab's CI jobs to the cluster"},
		},
	}
	if diff := cmp.Diff(want, got, sameFile...); diff != "" {
		t.Errorf("file differs (-want +got):\n%s", diff)
	}
}

// covers: F1, F3
func TestGitLabFileIsRefusedByField(t *testing.T) {
	t.Parallel()
	project := func(text string) string { return "gitops:\n  manifest_projects:\n  - id: a/b\n    " + text + "\n" }
	at := "line 4: gitops.manifest_projects[0]."
	tests := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"empty":                     {"absent and empty are defaults", "", nil},
		"the blog's":                {"a user of GitLab moves over unchanged", blogFile, nil},
		"empty gitops":              {"", "gitops:\n", nil},
		"unknown section":           {"", "gitop: {}\n", []string{"line 1: gitop: is not a known key: use one of ci_access, cilium, container_scanning, flux, gitops, observability, remote_development, resource_management, starboard, user_access"}},
		"unknown key":               {"", project("prunes: true"), []string{at + "prunes: is not a known key: use one of default_namespace, dry_run_strategy, id, inventory_policy, paths, prune, prune_propagation_policy, prune_timeout, reconcile_timeout, ref"}},
		"wrong type":                {"", project("prune: 1"), []string{at + "prune: must be true or false, but is a number"}},
		"yes is true":               {"GitLab's YAML is 1.1", project("prune: yes"), nil},
		"bad word":                  {"", project("inventory_policy: adopt"), []string{at + `inventory_policy: "adopt" is not one of must_match, adopt_if_no_inventory, adopt_all`}},
		"no word":                   {"GitLab uses the default for an empty value", project(`dry_run_strategy: ""`), nil},
		"two refs":                  {"", project("ref: {branch: a, tag: b}"), []string{at + "ref: has more than one of branch, tag, and commit: keep one"}},
		"empty branch":              {"", project("ref: {branch: ''}"), []string{at + "ref.branch: is empty"}},
		"no ref in ref":             {"", project("ref: {}"), []string{at + "ref: has no branch, tag, or commit"}},
		"short commit":              {"it could not be fetched", project("ref: {commit: abc}"), []string{at + `ref.commit: "abc" is not the full name of a commit: 40 digits`}},
		"empty glob":                {"", project("paths: [{glob: ''}]"), []string{at + "paths[0].glob: is empty"}},
		"no glob":                   {"", project("paths: [{}]"), []string{at + "paths[0]: has no glob"}},
		"duration in hours":         {"GitLab accepts only seconds", project("prune_timeout: 1h"), []string{at + `prune_timeout: "1h" is not a duration in seconds, such as "3600s"`}},
		"number for an id":          {"GitLab refuses it too", "gitops:\n  manifest_projects:\n  - id: 7\n", []string{"line 3: gitops.manifest_projects[0].id: must be text (put it into quotes), but is a number"}},
		"URL for an id":             {"", "gitops:\n  manifest_projects:\n  - id: https://a/b\n", []string{`line 3: gitops.manifest_projects[0].id: "https://a/b" is neither the path of a project, such as group/app, nor its number`}},
		"path that leaves its root": {"", "gitops:\n  manifest_projects:\n  - id: a/../b\n", []string{`line 3: gitops.manifest_projects[0].id: "a/../b" is neither the path of a project, such as group/app, nor its number`}},
		"same project twice": {"GitLab refuses the file too", "gitops:\n  manifest_projects:\n  - id: a/b\n  - id: A/b\n", []string{
			"line 4: gitops.manifest_projects[1]: gitops.manifest_projects[0] already names the project: GitLab allows each project once"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agentconfig.ParseGitLab([]byte(tt.text))
			if diff := cmp.Diff(tt.want, refusals(t, err)); diff != "" {
				t.Errorf("%s: problems differ (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestProjectNames(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"": "config-project", "group/app": "group.app", "42": "42", "a/b/c-d": "a.b.c-d",
		"Group/App": "group.app", "group/my_app": "group.my-app-782187b3", "group/my-app": "group.my-app", "_x/y-": "x.y-56b14a1f",
	} {
		if got := agentconfig.ProjectName(id); got != want {
			t.Errorf("name of project %q: got %q, want %q", id, got, want)
		}
	}
}

// covers: F3
func TestProjectURLs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ repository, path, want string }{
		{"https://gitlab.example/ops/config.git", "team/app", "https://gitlab.example/team/app.git"},
		{"https://gitlab.example/ops/config", "team/app", "https://gitlab.example/team/app"},
		{"ssh://git@gitlab.example:2222/ops/config.git", "a/b", "ssh://git@gitlab.example:2222/a/b.git"},
		{"git@gitlab.example:ops/config.git", "a/b", "git@gitlab.example:a/b.git"},
		{"file:///srv/git/config.git", "a/b", ""},
		{"/srv/git/config.git", "a/b", ""},
	} {
		got, err := agentconfig.ProjectURL(tt.repository, tt.path)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("project %q beside %q: got %q and error %v, want %q", tt.path, tt.repository, got, err, tt.want)
		}
	}
}
