package control_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const tooManyRequests = 429

// A tenant cannot make the server contact a host that demanded a pause.
func TestEverythingThatReadsGitLeavesAHostAlone(t *testing.T) {
	t.Parallel()
	r := imaged(t, map[string]string{"app/pod.yaml": podYAML("a", "nginx:1.0")}, fleet.Source{Path: "app", Kind: fleet.SourcePlain})
	more, err := r.git.CreateRepo(t.Context(), "more", filepath.Join(t.TempDir(), "more"))
	ok(t, err)
	_, err = more.CommitAndPush(t.Context(), map[string]string{"app/cm.yaml": configMap("a", "1")}, "more")
	ok(t, err)
	setImages := func() error { _, err := r.SetImages(t.Context(), admin, "default", "app", nginx(":1.1")); return err }
	r.git.SetFailure(tooManyRequests, time.Hour)
	if err := setImages(); err == nil {
		t.Fatal("the host did not fail")
	}
	r.git.SetFailure(0, 0)
	before := r.git.Requests()
	for what, ask := range map[string]func() error{
		"image set": setImages,
		"images":    func() error { _, _, err := r.Images(t.Context(), admin, "default", "app"); return err },
		"diff":      func() error { _, err := r.Diff(t.Context(), admin, "default", "app", "", ""); return err },
		"diff of a commit": func() error {
			_, err := r.Diff(t.Context(), admin, "default", "app", "", strings.Repeat("a", 40))
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "fewer requests") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "more", Source: fleet.Source{RepoURL: r.git.URL("more"), Path: "app"},
	})
	ok(t, err)
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	for _, repo := range repos {
		if repo.URL == r.url {
			ok(t, r.Push(t.Context(), repo.ID, "refs/heads/main")) // as a webhook does
		}
		if got := r.awaitRepository(t, admin, "default", repo.ID, false); !strings.Contains(got.Error, "fewer requests") {
			t.Errorf("%s: %s", repo.URL, got.Error)
		}
	}
	if n := r.git.Requests() - before; n != 0 {
		t.Errorf("the host was asked %d times", n)
	}
}
