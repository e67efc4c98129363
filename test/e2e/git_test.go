package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// testRepo is a repository on a real Git server, with a clone to push from.
type testRepo struct {
	*gitserver.Repo
	server *gitserver.Server
	name   string
	url    string
}

func newRepo(tb testing.TB) *testRepo {
	tb.Helper()
	dir := tb.TempDir()
	srv, err := gitserver.Start(filepath.Join(dir, "remote"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = srv.Close() })
	return newRepoOn(tb, srv, "apps")
}

func newRepoOn(tb testing.TB, srv *gitserver.Server, name string) *testRepo {
	tb.Helper()
	repo, err := srv.CreateRepo(tb.Context(), name, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return &testRepo{Repo: repo, server: srv, name: name, url: srv.URL(name)}
}

// push commits and pushes.
func (r *testRepo) push(tb testing.TB, files map[string]string) string {
	tb.Helper()
	commit, err := r.CommitAndPush(tb.Context(), files, "change")
	if err != nil {
		tb.Fatal(err)
	}
	return commit
}

// webhooks makes every push call the server, like a Git host.
func (r *testRepo) webhooks(tb testing.TB, s *testServer) {
	tb.Helper()
	r.announce(tb, tenantClient{Server: s.Server, tenant: "default"})
}

// announce is webhooks for a repository of any tenant.
func (r *testRepo) announce(tb testing.TB, d tenantClient) {
	tb.Helper()
	hook := d.webhook(tb, r.url)
	ctx := context.WithoutCancel(tb.Context())
	r.server.OnPush(func(repo, ref, _ string) {
		if repo != r.name {
			return
		}
		if code, err := sendHook(ctx, hook.URL, hook.Secret, ref); err != nil || code != http.StatusAccepted {
			tb.Logf("webhook: %d, %v", code, err) // the server may be down intentionally
		}
	})
	tb.Cleanup(func() { r.server.OnPush(nil) })
}

// webhook returns the webhook settings for the Git host of a repository.
func (s *testServer) webhook(tb testing.TB, url string) apiv1.Webhook {
	tb.Helper()
	return tenantClient{Server: s.Server, tenant: "default"}.webhook(tb, url)
}

func (d tenantClient) webhook(tb testing.TB, url string) apiv1.Webhook {
	tb.Helper()
	return decode[apiv1.Webhook](tb, d.want(tb, 200, "POST", "repositories/"+d.repository(tb, url).ID+"/webhook", nil))
}

func sendHook(ctx context.Context, url, secret, ref string) (int, error) {
	return rig.SendHook(ctx, http.DefaultClient, url, secret, ref)
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\ndata:\n  value: %q\n", name, namespace, value)
}
