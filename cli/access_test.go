package cli_test

import (
	"strings"
	"testing"
)

func TestAccessRulesAreManaged(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const list, one = "POST /api/v1/tenants/default/access-rules", "PATCH /api/v1/tenants/default/access-rules/oncall"
	for args, want := range map[string][2]string{
		"create ci --token ci --person alice@example.com --group oncall --agents a,b --envs prod --read-only": {list,
			`{"name":"ci","subjects":[{"kind":"token","name":"ci"},{"kind":"person","name":"alice@example.com"},{"kind":"group","name":"oncall"}],"agents":["a","b"],"environments":["prod"],"readOnly":true}`},
		"create ops --token fleet/ops --all-agents":       {list, `{"name":"ops","subjects":[{"kind":"token","name":"fleet/ops"}],"allAgents":true}`},
		"set oncall --group CN=a,OU=b":                    {one, `{"subjects":[{"kind":"group","name":"CN=a,OU=b"}]}`},
		"set oncall --all-agents":                         {one, `{"allAgents":true,"agents":[],"environments":[]}`},
		"set oncall --agents a --read-only=false":         {one, `{"allAgents":false,"agents":["a"],"readOnly":false}`},
		"set oncall --envs= --agents a --person ada":      {one, `{"subjects":[{"kind":"person","name":"ada"}],"allAgents":false,"agents":["a"],"environments":[]}`},
		"set oncall --all-agents=false --envs prod,stage": {one, `{"allAgents":false,"environments":["prod","stage"]}`},
	} {
		if r := run(t, env, "", append([]string{"access"}, strings.Fields(args)...)...); r.code != 0 || !strings.Contains(r.out, "may reach agents prod") {
			t.Errorf("kedge access %s: %s", args, r)
		}
		s.set(func(s *server) {
			if got := strings.TrimSpace(s.got[want[0]]); got != want[1] {
				t.Errorf("kedge access %s sends\n%s, want\n%s", args, got, want[1])
			}
		})
	}
	for _, args := range []string{"create x --token ci", "create x --all-agents", "set oncall"} {
		if r := run(t, env, "", append([]string{"access"}, strings.Fields(args)...)...); r.code == 0 {
			t.Errorf("kedge access %s: %s", args, r)
		}
	}
	if r := run(t, env, "", "access", "delete", "access-rule/oncall"); r.code != 0 || !strings.Contains(r.out, `Access rule "oncall" deleted`) {
		t.Error(r)
	}
	if r := run(t, env, "", "describe", "access-rule", "oncall"); r.code != 0 || !strings.Contains(r.out, "read-only") || !strings.Contains(r.out, "ada@example.com") {
		t.Error(r)
	}
	if r := run(t, env, "", "__complete", "access", "set", ""); !strings.Contains(r.out, "oncall") {
		t.Errorf("completion: %s", r)
	}
}

func TestApplyChangesAccessRules(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	apply := func(spec, result, key, sends string) {
		t.Helper()
		if r := run(t, env, "kind: AccessRule\n"+spec, "apply", "-f", "-"); r.code != 0 || r.out != result+"\n" {
			t.Errorf("applying %q: %s", spec, r)
		}
		s.set(func(s *server) {
			if got := strings.TrimSpace(s.got[key]); got != sends {
				t.Errorf("applying %q sends %q, want %s", spec, got, sends)
			}
		})
	}
	const list, one = "POST /api/v1/tenants/default/access-rules", "PATCH /api/v1/tenants/default/access-rules/oncall"
	apply("metadata: {name: oncall}\nspec: {subjects: [{kind: person, name: ada@example.com}, {kind: group, name: oncall}], agents: [prod], environments: [eu], readOnly: true}",
		"accessrule/oncall unchanged", one, "")
	apply("metadata: {name: oncall}\nspec: {subjects: [{kind: token, name: ci}], environments: [default]}", "accessrule/oncall configured", one,
		`{"subjects":[{"kind":"token","name":"ci"}],"allAgents":false,"agents":[],"environments":["default"],"readOnly":false}`)
	apply("metadata: {name: new}\nspec: {subjects: [{kind: token, name: ci}], allAgents: true}", "accessrule/new created", list,
		`{"name":"new","subjects":[{"kind":"token","name":"ci"}],"allAgents":true}`)
	r := run(t, env, "kind: AccessRule\nmetadata: {name: new}\nspec: {subjects: [{kind: token, name: ci}], agents: [nobody], environments: [nowhere]}", "apply", "-f", "-")
	if r.code == 0 || !strings.Contains(r.err, `names agent "nobody"`) || !strings.Contains(r.err, `names environment "nowhere"`) {
		t.Errorf("unknown names: %s", r)
	}
	if r := run(t, env, "", "export", "access-rules"); r.code != 0 || !strings.Contains(r.out, "kind: AccessRule") || !strings.Contains(r.out, "name: oncall") {
		t.Errorf("export: %s", r)
	}
}
