package sqlstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// TestPagesOfManyAgreeWithAModel lists a tenant with more deployments than any single method can handle; the
// conformance suite lists only small tenants.
//
// covers: T8
func TestPagesOfManyAgreeWithAModel(t *testing.T) {
	t.Parallel()
	w := newWide(t, 4000)
	all, presence := w.everything(t)
	for name, f := range w.Filters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, l := range all {
				if storetest.Matches(f, l, func(id fleet.AgentID) fleet.Presence { return presence[id] }) {
					want = append(want, l.Name)
				}
			}
			// The first page, one after the middle, and one after the end.
			for _, after := range []string{"", "team-300", "zzz"} {
				f.After, f.Limit = after, 70
				var behind, got []string
				for _, name := range want {
					if name > after {
						behind = append(behind, name)
					}
				}
				for _, d := range w.list(t, f) {
					got = append(got, d.Name)
				}
				if diff := cmp.Diff(behind[:min(len(behind), f.Limit)], got); diff != "" && len(behind)+len(got) > 0 {
					t.Errorf("page after %q differs (-want +got):\n%s", after, diff)
				}
			}
		})
	}
}

func (w *wide) list(t *testing.T, f store.DeploymentFilter) (out []fleet.Deployment) {
	t.Helper()
	err := w.store.View(t.Context(), func(tx store.Tx) (err error) {
		out, err = tx.Deployments().List(t.Context(), w.Tenant, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// everything reads all deployments in the order of their names, and which agents are connected.
func (w *wide) everything(t *testing.T) (all []storetest.Listed, presence map[fleet.AgentID]fleet.Presence) {
	t.Helper()
	presence = map[fleet.AgentID]fleet.Presence{}
	err := w.store.View(t.Context(), func(tx store.Tx) error {
		connections, err := tx.Connections().OfAgentsAllTenants(t.Context(), w.Agents)
		if err != nil {
			return err
		}
		for _, c := range connections {
			presence[c.AgentID] = fleet.Presence{Connected: c.Connected(), LastSeen: c.LastSeenAt}
		}
		deployments, err := tx.Deployments().List(t.Context(), w.Tenant, store.DeploymentFilter{Page: store.Page{Limit: 1 << 20}})
		if err != nil {
			return err
		}
		for _, d := range deployments {
			targets, err := tx.Targets().OfDeployment(t.Context(), w.Tenant, d.ID)
			if err != nil {
				return err
			}
			all = append(all, storetest.Listed{Deployment: d, Targets: targets})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, presence
}
