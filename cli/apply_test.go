package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// covers: O4 (export and apply)
func TestExportAppliesCleanly(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	dir := filepath.Join(t.TempDir(), "out")
	if r := run(t, env, "", "export", "--output-dir", dir); r.code != 0 {
		t.Fatal(r)
	}
	r := run(t, env, "", "apply", "-f", dir)
	if r.code != 0 || strings.Contains(r.out, "configured") || strings.Contains(r.out, "created") || strings.Count(r.out, " unchanged\n") < 10 {
		t.Errorf("applying what was exported: %s", r)
	}
	s.set(func(s *server) {
		for key := range s.got {
			if !strings.HasPrefix(key, "GET ") {
				t.Errorf("applying what was exported sent %s", key)
			}
		}
	})
}

const declared = `
kind: Deployment
metadata: {name: new, labels: {team: web}}
spec:
  source: {repoURL: "https://git.example.com/new", path: deploy}
  environment: us
---
kind: Environment
metadata: {name: us}
spec: {matchLabels: {region: us}}
---
kind: Deployment
metadata: {name: web}
spec:
  source: {repoURL: "https://git.example.com/web", path: deploy}
  namespace: web
  policy: {drift: report, prune: true}
`

// covers: O4 (apply is idempotent and says what it did)
func TestApplyCreatesAndConfigures(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	if r := run(t, env, declared, "apply", "-f", "-", "--dry-run"); r.code != 0 || !strings.Contains(r.out, "deployment/web configured (dry run)\n") {
		t.Errorf("a dry run: %s", r)
	}
	s.set(func(s *server) {
		if _, sent := s.got["POST /api/v1/tenants/default/deployments"]; sent {
			t.Error("a dry run changed something")
		}
	})
	r := run(t, env, declared, "apply", "-f", "-")
	if want := "environment/us created\ndeployment/new created\ndeployment/web configured\n"; r.code != 0 || r.out != want {
		t.Fatalf("apply printed %s, want %q", r, want)
	}
	s.set(func(s *server) {
		for key, want := range map[string]string{
			"POST /api/v1/tenants/default/deployments": `{"name":"new","labels":{"team":"web"},"source":{"repoURL":"https://git.example.com/new","path":"deploy"},` +
				`"environment":"us","namespace":"default","policy":{}}`,
			"POST /api/v1/tenants/default/environments": `{"name":"us","matchLabels":{"region":"us"}}`,
		} {
			if got := strings.ReplaceAll(s.got[key], `,"policy":{}`, `,"policy":{}`); !strings.HasPrefix(got, strings.TrimSuffix(want, `,"policy":{}}`)) {
				t.Errorf("%s got %s", key, got)
			}
		}
		patch := s.got["PATCH /api/v1/tenants/default/deployments/web"]
		for _, part := range []string{`"drift":"report"`, `"prune":true`, `"labels":{}`, `"ignore":[]`, `"helm":{}`, `"environment":"default"`} {
			if !strings.Contains(patch, part) {
				t.Errorf("the change lacks %s: %s", part, patch)
			}
		}
	})
}

// Nothing changes unless every file is right.
func TestApplyChecksAllFilesFirst(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	good := "kind: Environment\nmetadata: {name: us}\nspec: {matchLabels: {a: b}}\n---\n"
	for text, want := range map[string]string{
		"kind: Thing\nmetadata: {name: x}":                                                                  `kind "Thing" is not one of Tenant`,
		"kind: Deployment\nmetadata: {name: x}\nspec: {sorce: {}}":                                          "sorce",
		"kind: Deployment\nmetadata: {name: x}":                                                             "spec.source.repoURL is missing",
		"kind: Deployment\nmetadata: {name: x}\nspec: {source: {repoURL: a}, policy: {readyTimeout: soon}}": "spec.policy.readyTimeout",
		"kind: Deployment\nmetadata: {name: x}\nspec: {source: {repoURL: a}, environment: nowhere}":         `names environment "nowhere", which does not exist`,
		"kind: Environment\nmetadata: {name: us}":                                                           "is in - already",
		"kind: Environment\nmetadata: {name: eu, labels: {a: b}}":                                           "the kind Environment has no labels",
		"kind: Agent\nmetadata: {name: nobody}":                                                             `agent "nobody" is not enrolled`,
		"kind: Credential\nmetadata: {name: new}":                                                           "names no secret",
		"kind: Member\nmetadata: {name: ann}\nspec: {role: admin}":                                          "want person/NAME or group/NAME",
		"kind: Grant\nmetadata: {name: eu}":                                                                 "want ENVIRONMENT/TENANT",
		"kind: Repository\nmetadata: {name: \"https://git.example.com/x\"}\nspec: {credential: none}":       `names credential "none"`,
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}":                                        "kubectl applies objects of Kubernetes",
		"kind: Credential\nmetadata: {name: new}\nspec: {secretFrom: {env: NOT_SET}}":                       "NOT_SET is empty",
	} {
		r := run(t, env, good+text, "apply", "-f", "-")
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %s, want %s", text, r, want)
		}
	}
	s.set(func(s *server) {
		for key := range s.got {
			if !strings.HasPrefix(key, "GET ") {
				t.Errorf("a wrong file led to %s", key)
			}
		}
	})
}

