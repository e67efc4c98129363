package postgres_test

import (
	"os"
	"testing"

	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

var (
	server testpostgres.Server
	pg     = pgtest.Template{Server: &server}
)

func TestMain(m *testing.M) { os.Exit(server.Main(m)) }
