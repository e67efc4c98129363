package ownerpolicy_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func parse(t *testing.T, text string) ownerpolicy.Policy {
	t.Helper()
	p, err := ownerpolicy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// covers: A1 (kind filters in their order, with *)
func TestRefusal(t *testing.T) {
	t.Parallel()
	config := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "x"}
	event := fleet.ObjectRef{Group: "events.k8s.io", Version: "v1", Kind: "Event", Namespace: "team-a", Name: "x"}
	role := fleet.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "x"}
	space := fleet.ObjectRef{Version: "v1", Kind: "Namespace", Name: "kube-system"}
	cases := []struct {
		reason, policy string
		ref            fleet.ObjectRef
		want           string // part of the refusal; "" allows
	}{
		{"empty policy", ``, config, ""},
		{"built-in exclusions belong to the filter of the agent", ``, event, ""},
		{"a kind of every group", `kinds: {exclude: ["Event.*"]}`, event, "kind Event.events.k8s.io"},
		{"a kind is excluded", `kinds: {exclude: [ConfigMap]}`, config, "kind ConfigMap"},
		{"inclusion comes first", `kinds: {include: [ConfigMap], exclude: ["*"]}`, config, ""},
		{"everything else is excluded", `kinds: {include: [Secret], exclude: ["*"]}`, config, "kind ConfigMap"},
		{"a group is excluded", `kinds: {exclude: ["*.rbac.authorization.k8s.io"]}`, role, "ClusterRole.rbac"},
		{"cluster-scoped is excluded", `clusterScoped: false`, role, "cluster-scoped"},
		{"namespaced is not", `clusterScoped: false`, config, ""},
		{"a namespace is allowed", `namespaces: {allow: ["team-*"]}`, config, ""},
		{"another is not", `namespaces: {allow: ["prod-*"]}`, config, "namespace team-a"},
		{"one is denied", `namespaces: {allow: ["team-*"], deny: [team-a]}`, config, "namespace team-a"},
		{"the Namespace itself too", `namespaces: {deny: ["kube-*"]}`, space, "namespace kube-system"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			got := parse(t, c.policy).Refusal(c.ref, c.ref.Namespace != "")
			if got.IsZero() != (c.want == "") || !got.IsZero() && got.Reason != fleet.ReasonOwnerPolicy || !strings.Contains(got.Message, c.want) {
				t.Errorf("refusal is %+v, want %q in it", got, c.want)
			}
		})
	}
}

func TestServiceAccounts(t *testing.T) {
	t.Parallel()
	p := parse(t, `serviceAccounts: {require: true, allow: ["team-*/deployer"]}`)
	for account, refused := range map[string]bool{"": true, "team-a/deployer": false, "team-a/admin": true, "kube-system/deployer": true} {
		if got := p.RefuseAs(account); got.IsZero() == refused {
			t.Errorf("as %q: refusal is %+v, want one: %v", account, got, refused)
		}
	}
}

func TestParseRefusesUnknownFieldsAndPatterns(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`namespace: {deny: [x]}`, `kinds: {exclude: [configmap]}`, `kinds: {exclude: "Secret"}`, `deletions: maybe`,
		`namespaces: {allow: ["[a"]}`, strings.Repeat("#", 200<<10),
	} {
		if _, err := ownerpolicy.Parse([]byte(text)); err == nil {
			t.Errorf("%.40q is accepted", text)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for reason, tt := range map[string]struct {
		text string
		ok   bool
	}{
		"no restrictions": {"{}", true},
		"only a comment":  {"# later", true},
		"an empty file":   {"", false},
		"a blank line":    {"\n", false},
	} {
		file := filepath.Join(dir, reason)
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ownerpolicy.Load(file); (err == nil) != tt.ok {
			t.Errorf("%s: Load() = %v", reason, err)
		}
	}
	if _, err := ownerpolicy.Load(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a file that does not exist: Load() = %v", err)
	}
}

func TestWatchFollowsTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := make(chan ownerpolicy.Policy, 8)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ownerpolicy.Watch(ctx, file, ownerpolicy.Policy{}, func(p ownerpolicy.Policy) { changes <- p }, slog.New(slog.DiscardHandler))
	}()
	next := func() (p ownerpolicy.Policy) {
		t.Helper()
		select {
		case p = <-changes:
		case <-time.After(20 * time.Second):
			t.Fatal("no change was reported")
		}
		return p
	}
	write := func(text string) {
		next := file + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write(`deletions: false`)
	if p := next(); p.RefuseDeletion().IsZero() {
		t.Error("deletions are allowed, want the restriction of the file")
	}
	write(`deletions: [`) // changes nothing
	write("\n")           // nor does an empty file
	write(`clusterScoped: false`)
	if p := next(); !p.RefuseDeletion().IsZero() || p.ClusterScoped == nil {
		t.Errorf("policy is %+v, want the newest", p)
	}
	write(`{}`)
	if p := next(); p.ClusterScoped != nil {
		t.Errorf("policy is %+v, want none", p)
	}
	cancel()
	<-done
}

// errorsOnly is a log handler that forwards errors.
type errorsOnly chan string

func (e errorsOnly) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}
func (e errorsOnly) WithAttrs([]slog.Attr) slog.Handler { return e }
func (e errorsOnly) WithGroup(string) slog.Handler      { return e }
func (e errorsOnly) Handle(_ context.Context, r slog.Record) error {
	e <- r.Message
	return nil
}

func TestPolicyStaysInForceWhenItsFileDisappears(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	last := parse(t, `deletions: false`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, problems, done := make(chan ownerpolicy.Policy, 8), make(errorsOnly, 8), make(chan struct{})
	go func() {
		defer close(done)
		ownerpolicy.Watch(ctx, file, last, func(p ownerpolicy.Policy) { changes <- p }, slog.New(problems))
	}()
	select {
	case <-problems:
	case p := <-changes:
		t.Fatalf("policy is %+v without the file, want the last policy and an error", p)
	}
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := <-changes; !p.RefuseDeletion().IsZero() {
		t.Errorf("policy is %+v, want the content of the file", p)
	}
	cancel()
	<-done
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`kinds: {include: ["*"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ownerpolicy.Parse(text)
		if err == nil {
			p.Refusal(fleet.ObjectRef{Kind: "ConfigMap", Version: "v1", Name: "x", Namespace: "y"}, true)
			p.RefuseAs("a/b")
		}
	})
}
