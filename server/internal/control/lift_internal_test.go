package control

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// troubled is a real store with injected failures.
type troubled struct {
	store.Store
	before func() error                      // of each write transaction; nil for none
	after  func()                            // each write transaction that was made; nil for nothing
	target func(store.Targets) store.Targets // in write transactions; nil for as it is
}

func (s *troubled) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	err := s.Store.Update(ctx, func(tx store.Tx) error { return fn(troubledTx{tx, s}) })
	if err == nil && s.after != nil {
		s.after()
	}
	return err
}

type troubledTx struct {
	store.Tx
	of *troubled
}

func (t troubledTx) Targets() store.Targets {
	if t.of.target == nil {
		return t.Tx.Targets()
	}
	return t.of.target(t.Tx.Targets())
}

// refusing fails for the targets of one deployment.
type refusing struct {
	store.Targets
	deployment string
}

var errDisk = errors.New("the disk is full")

func (r refusing) OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error) {
	targets, err := r.Targets.OfDeployment(ctx, tenant, id)
	if len(targets) > 0 && targets[0].DeploymentName == r.deployment {
		return nil, errDisk
	}
	return targets, err
}

// lifts are the ways to suspend many deployments together, and to resume them.
var lifts = map[string]struct {
	hold func(ctx context.Context, s *Service) error
	lift func(ctx context.Context, s *Service) error
}{
	"Fleet": {
		func(ctx context.Context, s *Service) error {
			_, err := s.Freeze(ctx, auth.System(), "audit")
			return err
		},
		func(ctx context.Context, s *Service) error { _, err := s.Unfreeze(ctx, auth.System()); return err },
	},
	"Tenant": {
		func(ctx context.Context, s *Service) error {
			_, err := s.SuspendTenant(ctx, auth.System(), "default", "audit")
			return err
		},
		func(ctx context.Context, s *Service) error {
			_, err := s.ResumeTenant(ctx, auth.System(), "default")
			return err
		},
	},
	"Environment": {
		func(ctx context.Context, s *Service) error {
			_, err := s.SuspendEnvironment(ctx, auth.System(), "default", "default", "audit")
			return err
		},
		func(ctx context.Context, s *Service) error {
			_, err := s.ResumeEnvironment(ctx, auth.System(), "default", "default")
			return err
		},
	},
}

// heldFleet is a server with the deployments a, b, and c on one agent, which were edited while they were
// suspended: each has missed a policy change that needs no render.
func heldFleet(t *testing.T, path string, hold func(context.Context, *Service) error) (*Service, *troubled) {
	t.Helper()
	s := openService(t, path, Config{}, &scripted{})
	if _, err := s.EnrollAgent(t.Context(), auth.System(), "default", EnrollAgent{Name: "paris"}); err != nil {
		t.Fatal(err)
	}
	stop := atWork(t, s)
	for _, name := range []string{"a", "b", "c"} {
		deployFrom(t, s, "default", name, "https://example.com/"+name+".git")
		awaitRendered(t, s, "default", name)
	}
	stop()
	if err := hold(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	policy := fleet.Policy{Prune: true, Adopt: true}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.UpdateDeployment(t.Context(), auth.System(), "default", name, UpdateDeployment{Policy: &policy}, Match{}); err != nil {
			t.Fatal(err)
		}
	}
	if missed := behindOf(t, s); len(missed) != 3 {
		t.Fatalf("only %v were held", missed)
	}
	trouble := &troubled{Store: s.store}
	s.store = trouble
	return s, trouble
}

// behindOf returns the deployments whose targets have missed the new policy.
func behindOf(t *testing.T, s *Service) []string {
	t.Helper()
	var missed []string
	for _, name := range []string{"a", "b", "c"} {
		d, err := s.Deployment(t.Context(), auth.System(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Targets[0].Desired.Policy.Adopt {
			missed = append(missed, name)
		}
	}
	return missed
}

// The resume is committed, and then the database is unavailable: no target gets anything. Another resume
// finishes it.
func TestALiftThatWasCutShortIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	for name, level := range lifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, trouble := heldFleet(t, sqlitetest.Path(t), level.hold)
			writes := 0
			trouble.before = func() error {
				if writes++; writes > 1 {
					return store.ErrUnavailable
				}
				return nil
			}
			if err := level.lift(t.Context(), s); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("a resume that reached no target returned %v", err)
			}
			trouble.before = nil
			if missed := behindOf(t, s); len(missed) != 3 {
				t.Fatalf("only %v have missed it: the trouble came too late", missed)
			}
			if err := level.lift(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if missed := behindOf(t, s); len(missed) != 0 {
				t.Errorf("%v were never given what they missed", missed)
			}
		})
	}
}

// There is no second resume, but the server is restarted, or another one takes over.
func TestALiftThatWasCutShortIsFinishedByAServerThatStarts(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Path(t)
	s, trouble := heldFleet(t, path, lifts["Fleet"].hold)
	writes := 0
	trouble.before = func() error {
		if writes++; writes > 1 {
			return store.ErrUnavailable
		}
		return nil
	}
	if err := lifts["Fleet"].lift(t.Context(), s); err == nil {
		t.Fatal("a resume that reached no target succeeded")
	}
	_ = trouble.Close()
	next := openService(t, path, Config{}, &scripted{})
	atWork(t, next)
	testkit.Eventually(t, 30*time.Second, func(context.Context) error {
		if missed := behindOf(t, next); len(missed) != 0 {
			return fmt.Errorf("%v were not given what they missed", missed)
		}
		return nil
	})
}

// A caller that disconnects has still ended the freeze.
func TestALiftWhoseCallerLeavesReachesEverybody(t *testing.T) {
	t.Parallel()
	for name, level := range lifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, trouble := heldFleet(t, sqlitetest.Path(t), level.hold)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			trouble.after = leave
			if err := level.lift(ctx, s); err != nil {
				t.Errorf("a lift whose caller has left says %v", err)
			}
			if missed := behindOf(t, s); len(missed) != 0 {
				t.Errorf("%v were never given what they missed", missed)
			}
		})
	}
}

// Invariant 12: a failed write delays no other.
func TestALiftGoesOnAfterADeploymentThatFails(t *testing.T) {
	t.Parallel()
	for name, level := range lifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, trouble := heldFleet(t, sqlitetest.Path(t), level.hold)
			trouble.target = func(targets store.Targets) store.Targets { return refusing{targets, "b"} }
			if err := level.lift(t.Context(), s); !errors.Is(err, errDisk) {
				t.Errorf("a lift that could not reach b says %v", err)
			}
			trouble.target = nil
			if missed := behindOf(t, s); len(missed) != 1 || missed[0] != "b" {
				t.Errorf("%v have missed it, want b alone", missed)
			}
		})
	}
}
