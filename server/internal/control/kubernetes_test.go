package control_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// cr returns a principal that acts for a GitOpsDeployment "app" in the default tenant.
func cr(t *testing.T, r *replica, uid string, generation, created int64) auth.Principal {
	t.Helper()
	tenant, err := r.Tenant(t.Context(), admin, "default")
	if err != nil {
		t.Fatal(err)
	}
	return auth.Principal{
		Name: "GitOpsDeployment team/app", Component: "kubernetes", Roles: map[fleet.TenantID]fleet.Role{tenant.ID: fleet.RoleAdmin},
		Owner: fleet.Owner{Kind: "GitOpsDeployment", Namespace: "team", Name: "app", UID: uid, Generation: generation, Created: created},
	}
}

func (r *replica) apply(t *testing.T, p auth.Principal, path string, suspend bool) error {
	t.Helper()
	err := r.ApplyDeployment(t.Context(), p, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: path}, Suspend: suspend,
	})
	return err
}

func reasonOf(err error) fleet.Reason {
	var owner *control.OwnerError
	if errors.As(err, &owner) {
		return owner.Reason
	}
	return ""
}

func (r *replica) inForce(t *testing.T) control.DeploymentView {
	t.Helper()
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A replica that lost the lead without noticing does no harm.
//
// covers: K2
// defect: B13
func TestAnOlderResourceChangesNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	older, newer := cr(t, r, "uid-1", 1, 100), cr(t, r, "uid-1", 2, 100)
	if err := errors.Join(r.apply(t, older, "old", false), r.apply(t, newer, "new", true)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"an older spec":       func() error { return r.apply(t, older, "old", true) },
		"an older suspension": func() error { return r.apply(t, older, "new", false) },
	} {
		if got := reasonOf(change()); got != fleet.ReasonResourceRewound {
			t.Errorf("%s is refused as %q", name, got)
		}
	}
	if d := r.inForce(t); d.Source.Path != "new" || !d.Suspension.Active() {
		t.Errorf("an older resource changed the deployment: %+v", d.Deployment)
	}
	accepting := older
	accepting.AcceptRewound = true
	if err := r.apply(t, accepting, "old", false); err != nil {
		t.Error(err)
	}
	if d := r.inForce(t); d.Source.Path != "old" || d.Suspension.Active() {
		t.Errorf("an accepted resource did not change the deployment: %+v", d.Deployment)
	}
}

// covers: K2
func TestAReplacedResourceNeitherChangesNorDeletes(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	first, second := cr(t, r, "uid-1", 7, 100), cr(t, r, "uid-2", 1, 200)
	if err := errors.Join(r.apply(t, first, "one", false), r.apply(t, second, "two", false)); err != nil {
		t.Fatal("a resource that replaced another one takes over:", err)
	}
	if got := reasonOf(r.apply(t, first, "one", false)); got != fleet.ReasonNameInUse {
		t.Errorf("a change by a replaced resource is refused as %q", got)
	}
	if got := reasonOf(r.apply(t, cr(t, r, "uid-3", 1, 200), "three", false)); got != fleet.ReasonNameInUse {
		t.Errorf("a change by a resource of the same second is refused as %q", got)
	}
	if owned, err := r.OwnedDeployments(t.Context(), first, "default", 1); err != nil || len(owned) != 0 {
		t.Errorf("a replaced resource owns %d deployments, %v", len(owned), err)
	}
	if _, err := r.DeleteDeployment(t.Context(), first, "default", "app", control.Match{}); reasonOf(err) != fleet.ReasonNameInUse {
		t.Errorf("a deletion by a replaced resource gets %v", err)
	}
	tenant := r.inForce(t).TenantID
	if err := r.OwnerMissing(t.Context(), admin, tenant, first.Owner); err != nil {
		t.Fatal(err)
	}
	if d := r.inForce(t); d.Source.Path != "two" || !d.Owner.MissingSince.IsZero() {
		t.Errorf("the deployment has source %s and owner %+v", d.Source.Path, d.Owner)
	}
	// Restored from a backup: the second resource is missing, and the first one exists again.
	if err := r.OwnerMissing(t.Context(), admin, tenant, second.Owner); err != nil {
		t.Fatal(err)
	}
	if got := reasonOf(r.apply(t, first, "one", false)); got != fleet.ReasonResourceRewound {
		t.Errorf("a restored resource with another spec is refused as %q", got)
	}
	if err := r.apply(t, first, "two", false); err != nil {
		t.Error("a restored resource with the same spec takes over:", err)
	}
}

