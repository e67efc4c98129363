package restapi_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func TestHeldPrunesArePaged(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	const path = deployments + "/pod/held-prunes?agent=prod&limit=1"
	got := do(t, h, "GET", path, "")
	const next = "prod/tgt-3/ClusterRole/rbac.authorization.k8s.io//system:old"
	if got.status != 200 || !strings.Contains(got.body, `"next":"`+next+`"`) || strings.Contains(got.body, "ConfigMap") {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	got = do(t, h, "GET", path+"&after="+next, "")
	if got.status != 200 || !strings.Contains(got.body, "ConfigMap shop/old") || strings.Contains(got.body, "system:old") || !strings.Contains(got.body, `"next":""`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := do(t, h, "GET", deployments+"/pod/held-prunes?agent=lost", ""); got.status != 422 || !strings.Contains(got.detail(t), "query.agent") {
		t.Errorf("another agent: got %d %s", got.status, got.body)
	}
	if got := do(t, h, "GET", path+"&after=prod", ""); got.status != 422 {
		t.Errorf("no cursor: got %d %s", got.status, got.body)
	}
}

func TestAPolicyThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	for body, field := range map[string]string{
		`{"policy":{"pruneTimeout":"5"}}`:                       "policy.pruneTimeout",
		`{"policy":{"readyTimeout":"soon"}}`:                    "policy.readyTimeout",
		`{"policy":{"pruneLimit":{"objects":1}}}`:               "percent",
		`{"policy":{"pruneLimit":{"objects":1,"percent":101}}}`: "percent",
		`{"policy":{"forceful":true}}`:                          "forceful",
		`{"policy":{"ignore":"*:/spec/replicas"}}`:              "ignore",
	} {
		if got := do(t, h, "PATCH", deployments+"/web", body); got.status != 422 || !strings.Contains(got.body, field) {
			t.Errorf("%s: got %d %s", body, got.status, got.body)
		}
	}
}
