package cli_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/deptest"
)

// forbidden are packages that the CLI must not link, by their beginnings, each with its reason.
var forbidden = map[string]string{
	"github.com/kedge-dev/kedge/server": "the CLI speaks to a server over REST and knows nothing of its inside",
	"github.com/kedge-dev/kedge/agent":  "the CLI does not work on clusters",
	"k8s.io/client-go/kubernetes":       "typed clients are megabytes that no command needs",
	"sigs.k8s.io/controller-runtime":    "the CLI runs no controllers",
	"helm.sh/helm/v4/internal":          "rendering belongs to a child process, and only main knows what that links; strvals alone reads expressions",
	"helm.sh/helm/v4/pkg/action":        "rendering belongs to a child process",
	"helm.sh/helm/v4/pkg/chart":         "rendering belongs to a child process",
	"helm.sh/helm/v4/pkg/engine":        "rendering belongs to a child process",
	"sigs.k8s.io/kustomize":             "rendering belongs to a child process, and only main knows what that links",
	"modernc.org/sqlite":                "the CLI has no database",
	"github.com/jackc/pgx":              "the CLI has no database",
	"google.golang.org/grpc":            "the CLI speaks REST",
	"testing":                           "test code must not be in a product",
}

func TestCLILinksNothingForbidden(t *testing.T) {
	t.Parallel()
	deptest.Check(t, "github.com/kedge-dev/kedge/cli", forbidden)
}
