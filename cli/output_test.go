package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// The commands whose output is compared, by the name of their golden file.
var (
	// getOutput has commands that list things.
	getOutput = map[string]string{
		"get-agents":           "get agents",
		"get-agents-name":      "get agents -o name",
		"get-deployments":      "get deployments",
		"get-deployments-json": "get deployments -o json",
		"deploy-get":           "deploy get failing -o yaml",
		"get-environments":     "env get",
		"get-access-rules":     "get access-rules",
		"describe-access-rule": "describe access-rule oncall",
		"get-events":           "get events --deployment failing",
		"get-repositories":     "get repositories",
		"get-repositories-all": "get repositories -o yaml",
		"doctor":               "doctor",
		"version":              "version",
		"get-agents-wide":      "get agents -o wide",
		"get-deployments-wide": "get deployments -o wide --no-headers",
		"get-deployments-path": "get -o jsonpath={.items[*].name} dep",
		"get-some":             "get deployments web deployment/away nothing",
		"get-type-name":        "get -o name deployment/web",
		"get-all-tenants":      "ls agents -A",
		"get-all-tenants-json": "list env -A -o json",
		"version-flag":         "--version",
		"events":               "events --deployment failing -o wide",
	}
	// statusOutput has commands that show or await the state of deployments.
	statusOutput = map[string]string{
		"status":               "status web",
		"status-failing":       "status failing",
		"status-broken":        "status broken",
		"status-stale":         "status away",
		"status-nowhere":       "status nowhere",
		"status-unknown":       "status nothing",
		"status-unreadable":    "status unreadable",
		"status-edited":        "status edited",
		"status-watch-unread":  "status unreadable --watch --fail-after 0s --timeout 20s",
		"status-name":          "status web -o name",
		"status-watch-json":    "status web --watch -o json",
		"status-commit":        "status web --commit c0ffee",
		"status-watch":         "status web --watch",
		"status-watch-failing": "status failing --watch --fail-after 0s",
		"status-several":       "status web away",
		"status-wide":          "status failing -o name",
		"wait-healthy":         "wait web --for=healthy",
		"wait-kubectl":         "wait deployment/web --for=condition=Synced",
		"wait-deleted":         "wait nothing --for=deleted",
		"wait-unknown":         "wait nothing --for=synced",
		"wait-no-condition":    "wait web --for=happy",
		"wait-nothing":         "wait --for=synced",
	}
	// changeOutput has commands that change something.
	changeOutput = map[string]string{
		"enroll":               "agent enroll prod --namespaces dude",
		"enroll-near":          "agent enroll near",
		"create-warned":        "deploy create web --repo https://away/y",
		"create-unchecked":     "deploy create web --repo https://away/y --no-check",
		"enroll-no-image":      "agent enroll bare",
		"enroll-outside":       "agent enroll bare --without-deployment",
		"enroll-two-ways":      "agent enroll bare --without-deployment --image i",
		"enroll-again":         "agent enroll lost",
		"agent-delete":         "agent delete prod",
		"agent-delete-unknown": "agent delete x",
		"manifest":             "agent manifest prod --image my/agent:v2",
		"deploy-create":        "deploy create web --repo https://git.example.com/web",
		"deploy-create-wait":   "deploy create web --repo https://git.example.com/web --wait",
		"deploy-delete":        "deploy delete web --yes",
		"deploy-delete-keep":   "deploy delete web --keep-objects --yes",
		"deploy-delete-script": "deploy delete web",
		"env-create":           "env create eu --agents prod --match-labels region=eu",
		"apply-no-file":        "apply -f does-not-exist",
		"edit-no-name":         "edit deployment",
		"edit-unknown":         "edit deployment nothing",
	}
	// describeOutput has commands that show one thing in detail.
	describeOutput = map[string]string{
		"describe-deployment": "describe deployment failing",
		"describe-edited":     "describe dep edited",
		"describe-several":    "describe agent/prod deployment/nothing env/eu",
		"describe-repository": "describe repo https://git.example.com/nope",
		"describe-others":     "describe tenant/shop cred/git op/op-1",
		"describe-no-type":    "describe web",
		"describe-no-name":    "describe agent",
		"tree":                "tree away failing",
		"tree-agent":          "tree away --agent lost --no-headers",
		"tree-no-agent":       "tree away --agent nobody",
		"history":             "history web",
		"export":              "export",
		"export-one":          "export dep away",
		"export-unknown":      "export deployment nothing",
		"export-no-type":      "export things",
	}
	// mistakeOutput has command lines with mistakes.
	mistakeOutput = map[string]string{
		"mistake-command":      "gett agents",
		"mistake-subcommand":   "get agnets",
		"mistake-flag":         "get deployments --healt Failed",
		"mistake-format":       "get agents -o xml",
		"mistake-jsonpath":     "get agents -o jsonpath={.a",
		"mistake-all-tenants":  "get agents prod -A",
		"mistake-missing-flag": "deploy create web",
		"mistake-argument":     "status",
		"mistake-arguments":    "rollback a b",
		"mistake-no-argument":  "get events x",
		"mistake-clusters":     "demo --clusters 0",
		"mistake-token-file":   "get agents --token-file does-not-exist",
		"mistake-context":      "get agents --context nope",
	}
)

