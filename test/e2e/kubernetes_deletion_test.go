package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "modernc.org/sqlite" // opens the database of a stopped server
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// Resources that vanish, servers that are down, restored databases.
//
// covers: K2
// defect: B1
func TestOnlyADeletedResourceDeletesObjects(t *testing.T) {
	t.Parallel()
	onBothEngines(t, deletionOfResources)
}

func deletionOfResources(t *testing.T, tenant *crTenant) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *crTenant)
	}{
		{"finalizer removed by hand", finalizerRemoved},
		{"with the finalizer it stays until all is deleted", finalizerWaits},
		{"deleted while the server is down", deletedWhileDown},
		{"finalizer removed by hand, server down", finalizerRemovedWhileDown},
		{"replaced while the server is down", replacedWhileDown},
		{"older than the database", rewoundResource},
		{"restored database without the resource", databaseBeforeResource},
		{"restored database with an earlier spec", databaseBeforeEdit},
		{"restored database without the resource, which is deleted meanwhile", databaseBeforeDeletedResource},
		{"finalizers of resources that the server does not know", finalizersLeft},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, tenant) }) {
			return // the next ones need an empty namespace
		}
	}
}

func deletedWhileDown(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "down")
	tenant.stopServer(t)
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.startAgain(t)
	tenant.awaitGone(t, d.Name, d)
	tenant.has(t, "map[]")
}

// event waits for an event with a text.
func (t *crTenant) event(tb testing.TB, reason, text string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var list apiv1.List[apiv1.Event]
		if err := t.Call(ctx, "GET", "/tenants/"+t.ns+"/events?limit=500", nil, &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no event %s has the text %q: %+v", reason, text, list.Items)
	})
}

// ownerMissing waits until the server reports that the owner of a deployment is missing.
func (t *crTenant) ownerMissing(tb testing.TB, name string) {
	tb.Helper()
	t.event(tb, "OwnerMissing", strconv.Quote(name))
	if answer := t.rest().ask(tb, "PATCH", "deployments/"+name, map[string]any{"namespace": "default"}); answer.Code != 409 || !strings.Contains(string(answer.Body), "is missing") {
		tb.Errorf("an edit by REST gets %d %s", answer.Code, answer.Body)
	}
}

// takesOver creates a resource again and checks that nothing was deleted or created again.
func (t *crTenant) takesOver(tb testing.TB, name string, uid string) {
	tb.Helper()
	d := t.deployment(name, name)
	t.create(tb, d)
	t.awaitSynced(tb, d, "")
	if now := t.cluster.Kubectl(tb, "-n", t.target, "get", "configmap", "cm-"+name, "-o", "jsonpath={.metadata.uid}"); now != uid {
		tb.Errorf("the object was created again: UID %s, was %s", now, uid)
	}
	t.edits(tb, d)
	if err := t.Delete(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	t.has(tb, "map[]")
}

// edits changes the source of a resource and waits for the effect.
func (t *crTenant) edits(tb testing.TB, d *v1alpha1.GitOpsDeployment) {
	tb.Helper()
	commit := t.repo.push(tb, map[string]string{d.Name + "-2/cm.yaml": configMap(t.target, "cm-"+d.Name, "2")})
	edit(tb, t, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path = d.Name + "-2" })
	t.awaitSynced(tb, d, commit)
	t.has(tb, "map[cm-"+d.Name+":2]")
}

func (t *crTenant) uidOf(tb testing.TB, name string) string {
	tb.Helper()
	return t.cluster.Kubectl(tb, "-n", t.target, "get", "configmap", "cm-"+name, "-o", "jsonpath={.metadata.uid}")
}

func finalizerRemoved(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "forced")
	uid, before := tenant.uidOf(t, "forced"), len(tenant.deleted(t))
	tenant.forceDelete(t, d)
	tenant.ownerMissing(t, "forced")
	if now := tenant.deleted(t)[before:]; len(now) > 0 {
		t.Fatalf("the agent deleted %+v", now)
	}
	tenant.takesOver(t, "forced", uid)
}

