package restapi_test

import (
	"testing"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func TestDeletionSaysWhatBecomesOfObjects(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "DeleteDeployment", "?keepObjects=false": "DeleteDeployment", "?keepObjects=true": "DeleteDeploymentKeepObjects",
	} {
		calls := newStandin()
		got := do(t, restapi.New(config(), fake{standin: calls}), "DELETE", deployments+"/web"+query, "")
		other := map[string]string{"DeleteDeployment": "DeleteDeploymentKeepObjects", "DeleteDeploymentKeepObjects": "DeleteDeployment"}[want]
		if got.status != 202 || calls.count(want) != 1 || calls.count(other) != 0 {
			t.Errorf("DELETE %q answers %d and calls %s %d times, %s %d times", query, got.status, want, calls.count(want), other, calls.count(other))
		}
	}
	calls := newStandin()
	if got := do(t, restapi.New(config(), fake{standin: calls}), "DELETE", deployments+"/web?keepObjects=perhaps", ""); got.status != 422 || calls.count("DeleteDeployment") != 0 {
		t.Errorf("a word that is neither true nor false: %d", got.status)
	}
}
