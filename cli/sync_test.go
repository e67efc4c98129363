package cli_test

import (
	"strings"
	"testing"
)

func TestSyncSaysWhatItDidNotDo(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	s.set(func(s *server) { s.deployments[0].Counts.HeldPrunes = 3 })
	r := run(t, env, "", "sync", "web", "--wait")
	if r.code != 0 || !strings.Contains(r.out, "has succeeded.\nDeletions that wait for confirmation: 3. To list them: kedge deploy prunes web\n") {
		t.Errorf("with held deletions: %s", r)
	}
	s.set(func(s *server) { s.deployments[0].Policy.PreviewOnly = true })
	r = run(t, env, "", "sync", "web", "--wait")
	if r.code != 0 || strings.Contains(r.out, "succeeded") || !strings.Contains(r.out, "preview only: nothing was applied") {
		t.Errorf("with a policy that only previews: %s", r)
	}
}
