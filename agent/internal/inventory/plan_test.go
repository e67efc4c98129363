package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

func ref(kind, name string) fleet.ObjectRef {
	return fleet.ObjectRef{Version: "v1", Kind: kind, Namespace: "ns", Name: name}
}

func entry(kind, name string) inventory.Entry { return inventory.Entry{ObjectRef: ref(kind, name)} }

// willing is the one policy under which a Plan deletes.
func willing() inventory.Policy { return inventory.Policy{Whole: true, Prune: true, Total: 3} }

// kept is an entry that is held.
type kept struct {
	inventory.Entry
	inventory.Decision
}

// plan splits what is no longer desired into what is to be deleted and what is kept.
func plan(old []inventory.Entry, desired []fleet.ObjectRef, policy inventory.Policy) (remove []inventory.Entry, held []kept) {
	wanted := map[inventory.Key]bool{}
	for _, r := range desired {
		wanted[inventory.KeyOf(r)] = true
	}
	gone := slices.DeleteFunc(slices.Clone(old), func(e inventory.Entry) bool { return wanted[inventory.KeyOf(e.ObjectRef)] })
	policy.Desired, policy.Gone = len(wanted), len(gone)
	p := inventory.NewPlan(policy)
	for _, e := range gone {
		if v := p.Decide(e.ObjectRef, e.Held); !v.Cause.IsZero() {
			held = append(held, kept{e, v})
		} else {
			remove = append(remove, e)
		}
	}
	return remove, held
}

// covers: A6 (what was held by the limit stays held when the rest is gone, or the total has grown)
func TestPlanForgetsNoHeldOne(t *testing.T) {
	t.Parallel()
	policy := willing()
	policy.Total, policy.Limit = 100, fleet.PruneLimit{Objects: 1, Percent: 1}
	held := entry("ConfigMap", "held")
	held.Held = inventory.HeldOverLimit
	desired := []fleet.ObjectRef{ref("ConfigMap", "stays")}
	for reason, change := range map[string]func(*inventory.Policy){
		"below the limit":   func(*inventory.Policy) {},
		"with an edit":      func(p *inventory.Policy) { p.Consent = true },
		"another confirmed": func(p *inventory.Policy) { p.Confirmed = []string{"ConfigMap ns/other"} },
	} {
		p := policy
		change(&p)
		remove, kept := plan([]inventory.Entry{held}, desired, p)
		if len(remove) != 0 || len(kept) != 1 || !kept[0].Confirmable {
			t.Errorf("%s: removes %v and holds %v, want it held until it is confirmed", reason, remove, kept)
		}
	}
	confirmed := policy
	confirmed.Confirmed = []string{"ConfigMap ns/held"}
	if remove, _ := plan([]inventory.Entry{held}, desired, confirmed); len(remove) != 1 {
		t.Errorf("removes %v, want what was confirmed", remove)
	}
	policy.Tombstone, policy.AllowEmpty = true, true
	claim := entry("PersistentVolumeClaim", "data")
	claim.Held = inventory.HeldOverLimit
	if remove, kept := plan([]inventory.Entry{held, claim}, nil, policy); len(remove) != 1 || remove[0].Name != "held" || len(kept) != 1 || !kept[0].Protected {
		t.Errorf("a tombstone removes %v and keeps %v, want only the protected kind kept", remove, kept)
	}
}

// covers: A6 (what a change adds makes what it removes no smaller)
func TestPlanMeasuresByWhatThereWasBefore(t *testing.T) {
	t.Parallel()
	var old []inventory.Entry
	var desired []fleet.ObjectRef
	for i := range 20 {
		old = append(old, entry("ConfigMap", fmt.Sprint("old", i)))
	}
	for i := range 60 {
		desired = append(desired, ref("ConfigMap", fmt.Sprint("new", i)))
	}
	for reason, total := range map[string]int{"before the change": 20, "never written down": 0} {
		policy := willing()
		policy.Total = total
		remove, kept := plan(old, desired, policy)
		if len(remove) != 0 || len(kept) != 20 || kept[0].Cause.Reason != fleet.ReasonOverPruneLimit || !strings.Contains(kept[0].Cause.Message, "20 of 20 objects") {
			t.Errorf("%s: removes %d and keeps %d, want all 20 kept", reason, len(remove), len(kept))
		}
	}
	policy := willing()
	policy.Total, policy.Limit = 0, fleet.PruneLimit{Objects: 1, Percent: 100}
	if remove, _ := plan(old, desired, policy); len(remove) != 20 {
		t.Errorf("removes %d, want all: no number is more than all of them", len(remove))
	}
}

