package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// filed is a Git in which the test sets the file of agent paris, by the first letter of a commit.
type filed struct {
	scripted
	files map[string]string
	path  string // Kedge's when it is ""
}

func (g *filed) Tree(_ context.Context, _ gitsource.Access, commit string) (filetree.Tree, error) {
	return memtree.New(map[string]string{cmp.Or(g.path, agentconfig.KedgePath("paris")): g.files[commit[:1]]}), nil
}

// configured is a server that reads the file of agent paris from git, and the repository that it is in.
func configured(t *testing.T, git Git) (*Service, fleet.Repository) {
	t.Helper()
	s := openService(t, sqlitetest.Path(t), Config{}, git)
	_, err := s.EnrollAgent(t.Context(), auth.System(), "default", EnrollAgent{Name: "paris", ConfigRepoURL: "https://example.com/a.git"})
	if err != nil {
		t.Fatal(err)
	}
	var repos []fleet.Repository
	err = s.store.View(t.Context(), func(tx store.Tx) (err error) {
		repos, err = tx.Repositories().ListAllTenants(t.Context())
		return err
	})
	if err != nil || len(repos) != 1 {
		t.Fatalf("the repositories are %+v, %v", repos, err)
	}
	return s, repos[0]
}

// readConfig reads the file at a commit like the leader of the repository, without applying it.
func readConfig(t *testing.T, s *Service, repo fleet.Repository, commit string) reposync.ConfigFile {
	t.Helper()
	var configs []fleet.AgentConfig
	err := s.store.View(t.Context(), func(tx store.Tx) (err error) {
		configs, err = tx.AgentConfigs().OfRepository(t.Context(), repo.TenantID, repo.ID)
		return err
	})
	if err != nil || len(configs) != 1 {
		t.Fatalf("there are %d configurations, %v", len(configs), err)
	}
	commit = strings.Repeat(commit, 40)
	tree, err := s.git.Tree(t.Context(), gitsource.Access{}, commit)
	if err != nil {
		t.Fatal(err)
	}
	file, err := reposync.ReadConfig(t.Context(), tree, configs[0], commit)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func applyFile(t *testing.T, s *Service, file reposync.ConfigFile, want reposync.ConfigResult) {
	t.Helper()
	got, err := s.applyConfig(t.Context(), file)
	if err != nil || got != want {
		t.Fatalf("applying commit %.1s: got %v, %v, want %v", file.Commit, got, err, want)
	}
}

// A slow leader lost its lock after it had read a file that no longer exists. Its successor finds the earlier
// file, so there is nothing to apply: the file in between must not be applied afterwards.
func TestALeaderThatWasOvertakenAppliesNoOlderFile(t *testing.T) {
	t.Parallel()
	same := "deployments:\n- name: web\n"
	git := &filed{files: map[string]string{"1": same, "2": "deployments:\n- name: db\n", "3": same}}
	s, repo := configured(t, git)
	applyFile(t, s, readConfig(t, s, repo, "1"), reposync.ConfigDone)
	late := readConfig(t, s, repo, "2")
	applyFile(t, s, readConfig(t, s, repo, "3"), reposync.ConfigDone)
	applyFile(t, s, late, reposync.ConfigOvertaken)
	c, err := s.AgentConfig(t.Context(), auth.System(), "default", "paris")
	if err != nil || c.Live[:1] != "3" || c.Commit[:1] != "3" || len(c.Declarations) != 1 || c.Declarations[0].Name != "web" {
		t.Errorf("the file in between is back: %+v, %v", c, err)
	}
}

// The signers of the file of an agent must also sign the repositories that it names. Known repositories have
// their own policy.
func TestANamedProjectInheritsWhoHasToSign(t *testing.T) {
	t.Parallel()
	s, repo := configured(t, &filed{path: agentconfig.GitLabPath("paris"), files: map[string]string{
		"1": "gitops:\n  manifest_projects:\n  - id: group/new\n  - id: group/known\n  - id: group/spelled\n",
	}})
	deployFrom(t, s, "default", "mine", "https://example.com/group/known.git")
	deployFrom(t, s, "default", "yours", "https://example.com/group///spelled.git")
	const signers = "ssh-ed25519 AAAA somebody"
	err := s.store.Update(t.Context(), func(tx store.Tx) error {
		return tx.Repositories().SetPolicy(t.Context(), repo.TenantID, repo.ID, true, signers)
	})
	if err != nil {
		t.Fatal(err)
	}
	applyFile(t, s, readConfig(t, s, repo, "1"), reposync.ConfigDone)
	for url, want := range map[string]string{
		"https://example.com/group/new.git": signers, "https://example.com/group/known.git": "", "https://example.com/group/spelled.git": "",
	} {
		var got fleet.Repository
		err := s.store.View(t.Context(), func(tx store.Tx) (err error) {
			got, err = tx.Repositories().ByURL(t.Context(), repo.TenantID, url)
			return err
		})
		if err != nil || got.Signers != want || got.Submodules != (want != "") {
			t.Errorf("%s may be signed by %q, and its submodules are read: %v, %v", url, got.Signers, got.Submodules, err)
		}
	}
}

// costTx counts the operations on a database, and the agents that are read.
type costTx struct {
	store.Tx
	listed, targets *int
}

func (t costTx) Agents() store.Agents { return costAgents{t.Tx.Agents(), t.listed} }

type costAgents struct {
	store.Agents
	listed *int
}

func (a costAgents) List(ctx context.Context, tenant fleet.TenantID, f store.AgentFilter) ([]fleet.Agent, error) {
	out, err := a.Agents.List(ctx, tenant, f)
	*a.listed += len(out)
	return out, err
}

func (a costAgents) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error) {
	*a.listed++
	return a.Agents.ByName(ctx, tenant, name)
}

