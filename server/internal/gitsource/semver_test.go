package gitsource_test

import (
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// tagged creates a commit with its own tag and pushes both.
func tagged(t *testing.T, repo *gitserver.Repo, name, message string) string {
	t.Helper()
	id := commit(t, repo, map[string]string{"version": name})
	check(t, repo.Tag(t.Context(), name, message))
	check(t, repo.ForcePush(t.Context(), "refs/tags/"+name))
	return id
}

// covers: G4 (a range of versions)
func TestRangeResolvesToTheHighestVersion(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		commits := map[string]string{}
		for _, name := range []string{"v1.0.0", "v1.2.0", "v1.10.0", "2.0.0", "v3.0.0-rc.1", "v9", "latest", "app-7.0.0"} {
			message := ""
			if name == "v1.10.0" {
				message = "annotated" // peeled
			}
			commits[name] = tagged(t, repo, name, message)
		}
		tests := []struct{ revision, want string }{
			{"semver:^1", "v1.10.0"}, // in numerical order, not in alphabetical order
			{"semver:~1.2", "v1.2.0"},
			{"semver:1.0.0", "v1.0.0"},
			{"semver:>=1.0.0 <2.0.0", "v1.10.0"},
			{"semver:*", "2.0.0"}, // no pre-release unless the range has one; v9 and latest are not versions
			{"semver:>=3.0.0-0", "v3.0.0-rc.1"},
			{"semver:1.0.x || 2.x", "2.0.0"},
		}
		revisions := []string{"main"}
		for _, tt := range tests {
			revisions = append(revisions, tt.revision)
		}
		for range 2 { // first and repeated fetch
			refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, revisions)
			check(t, err)
			for _, tt := range tests {
				if got := refs[tt.revision]; got.Err != nil || got.Commit != commits[tt.want] || got.Name != "refs/tags/"+tt.want {
					t.Errorf("%s: got %+v, want %s at %s", tt.revision, got, tt.want, commits[tt.want])
				}
			}
		}
		readFile(t, m, url, commits["v1.10.0"], ".", "version")
	})
}

func TestRangeFollowsNewVersions(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	const revision = "semver:^1"
	if _, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{revision}); !errors.Is(err, gitsource.ErrEmpty) {
		t.Errorf("an empty repository returned %v", err)
	}
	rejected := func() error {
		t.Helper()
		refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{revision})
		check(t, err)
		return refs[revision].Err
	}
	commit(t, repo, map[string]string{"a": "1"})
	var none *gitsource.NoVersionError
	if err := rejected(); !errors.As(err, &none) || none.Highest != "" {
		t.Errorf("without versions: %v", err)
	}
	tagged(t, repo, "v2.0.0", "")
	if err := rejected(); !errors.As(err, &none) || none.Highest != "v2.0.0" {
		t.Errorf("without a version in the range: %v", err)
	}
	for _, name := range []string{"v1.0.0", "v1.0.1"} {
		if want, got := tagged(t, repo, name, ""), fetchOne(t, m, url, revision); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if moved, got := tagged(t, repo, "v1.0.1", "moved"), fetchOne(t, m, url, revision); got != moved {
		t.Errorf("a moved tag: got %s, want %s", got, moved)
	}
	before := server.Requests()
	fetchOne(t, m, url, revision)
	if n := server.Requests() - before; n > 2 {
		t.Errorf("a fetch without news sent %d requests, want those of one ls-remote", n)
	}
	check(t, repo.DeleteRemote(t.Context(), "refs/tags/v1.0.1", "refs/tags/v1.0.0"))
	if err := rejected(); !errors.As(err, &none) {
		t.Errorf("after the versions were deleted: %v", err)
	}
}

func TestInvalidRangesAreRejected(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"semver:", "semver: ", "semver:x.y.z.w", "semver:>=", "semver:1.0.0 <> 2", "semver:\x1b[31m"} {
		var bad *gitsource.RangeError
		if err := gitsource.CheckRevision(revision); !errors.As(err, &bad) {
			t.Errorf("%q: got %v, want a RangeError", revision, err)
		}
	}
	for _, revision := range []string{"", "main", "semver:^1", "semver:>= 1.2, < 3"} {
		if err := gitsource.CheckRevision(revision); err != nil {
			t.Errorf("%q: %v", revision, err)
		}
	}
}
