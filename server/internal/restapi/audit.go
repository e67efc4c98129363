package restapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type auditControl interface {
	// Audit lists the audit log of a tenant, or with "" that of the fleet, newest first.
	Audit(ctx context.Context, p auth.Principal, tenant string, f store.AuditFilter) ([]fleet.AuditEvent, error)
}

type eventControl interface {
	Events(ctx context.Context, p auth.Principal, tenant string, f store.EventFilter) ([]fleet.Event, error)
}

var (
	audit      = resource{"audit log", tenant + "/audit"}
	fleetAudit = resource{"audit log", base + "/audit"}
	events     = resource{"event", tenant + "/events"}
)

type (
	// AuditQuery filters the audit log.
	AuditQuery struct {
		Paging
		Actor  string    `query:"actor" maxLength:"253" doc:"Name of the token or person, or system."`
		Action string    `query:"action" maxLength:"253" doc:"For example, deployment.create."`
		Kind   string    `query:"kind" maxLength:"63" doc:"Kind of the resource."`
		Name   string    `query:"name" maxLength:"2048" doc:"Name of the resource."`
		Since  time.Time `query:"since" doc:"Not before this time (RFC 3339)."`
		Until  time.Time `query:"until" doc:"Before this time (RFC 3339)."`
	}
	auditInput struct {
		InTenant
		AuditQuery
	}
	eventsInput struct {
		InTenant
		Deployment string    `query:"deployment" maxLength:"253" doc:"Only events of this deployment."`
		Agent      string    `query:"agent" maxLength:"253" doc:"Only events of this agent."`
		Reason     string    `query:"reason" maxLength:"64" doc:"Only events with this reason; see docs/reasons.md."`
		Type       string    `query:"type" enum:"Normal,Warning" doc:"Only events of this type."`
		After      int64     `query:"after" minimum:"0" doc:"Events after this sequence number: 'next' of the previous page. Without it, the newest events."`
		Before     int64     `query:"before" minimum:"0" doc:"The newest events before this sequence number: 'previous' of the following page."`
		Since      time.Time `query:"since" doc:"Not before this time (RFC 3339)."`
		Limit      int       `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Maximum number of events."`
	}
)

func (a *api) registerAudit() {
	register(a, operation("list-audit", http.MethodGet, audit.path, "Read the audit log of a tenant, newest first", http.StatusOK), audit,
		func(ctx context.Context, p auth.Principal, in *auditInput) (*listOutput[apiv1.AuditEvent], error) {
			return a.listAudit(ctx, p, in.Tenant, in.AuditQuery)
		})
	register(a, operation("list-fleet-audit", http.MethodGet, fleetAudit.path, "Read the audit log of the whole fleet, newest first", http.StatusOK), fleetAudit,
		func(ctx context.Context, p auth.Principal, in *AuditQuery) (*listOutput[apiv1.AuditEvent], error) {
			return a.listAudit(ctx, p, "", *in)
		})
}

func (a *api) listAudit(ctx context.Context, p auth.Principal, tenantName string, in AuditQuery) (*listOutput[apiv1.AuditEvent], error) {
	f := store.AuditFilter{
		Actor: in.Actor, Action: in.Action, Kind: in.Kind, Name: in.Name, Since: in.Since, Until: in.Until, Limit: in.Limit + 1,
	}
	if in.After != "" {
		var err error
		if f.BeforeSeq, err = strconv.ParseInt(in.After, 10, 64); err != nil || f.BeforeSeq <= 0 {
			return nil, notACursor()
		}
	}
	found, err := a.control.Audit(ctx, p, tenantName, f)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, auditJSON, func(e fleet.AuditEvent) string { return strconv.FormatInt(e.Seq, 10) }), nil
}

func auditJSON(e fleet.AuditEvent) apiv1.AuditEvent {
	return apiv1.AuditEvent{
		Seq: e.Seq, At: utc(e.At), Actor: e.Actor, Component: e.Component, Action: e.Action, Kind: e.Kind, Name: e.Name, ID: e.ID,
		Request: e.Request, Address: e.Address, Detail: e.Detail,
	}
}

func (a *api) registerEvents() {
	register(a, operation("list-events", http.MethodGet, events.path, "List events, oldest first: the newest, or those before or after a sequence number", http.StatusOK), events, a.listEvents)
}

func (a *api) listEvents(ctx context.Context, p auth.Principal, in *eventsInput) (*listOutput[apiv1.Event], error) {
	if in.After > 0 && in.Before > 0 {
		return nil, fleet.Invalid("before", "and 'after' exclude each other: use one of them")
	}
	found, err := a.control.Events(ctx, p, in.Tenant, store.EventFilter{
		Agent: in.Agent, Deployment: in.Deployment, Reason: fleet.Reason(in.Reason), Type: fleet.EventType(in.Type), AfterSeq: in.After, BeforeSeq: in.Before, Since: in.Since, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	seq := func(e fleet.Event) string { return strconv.FormatInt(e.Seq, 10) }
	if in.After > 0 {
		return paged(found, in.Limit, eventJSON, seq), nil
	}
	older := max(0, len(found)-in.Limit) // one more was requested, and it is the oldest
	out := paged(found[older:], in.Limit, eventJSON, seq)
	if older > 0 {
		out.Body.Previous = seq(found[older])
	}
	return out, nil
}

func eventJSON(e fleet.Event) apiv1.Event {
	return apiv1.Event{
		Seq: e.Seq, At: utc(e.At), Type: string(e.Type), Reason: string(e.Reason), Agent: e.Agent,
		Deployment: e.Deployment, Object: e.Object, Message: e.Message,
	}
}
