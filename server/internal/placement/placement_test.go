package placement

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestPlaceCreatesATargetForEachSelectedAgent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		agents []string
		labels map[string]string
		want   map[string]string
	}{
		"an environment without selectors":     {nil, nil, attached("oslo", "paris", "rome")},
		"agents by name":                       {[]string{"paris", "rome"}, nil, attached("paris", "rome")},
		"a name that no agent has":             {[]string{"atlantis", "paris"}, nil, attached("paris")},
		"agents by label":                      {nil, map[string]string{"tier": "prod"}, attached("paris", "rome")},
		"agents by several labels":             {nil, map[string]string{"tier": "prod", "region": "north"}, map[string]string{}},
		"a name or a label":                    {[]string{"oslo"}, map[string]string{"region": "south"}, attached("oslo", "rome")},
		"only names that no agent has":         {[]string{"atlantis"}, nil, map[string]string{}},
		"more names than are looked up singly": {[]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "rome"}, nil, attached("rome")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, fleet.Quota{})
			f.agent(t, "paris", map[string]string{"tier": "prod"})
			f.agent(t, "rome", map[string]string{"tier": "prod", "region": "south"})
			f.agent(t, "oslo", map[string]string{"region": "north"})
			f.selects(t, tt.agents, tt.labels)
			d := f.deployment(t, "web", fleet.Policy{})
			place := func(ctx context.Context, tx store.Tx) error { return f.Place(ctx, tx, d) }
			f.must(t, place)
			if diff := cmp.Diff(tt.want, f.states(t, d)); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			before := f.targets(t, d)
			f.must(t, place)
			if diff := cmp.Diff(before, f.targets(t, d)); diff != "" {
				t.Errorf("placing again changes targets (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPlaceDetachesTargetsThatAreNoLongerSelected(t *testing.T) {
	t.Parallel()
	suspension := fleet.Suspension{At: now, By: "ada", Reason: "audit"}
	tests := map[string]struct {
		policy    fleet.Policy
		sent      bool
		suspended bool
		want      map[string]string
	}{
		"its objects stay":                           {fleet.Policy{}, true, false, map[string]string{"paris": "attached", "rome": "detached"}},
		"the policy prunes them":                     {fleet.Policy{PruneOnDetach: true}, true, false, map[string]string{"paris": "attached", "rome": "tombstone"}},
		"a suspension keeps them despite the policy": {fleet.Policy{PruneOnDetach: true}, true, true, map[string]string{"paris": "attached", "rome": "detached"}},
		"a target that was never sent is removed":    {fleet.Policy{}, false, false, attached("paris")},
		"the policy does not matter if it never was": {fleet.Policy{PruneOnDetach: true}, false, false, attached("paris")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, fleet.Quota{})
			f.agent(t, "paris", nil)
			f.agent(t, "rome", nil)
			d := f.deployment(t, "web", tt.policy)
			f.must(t, func(ctx context.Context, tx store.Tx) error { return f.Place(ctx, tx, d) })
			if tt.sent {
				f.sent(t, d)
			}
			if tt.suspended {
				f.env.Suspension = suspension
			}
			f.selects(t, []string{"paris"}, nil)
			f.must(t, func(ctx context.Context, tx store.Tx) error { return f.PlaceEnvironment(ctx, tx, f.env) })
			if diff := cmp.Diff(tt.want, f.states(t, d)); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			if _, left := tt.want["rome"]; !left || tt.want["rome"] == "tombstone" {
				return
			}
			f.selects(t, nil, nil)
			f.must(t, func(ctx context.Context, tx store.Tx) error { return f.PlaceEnvironment(ctx, tx, f.env) })
			if diff := cmp.Diff(attached("paris", "rome"), f.states(t, d)); diff != "" {
				t.Errorf("selected again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlaceAgentFollowsItsLabels(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fleet.Quota{})
	a := f.agent(t, "paris", map[string]string{"tier": "prod"})
	f.selects(t, nil, map[string]string{"tier": "prod"})
	web, db := f.deployment(t, "web", fleet.Policy{}), f.deployment(t, "db", fleet.Policy{})
	step := func(labels map[string]string, want map[string]string) {
		t.Helper()
		a.Labels = labels
		f.must(t, func(ctx context.Context, tx store.Tx) error { return f.PlaceAgent(ctx, tx, a) })
		for _, d := range []fleet.Deployment{web, db} {
			if diff := cmp.Diff(want, f.states(t, d)); diff != "" {
				t.Errorf("labels %v, %s (-want +got):\n%s", labels, d.Name, diff)
			}
		}
	}
	step(map[string]string{"tier": "prod"}, attached("paris"))
	f.sent(t, web)
	f.sent(t, db)
	step(map[string]string{"tier": "test"}, map[string]string{"paris": "detached"})
	step(map[string]string{"tier": "prod"}, attached("paris"))
}

func TestRemoveDeploymentDecidesAboutItsObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fate    Deletion
		sent    bool
		want    map[string]string
		consent bool
		hold    bool
	}{
		"a user deletes them":               {DeleteObjects, true, map[string]string{"paris": "tombstone"}, true, false},
		"a resource deletes them":           {HoldProtected, true, map[string]string{"paris": "tombstone"}, true, true},
		"never had them, and nothing held":  {HoldProtected, false, map[string]string{}, false, false},
		"a commit deletes them":             {PruneObjects, true, map[string]string{"paris": "tombstone"}, false, false},
		"they are kept":                     {KeepObjects, true, map[string]string{"paris": "detached"}, false, false},
		"an agent that never had them":      {DeleteObjects, false, map[string]string{}, false, false},
		"kept where no agent ever had them": {KeepObjects, false, map[string]string{}, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, fleet.Quota{})
			f.agent(t, "paris", nil)
			d := f.deployment(t, "web", fleet.Policy{})
			f.must(t, func(ctx context.Context, tx store.Tx) error { return f.Place(ctx, tx, d) })
			if tt.sent {
				f.sent(t, d)
			}
			f.must(t, func(ctx context.Context, tx store.Tx) error { return f.RemoveDeployment(ctx, tx, d, tt.fate) })
			if diff := cmp.Diff(tt.want, f.states(t, d)); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			for _, target := range f.targets(t, d) {
				if target.Desired.Consent != tt.consent || target.Desired.HoldProtected != tt.hold {
					t.Errorf("consent is %t, and the hold is %t", target.Desired.Consent, target.Desired.HoldProtected)
				}
			}
		})
	}
}

