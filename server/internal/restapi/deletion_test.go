package restapi_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func TestDeletionSaysWhatBecomesOfObjects(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]fleet.Desired{
		"": {Tombstone: true, Consent: true}, "?keepObjects=false": {Tombstone: true, Consent: true}, "?keepObjects=true": {Detached: true},
	} {
		f := newFixture(t)
		answer := do(t, restapi.New(config(), f), "DELETE", deployments+"/pod"+query, "")
		target, _ := f.target(t, "tgt-3")
		got := fleet.Desired{Tombstone: target.Desired.Tombstone, Consent: target.Desired.Consent, Detached: target.Desired.Detached}
		if answer.status != 202 || got.Tombstone != want.Tombstone || got.Consent != want.Consent || got.Detached != want.Detached {
			t.Errorf("DELETE %q answers %d, and the target is to be %+v, want %+v", query, answer.status, got, want)
		}
	}
	f := newFixture(t)
	before := f.lastChange(t)
	if got := do(t, restapi.New(config(), f), "DELETE", deployments+"/pod?keepObjects=perhaps", ""); got.status != 422 || f.lastChange(t) != before {
		t.Errorf("a value that is neither true nor false: %d", got.status)
	}
}
