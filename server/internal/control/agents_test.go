package control_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// An agent that is deleted has perhaps only lost its way to the server: nothing in its cluster may
// be deleted because of it.
func TestDeletedAgentLeavesItsObjectsAlone(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	commit := r.push(t, map[string]string{"web/a.yaml": configMap("a", "1")})
	made, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	r.enroll(t, "other")
	r.deploy(t, "web", "web")
	r.await(t, "web", atCommit(commit))

	before := r.lastChange(t)
	if err := r.DeleteAgent(t.Context(), admin, "default", "prod"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.AuthenticateAgent(t.Context(), made.Token); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("its token: %v, want it refused", err)
	}
	d, err := r.Deployment(t.Context(), admin, "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Targets) != 1 || d.Targets[0].AgentName != "other" || d.Targets[0].Desired.Tombstone {
		t.Errorf("targets left: %+v, want that of the other agent, to be kept", d.Targets)
	}
	targets, err := r.TargetsOf(t.Context(), made.Agent, nil)
	if err != nil || len(targets) != 0 {
		t.Errorf("the agent would still be told of %+v, %v; want no tombstone or any other target", targets, err)
	}
	if kinds := r.changesAfter(t, before); !slices.Contains(kinds, store.ChangeToken) || !slices.Contains(kinds, store.ChangeAgent) {
		t.Errorf("changes %v, want those that end its sessions", kinds)
	}
	r.wantEvent(t, "AgentDeleted")
	r.enroll(t, "prod") // its name is free
}

// A deployment on its way out waits for its agents; one that is gone never answers.
func TestDeletedAgentHoldsNoDeletedDeployment(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	commit := r.push(t, map[string]string{"web/a.yaml": configMap("a", "1")})
	r.enroll(t, "lost")
	r.deploy(t, "web", "web")
	r.await(t, "web", atCommit(commit))
	if err := r.DeleteDeployment(t.Context(), admin, "default", "web"); err != nil {
		t.Fatal(err)
	}
	listed := func() int {
		t.Helper()
		all, err := r.Deployments(t.Context(), admin, "default", store.Page{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if got := listed(); got != 1 {
		t.Fatalf("%d deployments, want one that waits for its agent", got)
	}
	if err := r.DeleteAgent(t.Context(), admin, "default", "lost"); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != 0 {
		t.Errorf("%d deployments wait for an agent that is gone", got)
	}
}

func TestAgentIsDeletedByThoseWhoMay(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.enroll(t, "prod")
	if err := r.DeleteAgent(t.Context(), admin, "default", "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an agent that is not there: %v", err)
	}
	stranger := auth.Principal{Name: "stranger"}
	if err := r.DeleteAgent(t.Context(), stranger, "default", "prod"); err == nil {
		t.Error("a principal without a role deleted an agent")
	}
}

func (r *room) lastChange(t *testing.T) int64 {
	t.Helper()
	var last int64
	err := r.store.View(t.Context(), func(tx store.Tx) (err error) {
		last, err = tx.Changes().Last(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func (r *room) wantEvent(t *testing.T, reason string) {
	t.Helper()
	events, err := r.Events(t.Context(), admin, "default", store.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(e fleet.Event) bool { return e.Reason == reason }) {
		t.Errorf("no event %s in %+v", reason, events)
	}
}

func (r *room) changesAfter(t *testing.T, seq int64) []store.ChangeKind {
	t.Helper()
	var kinds []store.ChangeKind
	err := r.store.View(t.Context(), func(tx store.Tx) error {
		changes, err := tx.Changes().AfterAllTenants(t.Context(), seq, 0)
		for _, c := range changes {
			kinds = append(kinds, c.Kind)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}
