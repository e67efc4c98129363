package gitsource_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

func edit(base string, files map[string]string) gitsource.CommitRequest {
	req := gitsource.CommitRequest{
		Base: base, Message: "set the image\n\nbody", AuthorName: "Ada <x>\n", AuthorEmail: "ada@example.com", Edits: map[string][]byte{},
	}
	for name, content := range files {
		req.Edits[name] = []byte(content)
		if content == gitserver.Deleted {
			req.Edits[name] = nil
		}
	}
	return req
}

func TestCommitIsPushed(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		base := commit(t, p.repo, map[string]string{"app/a.yaml": "1\n", "app/b.yaml": "b\n", "gone": "x", "run.sh": "#!/bin/sh\n"})
		remote := p.server.Dir("app")
		base = makeExecutable(t, p, base)
		access := p.access("acme", "one")
		pushed, err := p.m.Commit(t.Context(), access, edit(base, map[string]string{
			"app/a.yaml": "2\n", "new/deep/c.yaml": "c\n", "gone": gitserver.Deleted, "run.sh": "#!/bin/bash\n", "ünï code": "u",
		}))
		check(t, err)
		if pushed.Branch != "main" {
			t.Errorf("pushed to %q", pushed.Branch)
		}
		if got := run(t, "--git-dir="+remote, "rev-parse", "refs/heads/main"); got != pushed.Commit {
			t.Fatalf("main is %s, want %s", got, pushed.Commit)
		}
		show := run(t, "--git-dir="+remote, "log", "-1", "--format=%an|%ae|%cn|%P|%B", pushed.Commit)
		if want := "Ada x|ada@example.com|Ada x|" + base + "|set the image\n\nbody"; show != want {
			t.Errorf("the commit is %q, want %q", show, want)
		}
		tree := run(t, "--git-dir="+remote, "-c", "core.quotepath=off", "ls-tree", "-r", "--format=%(objectmode) %(path)", pushed.Commit)
		want := "100644 app/a.yaml\n100644 app/b.yaml\n100644 new/deep/c.yaml\n100755 run.sh\n100644 ünï code"
		if diff := cmp.Diff(want, tree); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if got := run(t, "--git-dir="+remote, "show", pushed.Commit+":app/a.yaml"); got != "2" {
			t.Errorf("a.yaml is %q", got)
		}
		refs, err := p.m.Fetch(t.Context(), access, []string{"main"})
		check(t, err)
		if refs["main"].Commit != pushed.Commit {
			t.Errorf("the next fetch returned %s", refs["main"].Commit)
		}
		// The base is no longer the tip.
		if _, err := p.m.Commit(t.Context(), access, edit(base, map[string]string{"app/a.yaml": "3\n"})); !errors.Is(err, gitsource.ErrMoved) {
			t.Errorf("a commit on an old base returned %v", err)
		}
		again := edit(pushed.Commit, map[string]string{"app/a.yaml": "2\n"})
		if _, err := p.m.Commit(t.Context(), access, again); !errors.Is(err, gitsource.ErrNoChange) {
			t.Errorf("a commit that changes nothing returned %v", err)
		}
	})
}

// makeExecutable adds a commit that changes the mode of run.sh, which the test server cannot write.
func makeExecutable(t *testing.T, p *privateRepo, base string) string {
	t.Helper()
	remote := "--git-dir=" + p.server.Dir("app")
	listing := run(t, remote, "ls-tree", base)
	cmd := exec.CommandContext(t.Context(), "git", remote, "mktree")
	cmd.Stdin = strings.NewReader(strings.Replace(listing, "100644 blob "+run(t, remote, "rev-parse", base+":run.sh"), "100755 blob "+run(t, remote, "rev-parse", base+":run.sh"), 1) + "\n")
	tree, err := cmd.Output()
	check(t, err)
	id := run(t, remote, "-c", "user.name=k", "-c", "user.email=k@l", "commit-tree", strings.TrimSpace(string(tree)), "-p", base, "-m", "x")
	run(t, remote, "update-ref", "refs/heads/main", id)
	return id
}

const refuseMain = `#!/bin/sh
while read old new ref; do
	if [ "$ref" = refs/heads/main ]; then
		printf 'GL-HOOK-ERR: main is \033[31mprotected\033[0m: open a merge request\n' >&2
		exit 1
	fi
done
`

