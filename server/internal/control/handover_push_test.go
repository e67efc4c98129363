package control_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// An object moves only within its cluster. An engine instance serves several clusters: a deployment in one of them never waits
// for a deployment in another one, which may be manual and never take anything.
// covers: A14, E5
func TestNothingIsHandedOverToAnotherCluster(t *testing.T) {
	t.Parallel()
	const pending = "HandOverPending b: ConfigMap default/two"
	for _, test := range []struct {
		reason, a, b string // environments
		want         []string
	}{
		{"the same push environment", "one", "one", []string{pending}},
		{"two push environments", "one", "two", nil},
		{"two push environments of one cluster", "one", "same", []string{pending}},
		{"the cluster of the engine instance gets it", "one", "local", nil},
		{"the cluster of the engine instance loses it", "local", "one", nil},
		{"two environments with the same agent", "local", "also", []string{pending}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
			made, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: "engine", EngineNamespace: "argocd", Instance: true})
			ok(t, err)
			elsewhere := pushWith("2")
			elsewhere.APIURL = strings.Replace(pushURL, "https://", "https://other.", 1)
			elsewhere.Kubeconfig = strings.ReplaceAll(elsewhere.Kubeconfig, pushURL, elsewhere.APIURL)
			for _, env := range []control.CreateEnvironment{
				{Name: "one", Push: pushWith("1")}, {Name: "two", Push: elsewhere}, {Name: "same", Push: pushWith("3")},
				{Name: "local", Agents: []string{"engine"}}, {Name: "also", Agents: []string{"engine"}},
			} {
				_, err := r.CreateEnvironment(t.Context(), admin, "default", env)
				ok(t, err)
			}
			commit := r.push(t, map[string]string{
				"a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"), "b/three.yaml": configMap("three", "1"),
			})
			for name, env := range map[string]string{"a": test.a, "b": test.b} {
				_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
					Name: name, Environment: env, Namespace: "default", Source: fleet.Source{RepoURL: r.url, Path: name}, Policy: &fleet.Policy{Prune: true},
				})
				ok(t, err)
				r.report(t, made.Agent, r.await(t, name, atCommit(commit)).Targets[0].Target, fleet.SyncSynced)
			}
			r.editPolicy(t, "b", func(p *fleet.Policy) { p.Manual = true })
			commit = r.move(t)
			r.await(t, "a", atCommit(commit))
			r.awaitHandOver(t, "a", test.want...)
		})
	}
}
