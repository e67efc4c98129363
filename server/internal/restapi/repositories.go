package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type repositoryControl interface {
	Repositories(ctx context.Context, p auth.Principal, tenant string) ([]fleet.Repository, error)
	// Webhook tells what the Git host of a repository has to be told.
	Webhook(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (control.Webhook, error)
}

type eventControl interface {
	Events(ctx context.Context, p auth.Principal, tenant string, f store.EventFilter) ([]fleet.Event, error)
}

const (
	repositoriesPath = tenant + "/repositories"
	webhookPath      = repositoriesPath + "/{repository}/webhook"
	eventsPath       = tenant + "/events"
)

type (
	tenantInput struct {
		Tenant string `path:"tenant"`
	}
	repositoryInput struct {
		Tenant     string `path:"tenant"`
		Repository string `path:"repository" doc:"ID of the repository."`
	}
	webhookOutput struct {
		Body apiv1.Webhook
	}
	eventsInput struct {
		Tenant     string `path:"tenant"`
		Deployment string `query:"deployment" maxLength:"253" doc:"Only events of this deployment."`
		Agent      string `query:"agent" maxLength:"253" doc:"Only events of this agent."`
		After      int64  `query:"after" minimum:"0" doc:"Only events with a higher sequence number."`
		Limit      int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many of the newest."`
	}
)

func (a *api) registerRepositories() {
	list := operation("list-repositories", http.MethodGet, repositoriesPath,
		"List repositories", http.StatusOK)
	register(a, list, func(in *tenantInput) subject { return about("repository", repositoriesPath, in.Tenant, "") }, a.listRepositories)
	// Not a read: it hands out a secret, which no read does.
	webhook := operation("reveal-webhook", http.MethodPost, webhookPath,
		"Tell what the Git host of a repository has to be told to announce pushes", http.StatusOK)
	register(a, webhook, func(in *repositoryInput) subject {
		return about("repository", webhookPath, in.Tenant, in.Repository)
	}, a.revealWebhook)
}

func (a *api) revealWebhook(ctx context.Context, p auth.Principal, in *repositoryInput) (*webhookOutput, error) {
	hook, err := a.control.Webhook(ctx, p, in.Tenant, fleet.RepositoryID(in.Repository))
	if err != nil {
		return nil, err
	}
	return &webhookOutput{Body: apiv1.Webhook{URL: a.hookURL(hook.Repository), Secret: hook.Secret}}, nil
}

func (a *api) listRepositories(ctx context.Context, p auth.Principal, in *tenantInput) (*listOutput[apiv1.Repository], error) {
	views, err := a.control.Repositories(ctx, p, in.Tenant)
	if err != nil {
		return nil, err
	}
	return paged(views, len(views), a.repositoryJSON, nil), nil
}

func (a *api) repositoryJSON(r fleet.Repository) apiv1.Repository {
	return apiv1.Repository{
		ID: string(r.ID), URL: r.URL, CheckedAt: utc(r.CheckedAt), Error: r.Error, WebhookURL: a.hookURL(r.ID),
	}
}

func (a *api) hookURL(id fleet.RepositoryID) string {
	external := ""
	if a.cfg.ExternalURL != nil {
		external = a.cfg.ExternalURL()
	}
	return external + base + "/hooks/" + string(id)
}

func (a *api) registerEvents() {
	list := operation("list-events", http.MethodGet, eventsPath, "List the newest events, oldest first", http.StatusOK)
	register(a, list, func(in *eventsInput) subject { return about("event", eventsPath, in.Tenant, "") }, a.listEvents)
}

func (a *api) listEvents(ctx context.Context, p auth.Principal, in *eventsInput) (*listOutput[apiv1.Event], error) {
	events, err := a.control.Events(ctx, p, in.Tenant, store.EventFilter{
		Agent: in.Agent, Deployment: in.Deployment, AfterSeq: in.After, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return paged(events, len(events), eventJSON, nil), nil
}

func eventJSON(e fleet.Event) apiv1.Event {
	return apiv1.Event{
		Seq: e.Seq, At: utc(e.At), Type: string(e.Type), Reason: e.Reason, Agent: e.Agent,
		Deployment: e.Deployment, Object: e.Object, Message: e.Message,
	}
}