func TestPushToAProtectedBranchAndToANewOne(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		base := commit(t, p.repo, map[string]string{"a": "1"})
		check(t, p.server.SetHook("app", "pre-receive", refuseMain))
		access := p.access("acme", "one")
		req := edit(base, map[string]string{"a": "2"})
		_, err := p.m.Commit(t.Context(), access, req)
		var protected *gitsource.ProtectedError
		if !errors.As(err, &protected) {
			t.Fatalf("got %v, want a ProtectedError", err)
		}
		want := "pre-receive hook declined: GL-HOOK-ERR: main is [31mprotected[0m: open a merge request"
		if protected.Branch != "main" || protected.Message != want {
			t.Errorf("got %q, want %q", protected.Message, want)
		}
		req.PushBranch = "kedge/image-a"
		host := gitsource.Host(access.URL)
		host, _, _ = strings.Cut(host, ":")
		check(t, p.server.SetHook("app", "post-receive", "#!/bin/sh\necho 'See https://elsewhere.example/x and javascript://"+host+"/'\necho '  https://"+host+"/app/compare/kedge/image-a?x=1  '\n"))
		pushed, err := p.m.Commit(t.Context(), access, req)
		check(t, err)
		if got := run(t, "--git-dir="+p.server.Dir("app"), "rev-parse", "refs/heads/kedge/image-a"); got != pushed.Commit || pushed.Branch != req.PushBranch {
			t.Errorf("pushed %+v, the branch is at %s", pushed, got)
		}
		if want := "https://" + host + "/app/compare/kedge/image-a?x=1"; pushed.Page != want {
			t.Errorf("the page is %q, want %s", pushed.Page, want)
		}
		if got := run(t, "--git-dir="+p.server.Dir("app"), "rev-parse", "refs/heads/main"); got != base {
			t.Errorf("main moved to %s", got)
		}
		req.Edits["a"] = []byte("3")
		if _, err := p.m.Commit(t.Context(), access, req); !errors.Is(err, gitsource.ErrBranchExists) {
			t.Errorf("an existing branch returned %v", err)
		}
	})
}

func TestPushWithoutPushAccess(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		base := commit(t, p.repo, map[string]string{"a": "1"})
		p.readOnly()
		_, err := p.m.Commit(t.Context(), p.access("acme", "one"), edit(base, map[string]string{"a": "2"}))
		if !errors.Is(err, gitsource.ErrNoPermission) {
			t.Fatalf("got %v, want ErrNoPermission", err)
		}
		if got := problemOf(t, err); got != "the credential has no push access to the repository" {
			t.Errorf("the problem is %q", got)
		}
		if got := run(t, "--git-dir="+p.server.Dir("app"), "rev-parse", "refs/heads/main"); got != base {
			t.Errorf("main moved to %s", got)
		}
	})
}

func TestInvalidEditsAreRejected(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	base := commit(t, repo, map[string]string{"a": "1", "d/x": "x", "link": gitserver.Symlink("/etc/passwd")})
	for _, tt := range []struct {
		reason string
		change func(*gitsource.CommitRequest)
	}{
		{"a path outside of the tree", func(r *gitsource.CommitRequest) { r.Edits["../x"] = []byte("x") }},
		{"an absolute path", func(r *gitsource.CommitRequest) { r.Edits["/x"] = []byte("x") }},
		{"git's own folder", func(r *gitsource.CommitRequest) { r.Edits["a/.GIT/config"] = []byte("x") }},
		{"a line break", func(r *gitsource.CommitRequest) { r.Edits["a\nD b"] = []byte("x") }},
		{"a quoted path", func(r *gitsource.CommitRequest) { r.Edits["\"a"] = []byte("x") }},
		{"a link", func(r *gitsource.CommitRequest) { r.Edits["link"] = []byte("x") }},
		{"below a link", func(r *gitsource.CommitRequest) { r.Edits["link/x"] = []byte("x") }},
		{"below a file", func(r *gitsource.CommitRequest) { r.Edits["a/x"] = []byte("x") }},
		{"a folder", func(r *gitsource.CommitRequest) { r.Edits["d"] = []byte("x") }},
		{"no edits", func(r *gitsource.CommitRequest) { r.Edits = nil }},
		{"no message", func(r *gitsource.CommitRequest) { r.Message = " \n" }},
		{"an invalid branch", func(r *gitsource.CommitRequest) { r.Branch = "a..b" }},
		{"an invalid branch to push to", func(r *gitsource.CommitRequest) { r.PushBranch = "--all" + "\x00" }},
		{"a short base", func(r *gitsource.CommitRequest) { r.Base = base[:10] }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			req := edit(base, map[string]string{"a": "2"})
			tt.change(&req)
			_, err := m.Commit(t.Context(), gitsource.Access{URL: server.URL("app")}, req)
			var bad *gitsource.EditError
			if !errors.As(err, &bad) {
				t.Errorf("got %v, want an EditError", err)
			}
		})
	}
}

func TestPushToAFileRemoteRunsNoHook(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	base := commit(t, repo, map[string]string{"a": "1"})
	trace := t.TempDir() + "/ran"
	check(t, server.SetHook("app", "pre-receive", "#!/bin/sh\ntouch "+trace+"\n"))
	pushed, err := m.Commit(t.Context(), gitsource.Access{URL: server.FileURL("app")}, edit(base, map[string]string{"a": "2"}))
	check(t, err)
	if got := run(t, "--git-dir="+server.Dir("app"), "rev-parse", "HEAD"); got != pushed.Commit {
		t.Errorf("HEAD is %s, want %s", got, pushed.Commit)
	}
	if _, err := exec.Command("test", "!", "-e", trace).Output(); err != nil {
		t.Error("the hook of the repository ran")
	}
}
