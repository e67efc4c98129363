package gitsource_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

func gitmodules(urls map[string]string) string {
	var b strings.Builder
	for path, url := range urls {
		fmt.Fprintf(&b, "[submodule %q]\n\tpath = %s\n\turl = %s\n", path, path, url)
	}
	return b.String()
}

// readThrough reads a file by its path, like a renderer.
func readThrough(t *testing.T, tree filetree.Tree, folder, name string) (string, error) {
	t.Helper()
	entries, err := tree.List(t.Context(), folder)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name == name {
			data, err := tree.Read(t.Context(), e, 1<<20)
			return string(data), err
		}
	}
	return "", fmt.Errorf("%s has no %s", folder, name)
}

func TestTreeIncludesSubmodulesIfAllowed(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		lib, deep := createRepo(t, p.server, "team/lib"), createRepo(t, p.server, "team/deep")
		deepCommit := commit(t, deep, map[string]string{"d.yaml": "deep"})
		libCommit := commit(t, lib, map[string]string{
			"base/l.yaml": "lib", "vendor/deep": gitserver.Gitlink(deepCommit), ".gitmodules": gitmodules(map[string]string{"vendor/deep": "../deep.git"}),
		})
		commit(t, lib, map[string]string{"base/l.yaml": "newer than the pinned commit"})
		tip := commit(t, p.repo, map[string]string{
			"app/a.yaml": "a", "app/lib": gitserver.Gitlink(libCommit), ".gitmodules": gitmodules(map[string]string{"app/lib": "./../team/lib.git"}),
		})
		for _, allowed := range []bool{false, true} {
			access := p.access("acme", "one")
			access.Submodules = allowed
			_, err := p.m.Fetch(t.Context(), access, []string{"main"})
			check(t, err)
			tree, err := p.m.Tree(t.Context(), access, tip)
			check(t, err)
			if got, err := readThrough(t, tree, "app", "a.yaml"); got != "a" || err != nil {
				t.Errorf("outside of the submodule: %q, %v", got, err)
			}
			if !allowed {
				var bad *filetree.Error
				for _, folder := range []string{"app/lib", "app/lib/base"} {
					if _, err := readThrough(t, tree, folder, "l.yaml"); !errors.As(err, &bad) || !strings.Contains(err.Error(), "--submodules") {
						t.Errorf("%s: got %v, want an error that names --submodules", folder, err)
					}
				}
				continue
			}
			for folder, file := range map[string]string{"app/lib/base": "l.yaml lib", "app/lib/vendor/deep": "d.yaml deep"} {
				name, want, _ := strings.Cut(file, " ")
				if got, err := readThrough(t, tree, folder, name); got != want || err != nil {
					t.Errorf("%s: %q, %v, want %q", folder, got, err, want)
				}
			}
			entries, err := tree.List(t.Context(), "app")
			check(t, err)
			for _, e := range entries {
				if e.Name == "lib" && e.Mode != filetree.Dir {
					t.Errorf("the submodule is listed as %v, want a folder", e.Mode)
				}
			}
			if _, err := tree.ID(t.Context(), "app/lib/base"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestForbiddenSubmodules(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	other, otherRepo := startServer(t)
	other.Protect("app", map[string]string{"one": "secret"})
	elsewhere := commit(t, otherRepo, map[string]string{"x": "x"})
	const nowhere = "0123456789012345678901234567890123456789"
	open := gitsource.Config{Allow: []string{"http"}, Addresses: localWeb.Addresses}
	tests := []struct{ reason, url, commit, want string }{
		{"a transport that is not allowed", server.FileURL("app"), nowhere, "is invalid"},
		{"a remote helper", "ext::sh -c true", nowhere, "is invalid"},
		{"an address that is not allowed", "http://169.254.169.254/x.git", nowhere, "address policy of the server denies"},
		{"another host gets no credential", other.URL("app"), elsewhere, "not found or not readable"},
		{"a missing commit", server.URL("app"), nowhere, "no commit"},
		{"no URL", "", nowhere, "without a URL"},
		{"a path above the root of the host", strings.Repeat("../", 9) + "x.git", nowhere, "above the root of the host"},
	}
	for i, tt := range tests {
		name := fmt.Sprintf("sub%d", i)
		files := map[string]string{name: gitserver.Gitlink(tt.commit), ".gitmodules": gitmodules(map[string]string{name: tt.url})}
		if tt.url == "" {
			files[".gitmodules"] = "[submodule \"x\"]\n\tpath = x\n"
		}
		tip := commit(t, repo, files)
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			m := managerWith(t, open)
			access := gitsource.Access{
				URL: server.URL("app"), Submodules: true, Credential: &gitsource.Credential{Fingerprint: "one", Username: "one", Password: "secret"},
			}
			refs, err := m.Fetch(t.Context(), access, []string{tip})
			check(t, err)
			check(t, refs[tip].Err)
			tree, err := m.Tree(t.Context(), access, tip)
			check(t, err)
			if _, err := tree.List(t.Context(), name); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The nesting of a repository that is its own submodule is limited.
func TestNestingOfSubmodulesIsLimited(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	id := commit(t, repo, map[string]string{"x": "x"})
	for range 5 {
		id = commit(t, repo, map[string]string{"s": gitserver.Gitlink(id), ".gitmodules": gitmodules(map[string]string{"s": server.URL("app")})})
	}
	access := gitsource.Access{URL: server.URL("app"), Submodules: true}
	fetchOne(t, m, access.URL, "main")
	tree, err := m.Tree(t.Context(), access, id)
	check(t, err)
	if _, err := tree.List(t.Context(), "s/s/s"); err != nil {
		t.Error(err)
	}
	if _, err := tree.List(t.Context(), "s/s/s/s"); err == nil || !strings.Contains(err.Error(), "nested more than 3 deep") {
		t.Errorf("four deep: %v", err)
	}
}

// The submodules of one commit are counted together at any depth. An open submodule is not counted again.
func TestSubmodulesOfOneCommitAreCountedTogether(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	leaf := commit(t, createRepo(t, server, "leaf"), map[string]string{"x": "x"})
	files, urls := map[string]string{}, map[string]string{}
	for i := range 16 {
		name := fmt.Sprint("leaf", i)
		files[name], urls[name] = gitserver.Gitlink(leaf), "../leaf.git"
	}
	files[".gitmodules"] = gitmodules(urls)
	lib := commit(t, createRepo(t, server, "lib"), files)
	tip := commit(t, repo, map[string]string{
		"a": gitserver.Gitlink(lib), "b": gitserver.Gitlink(lib), ".gitmodules": gitmodules(map[string]string{"a": "../lib.git", "b": "../lib.git"}),
	})
	access := gitsource.Access{URL: server.URL("app"), Submodules: true}
	fetchOne(t, m, access.URL, "main")
	tree, err := m.Tree(t.Context(), access, tip)
	check(t, err)
	list := func(tree filetree.Tree, folder string, i int) error {
		_, err := tree.List(t.Context(), fmt.Sprintf("%s/leaf%d", folder, i))
		return err
	}
	for i := range 16 { // with a itself 17
		check(t, list(tree, "a", i))
	}
	for i := range 14 { // with b itself 15, 32 in all
		check(t, list(tree, "b", i))
	}
	if err := list(tree, "b", 14); err == nil || !strings.Contains(err.Error(), "more than 32 submodules") {
		t.Errorf("the 33rd: %v", err)
	}
	check(t, list(tree, "a", 15)) // already open
	again, err := m.Tree(t.Context(), access, tip)
	check(t, err)
	check(t, list(again, "b", 14))
}
