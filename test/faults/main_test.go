// Package faults_test drives custom resources of several tenants with random steps while calls fail: 20 % of the
// database calls of the server, 20 % of the Kubernetes calls of server and agents, and random kill −9 of all of them. The
// programs, the API server, the Git server, and the databases are real. It checks that
//
//   - no object is ever deleted that every spec since its creation wants (invariant 4);
//   - everything has the state of the final resources after the faults end, and every status says so;
//   - no tenant sees objects of another one;
//   - nothing is left in the cluster or in the database after the resources are deleted;
//   - Argo CD has the newest credential of a push environment, and nothing of Kedge is left in its namespace. Argo CD is real, and
//     runs without faults;
//   - a deleted resource with the finalizer keeps its protected kinds until they are confirmed;
//   - every call site had faults. A call site of the database is the function that opens a transaction; one of Kubernetes
//     is a verb with a resource.
//
// Runs of processes cannot be repeated exactly, but steps and faults follow from the seed, which every run prints:
//
//	KEDGE_FAULT_STEPS=100 go test -run TestCustomResourcesOnSQLite -v ./test/faults -seed=42
package faults_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/postgres"
)

var pg postgres.Server

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the client; it may not be set concurrently
	testkit.Main(m, &pg)
}

// steps returns the number of steps of each tenant.
func steps(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("KEDGE_FAULT_STEPS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("KEDGE_FAULT_STEPS: %v", err)
	}
	return n
}