// covers: A5
func TestPlan(t *testing.T) {
	t.Parallel()
	old := []inventory.Entry{entry("ConfigMap", "stays"), entry("ConfigMap", "goes"), entry("PersistentVolumeClaim", "data")}
	desired := []fleet.ObjectRef{ref("ConfigMap", "stays"), ref("ConfigMap", "new")}
	cases := []struct {
		reason  string
		policy  func(*inventory.Policy)
		desired []fleet.ObjectRef
		remove  string
		held    string
		why     fleet.Reason // of those that are held; a protected kind may have its own
	}{
		{reason: "deletes what is gone from a whole bundle, but not protected kinds",
			policy: func(*inventory.Policy) {}, desired: desired, remove: "goes", held: "data", why: fleet.ReasonProtectedKind},
		{reason: "a bundle that is not whole says nothing about what is gone",
			policy: func(p *inventory.Policy) { p.Whole = false }, desired: desired, held: "goes data", why: fleet.ReasonBundleIncomplete},
		{reason: "pruning is off",
			policy: func(p *inventory.Policy) { p.Prune = false }, desired: desired, held: "goes data", why: fleet.ReasonPruneDisabled},
		{reason: "pruning is held",
			policy: func(p *inventory.Policy) { p.Hold = true }, desired: desired, held: "goes data", why: fleet.ReasonHeldAfterRecovery},
		{reason: "an object failed",
			policy: func(p *inventory.Policy) { p.Unsettled = 1 }, desired: desired, held: "goes data", why: fleet.ReasonPruneBlocked},
		{reason: "the inventory is damaged",
			policy: func(p *inventory.Policy) { p.Damaged = []string{"chunk"} }, desired: desired, held: "goes data", why: fleet.ReasonInventoryDamaged},
		{reason: "a protected kind goes when it is confirmed by name",
			policy: func(p *inventory.Policy) { p.Confirmed = []string{"PersistentVolumeClaim ns/data"} }, desired: desired, remove: "goes data"},
		{reason: "a confirmation is no answer to a doubt",
			policy: func(p *inventory.Policy) {
				p.Confirmed, p.Unsettled = []string{"ConfigMap ns/goes", "PersistentVolumeClaim ns/data"}, 1
			},
			desired: desired, held: "goes data", why: fleet.ReasonPruneBlocked},
		{reason: "more than the limit is held",
			policy: func(p *inventory.Policy) { p.Limit = fleet.PruneLimit{Objects: 1, Percent: 30} }, desired: desired, held: "goes data", why: fleet.ReasonOverPruneLimit},
		{reason: "more than the limit goes as far as it is confirmed",
			policy: func(p *inventory.Policy) {
				p.Limit, p.Confirmed = fleet.PruneLimit{Objects: 1, Percent: 30}, []string{"ConfigMap ns/goes"}
			},
			desired: desired, remove: "goes", held: "data", why: fleet.ReasonProtectedKind},
		{reason: "an edit of the deployment is consent, but not for protected kinds",
			policy:  func(p *inventory.Policy) { p.Limit, p.Consent = fleet.PruneLimit{Objects: 1, Percent: 30}, true },
			desired: desired, remove: "goes", held: "data", why: fleet.ReasonProtectedKind},
		{reason: "others may desire it and have not said so yet",
			policy: func(p *inventory.Policy) { p.Pending = true }, desired: desired, held: "goes data", why: fleet.ReasonWaitingForDeployments},
		{reason: "an empty bundle is a mistake",
			policy: func(*inventory.Policy) {}, held: "stays goes data", why: fleet.ReasonBundleEmpty},
		{reason: "an empty bundle is meant",
			policy: func(p *inventory.Policy) { p.AllowEmpty = true }, remove: "stays goes", held: "data", why: fleet.ReasonProtectedKind},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			policy := willing()
			c.policy(&policy)
			remove, held := plan(old, c.desired, policy)
			var removed, kept []string
			for _, e := range remove {
				removed = append(removed, e.Name)
			}
			for _, h := range held {
				kept = append(kept, h.Name)
				if got := h.Cause.Reason; got != c.why && (got != fleet.ReasonProtectedKind || !manifest.IsProtected(h.ObjectRef)) {
					t.Errorf("%s is kept because of %s, want %s", h.Name, got, c.why)
				}
				if h.Cause.Message == "" {
					t.Errorf("%s is kept without a message", h.Name)
				}
			}
			if got := strings.Join(removed, " "); got != c.remove {
				t.Errorf("removes %q, want %q", got, c.remove)
			}
			if got := strings.Join(kept, " "); got != c.held {
				t.Errorf("holds %q, want %q", got, c.held)
			}
		})
	}
}

