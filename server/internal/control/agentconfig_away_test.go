package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// refresh reads every repository now.
func (r *replica) refresh(t *testing.T) {
	t.Helper()
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	for _, repo := range repos {
		ok(t, r.RefreshRepository(t.Context(), admin, "default", repo.ID))
	}
}

// covers: F1 (a repository that cannot be read means nothing)
func TestAVanishedRepositoryChangesNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web!"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
	before := r.await(t, "paris.web", atCommit(first))
	for _, vanish := range []struct {
		what string
		do   func(repo string) error
	}{{"cannot be read", r.git.Remove}, {"is empty", r.git.Create}} {
		name := vanish.what
		ok(t, vanish.do("apps"))
		r.refresh(t)
		c := r.awaitConfig(t, "paris", func(c control.AgentConfigView) error {
			if c.RepositoryError == "" || strings.Contains(c.RepositoryError, "is empty") != (name == "is empty") {
				return fmt.Errorf("of a repository that %s is said %q", name, c.RepositoryError)
			}
			return nil
		})
		wantDeclared(t, c, "web")
		agent, err := r.Agent(t.Context(), admin, "default", "paris")
		ok(t, err)
		if agent.ConfigWarning.Reason != fleet.ReasonRepositoryUnreadable {
			t.Errorf("with a repository that %s the warning is %+v", name, agent.ConfigWarning)
		}
		after := r.await(t, "paris.web", func(control.DeploymentView) error { return nil })
		if after.Targets[0].Desired.Version != before.Targets[0].Desired.Version {
			t.Errorf("with a repository that %s web got %+v", name, after.Targets[0].Desired)
		}
	}
}

func TestWhileSuspendedNothingIsLetGo(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db!"), "web/cm.yaml": configMap("web", "1"), "db/cm.yaml": configMap("db", "1")})
	r.configure(t, "paris")
	r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
	r.await(t, "paris.db", atCommit(first))
	ok(t, errIgnored(r.SuspendEnvironment(t.Context(), admin, "default", "agent.paris", "holidays")))
	second := r.push(t, map[string]string{kedgeFile("paris"): declares("cache"), "cache/cm.yaml": configMap("cache", "1")})
	c := r.awaitConfig(t, "paris", inState(fleet.ConfigRefused, second))
	wantDeclared(t, c, "db", "web")
	if !strings.Contains(c.Errors[0].Message, "holidays") && !strings.Contains(c.Errors[0].Message, "suspended") {
		t.Errorf("got errors %v, want one with the suspension", c.Errors)
	}
	ok(t, errIgnored(r.ResumeEnvironment(t.Context(), admin, "default", "agent.paris")))
	r.refresh(t)
	wantDeclared(t, r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, second)), "-web", "cache")
}
