package kubeapi

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func named(kind, name string) resource {
	return resource{kind, types.NamespacedName{Namespace: "team", Name: name}}
}

func TestIndexFindsTheResourcesThatAChangeConcerns(t *testing.T) {
	t.Parallel()
	x := newIndex()
	app, waiting, other := named(v1alpha1.KindGitOpsDeployment, "app"), named(v1alpha1.KindSyncRun, "waiting"), named(v1alpha1.KindGitOpsDeployment, "other")
	x.put(app, entry{tenant: "t1", uid: "1", subjects: []string{"dep-1", "agt-1"}})
	x.put(waiting, entry{tenant: "t1", uid: "2", waiting: true})
	x.put(other, entry{tenant: "t2", uid: "3", subjects: []string{"dep-2", "agt-1"}})
	for name, test := range map[string]struct {
		change store.Change
		want   []resource
	}{
		"its deployment":              {store.Change{TenantID: "t1", Kind: store.ChangeDeployment, ID: "dep-1", DeploymentID: "dep-1"}, []resource{app, waiting}},
		"a status":                    {store.Change{TenantID: "t1", Kind: store.ChangeStatus, ID: "tgt", AgentID: "agt-1", DeploymentID: "dep-1"}, []resource{app, waiting}},
		"a status of another target":  {store.Change{TenantID: "t3", Kind: store.ChangeStatus, ID: "tgt", AgentID: "agt-1", DeploymentID: "dep-3"}, nil},
		"a connection of its agent":   {store.Change{TenantID: "t3", Kind: store.ChangeConnection, ID: "ses", AgentID: "agt-1"}, []resource{app, other}},
		"its tenant":                  {store.Change{TenantID: "t2", Kind: store.ChangeTenant, ID: "t2"}, []resource{other}},
		"the whole fleet":             {store.Change{Kind: store.ChangeSettings}, []resource{app, other, waiting}},
		"an event":                    {store.Change{TenantID: "t1", Kind: store.ChangeEvent}, nil},
		"something else in a tenant":  {store.Change{TenantID: "t1", Kind: store.ChangeEnvironment, ID: "env"}, []resource{waiting}},
		"something in another tenant": {store.Change{TenantID: "t2", Kind: store.ChangeEnvironment, ID: "env"}, nil},
	} {
		got := x.concerned(test.change)
		byName := func(a, b resource) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s concerns %v, want %v", name, got, test.want)
		}
	}
	if got := x.waitingRuns("t1"); !slices.Equal(got, []resource{waiting}) {
		t.Errorf("waiting runs: %v", got)
	}
}

func TestIndexForgetsEverythingAboutAResource(t *testing.T) {
	t.Parallel()
	x := newIndex()
	r := named(v1alpha1.KindGitOpsDeployment, "app")
	x.put(r, entry{tenant: "t1", uid: "1", waiting: true, subjects: []string{"a", "b"}})
	x.put(r, entry{tenant: "t1", uid: "1", subjects: []string{"b", "c"}})
	if got := x.concerned(store.Change{TenantID: "t1", Kind: store.ChangeRepository, ID: "a"}); len(got) > 0 {
		t.Errorf("a subject of an earlier entry concerns %v", got)
	}
	x.remove(r)
	x.remove(r)
	if len(x.entries)+len(x.subjects)+len(x.tenants)+len(x.waiting) > 0 {
		t.Errorf("left: %+v", x)
	}
	if e := x.get(r); e.uid != "" || e.tenant != fleet.TenantID("") {
		t.Errorf("an unknown resource has %+v", e)
	}
}
