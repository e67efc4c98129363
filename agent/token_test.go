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

// installed is a namespaced agent that was installed with its enroll manifest, and a file that stands in for the mounted
// Secret.
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

// start returns the token store of a new agent process, with the permissions of its ServiceAccount.
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

// covers: C7 (stored in the Secret, with only the permissions of the enroll manifest)
func TestRotatedTokenIsStoredInTheSecret(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	tokens := i.start(t)
	reads(t, tokens, true, "first", "it is the token of the manifest")
	if err := tokens.Store(t.Context(), "first", "second"); err != nil {
		t.Fatal(err)
	}
	secret := i.cluster.Kubectl(t, "-n", i.namespace, "get", "secret", "kedge-agent-token", "-o", "jsonpath={.data.token}")
	if got, err := base64.StdEncoding.DecodeString(secret); err != nil || string(got) != "second" {
		t.Errorf("the Secret contains %q, %v", got, err)
	}
	reads(t, tokens, false, "second", "the mounted file is outdated")
	reads(t, i.start(t), true, "second", "a restart before the mounted file was updated")

	i.mount(t, "second")
	reads(t, tokens, false, "second", "the mounted file was updated")
	i.cluster.Kubectl(t, "-n", i.namespace, "patch", "secret", "kedge-agent-token", "--type=merge", "-p", `{"stringData":{"token":"third"}}`)
	reads(t, tokens, false, "second", "the change by hand is not known yet")
	reads(t, tokens, true, "third", "a fresh read after a refusal")
	i.mount(t, "third")
	reads(t, tokens, false, "third", "the mounted file was updated again")
}

// covers: C7 (replicas share the Secret and do not overwrite each other)
func TestTokenOfAnotherReplicaInTheSecretIsNotOverwritten(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	early, late := i.start(t), i.start(t)
	reads(t, early, true, "first", "it is the token of the manifest")
	reads(t, late, true, "first", "it is the token of the manifest")
	if err := early.Store(t.Context(), "first", "second"); err != nil {
		t.Fatal(err)
	}
	if err := late.Store(t.Context(), "first", "revoked"); !errors.Is(err, link.ErrReplaced) {
		t.Errorf("Store() = %v, want ErrReplaced", err)
	}
	reads(t, late, false, "second", "it has read the token of the other replica")
	if err := late.Store(t.Context(), "second", "third"); err != nil {
		t.Error(err)
	}
	reads(t, early, true, "third", "it was replaced")
}

// covers: C7 (a Secret that cannot be written is reported)
func TestForbiddenSecretIsReported(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, "first")
	i.cluster.Kubectl(t, "-n", i.namespace, "delete", "rolebinding", "kedge-agent")
	tokens := i.start(t)
	err := tokens.Store(t.Context(), "first", "second")
	if err == nil || !strings.Contains(err.Error(), "may not change Secret "+i.namespace+"/kedge-agent-token") || strings.Contains(err.Error(), "second") {
		t.Errorf("Store() = %v, want the name of the Secret and not the token", err)
	}
	reads(t, tokens, true, "first", "the mounted file exists")
	i.mount(t, "by-hand")
	reads(t, tokens, false, "by-hand", "the file is the only way to replace the token")
}

// covers: C7
func TestReadOnlyTokenFileReportsRemedies(t *testing.T) {
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
			t.Errorf("Store() = %v, want it to contain %q", err, want)
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
		t.Errorf("String() = %q", got)
	}
}
