package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

func TestStatesThatNotAllTargetsAreInAreCounted(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	never := target("atlantis", "Pending", "Unknown")
	web := deployment("web", "Synced", "Current", target("paris", "Synced", "Current"), target("rome", "Synced", "Current"), never)
	web.Counts.NeverConnected = 1
	half := deployment("half", "Failed", "InProgress", target("paris", "Failed", "InProgress"), target("rome", "Synced", "Current"))
	behind := deployment("behind", "OutOfSync", "Current", target("paris", "OutOfSync", "Current"))
	behind.Commit, behind.RunningOther = "beef0123456789", 1
	s.set(func(s *server) { s.deployments = []apiv1.Deployment{web, half, behind} })
	got := run(t, env, "", "get", "deployments")
	for name, want := range map[string]string{
		"web":    "Synced 2/3, 1 never connected   Current 2/3      2/3     HEAD       c0ffee012345 ",
		"half":   "Failed 1/2                      InProgress 1/2   1/2     HEAD       c0ffee012345 ",
		"behind": "OutOfSync                       Current          0/1     HEAD       c0ffee012345 +1 other (newest beef01234567) ",
	} {
		lines := strings.Split(got.out, "\n")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+" ") })
		if i < 0 || !strings.Contains(lines[i], want) {
			t.Errorf("%s does not read %q:\n%s", name, want, got)
		}
	}
}
