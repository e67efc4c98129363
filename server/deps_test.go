package server_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/deptest"
)

// Invariants 1 and 2: a server without a Kubernetes client can dial no cluster. The program links one,
// and testing too, because Helm does; only the renderers use it, which run in a process without a network.
func TestServerLinksNothingForbidden(t *testing.T) {
	t.Parallel()
	deptest.Check(t, "github.com/kedge-dev/kedge/server", map[string]string{
		"k8s.io/client-go":           "the server opens no connection to a cluster",
		"testing":                    "test code must not be in a product",
		"helm.sh/helm/v4/internal":   "what strangers wrote is rendered in a confined process; strvals alone reads expressions",
		"helm.sh/helm/v4/pkg/action": "what strangers wrote is rendered in a confined process",
		"helm.sh/helm/v4/pkg/chart":  "what strangers wrote is rendered in a confined process",
		"helm.sh/helm/v4/pkg/engine": "what strangers wrote is rendered in a confined process",
		"github.com/kedge-dev/kedge/internal/render/child/libraries": "only main links the renderers, for its children",
	})
	deptest.Check(t, "github.com/kedge-dev/kedge/cmd/kedge-server", map[string]string{
		"sigs.k8s.io/controller-runtime":                   "the server runs no controllers in clusters",
		"github.com/kedge-dev/kedge/agent":                 "what an agent does is the agent's business",
		"github.com/kedge-dev/kedge/cli":                   "the CLI is a client of the server, not a part",
		"github.com/kedge-dev/kedge/internal/testkit":      "test code must not be in a product",
		"github.com/kedge-dev/kedge/internal/localcluster": "test clusters must not be in a product",
	})
}
