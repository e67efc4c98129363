package control_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func podYAML(name, image string) string {
	return fmt.Sprintf("# the pod\napiVersion: v1\nkind: Pod\nmetadata:\n  name: %s # its name\nspec:\n  containers:\n  - name: web\n    image: %s   # keep\n", name, image)
}

// remote runs git in the server's repository.
func (r *replica) remote(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir=" + r.git.Dir("apps")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// hook makes the server run a script for every ref that is pushed.
func (r *replica) hook(t *testing.T, script string) {
	t.Helper()
	file := filepath.Join(r.git.Dir("apps"), "hooks", "update")
	ok(t, os.MkdirAll(filepath.Dir(file), 0o755))
	ok(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
}

func nginx(ref string) imageupdate.SetImages {
	return imageupdate.SetImages{Images: []imageset.Change{{Name: "nginx", Ref: ref}}}
}

// imaged is a deployment of a pod, deployed to one agent.
func imaged(t *testing.T, files map[string]string, src fleet.Source) *replica {
	t.Helper()
	r := newReplica(t)
	r.enroll(t, "paris")
	commit := r.push(t, files)
	src.RepoURL = r.url
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: "app", Source: src})
	ok(t, err)
	if src.Kind == fleet.SourcePlain {
		r.await(t, "app", atCommit(commit))
	}
	return r
}

// covers: I1
func TestSetImagesCommitsAndDeploys(t *testing.T) {
	t.Parallel()
	r := imaged(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0"), "other.yaml": "nginx:1.0\n"}, fleet.Source{Path: "app", Kind: fleet.SourcePlain})
	ann := auth.Principal{Name: "ann", Component: "rest", Roles: map[fleet.TenantID]fleet.Role{defaultTenant(t, r): fleet.RoleDeployer}}
	dry := nginx(":1.1")
	dry.DryRun = true
	plan, err := r.SetImages(t.Context(), ann, "default", "app", dry)
	ok(t, err)
	if plan.Commit != "" || len(plan.Places) != 1 || plan.Places[0].Line != 9 {
		t.Errorf("dry run: %+v", plan)
	}
	update, err := r.SetImages(t.Context(), ann, "default", "app", nginx(":1.1"))
	ok(t, err)
	if update.Branch != "main" || update.Protected != "" || update.URL != "" || update.Base != plan.Base {
		t.Errorf("%+v", update)
	}
	r.await(t, "app", atCommit(update.Commit))
	if got := r.remote(t, "show", "main:app/pod.yaml"); got != podYAML("a", "nginx:1.1") {
		t.Errorf("the file is\n%s", got)
	}
	if got := r.remote(t, "diff", "--name-only", "main~1", "main"); got != "app/pod.yaml\n" {
		t.Errorf("changed: %s", got)
	}
	message := r.remote(t, "log", "-1", "--format=%an%n%ae%n%B", "main")
	for _, part := range []string{"ann\n", "kedge@localhost\n", "app: set image nginx:1.0 to nginx:1.1\n", "Kedge-Deployment: default/app", "Kedge-Requested-By: ann"} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not say %q", message, part)
		}
	}
	events, err := r.Audit(t.Context(), admin, "default", store.AuditFilter{Limit: 5})
	ok(t, err)
	if e := events[0]; e.Action != "deployment.setImages" || e.Actor != "ann" || !strings.Contains(e.Detail, update.Commit[:12]) {
		t.Errorf("the audit log says %+v", e)
	}
	again, err := r.SetImages(t.Context(), ann, "default", "app", nginx(":1.1"))
	if err != nil || again.Commit != "" || again.Base != update.Commit || len(again.Places) != 1 {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if after, err := r.Audit(t.Context(), admin, "default", store.AuditFilter{Limit: 5}); err != nil || after[0].Seq != events[0].Seq {
		t.Errorf("what changes nothing is on record: %+v, %v", after[0], err)
	}
}

func defaultTenant(t *testing.T, r *replica) fleet.TenantID {
	t.Helper()
	var id fleet.TenantID
	ok(t, r.store.View(t.Context(), func(tx store.Tx) error {
		tenant, err := tx.Tenants().ByName(t.Context(), "default")
		id = tenant.ID
		return err
	}))
	return id
}

