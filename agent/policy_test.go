package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
)

// deletionAllowed is an engine that receives whether it may delete.
type deletionAllowed chan bool

func (b deletionAllowed) Restrict(p ownerpolicy.Policy) { b <- p.RefuseDeletion().IsZero() }

// covers: A1 (the policy of the cluster owner applies to every engine)
func TestPolicyAppliesToEveryEngine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
	}
	write("deletions: false")
	r, err := loadPolicy(Config{PolicyFile: file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	first, second := make(deletionAllowed, 8), make(deletionAllowed, 8)
	r.restrict(first)
	if <-first {
		t.Error("an engine starts without the policy")
	}
	write("deletions: true")
	if !<-first {
		t.Error("a change of the file does not reach the engine")
	}
	r.restrict(second)
	if !<-second {
		t.Error("an engine starts with an outdated policy")
	}
	write("deletions: false")
	if <-second || len(first) != 0 {
		t.Error("a change of the file does not reach the current engine, and only that")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() = %v", err)
	}
}
