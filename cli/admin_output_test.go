package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// adminCommands are the command lines of administration, by the names of their golden files.
var adminCommands = map[string]string{
	"tenant-create":            "tenant create shop --max-agents 3",
	"tenant-quota":             "tenant quota shop --max-agents 5",
	"tenant-get":               "tenant get",
	"tenant-get-name":          "tenant get -o name",
	"tenant-get-one":           "tenant get shop -o yaml",
	"tenant-suspend":           "tenant suspend shop --reason december",
	"tenant-resume":            "tenant resume shop",
	"tenant-delete":            "tenant delete shop",
	"member-set":               "tenant member set group web deployer",
	"member-remove":            "tenant member remove group web",
	"member-get":               "tenant member get",
	"person-get":               "person get",
	"person-get-one":           "get people ada@example.com -o yaml",
	"person-logout":            "person logout ada@example.com",
	"person-forget":            "person forget bob@example.com",
	"token-create":             "token create ci --role deployer --expires-in 90d",
	"token-create-fleet":       "token create ops --role fleet-admin --fleet",
	"token-get":                "token get",
	"token-get-fleet":          "token get --fleet -o json",
	"token-revoke":             "token revoke tok-1",
	"token-no-role":            "token create ci",
	"agent-label":              "agent label prod region=eu tier-",
	"agent-label-wrong":        "agent label prod region",
	"agent-rotate":             "agent rotate-token prod",
	"agent-rotate-wait":        "agent rotate-token prod --wait",
	"agent-token-create":       "agent token create prod",
	"agent-token-get":          "agent token get prod",
	"agent-token-get-name":     "agent token get prod -o name",
	"agent-token-revoke":       "agent token revoke prod tok-4",
	"env-set":                  "env set eu --agents prod",
	"env-get-one":              "env get eu",
	"env-suspend":              "env suspend eu --reason december",
	"env-resume":               "env resume eu",
	"env-delete":               "env delete eu",
	"grant-create":             "env grant create eu shop --namespaces shop --kinds ConfigMap,Deployment.apps",
	"grant-get":                "env grant get",
	"grant-delete":             "env grant delete grt-1",
	"credential-get":           "credential get",
	"credential-get-json":      "credential get git -o json",
	"credential-delete":        "credential delete git",
	"credential-no-file":       "credential create git",
	"credential-missing-file":  "credential create git --secret-file does-not-exist",
	"repo-add":                 "repo add https://git.example.com/web --credential git",
	"repo-set":                 "repo set https://git.example.com/web --credential git",
	"repo-set-none":            "repo set https://git.example.com/web --credential=",
	"repo-set-policy":          "repo set https://git.example.com/web --submodules --signers-file=",
	"repo-set-nothing":         "repo set https://git.example.com/web",
	"repo-refresh":             "repo refresh https://git.example.com/web",
	"repo-webhook":             "repo webhook rep-1",
	"repo-delete":              "repo delete https://git.example.com/web",
	"repo-unknown":             "repo refresh https://git.example.com/unknown",
	"deploy-set":               "deploy set web --revision v1.4",
	"deploy-suspend":           "deploy suspend web --reason december",
	"deploy-resume":            "deploy resume web",
	"deploy-release":           "deploy release web",
	"deploy-dismiss":           "deploy dismiss web tgt-1",
	"deploy-dismiss-agent":     "deploy dismiss web --agent prod-1",
	"deploy-dismiss-what":      "deploy dismiss web",
	"deploy-detached":          "deploy detached",
	"agent-dismiss":            "agent dismiss prod-1",
	"agent-dismiss-nobody":     "agent dismiss nobody",
	"deploy-confirm-unknown":   "deploy confirm-prune web nothing",
	"deploy-prunes":            "deploy prunes web",
	"deploy-prunes-name":       "deploy prunes web -o name --agent prod",
	"deploy-confirm":           "deploy confirm-prune web --all --count 2 --agent prod",
	"deploy-confirm-none":      "deploy confirm-prune web",
	"deploy-confirm-uncounted": "deploy confirm-prune web --all",
	"deploy-confirm-both":      "deploy confirm-prune web Secret/x --all --count 2",
	"deploy-history":           "deploy history web",
	"deploy-history-yaml":      "deploy history web -o yaml",
	"sync":                     "sync web",
	"sync-wait":                "sync web --wait",
	"sync-wait-failed":         "sync failing --revision nowhere --wait",
	"sync-wait-timeout":        "sync away --wait --timeout 200ms",
	"sync-pinned":              "sync broken",
	"rollback":                 "rollback web",
	"rollback-wait":            "rollback web --revision 2 --wait",
	"rollback-nothing-older":   "rollback nowhere",
	"rollback-both":            "rollback web --revision 2 --commit beef",
	"run-get":                  "run get web",
	"run-get-name":             "run get web -o name",
	"run-terminate":            "run terminate run-2",
	"run-terminate-unknown":    "run terminate nope",
	"operation-get":            "operation get",
	"operation-get-one":        "operation get op-1 -o yaml",
	"fleet-get":                "fleet get",
	"fleet-freeze":             "fleet freeze --reason december",
	"fleet-unfreeze":           "fleet unfreeze",
	"audit":                    "audit --actor ann",
	"audit-one":                "audit --limit 1",
	"audit-fleet":              "audit --fleet -o json",
	"context-get":              "context get",
	"context-unknown":          "context use nope",
	"mistake-group":            "env grnat get",
	"mistake-history-argument": "deploy history",
}

