package postgres_test

import (
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return pg.Open(t)
	})
}
