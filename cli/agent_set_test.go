package cli_test

import (
	"strings"
	"testing"
)

func TestKindFilterIsSetAndRemoved(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const path = "PATCH /api/v1/tenants/default/agents/prod"
	for args, want := range map[string]string{
		"--exclude-kind Secret,*.apps --include-kind Deployment.apps": `{"kindFilter":{"include":["Deployment.apps"],"exclude":["Secret","*.apps"]}}`,
		"--exclude-kind=":                         `{"kindFilter":{}}`,
		"--engine-instance":                       `{"engineInstance":true}`,
		"--engine-instance=false":                 `{"engineInstance":false}`,
		"--engine-instance --exclude-kind Secret": `{"engineInstance":true,"kindFilter":{"exclude":["Secret"]}}`,
	} {
		says := "No object is deleted"
		if strings.HasPrefix(args, "--engine-instance") {
			says = "kedge agent manifest prod"
		}
		if r := run(t, env, "", append([]string{"agent", "set", "prod"}, strings.Fields(args)...)...); r.code != 0 || !strings.Contains(r.out+r.err, says) {
			t.Errorf("kedge agent set prod %s: %s", args, r)
		}
		s.set(func(s *server) {
			if got := strings.TrimSpace(s.got[path]); got != want {
				t.Errorf("kedge agent set prod %s sends %s, want %s", args, got, want)
			}
		})
	}
	if r := run(t, env, "", "agent", "set", "prod"); r.code == 0 {
		t.Errorf("without a flag: %s", r)
	}
	if r := run(t, env, "", "agent", "enroll", "edge", "--exclude-kind", "Secret", "--without-deployment"); r.code != 0 {
		t.Fatal(r)
	}
	s.set(func(s *server) {
		if got := s.got["POST /api/v1/tenants/default/agents"]; !strings.Contains(got, `"kindFilter":{"exclude":["Secret"]}`) {
			t.Errorf("enrolling sends %s", got)
		}
	})
}

func TestTunnelIsOpenedAndClosed(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	for flag, want := range map[string][2]string{
		"--tunnel":       {`{"tunnel":true}`, "kedge agent manifest prod | kubectl apply -f -"},
		"--tunnel=false": {`{"tunnel":false}`, "closed for all callers"},
	} {
		if r := run(t, env, "", "agent", "set", "prod", flag); r.code != 0 || !strings.Contains(r.out+r.err, want[1]) {
			t.Errorf("kedge agent set prod %s: %s", flag, r)
		}
		s.set(func(s *server) {
			if got := strings.TrimSpace(s.got["PATCH /api/v1/tenants/default/agents/prod"]); got != want[0] {
				t.Errorf("kedge agent set prod %s sends %s, want %s", flag, got, want[0])
			}
		})
	}
	if r := run(t, env, "", "agent", "enroll", "edge", "--tunnel", "--without-deployment"); r.code != 0 {
		t.Fatal(r)
	}
	s.set(func(s *server) {
		if got := s.got["POST /api/v1/tenants/default/agents"]; !strings.Contains(got, `"tunnel":true`) {
			t.Errorf("enrolling sends %s", got)
		}
	})
}

func TestApplyChangesTheKindFilterOfAnAgent(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	apply := func(agent, spec, labels, result, sends string) {
		t.Helper()
		text := "kind: Agent\nmetadata: {name: " + agent + ", labels: {" + labels + "}}\nspec: {" + spec + "}\n"
		if r := run(t, env, text, "apply", "-f", "-"); r.code != 0 || r.out != "agent/"+agent+" "+result+"\n" {
			t.Errorf("applying %q: %s", spec, r)
		}
		s.set(func(s *server) {
			if got := s.got["PATCH /api/v1/tenants/default/agents/"+agent]; !strings.Contains(got, sends) || (got == "") != (sends == "") {
				t.Errorf("applying %q sends %q, want %s in it", spec, got, sends)
			}
		})
	}
	apply("lost", "kindFilter: {exclude: ['*'], include: [Service, ConfigMap]}", "region: eu, tier: prod", "unchanged", "")
	apply("lost", "", "region: eu, tier: prod", "configured", `"kindFilter":{}`)
	apply("prod", "namespaces: [dude, team-a], kindFilter: {exclude: [Secret]}", "", "configured", `"kindFilter":{"exclude":["Secret"]}`)
	if r := run(t, env, "", "describe", "agent", "lost"); !strings.Contains(r.out, "Excluded kinds:") || !strings.Contains(r.out, "Included kinds:") {
		t.Errorf("describe: %s", r)
	}
}