func finalizerRemovedWhileDown(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "unseen")
	uid, before := tenant.uidOf(t, "unseen"), len(tenant.deleted(t))
	tenant.stopServer(t)
	tenant.forceDelete(t, d)
	tenant.startAgain(t)
	tenant.ownerMissing(t, "unseen")
	if now := tenant.deleted(t)[before:]; len(now) > 0 {
		t.Fatalf("the agent deleted %+v", now)
	}
	tenant.takesOver(t, "unseen", uid)
}

func replacedWhileDown(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "replaced")
	uid, before := tenant.uidOf(t, "replaced"), len(tenant.deleted(t))
	tenant.stopServer(t)
	tenant.forceDelete(t, d)
	tenant.create(t, tenant.deployment("replaced", "replaced"))
	tenant.startAgain(t)
	d = tenant.deployment("replaced", "replaced")
	tenant.awaitSynced(t, d, "")
	if now := tenant.deleted(t)[before:]; len(now) > 0 || tenant.uidOf(t, "replaced") != uid {
		t.Fatalf("the agent deleted %+v", now)
	}
	tenant.edits(t, d)
	// At once: the server may see only the new resource, and never that the old one was missing.
	tenant.forceDelete(t, d)
	d = tenant.deployment("replaced", "replaced-2")
	tenant.create(t, d)
	tenant.awaitSynced(t, d, "")
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.has(t, "map[]")
}

// sql changes the database of a stopped server.
func (c *crs) sql(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	db, err := sql.Open("sqlite", filepath.Join(c.dir, "kedge.db"))
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	result, err := db.ExecContext(tb.Context(), statement, args...)
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		tb.Fatalf("%s changed nothing: %v", statement, err)
	}
}

func rewoundResource(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "rewound")
	tenant.repo.push(t, map[string]string{"rewound-2/cm.yaml": configMap(tenant.target, "cm-rewound", "2")})
	tenant.stopServer(t)
	// As if the API server were restored from a backup: the database knows a newer generation.
	tenant.sql(t, "UPDATE owners SET generation = generation + 10 WHERE name = 'rewound'")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path, d.Spec.Suspend = "rewound-2", true })
	tenant.startAgain(t)
	tenant.awaitRefused(t, d, "ResourceRewound")
	<-time.After(2 * time.Second) // enough for a wrong change to arrive
	tenant.has(t, "map[cm-rewound:1]")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Suspend = false })
	tenant.awaitRefused(t, d, "ResourceRewound")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) {
		d.Annotations = map[string]string{v1alpha1.AcceptRewound: strconv.FormatInt(d.Generation, 10)}
	})
	tenant.awaitSynced(t, d, "")
	tenant.has(t, "map[cm-rewound:2]")

	// A resource that was created earlier than the one that is in force.
	tenant.stopServer(t)
	tenant.sql(t, "UPDATE owners SET uid = 'later', created = created + 1000 WHERE name = 'rewound'")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path, d.Annotations = "rewound", nil })
	tenant.startAgain(t)
	tenant.awaitRefused(t, d, "ResourceRewound")
	tenant.has(t, "map[cm-rewound:2]")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path = "rewound-2" })
	tenant.awaitSynced(t, d, "") // equal to what is in force
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.has(t, "map[]")
}

func databaseBeforeResource(t *testing.T, tenant *crTenant) {
	backup := tenant.backup(t)
	d := tenant.deploy(t, "late")
	before := len(tenant.deleted(t))
	tenant.stopServer(t)
	tenant.restore(t, backup)
	tenant.startAgain(t)
	tenant.stored(t, d)
	tenant.awaitSynced(t, d, "")
	if now := tenant.deleted(t)[before:]; len(now) > 0 {
		t.Fatalf("the agent deleted %+v", now)
	}
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.has(t, "map[]")
}