// What a resource created cannot be changed through another API.
func TestWhatAResourceCreatedIsChangedThereOnly(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	owner := cr(t, r, "uid-1", 1, 100)
	if err := r.apply(t, owner, "app", false); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, change := range map[string]func() error{
		"update":  func() error { return r.apply(t, admin, "other", false) },
		"suspend": func() error { _, err := r.SuspendDeployment(ctx, admin, "default", "app", ""); return err },
		"resume":  func() error { _, err := r.ResumeDeployment(ctx, admin, "default", "app"); return err },
		"delete":  func() error { _, err := r.DeleteDeployment(ctx, admin, "default", "app", control.Match{}); return err },
		"rollback": func() error {
			_, err := r.Rollback(ctx, admin, "default", "app", control.Rollback{Revision: 1})
			return err
		},
		"release": func() error { _, err := r.ReleaseDeployment(ctx, admin, "default", "app"); return err },
		"sync to another revision": func() error {
			_, err := r.CreateRun(ctx, admin, "default", "app", control.CreateRun{Revision: "other"})
			return err
		},
		"delete, keep objects": func() error {
			_, err := r.DeleteDeploymentKeepObjects(ctx, admin, "default", "app", control.Match{})
			return err
		},
	} {
		if got := reasonOf(change()); got != fleet.ReasonOwnedByResource {
			t.Errorf("%s is refused as %q", name, got)
		}
	}
	if _, err := r.CreateRun(ctx, admin, "default", "app", control.CreateRun{}); err != nil {
		t.Error("a sync of the revision of the resource:", err)
	}
}

// defect: B19
func TestLongKeysAndNamesAreStored(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, strings.Repeat("c", 3000)) // as long as an RSA key of 4096 bits
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(block))
	owner := cr(t, r, "uid-1", 1, 100)
	owner.Owner.Kind = "RepositoryCredential"
	if _, err := r.CreateCredential(t.Context(), owner, "default", control.CreateCredential{
		Name: "app", Kind: fleet.CredentialSSH, Secret: text, KnownHosts: "git.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHb3FZyVCkHVcyuvlkPZlgtV9m8SmmxUKe1DXTmEmUkY",
	}); err != nil {
		t.Errorf("a key of %d bytes: %v", len(text), err)
	}
	name := strings.Repeat("n", 63)
	for _, uid := range []string{"uid-aaaaaaaa", "uid-bbbbbbbb"} { // the second one has the name, and another UID
		tenant, err := r.NamespaceTenant(t.Context(), admin, fleet.Owner{Kind: "Namespace", Name: name, UID: uid, Created: 1})
		if err != nil || len(tenant.Name) != 63 {
			t.Errorf("namespace %s: %+v, %v", uid, tenant, err)
		}
	}
}

// covers: K9
func TestTenantsOfMissingNamespacesAreDeletedWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	ctx := t.Context()
	namespace := fleet.Owner{Kind: "Namespace", Name: "team", UID: "uid-namespace", Created: 1}
	tenant, err := r.NamespaceTenant(ctx, admin, namespace)
	if err != nil {
		t.Fatal(err)
	}
	owner := cr(t, r, "uid-1", 1, 100)
	owner.Roles = map[fleet.TenantID]fleet.Role{tenant.ID: fleet.RoleAdmin}
	if err := r.ApplyDeployment(ctx, owner, "team", control.CreateDeployment{Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}}); err != nil {
		t.Fatal(err)
	}
	exists := func(want bool, when string) {
		t.Helper()
		r.Trim(ctx)
		if _, err := r.Tenant(ctx, admin, "team"); (err == nil) != want {
			t.Errorf("%s, the tenant is %v", when, err)
		}
	}
	exists(true, "with a namespace")
	if err := r.OwnerMissing(ctx, admin, tenant.ID, namespace); err != nil {
		t.Fatal(err)
	}
	exists(true, "with a deployment")
	if _, err := r.DeleteDeployment(ctx, owner, "team", "app", control.Match{}); err != nil {
		t.Fatal(err)
	}
	exists(false, "without anything")
	if again, err := r.NamespaceTenant(ctx, admin, fleet.Owner{Kind: "Namespace", Name: "team", UID: "uid-other", Created: 2}); err != nil || again.Name != "team" {
		t.Errorf("the name is not free: %+v, %v", again, err)
	}
}
