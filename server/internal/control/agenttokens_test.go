package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	chosen = "9f8c2d4b7a1e605f3b6d8e0c5a7f1942"
	// touchEveryLess is not yet worth a write.
	touchEveryLess = 40 * time.Minute
)

// covers: C5
func TestUserMayChooseTheToken(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris", Token: chosen})
	ok(t, err)
	if made.Token != chosen {
		t.Errorf("got another token")
	}
	agent, tenant, err := d.AuthenticateAgent(d.ctx, chosen)
	ok(t, err)
	if agent.Name != "paris" || tenant.Name != "default" {
		t.Errorf("got %+v of %+v", agent, tenant)
	}
	_, err = d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "rome", Token: chosen})
	wantInvalid(t, err, "token")
	_, _, err = d.CreateAgentToken(d.ctx, root, "default", "paris", "passwordpasswordpasswordpassword")
	wantInvalid(t, err, "token")
	if !strings.Contains(err.Error(), "openssl rand -hex 32") {
		t.Errorf("the refusal does not say what would be strong enough: %v", err)
	}
}

// covers: C7
func TestAgentHasAtMostTwoValidTokens(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris"})
	ok(t, err)
	second, secret, err := d.CreateAgentToken(d.ctx, root, "default", "paris", "")
	ok(t, err)
	_, _, err = d.CreateAgentToken(d.ctx, root, "default", "paris", "")
	wantConflict(t, err, "revoke")
	for _, token := range []string{made.Token, secret} {
		if _, _, err := d.AuthenticateAgent(d.ctx, token); err != nil {
			t.Errorf("both are valid: %v", err)
		}
	}
	before := d.lastChange(t)
	ok(t, d.RevokeAgentToken(d.ctx, root, "default", "paris", second.ID))
	if _, _, err := d.AuthenticateAgent(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("a revoked one: %v", err)
	}
	if !slices.Contains(d.changesAfter(t, before), store.ChangeToken) {
		t.Error("the revocation is not in the change feed")
	}
	quiet := d.lastChange(t)
	ok(t, d.RevokeAgentToken(d.ctx, root, "default", "paris", second.ID))
	if d.lastChange(t) != quiet {
		t.Error("a second revocation is a change")
	}
	_, _, err = d.CreateAgentToken(d.ctx, root, "default", "paris", "")
	ok(t, err)
	d.enroll(t, "default", "rome", nil)
	tokens, err := d.AgentTokens(d.ctx, root, "default", "rome", store.Page{})
	ok(t, err)
	if err := d.RevokeAgentToken(d.ctx, root, "default", "paris", tokens[0].ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the token of another agent: %v", err)
	}
}

func TestLastUseOfATokenIsKeptCoarsely(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris"})
	ok(t, err)
	used := func() fleet.AgentToken {
		t.Helper()
		_, _, err := d.AuthenticateAgent(d.ctx, made.Token)
		ok(t, err)
		tokens, err := d.AgentTokens(d.ctx, root, "default", "paris", store.Page{})
		ok(t, err)
		return tokens[0]
	}
	first := d.clock.Now()
	if got := used().LastUsed; !got.Equal(first) {
		t.Fatalf("got %s", got)
	}
	d.clock.pass(touchEveryLess)
	if got := used().LastUsed; !got.Equal(first) {
		t.Errorf("written again after %s", touchEveryLess)
	}
	d.clock.pass(touchEveryLess)
	if got := used().LastUsed; got.Equal(first) {
		t.Error("not written after an hour")
	}
}

