package builtin_test

import (
	"log/slog"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/engine/enginetest"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Harness{
		Cluster: testkit.SharedCluster(t),
		New: func(t testing.TB, o enginetest.Options) engine.Engine {
			t.Helper()
			e, err := builtin.New(builtin.Config{
				AgentID: o.Agent, Namespace: o.Namespace, Scope: o.Scope, Namespaces: o.Namespaces, Kinds: o.Kinds,
				Owner: o.Owner, REST: o.REST, Reporter: o.Reporter, Log: slog.New(slog.DiscardHandler), Strict: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	})
}
