package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const token = "kedge-api-right"

var (
	born  = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	later = born.Add(time.Minute)
)

// fake is a control made of closures; what a test does not set must not be called.
type fake struct {
	enroll       func(tenant string, req control.EnrollAgent) (control.Enrollment, error)
	agents       func(tenant string, page store.Page) ([]control.AgentView, error)
	agent        func(tenant, name string) (control.AgentView, error)
	removeAgent  func(tenant, name string) error
	createEnv    func(tenant string, req control.CreateEnvironment) (fleet.Environment, error)
	environments func(tenant string, page store.Page) ([]fleet.Environment, error)
	create       func(tenant string, req control.CreateDeployment) (control.DeploymentView, error)
	deployments  func(tenant string, page store.Page) ([]control.DeploymentView, error)
	deployment   func(tenant, name string) (control.DeploymentView, error)
	remove       func(tenant, name string) error
	repositories func(tenant string) ([]fleet.Repository, error)
	webhook      func(tenant string, id fleet.RepositoryID) (control.Webhook, error)
	events       func(tenant string, f store.EventFilter) ([]fleet.Event, error)
	follow       func(ctx context.Context, tenant string, after int64, fn func([]store.Change) error) error
	secret       func(repo fleet.RepositoryID) (string, error)
	push         func(repo fleet.RepositoryID, ref string) error
}

func (f fake) Authenticate(_ context.Context, given string) (auth.Principal, error) {
	if given != token {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	return auth.Principal{Name: "admin", Role: fleet.RoleFleetAdmin}, nil
}

func (f fake) EnrollAgent(_ context.Context, _ auth.Principal, tenant string, req control.EnrollAgent) (control.Enrollment, error) {
	return f.enroll(tenant, req)
}

func (f fake) Agents(_ context.Context, _ auth.Principal, tenant string, page store.Page) ([]control.AgentView, error) {
	return f.agents(tenant, page)
}

func (f fake) Agent(_ context.Context, _ auth.Principal, tenant, name string) (control.AgentView, error) {
	return f.agent(tenant, name)
}

func (f fake) DeleteAgent(_ context.Context, _ auth.Principal, tenant, name string) error {
	return f.removeAgent(tenant, name)
}

func (f fake) CreateEnvironment(_ context.Context, _ auth.Principal, tenant string, req control.CreateEnvironment) (fleet.Environment, error) {
	return f.createEnv(tenant, req)
}

func (f fake) Environments(_ context.Context, _ auth.Principal, tenant string, page store.Page) ([]fleet.Environment, error) {
	return f.environments(tenant, page)
}

func (f fake) CreateDeployment(_ context.Context, _ auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error) {
	return f.create(tenant, req)
}

func (f fake) Deployments(_ context.Context, _ auth.Principal, tenant string, page store.Page) ([]control.DeploymentView, error) {
	return f.deployments(tenant, page)
}

func (f fake) Deployment(_ context.Context, _ auth.Principal, tenant, name string) (control.DeploymentView, error) {
	return f.deployment(tenant, name)
}

func (f fake) DeleteDeployment(_ context.Context, _ auth.Principal, tenant, name string) error {
	return f.remove(tenant, name)
}

func (f fake) Repositories(_ context.Context, _ auth.Principal, tenant string) ([]fleet.Repository, error) {
	return f.repositories(tenant)
}

func (f fake) Webhook(_ context.Context, _ auth.Principal, tenant string, id fleet.RepositoryID) (control.Webhook, error) {
	return f.webhook(tenant, id)
}

func (f fake) Events(_ context.Context, _ auth.Principal, tenant string, filter store.EventFilter) ([]fleet.Event, error) {
	return f.events(tenant, filter)
}

func (f fake) Follow(ctx context.Context, _ auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	return f.follow(ctx, tenant, after, fn)
}

func (f fake) WebhookSecret(_ context.Context, repo fleet.RepositoryID) (string, error) {
	return f.secret(repo)
}

func (f fake) Push(_ context.Context, repo fleet.RepositoryID, ref string) error {
	return f.push(repo, ref)
}

func config() restapi.Config {
	return restapi.Config{
		ExternalURL:  func() string { return "https://kedge.example.com" },
		AgentAddress: func() string { return "grpcs://kedge.example.com:443" },
		CAPEM:        []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
		DefaultImage: "registry.example.com/kedge-agent:v1",
		Version:      "v1.2.3",
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// detail is the text of a problem document.
func (a answer) detail(t *testing.T) string {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q, want a problem document in %s", got, a.body)
	}
	var p struct {
		Detail string
		Errors []struct{ Location, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	for _, e := range p.Errors {
		p.Detail += "\n" + e.Location + ": " + e.Message
	}
	return p.Detail
}

// pretty is the body, indented for golden files.
func (a answer) pretty(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(a.body), "", "  "); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return out.String()
}

func do(t *testing.T, h http.Handler, method, path, body string, header ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.Code, w.Header(), string(text)}
}
