package cli_test

import (
	"net/url"
	"strings"
	"testing"
)

// covers: O4, P12
func TestLogsOfAllClustersAreMergedByTime(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "berlin", "lost", "paris")
	s.pods("berlin", map[string]string{"web-1-a": "2026-11-17T10:00:01Z one\n2026-11-17T10:00:03.5Z \x1b[31mthree\x1b[0m \x07bell\n"}, kubePod("web-1-a", "web-1", 0))
	s.pods("paris", map[string]string{"web-1-b": "2026-11-17T10:00:02Z two\n2026-11-17T10:00:04Z four", "web-2-c": "2026-11-17T10:00:02Z not ours\n"},
		kubePod("web-1-b", "web-1", 0), kubePod("web-2-c", "web-2", 0))
	s.answer("lost", "api/v1/namespaces/shop/pods", "503 agent lost is not connected")
	r := run(t, env, "", "logs", "web", "--since", "1h", "--tail", "10", "--color", "always")
	want := []string{"berlin web-1-a | one", "paris web-1-b | two", "berlin web-1-a | three bell", "paris web-1-b | four"}
	if got := strings.Split(strings.TrimSpace(uncoloured(r.out)), "\n"); r.code != 0 || strings.Join(got, ";") != strings.Join(want, ";") {
		t.Errorf("%s", r)
	}
	if strings.Count(r.out, "\x1b[") != 4*4 || strings.Contains(r.out, "\x07") {
		t.Errorf("colors, or control characters of the log: %q", r.out)
	}
	if !strings.Contains(r.err, "Warning: the cluster of agent lost cannot be read: agent lost is not connected\n") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("%s", r)
	}
	query, _ := url.ParseQuery(s.query("berlin", "api/v1/namespaces/shop/pods/web-1-a/log"))
	if query.Get("container") != "web" || query.Get("tailLines") != "10" || query.Get("sinceTime") != "2026-11-15T11:10:00Z" || query.Has("follow") {
		t.Errorf("the query is %v", query)
	}
	if r := run(t, env, "", "logs", "deployment/web", "--agent", "paris", "--grep", "^t.o$", "--timestamps"); r.code != 0 || r.out != "paris web-1-b | 2026-11-17T10:00:02Z two\n" || r.err != "" {
		t.Errorf("%s", r)
	}
}

// uncoloured removes the colors.
func uncoloured(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		out.WriteString(part)
	}
	return out.String()
}

func TestLogsSayWhyThereAreNone(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "berlin", "paris")
	s.pods("berlin", nil, kubePod("web-2-a", "web-2", 0))
	s.pods("paris", nil)
	forbidden := `403 pods is forbidden: User "kedge:token:default:ada" cannot list resource "pods"`
	cases := []struct {
		reason string
		before func()
		args   []string
		code   int
		says   []string
	}{
		{"no pods", func() {}, nil, 1, []string{`deployment "web" has no pod with a log in the clusters of berlin, paris`, "kedge tree web"}},
		{"no restart", func() { s.pods("paris", nil, kubePod("web-1-a", "web-1", 0)) }, []string{"--previous"}, 1, []string{"has restarted"}},
		{"no such target", func() {}, []string{"--agent", "rome"}, 1, []string{`no target on agent "rome"`}},
		{"wrong time", func() {}, []string{"--since", "soon"}, 2, []string{"--since is neither a duration"}},
		{"wrong expression", func() {}, []string{"--grep", "("}, 2, []string{"--grep is not a regular expression"}},
		{"the log is refused", func() {
			s.pods("paris", map[string]string{"web-1-a": "403 no logs for you"}, kubePod("web-1-a", "web-1", 0))
		}, nil, 1,
			[]string{"agent paris, pod web-1-a: the log of container web cannot be read: no logs for you", "no log could be read"}},
		{"the owners are refused", func() { s.answer("paris", "apis/apps/v1/namespaces/shop/replicasets", "403 no sets") }, []string{"--agent", "paris"}, 1,
			[]string{"the cluster of agent paris cannot be read: no sets"}},
		{"one cluster", func() { s.answer("paris", "api/v1/namespaces/shop/pods", forbidden) }, []string{"--agent", "paris"}, 1,
			[]string{"Error: the cluster of agent paris cannot be read: pods is forbidden", "kedge get access-rules"}},
		{"all clusters", func() { s.answer("berlin", "api/v1/namespaces/shop/pods", forbidden) }, nil, 1,
			[]string{"agent berlin cannot be read", "agent paris cannot be read", "none of the 2 clusters could be read"}},
	}
	for _, c := range cases {
		c.before()
		r := run(t, env, "", append([]string{"logs", "web"}, c.args...)...)
		for _, says := range c.says {
			if r.code != c.code || !strings.Contains(r.err, says) {
				t.Errorf("%s: %s\nwant %q", c.reason, r, says)
			}
		}
	}
}

