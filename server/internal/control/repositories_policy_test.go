package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func saying(part string) func(control.DeploymentView) error {
	return func(d control.DeploymentView) error {
		if !strings.Contains(d.SourceError, part) {
			return fmt.Errorf("the source error is %q, not %q", d.SourceError, part)
		}
		return nil
	}
}

func (r *replica) change(t *testing.T, req control.UpdateRepository) control.RepositoryView {
	t.Helper()
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	view, err := r.UpdateRepository(t.Context(), admin, "default", repos[0].ID, req, control.Match{})
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// An unsigned commit is refused with its name, and the running state stays.
func TestCommitsOfStrangersChangeNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	before := r.await(t, "app", atCommit(first))
	_, key, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signers := "ann@example.com " + string(ssh.MarshalAuthorizedKey(key))
	if got := r.change(t, control.UpdateRepository{Signers: &signers}); got.Signers != signers || got.SpecRevision != 2 {
		t.Errorf("got %+v", got.Repository)
	}
	r.await(t, "app", saying("commit "+first[:12]+" is not accepted: it is not signed"))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	after := r.await(t, "app", saying("commit "+second[:12]+" is not accepted: it is not signed"))
	if after.Rendered.Digest != before.Rendered.Digest || after.Targets[0].Desired.Version != before.Targets[0].Desired.Version {
		t.Errorf("the running state changed: %+v, before %+v", after.Targets[0].Desired, before.Targets[0].Desired)
	}
	nobody := ""
	r.change(t, control.UpdateRepository{Signers: &nobody})
	r.await(t, "app", atCommit(second))
}

func TestSignersThatCannotBeReadAreNotKept(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	bad := "ann@example.com ssh-ed25519 AAAA"
	_, err := r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{URL: r.url, Signers: bad})
	if err == nil || !strings.Contains(err.Error(), "line 1 of the signers") {
		t.Errorf("got %v", err)
	}
	made, err := r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{URL: r.url, Submodules: true})
	if err != nil || !made.Submodules {
		t.Fatalf("got %+v, %v", made, err)
	}
	if _, err := r.UpdateRepository(t.Context(), admin, "default", made.ID, control.UpdateRepository{Signers: &bad}, control.Match{}); err == nil {
		t.Error("an edit kept them")
	}
}

// Another spelling of a URL does not bypass the signers of a repository.
func TestSignersHoldForEverySpelling(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	deploy := func(name, url string) {
		t.Helper()
		_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: name, Source: fleet.Source{RepoURL: url, Path: "app"}})
		ok(t, err)
	}
	deploy("before", strings.TrimSuffix(r.url, ".git"))
	r.await(t, "before", atCommit(first))
	_, key, err := gitserver.NewKey()
	ok(t, err)
	signers := "ann@example.com " + string(ssh.MarshalAuthorizedKey(key))
	_, err = r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{URL: r.url, Signers: signers})
	ok(t, err)
	_, other, err := gitserver.NewKey()
	ok(t, err)
	_, err = r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{
		URL: strings.Replace(r.url, "/apps", "///apps", 1), Signers: "ann@example.com " + string(ssh.MarshalAuthorizedKey(other)),
	})
	if err == nil || !strings.Contains(err.Error(), "is the same repository") {
		t.Errorf("other signers than those of another spelling: %v", err)
	}
	r.await(t, "before", saying("commit "+first[:12]+" is not accepted: it is not signed"))
	deploy("after", strings.Replace(r.url, "/apps", "//apps", 1))
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	for _, repo := range repos {
		if repo.Signers != signers {
			t.Errorf("%s has the signers %q", repo.URL, repo.Signers)
		}
	}
	if len(repos) != 3 {
		t.Errorf("%d repositories, want three spellings", len(repos))
	}
}

func TestSubmodulesAreReadWhereTheRepositoryAllowsIt(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	lib, err := r.git.CreateHosted("lib")
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := lib.CommitAndPush(t.Context(), map[string]string{"cm.yaml": configMap("lib", "1")}, "lib")
	if err != nil {
		t.Fatal(err)
	}
	first := r.push(t, map[string]string{
		"app/cm.yaml": configMap("a", "1"), "app/lib": gitserver.Gitlink(pinned),
		".gitmodules": "[submodule \"lib\"]\n\tpath = app/lib\n\turl = ../lib.git\n",
	})
	r.deploy(t, "lib", "app/lib")
	r.await(t, "lib", saying("--submodules"))
	yes := true
	r.change(t, control.UpdateRepository{Submodules: &yes})
	r.await(t, "lib", atCommit(first))
	// An unreadable submodule is reported where the repository is read.
	if err := r.git.Remove("lib"); err != nil {
		t.Fatal(err)
	}
	r.push(t, map[string]string{"app/lib": gitserver.Gitlink(strings.Repeat("1", 40))})
	r.awaitProblem(t, "repository not found or not readable")
}

// covers: G4 (a range of versions moves when a higher tag appears)
func TestARangeOfVersionsIsFollowed(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	tag := func(name, value string) string {
		t.Helper()
		commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", value)})
		if err := r.repo.Tag(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
		if err := r.repo.Push(t.Context(), "refs/tags/"+name); err != nil {
			t.Fatal(err)
		}
		repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, repo := range repos {
			if err := r.Push(t.Context(), repo.ID, "refs/tags/"+name); err != nil {
				t.Fatal(err)
			}
		}
		return commit
	}
	first := tag("v1.0.0", "1")
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app", Revision: "semver:^1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.await(t, "app", atCommit(first))
	tag("v2.0.0", "2")
	higher := tag("v1.1.0", "3")
	r.await(t, "app", atCommit(higher))
	_, err = r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "bad", Source: fleet.Source{RepoURL: r.url, Path: "app", Revision: "semver:what"},
	})
	if err == nil || !strings.Contains(err.Error(), "not a range of versions") {
		t.Errorf("a range that is none gave %v", err)
	}
}

// awaitProblem waits until the repository is unreadable with a message.
func (r *replica) awaitProblem(t *testing.T, part string) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		repos, err := r.Repositories(ctx, admin, "default", store.RepositoryFilter{})
		if err == nil && !strings.Contains(repos[0].Error, part) {
			err = fmt.Errorf("its error is %q", repos[0].Error)
		}
		return err
	})
}
