package argocd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/argocd"
	"github.com/kedge-dev/kedge/agent/internal/engine/enginetest"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// conforms runs the cases of every engine.
//
// covers: E1, E6
func conforms(t *testing.T, argo *argocdtest.Instance) {
	git := newSources(t)
	enginetest.Run(t, enginetest.Harness{
		Cluster: testkit.SharedCluster(t),
		ArgoCD:  argo.Namespace(),
		Skip:    enginetest.SkippedWithArgoCD,
		New: func(t testing.TB, o enginetest.Options) engine.Engine {
			t.Helper()
			e, err := argocd.New(argocd.Config{
				AgentID: o.Agent, Namespace: o.Namespace, EngineNamespace: argo.Namespace(), Scope: o.Scope, Namespaces: o.Namespaces, Kinds: o.Kinds,
				Owner: o.Owner, REST: o.REST, Reporter: o.Reporter,
			})
			if err != nil {
				t.Fatal(err)
			}
			return &sourced{Engine: e, t: t, sources: git}
		},
	})
}

// sourced is an engine that gets sources instead of bundles: it commits the objects of each bundle to Git.
type sourced struct {
	*argocd.Engine
	t       testing.TB
	sources *sources
}

func (s *sourced) Set(d engine.Desired) {
	if d.Objects != nil {
		d.Source, d.State.Commit = s.sources.commit(s.t, d)
		d.Objects = nil
	}
	s.Engine.Set(d)
}

// sources is a Git server with a repository for each target.
type sources struct {
	server *gitserver.Server
	dir    func() string

	mu    sync.Mutex
	repos map[fleet.TargetID]*gitserver.Repo
	files map[fleet.TargetID]map[string]string
}

func newSources(t *testing.T) *sources {
	t.Helper()
	server, err := gitserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return &sources{server: server, dir: t.TempDir, repos: map[fleet.TargetID]*gitserver.Repo{}, files: map[fleet.TargetID]map[string]string{}}
}

// commit commits the objects of a bundle, and returns the source as the gateway of the server does.
func (s *sources) commit(t testing.TB, d engine.Desired) (*fleet.EngineSource, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := string(d.Target)
	repo := s.repos[d.Target]
	if repo == nil {
		var err error
		if repo, err = s.server.CreateRepo(t.Context(), name, s.dir()); err != nil {
			t.Error(err)
			return nil, ""
		}
		s.repos[d.Target] = repo
	}
	out := &fleet.EngineSource{RepoURL: s.server.URL(name), Path: "app", Kind: fleet.SourcePlain}
	files := map[string]string{"app/README.md": "objects"}
	namespaces := map[string]bool{}
	for i, o := range d.Objects.Objects() {
		text, err := json.Marshal(o.Unstructured())
		if err != nil {
			t.Error(err)
		}
		files[fmt.Sprintf("app/%04d.yaml", i)] = string(text)
		if ref := manifest.Placed(o.Ref, ""); ref.Namespace != "" {
			namespaces[ref.Namespace] = true
		}
		var names []string
		for _, ref := range manifest.Claims(o.Ref, d.State.Namespace) {
			names = append(names, ref.String())
		}
		out.Objects = append(out.Objects, names...)
		if fleet.KeepsObject(o.Unstructured().GetAnnotations()) {
			out.Kept = append(out.Kept, names...)
		}
	}
	slices.Sort(out.Objects)
	slices.Sort(out.Kept)
	out.Namespaces = slices.Sorted(maps.Keys(namespaces))
	if maps.Equal(files, s.files[d.Target]) {
		return out, repo.Head()
	}
	change := maps.Clone(files)
	for name := range s.files[d.Target] {
		if _, ok := files[name]; !ok {
			change[name] = gitserver.Deleted
		}
	}
	s.files[d.Target] = files
	commit, err := repo.CommitAndPush(t.Context(), change, fmt.Sprint(d.State.Version))
	if err != nil {
		t.Error(err)
	}
	return out, commit
}
