package restapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// covers: T1 (idempotency key): the caller hears no answer, and asks again with the same key.
func TestARequestWithAKeyIsFinishedAlthoughItsCallerLeaves(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, &awayGit{})
	ask := func(ctx context.Context, h http.Handler) answer {
		r := httptest.NewRequestWithContext(ctx, "POST", deployments, strings.NewReader(`{"name":"new","source":{"repoURL":"https://git.example.com/a.git"}}`))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(key, "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return answer{w.Code, w.Header(), w.Body.String()}
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ask(ctx, restapi.New(config(), intercept(f, "CreateDeployment", func(control.CreateDeployment) error {
		leave()
		return nil
	})))
	again := ask(t.Context(), restapi.New(config(), f))
	if again.status != 201 || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("asked again: got %d %v %s", again.status, again.header, again.body)
	}
}
