package inventory_test

import (
	"encoding/json"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestHoldIsReadAsItWasWrittenByAnyBuild(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]inventory.Hold{
		`true`: inventory.HeldOverLimit, `false`: "", `"AfterRecovery"`: inventory.HeldAfterRecovery, `"Newer"`: "Newer",
	} {
		var got inventory.Hold
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", text, got, err, want)
		}
	}
	if inventory.Hold("Newer").Cause().IsZero() {
		t.Error("a hold of a newer build has no cause, so that it would not hold")
	}
}

// covers: A6 (restored old backup, agent rejoin: held until confirmed, by whatever version)
func TestPlanHoldsWhatARecoveryMissed(t *testing.T) {
	t.Parallel()
	desired := []fleet.ObjectRef{ref("ConfigMap", "stays")}
	lost := entry("ConfigMap", "lost")
	policy := willing()
	policy.Hold, policy.Confirmed = true, []string{"ConfigMap ns/lost"}
	_, held := plan([]inventory.Entry{lost}, desired, policy)
	if len(held) != 1 || held[0].Hold != inventory.HeldAfterRecovery || !held[0].Confirmable {
		t.Fatalf("holds %+v, want it held, whatever was confirmed before", held)
	}
	lost.Held = held[0].Hold
	policy.Hold, policy.Confirmed, policy.Consent = false, nil, true
	if remove, _ := plan([]inventory.Entry{lost}, desired, policy); len(remove) > 0 {
		t.Errorf("an edit removes %v", remove)
	}
	policy.Confirmed = []string{"ConfigMap ns/lost"}
	if remove, _ := plan([]inventory.Entry{lost}, desired, policy); len(remove) != 1 {
		t.Errorf("removes %v, want what was confirmed", remove)
	}
}

// covers: A6
func TestWhatARecoveryHoldsGoesOnlyWithADeploymentThatAUserDeletes(t *testing.T) {
	t.Parallel()
	ref := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"}
	for _, consent := range []bool{false, true} {
		plan := inventory.NewPlan(inventory.Policy{Whole: true, Prune: true, AllowEmpty: true, Tombstone: true, Consent: consent, Total: 1, Gone: 1})
		decision := plan.Decide(ref, inventory.HeldAfterRecovery)
		if deleted := decision.Cause.IsZero(); deleted != consent || decision.Protected == consent {
			t.Errorf("deleted by a user: %t, got %+v", consent, decision)
		}
	}
}
