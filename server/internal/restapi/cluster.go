package restapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// clusterControl serves clusters that poll over HTTP.
type clusterControl interface {
	AuthenticateAgent(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, error)
	// Applications returns the desired state of the agent, and a tag that changes with it.
	Applications(ctx context.Context, agent fleet.Agent) ([]control.Application, string, error)
	// WaitApplications returns when the tag changes, or after a while with false.
	WaitApplications(ctx context.Context, agent fleet.Agent, tag string, wait time.Duration) ([]control.Application, string, bool, error)
	Report(ctx context.Context, batch []control.AgentReports) error
}

const (
	clusterPath = base + "/cluster"
	// maxWait is how long a poll may wait: less than the timeouts of proxies and of requests.
	maxWait = 50 * time.Second
)

type (
	// PollQuery is the input of a poll.
	PollQuery struct {
		IfNoneMatch string `header:"If-None-Match" doc:"The ETag of the last response: the response is 304 while nothing has changed."`
		Wait        string `query:"wait" doc:"With If-None-Match: how long to wait for a change, such as 30s; at most 50s."`
	}
	applicationsByPathInput struct {
		Token string `path:"token" doc:"The token of the agent. Prefer the header: URLs end up in the logs of proxies."`
		PollQuery
	}
	applicationsOutput struct {
		Status int
		ETag   string `header:"ETag" doc:"Identifies the desired state of the whole cluster."`
		Body   *apiv1.Applications
	}
	// StatusReport is the input of a report.
	StatusReport struct {
		Body apiv1.ApplicationStatuses
	}
	statusByPathInput struct {
		Token string `path:"token" doc:"The token of the agent. Prefer the header: URLs end up in the logs of proxies."`
		StatusReport
	}
)

var applications = resource{"cluster", clusterPath}

// clusterRoutes adds the API for agents, which has its own authentication and shares the OpenAPI document.
func (a *api) clusterRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	forAgents := humago.New(mux, humaConfig(a.huma.OpenAPI()))
	const poll, report = "Poll the desired state of a cluster: all applications of the agent of this token", "Report the status of a cluster"
	registerIn(forAgents, clusterOperation("poll-applications", http.MethodGet, clusterPath+"/applications", poll, http.StatusOK), applications, a.pollApplications)
	registerIn(forAgents, byPath(clusterOperation("poll-applications-by-path", http.MethodGet, clusterPath+"/{token}/applications", poll, http.StatusOK)), applications,
		func(ctx context.Context, info *requestInfo, in *applicationsByPathInput) (*applicationsOutput, error) {
			return a.pollApplications(ctx, info, &in.PollQuery)
		})
	registerIn(forAgents, clusterOperation("report-status", http.MethodPost, clusterPath+"/status", report, http.StatusNoContent), applications, a.reportStatus)
	registerIn(forAgents, byPath(clusterOperation("report-status-by-path", http.MethodPost, clusterPath+"/{token}/status", report, http.StatusNoContent)), applications,
		func(ctx context.Context, info *requestInfo, in *statusByPathInput) (*struct{}, error) {
			return a.reportStatus(ctx, info, &in.StatusReport)
		})
	return mux
}

func clusterOperation(id, method, path, summary string, status int) huma.Operation {
	op := operation(id, method, path, summary, status)
	op.Parameters = nil // repeating a report of an agent is harmless: there is no idempotency key
	op.Errors = []int{http.StatusUnauthorized, http.StatusTooManyRequests}
	op.Security = []map[string][]string{{"agentToken": {}}}
	if method == http.MethodGet {
		op.Responses = map[string]*huma.Response{"304": {Description: "The desired state has not changed."}}
	}
	return op
}

func byPath(op huma.Operation) huma.Operation {
	op.Security = []map[string][]string{{}}
	return op
}

// asAgent requires the token of an agent, in a header or in the path.
func (a *api) asAgent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := cmp.Or(pathToken(r), bearer(r))
		a.admit(w, r, token, func(ctx context.Context) error {
			agent, owner, err := a.control.AuthenticateAgent(ctx, token)
			if err != nil {
				return err
			}
			info := infoFrom(r.Context())
			info.agent, info.principal = agent, auth.Principal{Name: agent.Name, Component: component, Request: info.id, Address: r.RemoteAddr}
			info.about = subject{kind: "agent", name: agent.Name, tenant: owner.Name}
			info.recheck = func(ctx context.Context) error {
				_, _, err := a.control.AuthenticateAgent(ctx, token)
				return err
			}
			return nil
		}, next)
	})
}

// pathToken returns the token of /cluster/{token}/applications, or "".
func pathToken(r *http.Request) string {
	rest, _ := strings.CutPrefix(r.URL.EscapedPath(), clusterPath+"/")
	first, _, more := strings.Cut(rest, "/")
	if !more {
		return ""
	}
	token, err := url.PathUnescape(first)
	if err != nil {
		return ""
	}
	return token
}

