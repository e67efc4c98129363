package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// history has the changes of the ConfigMaps of a namespace, observed from outside.
type history struct {
	mu   sync.Mutex
	seen []string // "ADDED name uid", "DELETED name uid"
}

// watchConfigMaps starts to watch an empty namespace.
func watchConfigMaps(t *testing.T, cluster *testkit.Cluster, ns string) *history {
	t.Helper()
	events, err := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	h := &history{}
	go func() {
		for e := range events.ResultChan() {
			object, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Modified || object.GetName() == "kube-root-ca.crt" {
				continue
			}
			h.mu.Lock()
			h.seen = append(h.seen, fmt.Sprintf("%s %s %s", e.Type, object.GetName(), object.GetUID()))
			h.mu.Unlock()
		}
	}()
	return h
}

// never fails the test if a change with this prefix has happened.
func (h *history) never(t *testing.T, beginnings ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.seen {
		for _, beginning := range beginnings {
			if strings.HasPrefix(line, beginning) {
				t.Errorf("this must not happen: %s\nall of it: %s", line, strings.Join(h.seen, "; "))
			}
		}
	}
}

// edit changes a deployment in one request.
func (s *testServer) edit(t *testing.T, name string, req apiv1.UpdateDeployment) {
	t.Helper()
	s.call(t, http.MethodPatch, tenantPath+"/deployments/"+name, req, nil)
}

// inForce is healthyAt for a deployment whose newest spec is in force.
func inForce(commit string) func(apiv1.Deployment) error {
	return func(v apiv1.Deployment) error {
		if v.Pending != nil {
			return errors.New(v.Pending.Message)
		}
		return healthyAt(commit, 1)(v)
	}
}

// production deploys folder a with prod-1 to prod-3 as dr; folder b has experiment.
func production(t *testing.T, agent string) (s *testServer, repo *testRepo, h *history, commit, ns string) {
	t.Helper()
	cluster := testkit.SharedCluster(t)
	s, repo = startServer(t), newRepo(t)
	ns = cluster.Namespace(t)
	h = watchConfigMaps(t, cluster, ns)
	files := map[string]string{"b/experiment.yaml": configMap(ns, "experiment", "one")}
	for i := 1; i <= 3; i++ {
		files[fmt.Sprintf("a/prod-%d.yaml", i)] = configMap(ns, fmt.Sprint("prod-", i), "one")
	}
	commit = repo.push(t, files)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: agent})
	s.deploy(t, apiv1.CreateDeployment{Name: "dr", Source: apiv1.Source{RepoURL: repo.url, Path: "a"}})
	s.awaitDeployment(t, "dr", inForce(commit))
	repo.webhooks(t, s)
	return s, repo, h, commit, ns
}

// covers: A19, invariant 10
func TestAnEditThatWaitsForGitDisturbsNothing(t *testing.T) {
	t.Parallel()
	s, repo, h, commit, ns := production(t, "previewer")
	for _, away := range []bool{true, false} {
		s.edit(t, "dr", apiv1.UpdateDeployment{Source: apiv1.UpdateSource{Path: new("b")}, Policy: apiv1.UpdatePolicy{PreviewOnly: new(true)}})
		s.awaitDeployment(t, "dr", func(v apiv1.Deployment) error {
			if v.Pending != nil || v.Sync != "OutOfSync" || v.Source.Path != "b" {
				return errors.New("the preview is not there yet")
			}
			return nil
		})
		repo.server.SetDown(away)
		s.edit(t, "dr", apiv1.UpdateDeployment{Source: apiv1.UpdateSource{Path: new("a")}, Policy: apiv1.UpdatePolicy{PreviewOnly: new(false)}})
		if away {
			s.awaitDeployment(t, "dr", func(v apiv1.Deployment) error {
				if v.Pending == nil || v.Pending.Reason != "SourceUnreadable" || v.Pending.InForce.Source.Path != "b" || !v.Pending.InForce.Policy.PreviewOnly {
					return fmt.Errorf("pending is %+v", v.Pending)
				}
				return nil
			})
			out, err := s.kedge(t, "status", "dr")
			if exitCode(err) != 3 || !strings.Contains(out, "waits for its source: ") || !strings.Contains(out, "spec revision ") {
				t.Errorf("kedge status: %v\n%s", err, out)
			}
			if out, _ := s.kedge(t, "doctor"); !strings.Contains(out, "waits for its source: ") {
				t.Errorf("kedge doctor:\n%s", out)
			}
		}
		repo.server.SetDown(false)
		if away {
			commit = repo.push(t, map[string]string{"README": "Git is back"})
		}
		s.awaitDeployment(t, "dr", inForce(commit))
	}
	h.never(t, "DELETED", "ADDED experiment")
	// The agent follows the spec: it is no longer a dry run.
	commit = repo.push(t, map[string]string{"a/prod-4.yaml": configMap(ns, "prod-4", "one")})
	s.awaitDeployment(t, "dr", inForce(commit))
	h.never(t, "DELETED", "ADDED experiment")
}