// covers: K2, A6
func TestATombstoneHoldsOrReleasesProtectedKinds(t *testing.T) {
	t.Parallel()
	claim, other := ref("PersistentVolumeClaim", "data"), ref("ConfigMap", "a")
	for reason, c := range map[string]struct {
		hold, confirmed, removed, released bool
	}{
		"released":                              {released: true},
		"released, whatever is confirmed":       {confirmed: true, released: true},
		"held until it is confirmed":            {hold: true},
		"deleted, as it is held, and confirmed": {hold: true, confirmed: true, removed: true},
	} {
		policy := willing()
		policy.Tombstone, policy.AllowEmpty, policy.Consent, policy.HoldProtected = true, true, true, c.hold
		if c.confirmed {
			policy.Confirmed = []string{claim.String()}
		}
		p := inventory.NewPlan(policy)
		if got := p.Decide(claim, ""); got.Cause.IsZero() != c.removed || got.Protected != c.released || !c.removed && !got.Confirmable {
			t.Errorf("%s: the claim is %+v", reason, got)
		}
		if got := p.Decide(other, inventory.HeldOverLimit); !got.Cause.IsZero() {
			t.Errorf("%s: the ConfigMap is %+v, want it deleted", reason, got)
		}
	}
}

// Whatever the lists and the policy: nothing desired and nothing unknown is ever deleted, nothing at
// all when anything is in doubt, and nothing is forgotten.
func TestPlanNeverDeletesTooMuch(t *testing.T) {
	t.Parallel()
	refs := rapid.Custom(func(t *rapid.T) fleet.ObjectRef {
		return fleet.ObjectRef{
			Group:   rapid.SampledFrom([]string{"", "apps", "apiextensions.k8s.io"}).Draw(t, "group"),
			Version: rapid.SampledFrom([]string{"v1", "v1beta1"}).Draw(t, "version"),
			Kind:    rapid.SampledFrom([]string{"ConfigMap", "Namespace", "PersistentVolumeClaim", "CustomResourceDefinition"}).Draw(t, "kind"),
			Name:    fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "name")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		desired := rapid.SliceOf(refs).Draw(t, "desired")
		var old []inventory.Entry
		var confirmed []string
		for _, r := range rapid.SliceOfDistinct(refs, inventory.KeyOf).Draw(t, "old") {
			old = append(old, inventory.Entry{ObjectRef: r, Held: rapid.SampledFrom([]inventory.Hold{"", inventory.HeldOverLimit, inventory.HeldAfterRecovery}).Draw(t, "held")})
			if rapid.Bool().Draw(t, "confirmed") {
				confirmed = append(confirmed, r.String())
			}
		}
		policy := inventory.Policy{
			Whole: rapid.Bool().Draw(t, "whole"), Prune: rapid.Bool().Draw(t, "prune"), Hold: rapid.Bool().Draw(t, "hold"),
			AllowEmpty: rapid.Bool().Draw(t, "allowEmpty"), Unsettled: rapid.IntRange(0, 2).Draw(t, "unsettled"),
			Damaged: rapid.SliceOfN(rapid.String(), 0, 1).Draw(t, "damaged"), Pending: rapid.Bool().Draw(t, "pending"),
			Consent: rapid.Bool().Draw(t, "consent"), Tombstone: rapid.Bool().Draw(t, "tombstone"), HoldProtected: rapid.Bool().Draw(t, "holdProtected"), Confirmed: confirmed, Total: rapid.IntRange(0, 30).Draw(t, "total"),
			Limit: fleet.PruneLimit{Objects: rapid.IntRange(0, 4).Draw(t, "objects"), Percent: rapid.IntRange(1, 100).Draw(t, "percent")},
		}
		remove, held := plan(old, desired, policy)

		wanted := map[inventory.Key]bool{}
		for _, r := range desired {
			wanted[inventory.KeyOf(r)] = true
		}
		for _, e := range remove {
			sure := slices.Contains(confirmed, e.String())
			if wanted[inventory.KeyOf(e.ObjectRef)] || !slices.Contains(old, e) || !sure && (e.Held != "" && !policy.Tombstone || manifest.IsProtected(e.ObjectRef)) {
				t.Errorf("deletes %s, which is desired, unknown, or held or protected and not confirmed", e.ObjectRef)
			}
			if !sure && !policy.Consent && !policy.Tombstone && policy.Limit.Exceeded(len(remove), max(policy.Total, len(remove))) {
				t.Errorf("deletes %d of %d, which is beyond %+v", len(remove), policy.Total, policy.Limit)
			}
		}
		doubt := policy.Pending || !policy.Whole || !policy.Prune || policy.Hold || policy.Unsettled > 0 || len(policy.Damaged) > 0 || len(desired) == 0 && !policy.AllowEmpty
		if doubt && len(remove) > 0 {
			t.Errorf("deletes %v although %+v", remove, policy)
		}
		gone := 0
		for _, e := range old {
			if !wanted[inventory.KeyOf(e.ObjectRef)] {
				gone++
			}
		}
		if len(remove)+len(held) != gone {
			t.Errorf("%d removed and %d held, want %d in all", len(remove), len(held), gone)
		}
	})
}