func (t costTx) Targets() store.Targets { return costTargets{t.Tx.Targets(), t.targets} }

type costTargets struct {
	store.Targets
	created *int
}

func (a costTargets) Create(ctx context.Context, t fleet.Target) error {
	*a.created++
	return a.Targets.Create(ctx, t)
}

// costStore counts in its write transactions.
type costStore struct {
	store.Store
	agents, targets int
}

func (s *costStore) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(costTx{tx, &s.agents, &s.targets}) })
}

// The cost of a file depends on its declarations, not on the size of the fleet: its deployments go to its own
// agent only.
func TestAFileOfManyDeploymentsLooksAtItsOwnAgentAlone(t *testing.T) {
	t.Parallel()
	const many = 500
	var file strings.Builder
	file.WriteString("deployments:\n")
	for i := range many {
		fmt.Fprintf(&file, "- name: app-%d\n", i)
	}
	s, repo := configured(t, &filed{files: map[string]string{"1": file.String(), "2": "deployments: []\n"}})
	for i := range 20 {
		if _, err := s.EnrollAgent(t.Context(), auth.System(), "default", EnrollAgent{Name: fmt.Sprint("other-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		commit        string
		live, targets int
	}{{"1", many, many}, {"2", 0, 0}} {
		cost := &costStore{Store: s.store}
		file := readConfig(t, s, repo, step.commit)
		s.store = cost
		applyFile(t, s, file, reposync.ConfigDone)
		s.store = cost.Store
		if cost.agents > 2*many || cost.targets != step.targets {
			t.Errorf("at commit %s agents were read %d times and %d targets made, for %d deployments of one agent", step.commit, cost.agents, cost.targets, many)
		}
		c, err := s.AgentConfig(t.Context(), auth.System(), "default", "paris")
		if err != nil || c.Declares != step.live {
			t.Errorf("at commit %s it declares %d deployments, %v", step.commit, c.Declares, err)
		}
	}
}
