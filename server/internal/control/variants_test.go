package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (r *replica) enrollIn(t *testing.T, name, region string) fleet.Agent {
	t.Helper()
	labels := map[string]string{}
	if region != "" {
		labels["region"] = region
	}
	e, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: name, Labels: labels})
	ok(t, err)
	return e.Agent
}

// byAgent returns the targets of a deployment by agent name.
func byAgent(d control.DeploymentView) map[string]control.TargetView {
	out := map[string]control.TargetView{}
	for _, t := range d.Targets {
		out[t.AgentName] = t
	}
	return out
}

// regional deploys one variant per region to paris and lyon (eu), boston (us) and mars (no region).
func regional(t *testing.T) (r *replica, first control.DeploymentView) {
	t.Helper()
	r = newReplica(t)
	r.enrollIn(t, "paris", "eu")
	r.enrollIn(t, "lyon", "eu")
	r.enrollIn(t, "boston", "us")
	r.enrollIn(t, "mars", "")
	commit := r.push(t, map[string]string{
		"overlays/eu/cm.yaml": configMap("a", "eu ${where}"), "overlays/us/cm.yaml": configMap("a", "us ${where}"),
	})
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: "app", Source: fleet.Source{
		RepoURL: r.url, Path: "overlays/{agent.labels.region}", Variables: map[string]string{"where": "in {agent.labels.region}"},
	}})
	ok(t, err)
	return r, r.await(t, "app", func(d control.DeploymentView) error {
		targets := byAgent(d)
		for _, name := range []string{"paris", "lyon", "boston"} {
			if targets[name].Desired.Commit != commit {
				return fmt.Errorf("%s: %+v; %s", name, targets[name].Desired, d.Message)
			}
		}
		return nil
	})
}

// covers: G13
func TestAgentsGetTheVariantOfTheirLabels(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	targets := byAgent(d)
	if targets["paris"].Desired.Digest != targets["lyon"].Desired.Digest || targets["paris"].Desired.Digest == targets["boston"].Desired.Digest {
		t.Errorf("paris %s, lyon %s, boston %s", targets["paris"].Desired.Digest, targets["lyon"].Desired.Digest, targets["boston"].Desired.Digest)
	}
	mars := targets["mars"]
	if mars.View.Sync != fleet.SyncFailed || !strings.Contains(mars.View.Message, `"region"`) || mars.Desired.Digest != "" {
		t.Errorf("an agent without the label reads %s: %q", mars.View.Sync, mars.View.Message)
	}
	revisions, err := r.Revisions(t.Context(), admin, "default", "app", store.Page{})
	ok(t, err)
	if len(revisions) != 1 || len(revisions[0].Bundles) != 2 {
		t.Errorf("kept: %+v", revisions)
	}
	// A commit that touches one region moves that region only.
	commit := r.push(t, map[string]string{"overlays/eu/cm.yaml": configMap("a", "changed ${where}")})
	after := byAgent(r.await(t, "app", func(d control.DeploymentView) error {
		if byAgent(d)["lyon"].Desired.Commit != commit {
			return errors.New("not there yet")
		}
		return nil
	}))
	if after["paris"].Desired.Generation != 2 || after["boston"].Desired.Generation != 1 {
		t.Errorf("paris is at %+v, boston at %+v", after["paris"].Desired, after["boston"].Desired)
	}
}

// covers: G13
func TestARelabelledAgentGetsAnotherVariant(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	was := byAgent(d)
	relabel := func(name, region string) {
		t.Helper()
		_, err := r.UpdateAgent(t.Context(), admin, "default", name, control.UpdateAgent{Labels: &map[string]string{"region": region}}, control.Match{})
		ok(t, err)
	}
	relabel("mars", "us") // shared: it is there at once
	now, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if got := byAgent(now)["mars"]; got.Desired.Digest != was["boston"].Desired.Digest || got.View.Sync == fleet.SyncFailed {
		t.Errorf("mars was given %+v: %s", got.Desired, got.View.Message)
	}
	relabel("mars", "asia") // nobody has rendered it yet, and there is no such folder
	broken := r.await(t, "app", func(d control.DeploymentView) error {
		if got := byAgent(d)["mars"].View; !strings.Contains(got.Message, "overlays/asia") {
			return fmt.Errorf("mars reads %s: %q", got.Sync, got.Message)
		}
		return nil
	})
	if got := byAgent(broken); got["mars"].Desired.Digest != was["boston"].Desired.Digest || got["paris"].View.Sync == fleet.SyncFailed {
		t.Errorf("mars %+v, paris %+v", got["mars"].Desired, got["paris"].View)
	}
	if broken.Sync != fleet.SyncFailed || !strings.Contains(broken.Message, `"mars"`) {
		t.Errorf("the deployment reads %s: %q", broken.Sync, broken.Message)
	}
	r.push(t, map[string]string{"overlays/asia/cm.yaml": configMap("a", "asia")})
	r.await(t, "app", func(d control.DeploymentView) error {
		if got := byAgent(d)["mars"]; got.Desired.Digest == was["boston"].Desired.Digest || d.SourceError != "" {
			return fmt.Errorf("mars has %+v; %q", got.Desired, d.SourceError)
		}
		return nil
	})
}

// covers: G13 (an undefined variable is an error that names it)
func TestAnUndefinedVariableIsNamedAndDisturbsNothing(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	was := byAgent(d)
	r.push(t, map[string]string{"overlays/us/cm.yaml": configMap("a", "${nope}"), "overlays/eu/cm.yaml": configMap("a", "fine")})
	broken := byAgent(r.await(t, "app", func(d control.DeploymentView) error {
		if got := byAgent(d)["boston"].View; !strings.Contains(got.Message, `"nope"`) || !strings.Contains(got.Message, "overlays/us/cm.yaml") {
			return fmt.Errorf("boston reads %q", got.Message)
		}
		return nil
	}))
	if broken["boston"].Desired.Version != was["boston"].Desired.Version {
		t.Errorf("boston was disturbed: %+v", broken["boston"].Desired)
	}
	if broken["paris"].Desired.Generation != 2 {
		t.Errorf("paris waits for boston: %+v", broken["paris"].Desired)
	}
}

// The same deployment may start and stop to refer to agents.
func TestASourceThatBeginsAndCeasesToSpeakOfAgents(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	eu := byAgent(d)["paris"].Desired.Digest
	_, err := r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{
		Source: &fleet.Source{RepoURL: r.url, Path: "overlays/us", Variables: map[string]string{"where": "everywhere"}},
	}, control.Match{})
	ok(t, err)
	plain := r.await(t, "app", func(d control.DeploymentView) error {
		for name, target := range byAgent(d) {
			if target.Desired.Digest == "" || target.Desired.Digest != d.Rendered.Digest {
				return fmt.Errorf("%s has %q; %s", name, target.Desired.Digest, d.Message)
			}
		}
		return nil
	})
	if plain.Rendered.Digest == eu {
		t.Fatal("the source was not read")
	}
	_, err = r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{Source: &d.Source}, control.Match{})
	ok(t, err)
	r.await(t, "app", func(d control.DeploymentView) error {
		if got := byAgent(d); got["paris"].Desired.Digest != eu || got["mars"].Desired.Digest != plain.Rendered.Digest {
			return fmt.Errorf("paris %q, mars %q", got["paris"].Desired.Digest, got["mars"].Desired.Digest)
		}
		return nil
	})
}
