package agent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// installed is an agent that its enrol manifest has put into a cluster, limited to one namespace, and
// the file that its Secret is mounted to, which changes when the test says so.
type installed struct {
	cluster   *testkit.Cluster
	namespace string
	cfg       Config
}

func newInstalled(t *testing.T, token string) installed {
	t.Helper()
	c := testkit.SharedCluster(t)
	work := c.Namespace(t)
	name := strings.TrimPrefix(work, "kedge-")
	o := install.Options{
		Agent:      fleet.Agent{ID: fleet.NewAgentID(), Name: name, Scope: fleet.ScopeNamespaced, Namespaces: []string{work}},
		TenantName: fleet.DefaultTenant, ServerAddress: "grpc://127.0.0.1:1", Token: token, Image: "example.com/agent:v1", WithSecret: true,
	}
	text, err := install.Manifest(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(text))
	namespace := install.Namespace(o.TenantName, name)
	i := installed{cluster: c, namespace: namespace, cfg: Config{
		TokenFile: filepath.Join(t.TempDir(), "token"), TokenSecret: "kedge-agent-token", Namespace: namespace, Log: slog.New(slog.DiscardHandler),
	}}
	i.mount(t, token)
	return i
}

func (i installed) mount(t *testing.T, token string) {
	t.Helper()
	if err := os.WriteFile(i.cfg.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start is the tokens of an agent process that has just begun, with the rights of its ServiceAccount.
func (i installed) start(t *testing.T) link.Tokens {
	t.Helper()
	tokens, err := newTokens(i.cfg, i.cluster.ServiceAccountConfig(t, i.namespace, "kedge-agent"))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func reads(t *testing.T, tokens link.Tokens, fresh bool, want, reason string) {
	t.Helper()
	if got, err := tokens.Read(t.Context(), fresh); err != nil || got != want {
		t.Fatalf("Read(%t) = %q, %v, want %q: %s", fresh, got, err, want, reason)
	}
}

// covers: C7 (kept in the Secret, with nothing but the rights of the enrol manifest)
func TestRotatedTokenIsKeptInTheSecret(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	tokens := i.start(t)
	reads(t, tokens, true, "first", "it was enrolled with it")
	if err := tokens.Store(t.Context(), "first", "second"); err != nil {
		t.Fatal(err)
	}
	secret := i.cluster.Kubectl(t, "-n", i.namespace, "get", "secret", "kedge-agent-token", "-o", "jsonpath={.data.token}")
	if got, err := base64.StdEncoding.DecodeString(secret); err != nil || string(got) != "second" {
		t.Errorf("the Secret holds %q, %v", got, err)
	}
	reads(t, tokens, false, "second", "the mounted file lags behind")
	reads(t, i.start(t), true, "second", "it has restarted before the mounted file has changed")

	i.mount(t, "second")
	reads(t, tokens, false, "second", "the mounted file has caught up")
	i.cluster.Kubectl(t, "-n", i.namespace, "patch", "secret", "kedge-agent-token", "--type=merge", "-p", `{"stringData":{"token":"third"}}`)
	reads(t, tokens, false, "second", "nothing tells yet that it was replaced by hand")
	reads(t, tokens, true, "third", "it was refused, so that the Secret is looked at")
	i.mount(t, "third")
	reads(t, tokens, false, "third", "the mounted file has caught up again")
}

// covers: C7 (replicas share the Secret, and one that is late does not undo what another has kept)
func TestTokenThatAnotherReplicaHasKeptInTheSecretStays(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	early, late := i.start(t), i.start(t)
	reads(t, early, true, "first", "it was enrolled with it")
	reads(t, late, true, "first", "it was enrolled with it")
	if err := early.Store(t.Context(), "first", "second"); err != nil {
		t.Fatal(err)
	}
	if err := late.Store(t.Context(), "first", "dead"); !errors.Is(err, link.ErrReplaced) {
		t.Errorf("Store() = %v, want that another token is kept", err)
	}
	reads(t, late, false, "second", "it has learnt which one is kept")
	if err := late.Store(t.Context(), "second", "third"); err != nil {
		t.Error(err)
	}
	reads(t, early, true, "third", "it was kept in place of what there was")
}

// covers: C7 (where the Secret cannot be written that is said)
func TestSecretThatMayNotBeChangedIsToldOf(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	i.cluster.Kubectl(t, "-n", i.namespace, "delete", "rolebinding", "kedge-agent")
	tokens := i.start(t)
	err := tokens.Store(t.Context(), "first", "second")
	if err == nil || !strings.Contains(err.Error(), "may not change Secret "+i.namespace+"/kedge-agent-token") || strings.Contains(err.Error(), "second") {
		t.Errorf("Store() = %v, want which Secret, and not the token", err)
	}
	reads(t, tokens, true, "first", "the mounted file is there")
	i.mount(t, "by-hand")
	reads(t, tokens, false, "by-hand", "it is the one way to replace the token")
}

// covers: C7
func TestTokenFileOutsideOfAClusterSaysWhatToDo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("first"), 0o400); err != nil {
		t.Fatal(err)
	}
	tokens, err := newTokens(Config{TokenFile: file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"read-only", "--token-secret", "by hand"} {
		if err := tokens.Store(t.Context(), "first", "second"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Store() = %v, want it to say %q", err, want)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Store(t.Context(), "first", "second"); err != nil {
		t.Fatal(err)
	}
	reads(t, tokens, false, "second", "the file is writable")
	if got := fmt.Sprint(tokens); got != "file "+file {
		t.Errorf("it says that it is in %q", got)
	}
}