// covers: O4, P12
func TestLogsFollowNewPodsRestartsAndBrokenConnections(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "paris")
	const pods = "api/v1/namespaces/shop/pods"
	s.pods("paris", nil, kubePod("web-1-a", "web-1", 0))
	changes, first := s.stream("paris", pods), s.stream("paris", pods+"/web-1-a/log")
	logs := startSession(t, env, "logs", "web", "--follow", "--tail", "1")
	first <- "2026-11-17T10:00:01Z one\n2026-11-17T10:00:01.5Z two\n"
	logs.want(t, "paris web-1-a | one", "paris web-1-a | two")

	// The connection breaks. Lines that were printed are not printed again.
	first <- ""
	first <- "2026-11-17T10:00:01Z one\n2026-11-17T10:00:01.5Z two\n2026-11-17T10:00:01.7Z three\n"
	logs.want(t, "paris web-1-a | three")
	if query, _ := url.ParseQuery(s.query("paris", pods+"/web-1-a/log")); query.Get("sinceTime") != "2026-11-17T10:00:01Z" || query.Has("tailLines") {
		t.Errorf("continues with %v", query)
	}

	// The connection ends as if the log were complete, but the container runs.
	s.answer("paris", pods+"/web-1-a", kubePod("web-1-a", "web-1", 0))
	first <- endOfStream
	first <- "2026-11-17T10:00:01.7Z three\n2026-11-17T10:00:01.8Z four\n"
	logs.want(t, "paris web-1-a | four")

	// A pod of this deployment appears, and one of another.
	second, other := s.stream("paris", pods+"/web-1-b/log"), s.stream("paris", pods+"/web-2-c/log")
	other <- "2026-11-17T10:00:02Z not ours\n"
	second <- "2026-11-17T10:00:02Z hello\n"
	changes <- `{"type":"ADDED","object":` + kubePod("web-2-c", "web-2", 0) + "}\n" + `{"type":"ADDED","object":` + kubePod("web-1-b", "web-1", 0) + "}\n"
	logs.want(t, "paris web-1-b | hello")
	if query, _ := url.ParseQuery(s.query("paris", pods+"/web-1-b/log")); query.Has("tailLines") {
		t.Errorf("the log of a new pod is read with %v", query)
	}

	// A container restarts while the watch is broken.
	s.pods("paris", nil, kubePod("web-1-a", "web-1", 0), kubePod("web-1-b", "web-1", 1))
	s.answer("paris", pods+"/web-1-b", kubePod("web-1-b", "web-1", 1))
	second <- "2026-11-17T10:00:03Z bye\n"
	second <- endOfStream
	logs.want(t, "paris web-1-b | bye")
	changes <- ""
	second <- "2026-11-17T10:00:02Z again\n"
	logs.want(t, "paris web-1-b | again")
	if code := logs.end(); code != 130 {
		t.Errorf("exit code %d, %s", code, logs.errs)
	}
	if text := logs.errs.String(); !strings.Contains(text, "interrupted, retrying") || strings.Contains(text, "not ours") {
		t.Errorf("says %s", text)
	}
}
