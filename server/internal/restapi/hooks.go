package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type hookControl interface {
	// WebhookSecret returns the webhook secret of a repository; store.ErrNotFound if there is no such
	// repository.
	WebhookSecret(ctx context.Context, repo fleet.RepositoryID) (string, error)
	// Push reports that refs may have moved; none means any.
	Push(ctx context.Context, repo fleet.RepositoryID, refs ...string) error
}

const (
	hooksPath = base + "/hooks/{repository}"
	// maxHookBody is the maximum body of an unauthenticated webhook. GitHub sends up to 25 MB, but a push of a
	// thousand commits stays below 5 MiB, and polling finds refused pushes.
	maxHookBody = 5 << 20
	// hookTimeout limits the time to send the body.
	hookTimeout = 10 * time.Second
)

// registerHooks adds the webhooks. They are not huma operations, because the raw body must be read, with a
// limit, before anything else.
func (a *api) registerHooks(mux *http.ServeMux) {
	mux.HandleFunc("POST "+hooksPath, a.serveHook)
	object := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"ref":  {Type: huma.TypeString, Description: "The ref that moved, such as refs/heads/main; any when absent."},
		"refs": {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, Description: "Several refs that moved together."},
	}}
	str := &huma.Schema{Type: huma.TypeString}
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "webhook", Method: http.MethodPost, Path: hooksPath,
		Summary: "Notify the server of a push",
		Description: "Accepts push events of GitHub (JSON or form), GitLab, Gitea, Forgejo, Bitbucket Cloud and Bitbucket Data Center and, from anything else, " +
			"a JSON body signed by HMAC-SHA256 with the webhook secret of the repository. A missing or wrong signature and an unknown repository get the " +
			"same answer. A delivery with an ID that is repeated within an hour is accepted without effect; without an ID, every delivery is a push.",
		Security: []map[string][]string{{}},
		Parameters: []*huma.Param{
			{Name: "repository", In: "path", Required: true, Schema: str, Description: "Id of the repository."},
			{Name: headerKedgeSignature, In: "header", Schema: str, Description: "sha256=<hex> over the body, or over time, a dot, and the body if the time is sent."},
			{Name: headerKedgeTimestamp, In: "header", Schema: str, Description: "Seconds since 1970, optional: at most five minutes from the server's clock."},
			{Name: headerKedgeDelivery, In: "header", Schema: str, Description: "ID of the delivery, optional: a repeated delivery has no effect."},
			{Name: headerGitHubSignature, In: "header", Schema: str, Description: "The signature in GitHub's header."},
			{Name: headerGitHubEvent, In: "header", Schema: str, Description: "push, create, delete, ping; others are ignored."},
			{Name: headerGitLabToken, In: "header", Schema: str, Description: "The secret token of GitLab, if it has no signing token."},
		},
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: object}}},
		Responses: map[string]*huma.Response{
			"202":     {Description: "Accepted."},
			"default": problemResponse(a.huma.OpenAPI(), "The signature is missing or wrong, there is no such repository, or the body is not what it should be."),
		},
	})
}

func (a *api) serveHook(w http.ResponseWriter, r *http.Request) {
	infoFrom(r.Context()).route = hooksPath
	// Slow senders are disconnected, even refused ones, whose remaining body is discarded. Not every writer
	// supports deadlines; those of net/http do.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(hookTimeout))
	if wait := a.gate.knock(r, ""); wait > 0 {
		a.metrics.refused.WithLabelValues(refusedAddress).Inc()
		tooMany(w, wait, "too many requests with a wrong signature or token from your address: wait; polling will find the push")
		return
	}
	// Anyone may send webhooks, so the number of bodies in memory is limited, in total and per address.
	release, ok := a.hooks.take(address(r))
	if !ok {
		a.metrics.refused.WithLabelValues(refusedAddress).Inc()
		tooMany(w, time.Second, "too many concurrent webhooks: send it again; polling will find the push")
		return
	}
	defer release()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHookBody))
	if err != nil {
		// A slow or disconnected sender counts against the limit of its address.
		if !errors.As(err, new(*http.MaxBytesError)) {
			a.gate.refused(r, "")
		}
		writeProblem(w, problem(http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"the body could not be read or is larger than %d bytes; polling will find the push", maxHookBody)))
		return
	}
	repo := fleet.RepositoryID(r.PathValue("repository"))
	infoFrom(r.Context()).about = subject{kind: "repository", name: string(repo)}
	secret, err := a.control.WebhookSecret(r.Context(), repo)
	unknown := errors.Is(err, store.ErrNotFound)
	if err != nil && !unknown {
		writeProblem(w, mapError(r.Context(), err, subject{}))
		return
	}
	// The signature is also computed for an unknown repository, so that the response time does not reveal it.
	form, _ := formOf(r.Header)
	if !form.signed(hookKey(secret), r.Header, body) || unknown {
		a.refuseHook(w, r, errBadSignature)
		return
	}
	if !fresh(form, r.Header, a.cfg.Now()) {
		a.refuseHook(w, r, errOldHook)
		return
	}
	if err := a.acceptHook(r, repo, body); err != nil {
		writeProblem(w, mapError(r.Context(), err, subject{}))
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (a *api) refuseHook(w http.ResponseWriter, r *http.Request, why error) {
	a.gate.refused(r, "")
	infoFrom(r.Context()).err = why
	writeProblem(w, problem(http.StatusUnauthorized, why.Error()))
}

// acceptHook forwards a push unless it was forwarded before. A failed one is not remembered, so that it may be
// sent again.
func (a *api) acceptHook(r *http.Request, repo fleet.RepositoryID, body []byte) error {
	event, err := parseHook(r.Header, body)
	if err != nil {
		return err
	}
	form, _ := formOf(r.Header)
	id, named := deliveryOf(form, repo, r.Header, body)
	if !event.push || (named && a.deliveries.seen(id, a.cfg.Now())) {
		return nil
	}
	if err := a.pushes.do(r.Context(), repo, event.refs, a.control.Push); err != nil {
		return fmt.Errorf("forwarding a push of repository %s: %w", repo, err)
	}
	if named {
		a.deliveries.add(id, a.cfg.Now())
	}
	return nil
}