// covers: I1 (Kustomize and Helm values)
func TestSetImagesOfOtherKinds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files      map[string]string
		source     fleet.Source
		file, want string
	}{
		"Kustomize": {
			files:  map[string]string{"app/kustomization.yaml": "resources: [pod.yaml] # one\n", "app/pod.yaml": podYAML("a", "nginx:1.0")},
			source: fleet.Source{Path: "app"}, file: "app/kustomization.yaml", want: "resources: [pod.yaml] # one\nimages:\n- name: nginx\n  newTag: \"1.1\"\n",
		},
		"Helm": {
			files: map[string]string{
				"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/values.yaml": "image: {repository: nginx, tag: x}\n", "env/prod.yaml": "image:\n  tag: y # now\n",
				"c/templates/p.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: {{ .Values.image.repository }}:{{ .Values.image.tag }}}]}\n",
			},
			source: fleet.Source{Path: "c", Helm: fleet.Helm{ValuesFiles: []string{"/env/prod.yaml"}}}, file: "env/prod.yaml", want: "image:\n  tag: \"1.1\" # now\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := imaged(t, tc.files, tc.source)
			update, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1"))
			ok(t, err)
			if got := r.remote(t, "show", update.Commit+":"+tc.file); got != tc.want {
				t.Errorf("%s is\n%s", tc.file, got)
			}
			places, commit, err := r.Images(t.Context(), admin, "default", "app")
			if err != nil || commit != update.Commit || len(places) != 1 || places[0].Image != "nginx:1.1" {
				t.Errorf("the images are %+v at %s, %v", places, commit, err)
			}
		})
	}
}

