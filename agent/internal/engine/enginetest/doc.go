// Package enginetest states the contract of [engine.Engine] against a real API server: one case
// per promise, each named by a sentence. Every engine runs all of it.
//
// Cases run in parallel on one cluster and keep apart by namespaces, agents and targets. They wait
// for statuses and events of the engine, and look at the cluster with a client that has all rights.
package enginetest

import (
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
	REST       *rest.Config
	Reporter   engine.Reporter
	Owner      ownerpolicy.Policy
}

// Harness makes the engines under test.
type Harness struct {
	Cluster *testkit.Cluster
	New     func(t testing.TB, o Options) engine.Engine
}

// Run runs every case.
func Run(t *testing.T, h Harness) {
	for _, group := range [][]testCase{applyCases, bulkCases, waveCases, policyCases, dryRunCases, driftModeCases, pruneCases, pruneGuardCases, tombstoneCases, detachCases, detachCrashCases, limitCases, ownerCases, impersonationCases, accountDiffCases, driftCases, paceCases, failureCases, installationCases, admissionCases, kindCases, ownershipCases, moveCases, replicaCases, reenrolCases, crashCases, crashAgainCases, faultCases, listFaultCases, outageCases, sourceCases, keepCases, randomCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, newWorld(t, h))
			})
		}
	}
}

// testCase is one promise.
type testCase struct {
	name string
	run  func(t *testing.T, w *world)
}
