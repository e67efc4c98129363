package restapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// noGit takes every URL and reaches none.
type noGit struct{ control.Git }

func (noGit) CheckURL(url string) (string, error) { return url, nil }

func (noGit) Fetch(context.Context, gitsource.Access, []string) (map[string]gitsource.Ref, error) {
	return nil, errors.New("the host is away")
}

// deserted is a real room whose caller leaves as soon as it is asked for a deployment.
type deserted struct {
	*control.Service
	leave func()
}

func (d deserted) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error) {
	d.leave()
	return d.Service.CreateDeployment(ctx, p, tenant, req)
}

// covers: T1 (idempotency key): the caller hears no answer, and asks again with the same key.
func TestARequestWithAKeyIsFinishedAlthoughItsCallerLeaves(t *testing.T) {
	t.Parallel()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	service, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, st, noGit{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := service.Bootstrap(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, h http.Handler) answer {
		r := httptest.NewRequestWithContext(ctx, "POST", deployments, strings.NewReader(`{"name":"web","source":{"repoURL":"https://git.example.com/a.git"}}`))
		r.Header.Set("Authorization", "Bearer "+admin)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(key, "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return answer{w.Code, w.Header(), w.Body.String()}
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ask(ctx, restapi.New(config(), deserted{service, leave}))
	again := ask(t.Context(), restapi.New(config(), service))
	if again.status != 201 || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("asked again: got %d %v %s", again.status, again.header, again.body)
	}
}