// covers: I1 (a protected branch gets a branch)
func TestSetImagesOnAProtectedBranch(t *testing.T) {
	t.Parallel()
	r := imaged(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0")}, fleet.Source{Path: "app", Kind: fleet.SourcePlain})
	r.hook(t, "case $1 in refs/heads/main) echo 'main is protected: open a request' >&2; exit 1;; esac\n")
	before := r.remote(t, "rev-parse", "main")
	update, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1"))
	ok(t, err)
	if !strings.HasPrefix(update.Branch, "kedge/image/app-") || !strings.Contains(update.Protected, "main is protected") || update.Commit == "" {
		t.Errorf("%+v", update)
	}
	if got := r.remote(t, "show", update.Branch+":app/pod.yaml"); got != podYAML("a", "nginx:1.1") {
		t.Errorf("the branch holds\n%s", got)
	}
	if after := r.remote(t, "rev-parse", "main"); after != before {
		t.Error("main has moved")
	}
	again, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1"))
	// Within the same second it is the very same commit.
	if err != nil || again.Branch != update.Branch || (again.Commit != "" && again.Commit != update.Commit) {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	other, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.2"))
	if err != nil || other.Branch == update.Branch || other.Commit == "" {
		t.Errorf("something else: %+v, %v", other, err)
	}
	asked := nginx(":1.3")
	asked.Branch = "bump/nginx"
	if update, err = r.SetImages(t.Context(), admin, "default", "app", asked); err != nil || update.Branch != "bump/nginx" || update.Protected != "" {
		t.Errorf("a branch that was asked for: %+v, %v", update, err)
	}
	asked.Images = nginx(":1.4").Images
	if _, err = r.SetImages(t.Context(), admin, "default", "app", asked); !isConflict(err, "already exists") {
		t.Errorf("a branch that is there: %v", err)
	}
}

// covers: I1 (conflicts are retried)
func TestSetImagesAgainstOthersWhoPush(t *testing.T) {
	t.Parallel()
	const others = 4
	files := map[string]string{}
	for i := range others {
		files[fmt.Sprintf("app/p%d.yaml", i)] = podYAML(fmt.Sprint("p", i), fmt.Sprintf("x/i%d:1", i))
	}
	r := imaged(t, files, fleet.Source{Path: "app", Kind: fleet.SourcePlain})
	// The hook pushes between reading and writing, on the first push.
	r.hook(t, `[ -e hooked ] && exit 0
touch hooked
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
export GIT_AUTHOR_NAME=other GIT_AUTHOR_EMAIL=other@localhost
commit=$(echo other | git commit-tree "main^{tree}" -p main) && git update-ref refs/heads/main $commit
`)
	var wait sync.WaitGroup
	for i := range others {
		wait.Go(func() {
			_, err := r.SetImages(t.Context(), admin, "default", "app", imageupdate.SetImages{Images: []imageset.Change{{Name: fmt.Sprintf("x/i%d", i), Ref: ":2"}}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for i := range others {
		if got := r.remote(t, "show", fmt.Sprintf("main:app/p%d.yaml", i)); !strings.Contains(got, fmt.Sprintf("x/i%d:2 ", i)) {
			t.Errorf("a concurrent change is lost:\n%s", got)
		}
	}
	if got := r.remote(t, "log", "--format=%s", "main"); strings.Count(got, "\n") != others+2 || !strings.Contains(got, "other\n") {
		t.Errorf("the history is\n%s", got)
	}
}

func isConflict(err error, part string) bool {
	var conflict *control.ConflictError
	return errors.As(err, &conflict) && strings.Contains(conflict.Reason, part)
}

func isInvalid(err error, part string) bool {
	var invalid *fleet.InvalidError
	return errors.As(err, &invalid) && strings.Contains(invalid.Error(), part)
}

func TestSetImagesRefuses(t *testing.T) {
	t.Parallel()
	r := imaged(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0"), "else/pod.yaml": podYAML("b", "redis:1")}, fleet.Source{Path: "app", Kind: fleet.SourcePlain})
	ok(t, r.repo.Tag(t.Context(), "v1.0.0", ""))
	ok(t, r.repo.Push(t.Context(), "refs/tags/v1.0.0"))
	head := r.repo.Head()
	for i, revision := range []string{"v1.0.0", head, "refs/tags/v1.0.0", "semver:^1.0"} {
		_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
			Name: fmt.Sprint("fixed", i), Source: fleet.Source{RepoURL: r.url, Path: "app", Revision: revision},
		})
		ok(t, err)
		if _, err := r.SetImages(t.Context(), admin, "default", fmt.Sprint("fixed", i), nginx(":2")); !isConflict(err, "only on a branch") {
			t.Errorf("%s: %v", revision, err)
		}
	}
	if _, err := r.SetImages(t.Context(), admin, "default", "app", imageupdate.SetImages{Images: []imageset.Change{{Name: "redis", Ref: ":2"}}}); !isInvalid(err, "there are: nginx:1.0") {
		t.Errorf("an image of another folder: %v", err)
	}
	bad := nginx(":2")
	bad.Branch = "refs/heads/main"
	if _, err := r.SetImages(t.Context(), admin, "default", "app", bad); !isInvalid(err, "refs/heads/") {
		t.Errorf("a full ref: %v", err)
	}
	id := defaultTenant(t, r)
	viewer := auth.Principal{Name: "vic", Roles: map[fleet.TenantID]fleet.Role{id: fleet.RoleViewer}}
	if _, err := r.SetImages(t.Context(), viewer, "default", "app", nginx(":2")); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	stranger := auth.Principal{Name: "eve", Roles: map[fleet.TenantID]fleet.Role{"tnt-other": fleet.RoleAdmin}}
	if _, err := r.SetImages(t.Context(), stranger, "default", "app", nginx(":2")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a caller without a role: %v", err)
	}
	if _, _, err := r.Images(t.Context(), stranger, "default", "app"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a caller without a role reads: %v", err)
	}
	r.git.SetDown(true)
	if _, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":2")); !isConflict(err, "reading") {
		t.Errorf("a host that is down: %v", err)
	}
	r.git.SetDown(false)
	if got := strings.TrimSpace(r.remote(t, "rev-parse", "main")); got != head {
		t.Errorf("something was pushed: %s", r.remote(t, "log", "-3", "main"))
	}
}

// A read-only credential is distinguished from a host that is down.
func TestSetImagesNeedsACredentialThatMayWrite(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(commit))
	r.remote(t, "config", "http.receivepack", "false")
	_, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1"))
	if !isConflict(err, "may write") {
		t.Errorf("got %v", err)
	}
}

// An unsigned commit would not be deployed where signatures are required.
func TestSetImagesWhereCommitsMustBeSigned(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(commit))
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	signers := "ann@example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEChAGhFEQKCYVPNSdNUOqmRRVWTFgVPYBhLbnJhpS"
	_, err = r.UpdateRepository(t.Context(), admin, "default", repos[0].ID, control.UpdateRepository{Signers: &signers}, control.Match{})
	ok(t, err)
	if _, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1")); !isConflict(err, "sign") {
		t.Errorf("got %v", err)
	}
	followed := "main"
	_, err = r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{
		Source: &fleet.Source{RepoURL: r.url, Path: "app", Revision: followed},
	}, control.Match{})
	ok(t, err)
	named := nginx(":1.1")
	named.Branch = followed
	if _, err := r.SetImages(t.Context(), admin, "default", "app", named); !isConflict(err, "sign") {
		t.Errorf("by the name of the branch that is followed: got %v", err)
	}
	if got := strings.TrimSpace(r.remote(t, "rev-parse", "main")); got != commit {
		t.Error("main has moved")
	}
}

// covers: I1 (variants)
func TestSetImagesOfVariants(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enrollIn(t, "paris", "eu")
	r.enrollIn(t, "boston", "us")
	r.push(t, map[string]string{"eu/pod.yaml": podYAML("a", "nginx:1.0"), "us/pod.yaml": podYAML("a", "nginx:1.0"), "asia/pod.yaml": podYAML("a", "nginx:1.0")})
	r.deploy(t, "app", "{agent.labels.region}")
	update, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1"))
	ok(t, err)
	if got := r.remote(t, "show", "--name-only", "--format=", update.Commit); got != "eu/pod.yaml\nus/pod.yaml\n" {
		t.Errorf("changed:\n%s", got)
	}
}
