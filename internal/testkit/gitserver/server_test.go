package gitserver_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

func start(t *testing.T) (*gitserver.Server, *gitserver.Repo) {
	t.Helper()
	server, err := gitserver.Start(filepath.Join(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	repo, err := server.CreateRepo(t.Context(), "team/app", filepath.Join(t.TempDir(), "clone"))
	if err != nil {
		t.Fatal(err)
	}
	return server, repo
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestPushIsServedOverHTTPAndFile(t *testing.T) {
	t.Parallel()
	server, repo := start(t)
	first := must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a/x.yaml": "one\n", "b": "two"}, "first"))
	second := must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a/x.yaml": "changed\n", "b": gitserver.Deleted}, "second"))
	if first == second {
		t.Fatalf("both commits are %s", first)
	}
	for _, url := range []string{server.URL("team/app"), server.FileURL("team/app")} {
		dir := t.TempDir()
		git(t, "clone", "--quiet", url, dir)
		if got := git(t, "-C", dir, "rev-parse", "HEAD"); got != second {
			t.Errorf("%s: HEAD is %s, want %s", url, got, second)
		}
		if got := git(t, "-C", dir, "ls-tree", "-r", "--name-only", "HEAD"); got != "a/x.yaml" {
			t.Errorf("%s: the tree holds %q, want only a/x.yaml", url, got)
		}
	}
}

func TestLargePushIsTaken(t *testing.T) {
	t.Parallel()
	_, repo := start(t)
	// Random enough not to compress below git's http.postBuffer of 1 MiB, above which it is chunked.
	var content strings.Builder
	for i, x := 0, uint64(1); i < 600_000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		content.WriteByte(byte(x >> 56))
		content.WriteByte(byte(x >> 48))
	}
	must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"big": content.String()}, "big"))
}

func TestOnPushTellsWhatChanged(t *testing.T) {
	t.Parallel()
	server, repo := start(t)
	type push struct{ Repo, Ref, Commit string }
	pushes := make(chan push, 10)
	server.OnPush(func(repo, ref, commit string) { pushes <- push{repo, ref, commit} })
	next := func() push {
		select {
		case p := <-pushes:
			return p
		case <-time.After(10 * time.Second):
			t.Fatal("no push was announced")
			return push{}
		}
	}
	first := must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a": "1"}, "first"))
	if diff := cmp.Diff(push{"team/app", "refs/heads/main", first}, next()); diff != "" {
		t.Errorf("push (-want +got):\n%s", diff)
	}
	must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a": "2"}, "second"))
	next()
	if err := repo.Reset(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := repo.Push(t.Context()); err == nil {
		t.Error("a non-fast-forward push was accepted without force")
	}
	if err := repo.ForcePush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(push{"team/app", "refs/heads/main", first}, next()); diff != "" {
		t.Errorf("forced push (-want +got):\n%s", diff)
	}
	if err := repo.DeleteRemote(t.Context(), "refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(push{"team/app", "refs/heads/main", ""}, next()); diff != "" {
		t.Errorf("deletion (-want +got):\n%s", diff)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	server, repo := start(t)
	must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a": "1"}, "first"))
	server.SetDown(true)
	if err := exec.CommandContext(t.Context(), "git", "ls-remote", server.URL("team/app")).Run(); err == nil {
		t.Error("a server that is down answered")
	}
	server.SetDown(false)
	git(t, "ls-remote", server.URL("team/app"))
	server.SetDelay(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := exec.CommandContext(ctx, "git", "ls-remote", server.URL("team/app")).Run(); err == nil {
		t.Error("a delayed server answered immediately")
	}
}

func TestProtectedRepositoriesAskWhoReads(t *testing.T) {
	t.Parallel()
	server, repo := start(t)
	secure := must[*gitserver.TLS](t)(server.ServeTLS())
	cert := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(cert, secure.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Protect("team/app", map[string]string{"me": "password"})
	want := must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a": "1"}, "first")) // needs no password
	list := func(url string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", "ls-remote", url, "refs/heads/main")
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_SSL_CAINFO="+cert)
		out, err := cmd.Output()
		return string(out), err
	}
	for _, url := range []string{server.URL("team/app"), secure.URL("team/app")} {
		for user, ok := range map[string]bool{"": false, "me:wrong@": false, "you:password@": false, "me:password@": true} {
			out, err := list(strings.Replace(url, "://", "://"+user, 1))
			if ok != (err == nil) || ok != strings.HasPrefix(out, want) {
				t.Errorf("%s as %q gave %q, %v", url, user, out, err)
			}
		}
	}
}

func TestSSHServesOnlyAuthorizedKeys(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("there is no ssh program here")
	}
	server, repo := start(t)
	want := must[string](t)(repo.CommitAndPush(t.Context(), map[string]string{"a": "1"}, "first"))
	host := must[*gitserver.SSH](t)(server.ServeSSH())
	private, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"key": private, "known": host.KnownHosts()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, authorized := range []bool{false, true} {
		if authorized {
			host.Authorize(public)
		}
		cmd := exec.CommandContext(t.Context(), "git", "ls-remote", host.URL("team/app"), "refs/heads/main")
		cmd.Env = append(os.Environ(), "GIT_SSH_COMMAND=ssh -F /dev/null -o BatchMode=yes -o IdentityAgent=none -i "+dir+"/key -o UserKnownHostsFile="+dir+"/known")
		out, err := cmd.Output()
		if authorized != (err == nil) || authorized != strings.HasPrefix(string(out), want) {
			t.Errorf("with the key authorized: %t: %q, %v", authorized, out, err)
		}
	}
}
