package control_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The remedy for a repository depends on its error, and an unused one is no problem.
func TestDiagnosisOfRepositoriesIsByReason(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	view := d.deploy(t, "default", "web", "")
	unused, err := d.CreateRepository(d.ctx, root, "default", control.CreateRepository{URL: "https://git.example.com/unused.git"})
	ok(t, err)
	for _, c := range []struct {
		reason fleet.Reason
		next   string
	}{
		{"", "the server retries"},
		{fleet.ReasonRepositoryNotReadable, "--credential NAME"},
		{fleet.ReasonHostUnknown, "DNS"},
		{fleet.ReasonHostDenied, "--git-allow-cidr"},
		{fleet.ReasonHostKeyUnknown, "--known-hosts-file"},
		{fleet.ReasonRedirected, "--repo URL"},
	} {
		ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
			if err := tx.Repositories().SetChecked(d.ctx, view.TenantID, view.RepositoryID, d.clock.Now(), "cannot be read: "+string(c.reason), c.reason); err != nil {
				return err
			}
			return tx.Repositories().SetChecked(d.ctx, unused.TenantID, unused.ID, d.clock.Now(), "cannot be read", "")
		}))
		found, err := d.Diagnose(d.ctx, root, "default")
		ok(t, err)
		seen := map[fleet.Reason]control.Finding{}
		for _, f := range found.Findings {
			seen[f.Reason] = f
		}
		f := seen[fleet.ReasonRepositoryUnreadable]
		if f.Severity != control.SeverityProblem || !strings.Contains(f.Next, c.next) || (c.reason != fleet.ReasonRepositoryNotReadable && strings.Contains(f.Next, "--credential")) {
			t.Errorf("%q: got %+v, want advice with %q", c.reason, f, c.next)
		}
		if f := seen[fleet.ReasonRepositoryUnused]; f.Severity != control.SeverityNotice || f.Subject != unused.URL || !strings.Contains(f.Next, "kedge repo delete "+unused.URL) {
			t.Errorf("the repository that nothing uses: %+v", f)
		}
		if f := seen[fleet.ReasonNoAgents]; !strings.Contains(f.Next, "--image ") {
			t.Errorf("without an agent: %+v", f)
		}
	}
}
