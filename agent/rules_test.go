package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
)

// bound is an engine that tells whether it may delete.
type bound chan bool

func (b bound) Restrict(p ownerpolicy.Policy) { b <- p.RefuseDeletion() == "" }

// covers: A1 (every engine heeds the owner of the cluster)
func TestEveryEngineHeedsThePolicyAsItIsNow(t *testing.T) {
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
	r, err := loadRules(Config{PolicyFile: file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	first, second := make(bound, 8), make(bound, 8)
	r.govern(first)
	if <-first {
		t.Error("an engine begins without the policy that was there before it")
	}
	write("deletions: true")
	if !<-first {
		t.Error("a change of the file does not reach the engine")
	}
	r.govern(second)
	if !<-second {
		t.Error("an engine begins with a policy that is not in force any more")
	}
	write("deletions: false")
	if <-second || len(first) != 0 {
		t.Error("a change of the file does not reach the engine that was made last, and only that")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() = %v", err)
	}
}
