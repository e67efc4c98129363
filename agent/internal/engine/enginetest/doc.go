// Package enginetest states the contract of [engine.Engine] against a real API server: one case
// per promise, each named by a sentence. Every engine runs all of it, but for what its harness leaves
// out with a reason: an engine that has another controller apply makes some promises in another way.
//
// Cases run in parallel on one cluster and keep apart by namespaces, agents and targets. They wait
// for statuses and events of the engine, and look at the cluster with a client that has all rights.
package enginetest

import (
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// Options is what a case asks of an engine.
type Options struct {
	Agent      fleet.AgentID
	Namespace  string // of the agent
	Scope      fleet.Scope
	Namespaces []string
	Kinds      fleet.KindFilter
	REST       *rest.Config
	Reporter   engine.Reporter
	Owner      ownerpolicy.Policy
}

// Harness makes the engines under test.
type Harness struct {
	Cluster *testkit.Cluster
	New     func(t testing.TB, o Options) engine.Engine
	// ArgoCD is the namespace of the Argo CD that applies for the engine; "" for an engine that applies by itself.
	ArgoCD string
	// Skip has the names of cases that the engine does not have to pass, each with the reason.
	Skip map[string]string
}

// Run runs every case.
func Run(t *testing.T, h Harness) {
	all := slices.Concat(applyCases, bulkCases, waveCases, policyCases, dryRunCases, driftModeCases, pruneCases, pruneGuardCases,
		tombstoneCases, tombstoneHoldCases, detachCases, detachCrashCases, limitCases, kindFilterCases, ownerCases, impersonationCases, accountDiffCases, driftCases, paceCases,
		failureCases, installationCases, admissionCases, webhookCases, kindCases, customHealthCases, unreadyCases, createNamespaceCases, ownershipCases, moveCases, handOverCases, replicaCases, reenrollCases, recoveryCases, keepMarkCases, finishedCases, renamedCases, crashCases,
		crashAgainCases, faultCases, listFaultCases, outageCases, sourceCases, keepCases, randomCases)
	if unknown := h.unknown(all); len(unknown) > 0 {
		t.Errorf("there is no case named %q to skip", unknown)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if why, skipped := h.Skip[c.name]; skipped {
				t.Skip(why)
			}
			c.run(t, newWorld(t, h))
		})
	}
}

// unknown returns what is to be skipped and is no case.
func (h Harness) unknown(all []testCase) (names []string) {
	for name := range h.Skip {
		if !slices.ContainsFunc(all, func(c testCase) bool { return c.name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// testCase is one promise.
type testCase struct {
	name string
	run  func(t *testing.T, w *world)
}