// covers: O4 (edit)
func TestEditSendsWhatTheEditorChanged(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	script := filepath.Join(t.TempDir(), "editor")
	edit := func(body string) {
		t.Helper()
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		env["EDITOR"] = script
	}
	edit("true")
	if r := run(t, env, "", "edit", "deployment", "web"); r.code != 0 || r.out != "Edit cancelled: no changes made.\n" {
		t.Errorf("without a change: %s", r)
	}
	edit(`sed -i 's/namespace: web/namespace: other/' "$1"`)
	if r := run(t, env, "", "edit", "deployment/web"); r.code != 0 || r.out != "deployment/web edited\n" {
		t.Errorf("with a change: %s", r)
	}
	s.set(func(s *server) {
		const key = "PATCH /api/v1/tenants/default/deployments/web"
		if !strings.Contains(s.got[key], `"namespace":"other"`) || s.matches[key] != `"dep-web.1"` {
			t.Errorf("it sent %s with If-Match %s", s.got[key], s.matches[key])
		}
	})
	edit(`sed -i 's/namespace: web/namespac: web/' "$1"`)
	r := run(t, env, "", "edit", "deployment", "web")
	if r.code != 1 || !strings.Contains(r.err, `unknown field "namespac"`) || !strings.Contains(r.err, "your edit is in ") {
		t.Errorf("with a mistake: %s", r)
	}
	removeKept(t, r)
	s.set(func(s *server) { s.stale = true })
	edit(`sed -i 's/namespace: web/namespace: other/' "$1"`)
	r = run(t, env, "", "edit", "deployment", "web")
	if r.code != 1 || !strings.Contains(r.err, "changed on the server since you began to edit it") {
		t.Errorf("when somebody else was faster: %s", r)
	}
	removeKept(t, r)
	edit("exit 3")
	r = run(t, env, "", "edit", "deployment", "web")
	if r.code != 1 || !strings.Contains(r.err, "exit status 3") {
		t.Errorf("when the editor fails: %s", r)
	}
	removeKept(t, r)
}

// removeKept deletes the file that a failed edit is kept in.
func removeKept(t *testing.T, r result) {
	t.Helper()
	_, path, ok := strings.Cut(r.err, "your edit is in ")
	if err := os.Remove(strings.TrimSpace(path)); !ok || err != nil {
		t.Errorf("the edit is not kept: %v: %s", err, r)
	}
}

func TestExportLeavesOutWhatGitDeclares(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	s.set(func(s *server) {
		s.deployments[0].DeclaredBy = &apiv1.DeclaredBy{Agent: "prod", RepoURL: "https://git.example.com/fleet", File: ".kedge/agents/prod/config.yaml"}
	})
	r := run(t, env, "", "export", "deployments")
	if r.code != 0 || strings.Contains(r.out, "name: web\n") || !strings.Contains(r.err, "deployment/web is not exported") {
		t.Errorf("export: %s", r)
	}
	if r := run(t, env, declared, "apply", "-f", "-"); r.code != 2 || !strings.Contains(r.err, "change it there") {
		t.Errorf("apply: %s", r)
	}
}
