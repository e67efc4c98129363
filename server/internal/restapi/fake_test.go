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

const (
	token      = "kedge-api-right"
	otherToken = "kedge-api-other"
	agentToken = "kedge-agent-right/with a slash"
)

var (
	born  = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	later = born.Add(time.Minute)
)

// fake is a control of which a test sets what it wants to see; with a nil standin anything else must
// not be called.
type fake struct {
	*standin
	identify     func(token string) (auth.Principal, error)
	enroll       func(tenant string, req control.EnrollAgent) (control.Enrollment, error)
	agents       func(tenant string, f store.AgentFilter) ([]control.AgentView, error)
	agent        func(tenant, name string) (control.AgentView, error)
	environments func(tenant string, page store.Page) ([]control.EnvironmentView, error)
	create       func(tenant string, req control.CreateDeployment) (control.DeploymentView, error)
	deployments  func(tenant string, f control.ListDeployments) ([]control.DeploymentView, error)
	deployment   func(tenant, name string) (control.DeploymentView, error)
	update       func(req control.UpdateDeployment, match control.Match) (control.DeploymentView, error)
	audit        func(tenant string, f store.AuditFilter) ([]fleet.AuditEvent, error)
	follow       func(ctx context.Context, tenant string, after int64, fn func([]store.Change) error) error
	secret       func(repo fleet.RepositoryID) (string, error)
	push         func(repo fleet.RepositoryID, refs []string) error
	wait         func(ctx context.Context, tag string, wait time.Duration) ([]control.Application, string, bool, error)
	report       func(batch []control.AgentReports) error
}

func (f fake) Authenticate(ctx context.Context, given string) (auth.Principal, error) {
	if f.identify == nil {
		return f.standin.Authenticate(ctx, given)
	}
	return f.identify(given)
}

func (f fake) EnrollAgent(ctx context.Context, p auth.Principal, tenant string, req control.EnrollAgent) (control.Enrollment, error) {
	if f.enroll == nil {
		return f.standin.EnrollAgent(ctx, p, tenant, req)
	}
	return f.enroll(tenant, req)
}

func (f fake) Agents(ctx context.Context, p auth.Principal, tenant string, filter store.AgentFilter) ([]control.AgentView, error) {
	if f.agents == nil {
		return f.standin.Agents(ctx, p, tenant, filter)
	}
	return f.agents(tenant, filter)
}

func (f fake) Agent(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentView, error) {
	if f.agent == nil {
		return f.standin.Agent(ctx, p, tenant, name)
	}
	return f.agent(tenant, name)
}

func (f fake) Environments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]control.EnvironmentView, error) {
	if f.environments == nil {
		return f.standin.Environments(ctx, p, tenant, page)
	}
	return f.environments(tenant, page)
}

func (f fake) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error) {
	if f.create == nil {
		return f.standin.CreateDeployment(ctx, p, tenant, req)
	}
	return f.create(tenant, req)
}

func (f fake) Deployments(ctx context.Context, p auth.Principal, tenant string, filter control.ListDeployments) ([]control.DeploymentView, error) {
	if f.deployments == nil {
		return f.standin.Deployments(ctx, p, tenant, filter)
	}
	return f.deployments(tenant, filter)
}

func (f fake) Deployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error) {
	if f.deployment == nil {
		return f.standin.Deployment(ctx, p, tenant, name)
	}
	return f.deployment(tenant, name)
}

func (f fake) UpdateDeployment(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateDeployment, match control.Match) (control.DeploymentView, error) {
	if f.update == nil {
		return f.standin.UpdateDeployment(ctx, p, tenant, name, req, match)
	}
	return f.update(req, match)
}

func (f fake) Audit(ctx context.Context, p auth.Principal, tenant string, filter store.AuditFilter) ([]fleet.AuditEvent, error) {
	if f.audit == nil {
		return f.standin.Audit(ctx, p, tenant, filter)
	}
	return f.audit(tenant, filter)
}

func (f fake) Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	if f.follow == nil {
		return f.standin.Follow(ctx, p, tenant, after, fn)
	}
	return f.follow(ctx, tenant, after, fn)
}

func (f fake) WebhookSecret(ctx context.Context, repo fleet.RepositoryID) (string, error) {
	if f.secret == nil {
		return f.standin.WebhookSecret(ctx, repo)
	}
	return f.secret(repo)
}

func (f fake) Push(ctx context.Context, repo fleet.RepositoryID, refs ...string) error {
	if f.push == nil {
		return f.standin.Push(ctx, repo, refs...)
	}
	return f.push(repo, refs)
}

func (f fake) WaitApplications(ctx context.Context, a fleet.Agent, tag string, wait time.Duration) ([]control.Application, string, bool, error) {
	if f.wait == nil {
		return f.standin.WaitApplications(ctx, a, tag, wait)
	}
	return f.wait(ctx, tag, wait)
}

func (f fake) Report(ctx context.Context, batch []control.AgentReports) error {
	if f.report == nil {
		return f.standin.Report(ctx, batch)
	}
	return f.report(batch)
}

func config() restapi.Config {
	return restapi.Config{
		ExternalURL:  func() string { return "https://kedge.example.com" },
		AgentAddress: func() string { return "grpcs://kedge.example.com:443" },
		CAPEM:        []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
		DefaultImage: "registry.example.com/kedge-agent:v1",
		Version:      "v1.2.3",
		PerAddress:   restapi.Rate{PerSecond: 1000, Burst: 1000},
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
