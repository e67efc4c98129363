package cli_test

import (
	"net/url"
	"strings"
	"testing"
)

func TestExecRunsOnlyInPodsOfTheDeployment(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "berlin", "paris")
	for _, agent := range []string{"berlin", "paris"} {
		s.pods(agent, nil, kubePod("web-1-a", "web-1", 0), kubePod("web-2-b", "web-2", 0))
	}
	s.answer("paris", "api/v1/namespaces/shop/pods/web-1-a/exec", "403 a read-only rule")
	cases := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"web"}, 2, "kedge exec needs DEPLOYMENT -- COMMAND"},
		{[]string{"web", "ls"}, 2, "kedge exec needs DEPLOYMENT -- COMMAND"},
		{[]string{"--", "ls"}, 2, "kedge exec needs DEPLOYMENT -- COMMAND"},
		{[]string{"web", "--", "ls"}, 1, `deployment "web" is in 2 clusters: berlin, paris`},
		{[]string{"web", "--agent", "paris", "--pod", "web-2-b", "--", "ls"}, 1, `deployment "web" has no pod "web-2-b" there; it has: web-1-a`},
		{[]string{"web", "--agent", "paris", "-c", "db", "--", "ls"}, 1, "no running pod there with such a container; its pods: web-1-a"},
		{[]string{"web", "--agent", "paris", "--", "ls"}, 1, "the command cannot run in pod web-1-a in the cluster of agent paris: a read-only rule"},
	}
	for _, c := range cases {
		if r := run(t, env, "", append([]string{"exec"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: %s\nwant %s", c.args, r, c.says)
		}
	}
	if query, _ := url.ParseQuery(s.query("paris", "api/v1/namespaces/shop/pods/web-1-a/exec")); query.Get("command") != "ls" || query.Get("container") != "web" || query.Has("stdin") {
		t.Errorf("the query is %v", query)
	}
}