// covers: A19
func TestAHoldIsReleasedToTheCommitThatTheEditNames(t *testing.T) {
	t.Parallel()
	s, repo, h, good, ns := production(t, "holder")
	s.edit(t, "dr", apiv1.UpdateDeployment{Policy: apiv1.UpdatePolicy{Manual: new(true)}})
	bad := repo.push(t, map[string]string{"a/prod-3.yaml": "", "a/bad.yaml": configMap(ns, "bad", "one")})
	s.awaitDeployment(t, "dr", func(v apiv1.Deployment) error {
		if v.Commit != bad {
			return fmt.Errorf("commit %s is newest", v.Commit)
		}
		return nil
	})
	s.edit(t, "dr", apiv1.UpdateDeployment{Source: apiv1.UpdateSource{Revision: &good}, Policy: apiv1.UpdatePolicy{Manual: new(false)}})
	s.awaitDeployment(t, "dr", inForce(good))
	h.never(t, "DELETED", "ADDED bad")
}

// covers: A19
func TestAnotherEnvironmentGetsNothingOfTheOldSource(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	h := watchConfigMaps(t, cluster, ns)
	commit := repo.push(t, map[string]string{
		"a/a.yaml": configMap(ns, "a-${agent}", "one"), "b/b.yaml": configMap(ns, "b-${agent}", "one"),
	})
	for _, name := range []string{"edit-first", "edit-second"} {
		enroll(t, s, cluster, apiv1.EnrollAgent{Name: name})
		s.call(t, http.MethodPost, tenantPath+"/environments", apiv1.CreateEnvironment{Name: "on-" + name, Agents: []string{name}}, nil)
	}
	s.deploy(t, apiv1.CreateDeployment{Name: "dr2", Environment: "on-edit-first", Source: apiv1.Source{
		RepoURL: repo.url, Path: "a", Variables: map[string]string{"agent": "{agent.name}"},
	}})
	s.awaitDeployment(t, "dr2", inForce(commit))
	repo.webhooks(t, s)
	repo.server.SetDown(true)
	s.edit(t, "dr2", apiv1.UpdateDeployment{Source: apiv1.UpdateSource{Path: new("b")}, Environment: new("on-edit-second")})
	s.awaitDeployment(t, "dr2", func(v apiv1.Deployment) error {
		if v.Pending == nil || v.Pending.Reason != "SourceUnreadable" || v.Environment != "on-edit-second" || len(v.Targets) != 1 || v.Targets[0].Agent != "edit-first" {
			return fmt.Errorf("pending is %+v", v.Pending)
		}
		return nil
	})
	repo.server.SetDown(false)
	repo.push(t, map[string]string{"README": "Git is back"})
	s.awaitDeployment(t, "dr2", func(v apiv1.Deployment) error {
		if v.Pending != nil {
			return errors.New(v.Pending.Message)
		}
		for _, target := range v.Targets {
			if target.Agent == "edit-second" && target.Sync == "Synced" && target.ObservedGeneration == target.Generation {
				return nil
			}
		}
		return errors.New("the second agent has nothing yet")
	})
	cluster.Kubectl(t, "-n", ns, "get", "configmap", "b-edit-second")
	h.never(t, "DELETED", "ADDED a-edit-second", "ADDED b-edit-first")
}
