package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEnrollWritesTheTokenForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	path := filepath.Join(t.TempDir(), "token")
	if r := run(t, env, "", "agent", "enroll", "prod", "--agent-token-file", path); r.code != 0 || !strings.Contains(r.out, "kind: Namespace") {
		t.Fatal(r)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "kedge-agent-new\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want it readable by its owner alone", info.Mode(), err)
	}

	s.set(func(s *server) { clear(s.got) })
	if r := run(t, env, "", "agent", "enroll", "prod", "--agent-token-file", path); r.code != 1 || !strings.Contains(r.err, "does not exist yet") {
		t.Errorf("a file that exists: %s", r)
	}
	s.set(func(s *server) {
		if len(s.got) > 0 {
			t.Errorf("an agent was enrolled whose token could not be kept: %v", s.got)
		}
	})
	path = filepath.Join(t.TempDir(), "refused")
	if r := run(t, env, "", "agent", "enroll", "lost", "--agent-token-file", path); r.code != 1 {
		t.Error(r)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refused enrollment left a file")
	}
}

func TestWrongTokenIsToldInTheWordsOfTheCLI(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, "")
	env["KEDGE_TOKEN"] = "wrong"
	r := run(t, env, "", "get", "agents", "--server", url)
	if r.code != 1 || strings.Contains(r.err, "header") || !strings.Contains(r.err, "wrong or revoked\nNext:  kedge login URL") {
		t.Error(r)
	}
}

// A KUBECONFIG is often set for other reasons than the demo.
func TestDemoAsksBeforeItUsesACluster(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	kubectl := "#!/bin/sh\nprintf 'prod\\nhttps://prod.example.com:6443'\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBECONFIG": writeFile(t, "{}")}
	r := run(t, env, "yes\n", "demo", "--kube-bin", bin, "--bin", bin)
	for _, want := range []string{`context "prod" at https://prod.example.com:6443`, "ARGS=--yes", "KUBECONFIG= make demo"} {
		if r.code != 1 || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("without %q: %s", want, r)
		}
	}
}