// covers: O4 (in part), C6 and C10 (replicas, versions, last seen), D7 (stale with its age everywhere)
func TestOutputMatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	for _, group := range []map[string]string{getOutput, statusOutput, changeOutput, describeOutput, mistakeOutput} {
		for name, args := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := run(t, env, "", strings.Fields(args)...)
				testkit.Golden(t, name+".golden", "$ kedge "+args+"\n"+got.String())
			})
		}
	}
}

// covers: D7
func TestNothingOfALostAgentReadsHealthy(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	for _, args := range []string{"get agents", "get deployments", "status away"} {
		got := run(t, env, "", strings.Fields(args)...)
		found := false
		for _, line := range strings.Split(got.out, "\n") {
			if !strings.HasPrefix(line, "lost") && !strings.HasPrefix(line, "away") {
				continue
			}
			found = found || strings.Contains(line, "Stale (")
			if strings.Contains(line, "Current") || strings.Contains(line, "Connected") {
				t.Errorf("kedge %s: %q reads as if it were known", args, line)
			}
		}
		if !found {
			t.Errorf("kedge %s does not say since when:\n%s", args, got.out)
		}
	}
}

func TestRequestsMatchTheCommandLine(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	cases := map[string]struct{ key, want string }{
		"deploy create web --repo https://x/y --path p --revision v1 --glob a --glob b --env eu --namespace n --no-prune --adopt --allow-empty": {
			"POST /api/v1/tenants/default/deployments",
			`{"name":"web","source":{"repoURL":"https://x/y","path":"p","revision":"v1","globs":["a","b"]},"environment":"eu","namespace":"n",` +
				`"policy":{"prune":false,"adopt":true,"allowEmpty":true}}`,
		},
		"agent enroll prod --labels a=b,c=d --namespaces x,y --image i --server-address grpcs://h:1": {
			"POST /api/v1/tenants/default/agents",
			`{"name":"prod","labels":{"a":"b","c":"d"},"namespaces":["x","y"],"image":"i","serverAddress":"grpcs://h:1"}`,
		},
		"env create eu --agents a,b --match-labels r=eu": {
			"POST /api/v1/tenants/default/environments", `{"name":"eu","agents":["a","b"],"matchLabels":{"r":"eu"}}`,
		},
	}
	for args, c := range cases {
		if r := run(t, env, "", strings.Fields(args)...); r.code != 0 {
			t.Error(r)
		}
		s.set(func(s *server) {
			if got := s.got[c.key]; got != c.want {
				t.Errorf("kedge %s sent\n%s, want\n%s", args, got, c.want)
			}
		})
	}
}

