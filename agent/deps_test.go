package agent_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/deptest"
)

// forbidden has prefixes of packages that the agent must not link, each with its reason.
var forbidden = map[string]string{
	"github.com/kedge-dev/kedge/server":           "the agent knows its server only by the protocol",
	"github.com/kedge-dev/kedge/cli":              "the agent takes flags, not commands",
	"github.com/kedge-dev/kedge/internal/render":  "objects arrive rendered: an agent runs no template",
	"github.com/kedge-dev/kedge/internal/testkit": "test code must not be in a product",
	"github.com/kedge-dev/kedge/agent/agentsim":   "simulated agents must not be in a product",
	"helm.sh/helm":                   "objects arrive rendered: an agent runs no template",
	"sigs.k8s.io/kustomize/api":      "objects arrive rendered: an agent runs no template",
	"sigs.k8s.io/controller-runtime": "600 packages in place of a few watches",
	"k8s.io/client-go/kubernetes":    "typed clients are megabytes that a dynamic engine does not need",
	"k8s.io/kubectl":                 "the engine applies by itself",
	"k8s.io/kubernetes":              "it is not meant as a library, and is huge",
	"modernc.org/sqlite":             "an agent keeps its state in the cluster",
	"github.com/jackc/pgx":           "an agent keeps its state in the cluster",
	"github.com/go-git/go-git":       "an agent never reads Git",
	"testing":                        "test code must not be in a product",
}

func TestAgentLinksNothingForbidden(t *testing.T) {
	t.Parallel()
	deptest.Check(t, "github.com/kedge-dev/kedge/cmd/kedge-agent", forbidden)
}