// covers: O4 (in part), T1 (the same by the command line)
func TestAdminOutputMatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	for name, args := range adminCommands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, env, "", strings.Fields(args)...)
			text := strings.ReplaceAll(got.String(), strings.TrimPrefix(url, "http://"), "HOST")
			testkit.Golden(t, "admin/"+name+".golden", "$ kedge "+args+"\n"+text)
		})
	}
}

func TestAdminRequestsMatchTheCommandLine(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const tenant = "/api/v1/tenants/default/"
	token, values := writeFile(t, "chosen-token\n"), writeFile(t, "a: {b: 1}\nlist: [x]\n")
	cases := map[string]struct{ key, want string }{
		"tenant quota shop --max-agents 5 --max-targets 0":      {"PATCH /api/v1/tenants/shop", `{"quota":{"agents":5}}`},
		"tenant suspend shop --reason december":                 {"POST /api/v1/tenants/shop/suspend", `{"reason":"december"}`},
		"tenant member set group web deployer":                  {"PUT " + tenant + "members/group/web", `{"role":"deployer"}`},
		"token create ci --role viewer --expires-in 12h":        {"POST " + tenant + "tokens", `{"name":"ci","role":"viewer","expiresIn":"12h"}`},
		"agent label prod region=eu":                            {"PATCH " + tenant + "agents/prod", `{"labels":{"region":"eu"}}`},
		"agent token create prod --chosen-token-file " + token:  {"POST " + tenant + "agents/prod/tokens", `{"token":"chosen-token"}`},
		"agent enroll new --chosen-token-file " + token:         {"POST " + tenant + "agents", `{"name":"new","token":"chosen-token"}`},
		"env set eu --agents a,b":                               {"PATCH " + tenant + "environments/eu", `{"agents":["a","b"]}`},
		"env set us --match-labels=":                            {"PATCH " + tenant + "environments/us", `{"matchLabels":{}}`},
		"env grant create eu shop --namespaces a --kinds B":     {"POST " + tenant + "grants", `{"environment":"eu","grantee":"shop","limits":{"namespaces":["a"],"kinds":["B"]}}`},
		"repo set rep-1 --submodules":                           {"PATCH " + tenant + "repositories/rep-1", `{"submodules":true}`},
		"repo set rep-1 --submodules=false --signers-file=":     {"PATCH " + tenant + "repositories/rep-1", `{"submodules":false,"signers":""}`},
		"repo set rep-1 --credential=":                          {"PATCH " + tenant + "repositories/rep-1", `{"credential":""}`},
		"deploy set web --path p --manual --prune=false":        {"PATCH " + tenant + "deployments/web", `{"source":{"path":"p"},"policy":{"prune":false,"manual":true}}`},
		"deploy set failing --labels= --glob a --glob b":        {"PATCH " + tenant + "deployments/failing", `{"labels":{},"source":{"globs":["a","b"]}}`},
		"sync web --revision v1":                                {"POST " + tenant + "deployments/web/runs", `{"revision":"v1"}`},
		"deploy confirm-prune web --all --count 2 --agent prod": {"POST " + tenant + "deployments/web/confirm-prune", `{"all":true,"count":2,"agent":"prod"}`},
		"deploy confirm-prune failing Namespace/x B":            {"POST " + tenant + "deployments/failing/confirm-prune", `{"objects":["Namespace/x","B"]}`},
		"env grant create us shop --service-account shop/bot":   {"POST " + tenant + "grants", `{"environment":"us","grantee":"shop","serviceAccount":"shop/bot"}`},
		"deploy set nowhere --prune-limit-percent 5 --ignore= --prune-timeout 0 --drift ignore": {
			"PATCH " + tenant + "deployments/nowhere", `{"policy":{"drift":"ignore","ignore":[],"pruneTimeout":"0s","pruneLimit":{"objects":3,"percent":5}}}`,
		},
		"deploy create y --repo https://x/y --no-prune --force --replace --preview-only --drift report --ignore *:/a --ignore *:/b " +
			"--service-account a/b --propagation Orphan --prune-timeout 90s --ready-timeout 5m --prune-limit-objects 4": {
			"POST " + tenant + "deployments", `{"name":"y","source":{"repoURL":"https://x/y"},"policy":{"prune":false,"force":true,"replace":true,"previewOnly":true,` +
				`"drift":"report","ignore":["*:/a","*:/b"],"serviceAccount":"a/b","propagation":"Orphan","pruneTimeout":"1m30s","readyTimeout":"5m0s","pruneLimit":{"objects":4,"percent":30}}}`,
		},
		"deploy create z --repo https://x/y --kind helm --helm-release web --values-file /env/eu.yaml --values-file b.yaml --values " + values +
			" --set a.c=true --set a.b=1.10,new.x= --set-string t=012 --set-file f=" + token + " --set-json j={\"k\":[1]} --skip-crds": {
			"POST " + tenant + "deployments", `{"name":"z","source":{"repoURL":"https://x/y","kind":"helm","helm":{"releaseName":"web","valuesFiles":["/env/eu.yaml","b.yaml"],` +
				`"values":{"a":{"b":1},"list":["x"]},"skipCRDs":true,"set":[{"type":"json","expression":"j={\"k\":[1]}"},{"type":"value","expression":"a.c=true"},` +
				`{"type":"value","expression":"a.b=1.10,new.x="},{"type":"string","expression":"t=012"},{"type":"json","expression":"f=\"chosen-token\\n\""}]}}}`,
		},
		"deploy set away --kind= --set a.b=2 --values-file=": {
			"PATCH " + tenant + "deployments/away", `{"source":{"kind":"","helm":{"releaseName":"r","values":{"a":{"b":"1","c":2}},"set":[{"type":"value","expression":"a.b=2"}]}}}`,
		},
		"rollback web":                   {"POST " + tenant + "deployments/web/rollback", `{"revision":2}`},
		"rollback away --commit beef012": {"POST " + tenant + "deployments/away/rollback", `{"commit":"beef012"}`},
		"fleet freeze --reason december": {"POST /api/v1/fleet/freeze", `{"reason":"december"}`},
		"deploy create x --repo https://x/y --manual --labels a=b --variables v=1 --prune-on-detach": {
			"POST " + tenant + "deployments",
			`{"name":"x","labels":{"a":"b"},"source":{"repoURL":"https://x/y","variables":{"v":"1"}},"policy":{"manual":true,"pruneOnDetach":true}}`,
		},
	}
	for args, c := range cases {
		if r := run(t, env, "", strings.Fields(args)...); r.code != 0 {
			t.Errorf("kedge %s: %s", args, r)
		}
		s.set(func(s *server) {
			if got := s.got[c.key]; got != c.want {
				t.Errorf("kedge %s sent\n%s, want\n%s", args, got, c.want)
			}
		})
	}
}

