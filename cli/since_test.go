package cli_test

import (
	"strings"
	"testing"
)

func TestSinceTakesDurationsAndTimes(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const events, audit = "GET /api/v1/tenants/default/events", "GET /api/v1/tenants/default/audit"
	for args, want := range map[string]struct{ path, query string }{
		"get events --since 5m":                           {events, "since=2026-11-15T12%3A05%3A00Z"},
		"get events --since 1d":                           {events, "since=2026-11-14T12%3A10%3A00Z"},
		"get events --since 2026-11-15T12:00:00+01:00":    {events, "since=2026-11-15T11%3A00%3A00Z"},
		"audit --since 1h --until 30m":                    {audit, "limit=100&since=2026-11-15T11%3A10%3A00Z&until=2026-11-15T11%3A40%3A00Z"},
		"audit --since 2026-11-15T12:00:00.5Z --limit 10": {audit, "limit=10&since=2026-11-15T12%3A00%3A00.5Z"},
	} {
		if got := run(t, env, "", strings.Fields(args)...); got.code != 0 {
			t.Errorf("%s: %s", args, got)
		}
		s.mu.Lock()
		if got := s.queries[want.path]; got != want.query {
			t.Errorf("%s asks for %q, want %q", args, got, want.query)
		}
		s.mu.Unlock()
	}
	if got := run(t, env, "", "get", "events", "--since", "yesterday"); got.code != 2 || !strings.Contains(got.err, "10m, 2h or 3d") {
		t.Errorf("a word that is no time: %s", got)
	}
}
