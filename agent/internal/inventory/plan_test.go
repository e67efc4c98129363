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

// willing is the one policy under which Plan deletes.
func willing() inventory.Policy { return inventory.Policy{Whole: true, Prune: true} }

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
		why     string
	}{
		{reason: "deletes what is gone from a whole bundle, but not protected kinds",
			policy: func(*inventory.Policy) {}, desired: desired, remove: "goes", held: "data", why: "protected"},
		{reason: "a bundle that is not whole says nothing about what is gone",
			policy: func(p *inventory.Policy) { p.Whole = false }, desired: desired, held: "goes data", why: "whole"},
		{reason: "pruning is off",
			policy: func(p *inventory.Policy) { p.Prune = false }, desired: desired, held: "goes data", why: "off"},
		{reason: "pruning is held",
			policy: func(p *inventory.Policy) { p.Hold = true }, desired: desired, held: "goes data", why: "held"},
		{reason: "an object failed",
			policy: func(p *inventory.Policy) { p.Unsettled = 1 }, desired: desired, held: "goes data", why: "nothing is pruned"},
		{reason: "the inventory is damaged",
			policy: func(p *inventory.Policy) { p.Damaged = []string{"chunk"} }, desired: desired, held: "goes data", why: "chunk"},
		{reason: "others may desire it and have not said so yet",
			policy: func(p *inventory.Policy) { p.Pending = true }, desired: desired, held: "goes data", why: "e"},
		{reason: "an empty bundle is a mistake",
			policy: func(*inventory.Policy) {}, held: "goes stays data", why: "empty"},
		{reason: "an empty bundle is meant",
			policy: func(p *inventory.Policy) { p.AllowEmpty = true }, remove: "goes stays", held: "data", why: "protected"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			policy := willing()
			c.policy(&policy)
			remove, held := inventory.Plan(old, c.desired, policy)
			var removed, kept []string
			for _, e := range remove {
				removed = append(removed, e.Name)
			}
			for _, h := range held {
				kept = append(kept, h.Name)
				if !strings.Contains(h.Reason, c.why) {
					t.Errorf("%s is kept because %q, want %q in it", h.Name, h.Reason, c.why)
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
		for _, r := range rapid.SliceOfDistinct(refs, inventory.KeyOf).Draw(t, "old") {
			old = append(old, inventory.Entry{ObjectRef: r})
		}
		policy := inventory.Policy{
			Whole: rapid.Bool().Draw(t, "whole"), Prune: rapid.Bool().Draw(t, "prune"), Hold: rapid.Bool().Draw(t, "hold"),
			AllowEmpty: rapid.Bool().Draw(t, "allowEmpty"), Unsettled: rapid.IntRange(0, 2).Draw(t, "unsettled"),
			Damaged: rapid.SliceOfN(rapid.String(), 0, 1).Draw(t, "damaged"), Pending: rapid.Bool().Draw(t, "pending"),
		}
		remove, held := inventory.Plan(old, desired, policy)

		wanted := map[inventory.Key]bool{}
		for _, r := range desired {
			wanted[inventory.KeyOf(r)] = true
		}
		for _, e := range remove {
			if wanted[inventory.KeyOf(e.ObjectRef)] || !slices.Contains(old, e) || manifest.IsProtected(e.ObjectRef) {
				t.Errorf("deletes %s, which is desired, unknown or protected", e.ObjectRef)
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