func TestPlacementKeepsTheQuotaOfTargets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fleet.Quota{Targets: 2})
	f.agent(t, "paris", nil)
	f.agent(t, "rome", nil)
	web := f.deployment(t, "web", fleet.Policy{})
	f.must(t, func(ctx context.Context, tx store.Tx) error { return f.Place(ctx, tx, web) })
	db := f.deployment(t, "db", fleet.Policy{})
	oslo := f.agent(t, "oslo", nil)
	want := &quota.ExceededError{Tenant: "default", What: "targets", Limit: 2}
	for name, do := range map[string]func(context.Context, store.Tx) error{
		"a second deployment":           func(ctx context.Context, tx store.Tx) error { return f.Place(ctx, tx, db) },
		"the check before it is placed": func(ctx context.Context, tx store.Tx) error { return f.CheckQuota(ctx, tx, f.tenant, db) },
		"a third agent":                 func(ctx context.Context, tx store.Tx) error { return f.PlaceAgent(ctx, tx, oslo) },
		"the whole environment":         func(ctx context.Context, tx store.Tx) error { return f.PlaceEnvironment(ctx, tx, f.env) },
	} {
		var got *quota.ExceededError
		if err := f.update(t, do); !errors.As(err, &got) || *got != *want {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if diff := cmp.Diff(attached("paris", "rome"), f.states(t, web)); diff != "" || len(f.targets(t, db)) > 0 {
		t.Errorf("a refused placement left targets (-want +got):\n%s", diff)
	}
}
