package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// Two real Argo CDs are upgraded in order, while the server is killed in the middle. Versions that do not start, or whose
// repo server does not run, are rolled back in the first instance, and the second is never touched. Nothing is deleted.
// covers: E7, E6
func TestArgoCDIsUpgradedOneInstanceAfterAnother(t *testing.T) {
	t.Parallel()
	f := newEngineFleet(t)
	before := f.identities(t)
	pid := func(n int) int { return f.instances[n].PID(argocd.Controller) }
	first, second := pid(0), pid(1)

	f.start(t, "good", versionTwo, "3m")
	f.until(t, "good", func(u apiv1.EngineUpgrade) error {
		if u.Instances[0].Phase == "Pending" {
			return fmt.Errorf("%+v", u)
		}
		return nil
	})
	f.Kill()
	f.step(t) // the pod goes on without the server
	f.restart(t)
	u := f.untilPhase(t, "good", "Succeeded")
	if want := []string{"1 v2", "2 v2"}; !slices.Equal(f.starts, want) || pid(0) == first || pid(1) == second {
		t.Errorf("the instances started as %v, want %v", f.starts, want)
	}
	if one, two := u.Instances[0], u.Instances[1]; one.Phase != "Upgraded" || one.FinishedAt.IsZero() || one.FinishedAt.After(two.StartedAt) {
		t.Errorf("the second instance began at %s, and the first was checked at %s", two.StartedAt, one.FinishedAt)
	}
	// The canary was synced by an operation of its own, after the upgrade.
	operation := f.cluster.Kubectl(t, "-n", "argocd-1", "get", "applications", "-o",
		`jsonpath={range .items[?(@.spec.source.path=="canary-1")]}{.status.operationState.operation.info[0].value}{end}`)
	if !strings.HasPrefix(operation, "sync ") {
		t.Errorf("the last operation on the canary is %q", operation)
	}

	second = pid(1)
	for _, bad := range []struct{ name, version, reason string }{
		{"dead", versionDead, "EngineInstallTimedOut"}, {"broken", versionBroken, "EngineCanaryTimedOut"},
	} {
		f.starts = nil
		f.start(t, bad.name, bad.version, "20s")
		u := f.untilPhase(t, bad.name, "Halted")
		if one := u.Instances[0]; one.Phase != "RolledBack" || u.Reason != bad.reason || u.Instances[1].Phase != "Pending" || !strings.Contains(u.Message, `agent "eng-1"`) {
			t.Errorf("%s ended as %+v", bad.name, u)
		}
		if want := []string{"1 " + bad.version, "1 v2"}; !slices.Equal(f.starts, want) || pid(1) != second {
			t.Errorf("%s started the instances as %v, want %v", bad.name, f.starts, want)
		}
	}
	if diff := cmp.Diff(before, f.identities(t)); diff != "" {
		t.Errorf("something was deleted or created again:\n%s", diff)
	}
	if out := f.must(t, "describe", "engine-upgrade", "broken"); !strings.Contains(out, "EngineCanaryTimedOut") || !strings.Contains(out, "1 instance not touched") {
		t.Errorf("the description is\n%s", out)
	}
	// What Argo CD applies still follows Git.
	commit := f.repo.push(t, map[string]string{"bystander-1/cm.yaml": configMap("apps-1", "bystander", "two")})
	f.tenantClient(t, "default").look(t, f.repo.url)
	f.awaitDeployment(t, "bystander-1", healthyAt(commit, 1))
}