// stored waits until the server has the spec of a resource and its targets are Synced.
func (t *crTenant) stored(tb testing.TB, d *v1alpha1.GitOpsDeployment) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var got apiv1.Deployment
		err := t.Call(ctx, "GET", "/tenants/"+t.ns+"/deployments/"+d.Name, nil, &got)
		if err == nil && (got.Source.Path != d.Spec.Source.Path || got.Sync != "Synced") {
			err = fmt.Errorf("the server has path %s, which is %s", got.Source.Path, got.Sync)
		}
		return err
	})
}

func databaseBeforeDeletedResource(t *testing.T, tenant *crTenant) {
	backup := tenant.backup(t)
	d := tenant.deploy(t, "orphan")
	tenant.stopServer(t)
	tenant.restore(t, backup)
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.startAgain(t)
	tenant.awaitGone(t, d.Name, d)
	tenant.has(t, "map[]")
}

// Resources of every kind are being deleted, with finalizers of a server that does not know them. One has the same source as
// another deployment.
func finalizersLeft(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "stays")
	uid, before := tenant.uidOf(t, "stays"), len(tenant.deleted(t))
	tenant.stopServer(t)
	meta := metav1.ObjectMeta{Namespace: tenant.ns, Name: "left", Finalizers: []string{v1alpha1.ServerFinalizer}}
	left := tenant.deployment("left", "stays")
	left.Finalizers = []string{v1alpha1.ServerFinalizer, v1alpha1.ResourcesFinalizer}
	resources := []client.Object{
		left,
		&v1alpha1.SyncRun{ObjectMeta: meta, Spec: v1alpha1.SyncRunSpec{GitOpsDeploymentName: "stays"}},
		&v1alpha1.RepositoryCredential{ObjectMeta: meta, Spec: v1alpha1.RepositoryCredentialSpec{Repository: tenant.repo.url, Secret: "missing"}},
		&v1alpha1.ManagedEnvironment{ObjectMeta: meta, Spec: v1alpha1.ManagedEnvironmentSpec{APIURL: "https://127.0.0.1:1", CredentialsSecret: "missing"}},
	}
	for _, o := range resources {
		tenant.create(t, o)
		if err := tenant.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	tenant.startAgain(t)
	for _, o := range resources {
		tenant.awaitGone(t, "left", o)
	}
	tenant.edits(t, d)
	if now := tenant.deleted(t)[before:]; len(now) > 0 || tenant.uidOf(t, "stays") != uid {
		t.Fatalf("the agent deleted %+v", now)
	}
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.has(t, "map[]")
}

func databaseBeforeEdit(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "edited")
	backup := tenant.backup(t)
	tenant.edits(t, d)
	before := len(tenant.deleted(t))
	tenant.stopServer(t)
	tenant.restore(t, backup)
	tenant.startAgain(t)
	tenant.stored(t, d)
	tenant.awaitSynced(t, d, "")
	tenant.has(t, "map[cm-edited:2]")
	if now := tenant.deleted(t)[before:]; len(now) > 0 {
		t.Fatalf("the agent deleted %+v", now)
	}
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.has(t, "map[]")
}

func finalizerWaits(t *testing.T, tenant *crTenant) {
	d := tenant.deployment("kept", "kept")
	d.Finalizers = []string{v1alpha1.ResourcesFinalizer}
	commit := tenant.repo.push(t, map[string]string{"kept/cm.yaml": configMap(tenant.target, "cm-kept", "1")})
	tenant.create(t, d)
	tenant.awaitSynced(t, d, commit)
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.await(t, d.Name, d, func() error {
		return hasCondition(d.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "Deleting")
	})
	tenant.has(t, "map[cm-kept:1]")
	tenant.agent.run(tenant.owner)
	tenant.awaitGone(t, d.Name, d)
	tenant.has(t, "map[]")
}