func (a *api) pollApplications(ctx context.Context, info *requestInfo, in *PollQuery) (*applicationsOutput, error) {
	wait, err := lifetime("wait", in.Wait)
	if err == nil && wait > maxWait {
		err = fleet.Invalid("wait", "%s is too long: at most %s", wait, maxWait)
	}
	if err != nil {
		return nil, err
	}
	rows, tag, err := a.control.Applications(ctx, info.agent)
	if err != nil {
		return nil, err
	}
	known := knows(in.IfNoneMatch, tag)
	if known && wait > 0 {
		if rows, tag, known, err = a.waitApplications(ctx, info, tag, wait); err != nil {
			return nil, err
		}
	}
	if known {
		return &applicationsOutput{Status: http.StatusNotModified, ETag: `"` + tag + `"`}, nil
	}
	body := &apiv1.Applications{Agent: info.agent.Name, Items: make([]apiv1.Application, 0, len(rows))}
	for _, row := range rows {
		body.Items = append(body.Items, applicationJSON(row))
	}
	return &applicationsOutput{Status: http.StatusOK, ETag: `"` + tag + `"`, Body: body}, nil
}

// waitApplications responds as soon as there is a change, unless the token was revoked.
func (a *api) waitApplications(
	ctx context.Context, info *requestInfo, tag string, wait time.Duration,
) (rows []control.Application, now string, same bool, err error) {
	release, err := a.polls.take(info.tokenKey, info.about.tenant)
	if err != nil {
		return nil, "", false, err
	}
	defer release()
	rows, now, changed, err := a.control.WaitApplications(ctx, info.agent, tag, wait)
	if err != nil {
		return nil, "", false, err
	}
	return rows, now, !changed, info.recheck(ctx)
}

// knows reports whether If-None-Match contains a tag.
func knows(header, tag string) bool {
	return slices.ContainsFunc(strings.Split(header, ","), func(one string) bool {
		return strings.TrimPrefix(strings.TrimSpace(one), "W/") == `"`+tag+`"`
	})
}

func (a *api) reportStatus(ctx context.Context, info *requestInfo, in *StatusReport) (*struct{}, error) {
	if len(in.Body.Items) == 0 {
		return nil, nil
	}
	reports := make([]store.Report, 0, len(in.Body.Items))
	for _, s := range in.Body.Items {
		reports = append(reports, a.reportOf(s))
	}
	err := a.control.Report(ctx, []control.AgentReports{{Agent: info.agent, Reports: reports}})
	if errors.Is(err, store.ErrNotFound) {
		return nil, fleet.Invalid("items", "one of them is not an application of this cluster: poll again")
	}
	return nil, err
}

func (a *api) reportOf(s apiv1.ApplicationStatus) store.Report {
	now := a.cfg.Now()
	asOf := s.AsOf
	if asOf.IsZero() || asOf.After(now) {
		asOf = now
	}
	r := store.Report{
		Target: fleet.TargetID(s.ID),
		Observed: fleet.Observed{
			Version: fleet.Version{Epoch: s.Epoch, Generation: s.Generation}, Digest: s.Digest,
			Sync: fleet.SyncState(s.Sync), Health: fleet.Health(s.Health), Reason: fleet.Reason(s.Reason), Message: s.Message, AsOf: asOf,
		},
		Full: s.Objects != nil,
	}
	for _, o := range s.Objects {
		r.Objects = append(r.Objects, fleet.ObjectStatus{
			ObjectRef: fleet.ObjectRef{Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
			Sync:      fleet.SyncState(o.Sync), Health: fleet.Health(o.Health), Reason: fleet.Reason(o.Reason), Message: o.Message,
		})
	}
	return r
}

func applicationJSON(row control.Application) apiv1.Application {
	d := row.Desired
	return apiv1.Application{
		ID: string(row.ID), Tenant: row.Tenant, Name: row.DeploymentName, Environment: row.Environment, Source: sourceJSON(row.Source, fleet.SourceDetected),
		Namespace: d.Namespace, Policy: policyJSON(d.Policy), Limits: apiv1.Limits(d.Limits),
		Epoch: d.Epoch, Generation: d.Generation, Commit: d.Commit, Digest: d.Digest,
		HoldPrune: d.HoldPrune, Consent: d.Consent, Confirmed: d.Confirmed, HandOvers: handOversJSON(d.HandOvers), Tombstone: d.Tombstone, HoldProtected: d.HoldProtected, Detached: d.Detached,
	}
}

func handOversJSON(list []fleet.HandOver) []apiv1.HandOver {
	var out []apiv1.HandOver
	for _, h := range list {
		out = append(out, apiv1.HandOver{Reason: string(h.Reason), Deployment: h.Deployment, Objects: h.Objects})
	}
	return out
}