// A file that an editor or echo has written ends with a line break, which no password does.
func TestSecretsAreReadAsTheirKindWantsIt(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const path = "/api/v1/tenants/default/credentials"
	secret, hosts := writeFile(t, "line\n"), writeFile(t, "host ssh-ed25519 AAAA\n")
	cases := map[string]struct{ key, want string }{
		"credential create a --username robot --secret-file " + secret: {"POST " + path, `{"name":"a","kind":"https","username":"robot","secret":"line"}`},
		"credential create b --kind ssh --secret-file " + secret + " --known-hosts-file " + hosts: {
			"POST " + path, `{"name":"b","kind":"ssh","secret":"line\n","knownHosts":"host ssh-ed25519 AAAA\n"}`,
		},
		"credential set git --secret-file " + secret: {"PATCH " + path + "/git", `{"secret":"line"}`},
		"credential set key --secret-file " + secret: {"PATCH " + path + "/key", `{"secret":"line\n"}`},
		"credential set git --username=":             {"PATCH " + path + "/git", `{"username":""}`},
	}
	for args, c := range cases {
		if r := run(t, env, "", strings.Fields(args)...); r.code != 0 || strings.Contains(r.out+r.err, "line") {
			t.Errorf("kedge %s: %s", args, r)
		}
		s.set(func(s *server) {
			if got := s.got[c.key]; got != c.want {
				t.Errorf("kedge %s sent\n%s, want\n%s", args, got, c.want)
			}
		})
	}
}

func TestAPITokenIsWrittenForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	path := filepath.Join(t.TempDir(), "token")
	if r := run(t, env, "", "token", "create", "ci", "--role", "viewer", "--to-file", path); r.code != 0 || strings.Contains(r.out+r.err, "kedge-api-new") {
		t.Fatal(r)
	}
	info, err := os.Stat(path)
	if text, readErr := os.ReadFile(path); err != nil || readErr != nil || info.Mode().Perm() != 0o600 || string(text) != "kedge-api-new\n" {
		t.Errorf("the file is %v and holds %q, %v %v", info.Mode(), text, err, readErr)
	}
	if r := run(t, env, "", "token", "create", "ci", "--role", "viewer", "--to-file", path); r.code != 1 || !strings.Contains(r.err, "does not exist yet") {
		t.Errorf("a file that exists: %s", r)
	}
}

// covers: A17, D8
func TestStatusSaysWhatHoldsADeploymentAndWhatWasLetGo(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	let := target("gone", "Detached", "Current")
	let.DetachedAt, let.DetachedWhy = born, `agent "gone" left environment "eu"`
	held := deployment("web", "OutOfSync", "Current", target("prod", "OutOfSync", "Current"), let)
	held.Held = &apiv1.Cause{Reason: "Pinned", Message: "the deployment is pinned to revision 2 (commit beef01234567) by ann since 2026-11-15T12:00:00Z"}
	held.Message = "prod: a newer revision is available"
	held.Pin = &apiv1.Pin{Revision: 2, Commit: "beef0123456789", At: born, By: "ann"}
	s.set(func(s *server) { s.deployments = []apiv1.Deployment{held} })
	for name, args := range map[string]string{"status-held": "status web", "get-held": "get deployments", "deploy-history-pinned": "deploy history web"} {
		got := run(t, env, "", strings.Fields(args)...)
		testkit.Golden(t, "admin/"+name+".golden", "$ kedge "+args+"\n"+got.String())
	}
	// A target that was let go is not waited for.
	arrived := deployment("web", "Synced", "Current", target("prod", "Synced", "Current"), let)
	s.set(func(s *server) { s.deployments = []apiv1.Deployment{arrived} })
	if r := run(t, env, "", "status", "web", "--watch", "--timeout", "20s"); r.code != 0 || !strings.Contains(r.out, "healthy on 1 target") {
		t.Errorf("with a target that was let go: %s", r)
	}
}

// covers: O4 (completion)
func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	cases := []struct {
		args string
		want string // the candidates, separated by spaces
	}{
		{"agent delete", "lost new prod"},
		{"agent token get", "lost new prod"},
		{"env set", "default eu"},
		{"env grant delete", "grt-1 grt-2"},
		{"deploy release", "web failing broken unreadable away nowhere edited"},
		{"sync", "web failing broken unreadable away nowhere edited"},
		{"rollback", "web failing broken unreadable away nowhere edited"},
		{"run get", "web failing broken unreadable away nowhere edited"},
		{"run terminate", ""},
		{"status", "web failing broken unreadable away nowhere edited"},
		{"credential delete", "git"},
		{"tenant suspend", "default shop"},
		{"tenant member set", "person group"},
		{"token revoke", "tok-1 tok-2 tok-3"},
		{"repo refresh", "https://git.example.com/web https://git.example.com/nope https://git.example.com/new"},
		{"operation get", "op-2 op-1"},
		{"tenant get -o", "table wide json yaml name jsonpath="},
		{"token create x --role", "viewer deployer admin fleet-admin"},
	}
	for _, c := range cases {
		got := run(t, env, "", append(append([]string{"__complete"}, strings.Fields(c.args)...), "")...)
		var names []string
		for _, line := range strings.Split(got.out, "\n") {
			if line != "" && !strings.HasPrefix(line, ":") {
				names = append(names, line)
			}
		}
		if got.code != 0 || strings.Join(names, " ") != c.want {
			t.Errorf("kedge %s <TAB> offers %q, want %q (%s)", c.args, names, c.want, got.err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := run(t, env, "", "completion", shell); r.code != 0 || !strings.Contains(r.out, "kedge") {
			t.Errorf("completion for %s: %s", shell, r)
		}
	}
}
