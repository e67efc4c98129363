package restapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// holder lists two held objects for ever, and remembers where it was asked to go on.
type holder struct {
	*standin
	after *store.HeldObject
}

func (h holder) HeldPrunes(_ context.Context, _ auth.Principal, _, _, agent string, after store.HeldObject, limit int) ([]control.HeldPrune, error) {
	*h.after = after
	one := control.HeldPrune{HeldObject: store.HeldObject{Target: "tgt-1", Agent: agent, ObjectStatus: fleet.ObjectStatus{
		ObjectRef: fleet.ObjectRef{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:old"},
	}}}
	return []control.HeldPrune{one, one}[:min(limit, 2)], nil
}

func TestHeldPrunesArePaged(t *testing.T) {
	t.Parallel()
	var after store.HeldObject
	h := restapi.New(config(), holder{newStandin(), &after})
	const path = deployments + "/web/held-prunes?agent=prod&limit=1"
	got := do(t, h, "GET", path, "")
	const next = `"next":"prod/tgt-1/ClusterRole/rbac.authorization.k8s.io//system:old"`
	if got.status != 200 || !strings.Contains(got.body, next) {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	got = do(t, h, "GET", path+"&after=prod/tgt-1/ClusterRole/rbac.authorization.k8s.io//system:old", "")
	want := store.HeldObject{Target: "tgt-1", Agent: "prod", ObjectStatus: fleet.ObjectStatus{
		ObjectRef: fleet.ObjectRef{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:old"},
	}}
	if diff := cmp.Diff(want, after); diff != "" || got.status != 200 {
		t.Errorf("got %d %s %s", got.status, got.body, diff)
	}
	if got := do(t, h, "GET", path+"&after=prod", ""); got.status != 422 {
		t.Errorf("no cursor: got %d %s", got.status, got.body)
	}
}

func TestAPolicyThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{standin: newStandin()})
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