func TestLoginIsCheckedBeforeItIsStored(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, "")
	path := filepath.Join(env["XDG_CONFIG_HOME"], "kedge", "config.yaml")
	cases := []struct {
		reason, stdin string
		args          []string
		says          string
	}{
		{"a wrong token", "wrong", []string{"login", url}, "kedge login URL"},
		{"no token", "", []string{"login", url}, "--token-file"},
		{"not a server", token, []string{"login", "nonsense"}, "https://HOST"},
		{"nobody there", token, []string{"login", "http://127.0.0.1:1"}, "can be reached"},
		{"a CA file without a certificate", token, []string{"login", url, "--ca-file", writeFile(t, "x")}, "PEM"},
		{"not logged in", "", []string{"get", "agents"}, "kedge login URL"},
	}
	for _, c := range cases {
		if r := run(t, env, c.stdin, c.args...); r.code != 1 || !strings.Contains(r.err, c.says) || strings.Contains(r.err, token) {
			t.Errorf("%s: %s", c.reason, r)
		}
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s: a login was stored", c.reason)
		}
	}
	if r := run(t, env, "", "login", url, "--token-file", writeFile(t, token+"\n")); r.code != 0 || !strings.Contains(r.out, "as admin (fleet-admin)") {
		t.Fatal(r)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the login is stored as %v, %v; want it readable by its owner alone", info.Mode(), err)
	}
	if r := run(t, env, "", "get", "agents", "-o", "name"); r.code != 0 || r.out != "agent/lost\nagent/new\nagent/prod\n" {
		t.Errorf("after the login: %s", r)
	}
}

// A token must never travel to a server that it was not stored for.
func TestTokenOfALoginStaysWithItsServer(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	other, otherURL := newServer(t)
	env := home(t, url)
	if r := run(t, env, "", "get", "agents", "--server", otherURL); r.code != 1 || !strings.Contains(r.err, "no token for this server") {
		t.Error(r)
	}
	if len(other.got) != 0 {
		t.Errorf("the other server got %v", other.got)
	}
	env["KEDGE_TOKEN"] = token
	if r := run(t, env, "", "get", "agents", "--server", otherURL); r.code != 0 {
		t.Error(r)
	}
	if r := run(t, env, "", "get", "agents", "--server", url+"/", "-o", "name"); r.code != 0 {
		t.Error(r)
	}
}

func TestContextsAreKeptApart(t *testing.T) {
	t.Parallel()
	_, one := newServer(t)
	two, twoURL := newServer(t)
	two.agents = nil
	env := home(t, one)
	if r := run(t, env, token, "login", twoURL, "--context", "second"); r.code != 0 {
		t.Fatal(r)
	}
	if r := run(t, env, "", "get", "agents"); r.out != "" || !strings.Contains(r.err, "No agents found") {
		t.Errorf("the last login is not the current one: %s", r)
	}
	if r := run(t, env, "", "get", "agents", "-o", "name", "--context", strings.TrimPrefix(one, "http://")); r.out != "agent/lost\nagent/new\nagent/prod\n" {
		t.Errorf("the first login: %s", r)
	}
}

func TestExitCodesAreAsDocumented(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	stale := target("lost", "Failed", "Stale")
	stale.StaleSince = born
	sick := staleTarget()
	sick.Objects[0].Health = "Failed"
	s.set(func(s *server) {
		s.deployments = append(s.deployments, deployment("stale-failed", "Failed", "Stale", stale), deployment("stale-sick", "Synced", "Stale", sick))
	})
	for args, want := range map[string]int{
		"status web": 0, "status failing": 3, "status away": 0, "status stale-failed": 3, "status stale-sick": 3,
		"repo add ftp://example.com/x": 2, // refused by the server as a bad value
		"env create forbidden":         1, // refused for want of a role
	} {
		if got := run(t, env, "", strings.Fields(args)...); got.code != want {
			t.Errorf("kedge %s: want exit code %d, got %s", args, want, got)
		}
	}
}
