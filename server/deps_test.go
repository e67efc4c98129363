package server_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/deptest"
)

// Invariants 1 and 2: a server that links no Kubernetes client can dial no cluster.
func TestServerLinksNothingForbidden(t *testing.T) {
	t.Parallel()
	deptest.Check(t, "github.com/kedge-dev/kedge/cmd/kedge-server", map[string]string{
		"k8s.io/client-go":                                 "the server opens no connection to a cluster",
		"sigs.k8s.io/controller-runtime":                   "the server runs no controllers in clusters",
		"github.com/kedge-dev/kedge/agent":                 "what an agent does is the agent's business",
		"github.com/kedge-dev/kedge/cli":                   "the CLI is a client of the server, not a part",
		"github.com/kedge-dev/kedge/internal/testkit":      "test code must not be in a product",
		"github.com/kedge-dev/kedge/internal/localcluster": "test clusters must not be in a product",
		"testing": "test code must not be in a product",
	})
}