// covers: C7
func TestRotationInBand(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris"})
	ok(t, err)
	op, err := d.RotateAgentToken(d.ctx, root, "default", "paris")
	ok(t, err)
	if op.State != fleet.OperationWaiting || op.ResourceID != string(made.Agent.ID) || op.Action != control.ActionRotate || op.Kind != "agent" {
		t.Fatalf("got %+v", op)
	}
	if again, err := d.RotateAgentToken(d.ctx, root, "default", "paris"); err != nil || again.ID != op.ID {
		t.Fatalf("asked for twice: %+v, %v", again, err)
	}
	d.clock.pass(time.Second) // tokens are listed by age
	lost, _, err := d.MintAgentToken(d.ctx, made.Agent, op.ID)
	ok(t, err)
	// The connection broke before the agent had stored it: the next attempt has a new token.
	secret, id, err := d.MintAgentToken(d.ctx, made.Agent, op.ID)
	ok(t, err)
	if _, _, err := d.AuthenticateAgent(d.ctx, lost); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("the token that was lost on the way: %v", err)
	}
	for _, token := range []string{made.Token, secret} {
		if _, _, err := d.AuthenticateAgent(d.ctx, token); err != nil {
			t.Errorf("both work until the agent has come back: %v", err)
		}
	}
	tokens, err := d.AgentTokens(d.ctx, root, "default", "paris", store.Page{})
	ok(t, err)
	ok(t, d.TokenRotated(d.ctx, made.Agent, tokens[0].ID)) // it came back with the old one
	if op, err = d.Operation(d.ctx, root, "default", op.ID); err != nil || op.State != fleet.OperationInProgress {
		t.Fatalf("under way: %+v, %v", op, err)
	}
	ok(t, d.TokenRotated(d.ctx, made.Agent, id))
	if op, err = d.Operation(d.ctx, root, "default", op.ID); err != nil || op.State != fleet.OperationCompleted {
		t.Fatalf("done: %+v, %v", op, err)
	}
	if _, _, err := d.AuthenticateAgent(d.ctx, made.Token); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("the old token: %v", err)
	}
	if _, _, err := d.AuthenticateAgent(d.ctx, secret); err != nil {
		t.Errorf("the new token: %v", err)
	}
	_, _, err = d.MintAgentToken(d.ctx, made.Agent, op.ID)
	wantConflict(t, err, "not an open rotation")
	quiet := d.lastChange(t)
	ok(t, d.TokenRotated(d.ctx, made.Agent, id))
	if d.lastChange(t) != quiet {
		t.Error("said twice, it is a change")
	}
}

func TestRotationThatFailsLeavesTheOldTokenAndIsSeen(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris"})
	ok(t, err)
	op, err := d.RotateAgentToken(d.ctx, root, "default", "paris")
	ok(t, err)
	secret, _, err := d.MintAgentToken(d.ctx, made.Agent, op.ID)
	ok(t, err)
	ok(t, d.TokenRotationFailed(d.ctx, made.Agent, op.ID, "the Secret is read-only"))
	if _, _, err := d.AuthenticateAgent(d.ctx, made.Token); err != nil {
		t.Errorf("the old token: %v", err)
	}
	if _, _, err := d.AuthenticateAgent(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("the new token: %v", err)
	}
	v, err := d.Agent(d.ctx, root, "default", "paris")
	ok(t, err)
	if len(v.Warnings) != 1 || v.Warnings[0].Reason != fleet.ReasonTokenRotationFailed || !strings.Contains(v.Warnings[0].Message, "the Secret is read-only") {
		t.Errorf("the failure is not seen on the agent: %v", v.Warnings)
	}
	if op, err = d.RotateAgentToken(d.ctx, root, "default", "paris"); err != nil || op.State != fleet.OperationWaiting {
		t.Errorf("another try: %+v, %v", op, err)
	}
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
	if op, err = d.Operation(d.ctx, root, "default", op.ID); err != nil || op.State != fleet.OperationFailed {
		t.Errorf("an operation is left without its agent: %+v, %v", op, err)
	}
}

func TestRotationNeedsReplicaForASecondToken(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	token, _, err := d.CreateAgentToken(d.ctx, root, "default", "paris", "")
	ok(t, err)
	_, err = d.RotateAgentToken(d.ctx, root, "default", "paris")
	wantConflict(t, err, "exactly one")
	ok(t, d.RevokeAgentToken(d.ctx, root, "default", "paris", token.ID))
	_, err = d.RotateAgentToken(d.ctx, root, "default", "paris")
	ok(t, err)
}
