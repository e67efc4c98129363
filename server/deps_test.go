package server_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/deptest"
)

// Invariants 1 and 2: only kubeapi has a Kubernetes client, for its own resources in the one API server that it is given. The
// program links testing too, because Helm does; only the renderers use it, which run in a process without a network.
//
// defect: B2
func TestServerLinksNothingForbidden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"console", "control", "gateway", "listen", "login", "relay", "replicaapi", "restapi"} {
		deptest.Check(t, "github.com/kedge-dev/kedge/server/internal/"+name, map[string]string{
			"k8s.io/client-go":               "the server opens no connection to a cluster",
			"sigs.k8s.io/controller-runtime": "the server opens no connection to a cluster",
		})
	}
	deptest.Check(t, "github.com/kedge-dev/kedge/server", map[string]string{
		"testing":                    "test code must not be in a product",
		"helm.sh/helm/v4/internal":   "untrusted input is rendered in a confined process; strvals alone reads expressions",
		"helm.sh/helm/v4/pkg/action": "untrusted input is rendered in a confined process",
		"helm.sh/helm/v4/pkg/chart":  "untrusted input is rendered in a confined process",
		"helm.sh/helm/v4/pkg/engine": "untrusted input is rendered in a confined process",
		"github.com/kedge-dev/kedge/internal/render/child/libraries": "only main links the renderers, for its children",
	})
	deptest.Check(t, "github.com/kedge-dev/kedge/cmd/kedge-server", map[string]string{
		"github.com/kedge-dev/kedge/agent":                 "the server does not contain agent code",
		"github.com/kedge-dev/kedge/cli":                   "the CLI is a client of the server, not a part",
		"github.com/kedge-dev/kedge/internal/testkit":      "test code must not be in a product",
		"github.com/kedge-dev/kedge/internal/localcluster": "test clusters must not be in a product",
	})
}
