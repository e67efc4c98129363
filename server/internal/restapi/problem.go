package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// subject is what a request is about, for messages.
type subject struct {
	kind   string // "agent"
	name   string // "" for a listing
	tenant string // "" for what belongs to none
	list   string // where to look for what there is
}

func (s subject) String() string {
	switch {
	case s.kind == "":
		return "it"
	case s.name == "" && s.tenant == "":
		return "the " + s.kind
	case s.name == "":
		return fmt.Sprintf("tenant %q", s.tenant)
	case s.tenant == "":
		return fmt.Sprintf("%s %q", s.kind, s.name)
	default:
		return fmt.Sprintf("%s %q in tenant %q", s.kind, s.name, s.tenant)
	}
}

// mapError turns what went wrong into what the caller is told: what happened, to which object, and
// what to do next. It is the only place that does. What is not the caller's doing is told to the
// log alone.
func mapError(ctx context.Context, err error, about subject) *huma.ErrorModel {
	info := infoFrom(ctx)
	info.err = err
	var invalid *fleet.InvalidError // one of them at least
	var conflict *control.ConflictError
	var quota *control.QuotaError
	var throttled *throttledError
	var role *auth.RoleError
	switch {
	case errors.As(err, &invalid):
		return info.invalid(fleet.Problems(err))
	case errors.As(err, &conflict):
		return problem(http.StatusConflict, conflict.Reason+"; nothing was changed")
	case errors.As(err, &quota):
		return problem(http.StatusForbidden, quota.Error()+"; nothing was changed")
	case errors.As(err, &throttled):
		return problem(http.StatusTooManyRequests, throttled.detail)
	case errors.Is(err, control.ErrStale):
		return problem(http.StatusPreconditionFailed, fmt.Sprintf(
			"%s was changed since you read it, and nothing was done: read it again, see whether your change still makes sense, and repeat it with the new ETag", about))
	case errors.Is(err, store.ErrNotFound):
		return problem(http.StatusNotFound, fmt.Sprintf("%s was not found: check %s", about, about.check()))
	case errors.Is(err, store.ErrExists):
		return problem(http.StatusConflict, fmt.Sprintf("%s already exists: %s; nothing was changed", about, about.instead()))
	case errors.Is(err, auth.ErrUnauthenticated):
		return problem(http.StatusUnauthorized, auth.ErrUnauthenticated.Error()+`: send the header "Authorization: Bearer TOKEN" with a valid one`)
	case errors.As(err, &role):
		return problem(http.StatusForbidden, fmt.Sprintf("this %s; %s %s: ask an administrator for the role; nothing was changed", role, info.caller(), has(role)))
	case errors.Is(err, auth.ErrForbidden):
		return problem(http.StatusForbidden, fmt.Sprintf("%s may not do this to %s: ask an administrator for the role", info.caller(), about))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "the request ended before it was answered: try again")
	default:
		return problem(http.StatusInternalServerError, fmt.Sprintf(
			"the server failed to answer; the reason is in its log under request id %s", info.id))
	}
}

// has says which role a caller has instead of the one that is needed.
func has(e *auth.RoleError) string {
	switch {
	case e.Has != "":
		return "has " + string(e.Has)
	case e.Tenant == "":
		return "does not have it"
	default:
		return "has no role there"
	}
}

// invalid names every field that is wrong.
func (i *requestInfo) invalid(all []*fleet.InvalidError) *huma.ErrorModel {
	p := problem(http.StatusUnprocessableEntity, "")
	for _, e := range all {
		p.Detail += e.Error() + "; "
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: i.location(e.Field), Message: e.Problem})
	}
	p.Detail += "nothing was changed"
	return p
}

// location is where a field of the request is.
func (i *requestInfo) location(field string) string {
	for _, prefix := range []string{"header.", "query.", "path."} {
		if strings.HasPrefix(field, prefix) {
			return field
		}
	}
	if i.method == http.MethodGet {
		return "query." + field
	}
	return "body." + field
}

// check is what to look at when there is no such thing.
func (s subject) check() string {
	if s.name == "" {
		return "its name"
	}
	if s.tenant == "" {
		return "its name; GET " + s.list + " lists what there is"
	}
	return "the name and the tenant; GET " + s.list + " lists what there is"
}

// instead is what to do when a name is taken.
func (s subject) instead() string {
	if s.name == "" || s.list == "" || strings.Contains(s.name, "/") {
		return "GET " + s.list + " lists what there is; choose another name, or delete that one first"
	}
	there := s.list + "/" + s.name
	return fmt.Sprintf("GET %s shows it; choose another name, or DELETE %s first", there, there)
}

func problem(status int, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}
}

func noRoute(r *http.Request, status int) *huma.ErrorModel {
	path := redacted(r.URL.Path)
	if status == http.StatusMethodNotAllowed {
		return problem(status, fmt.Sprintf("%s does not take %s: see %s/openapi.json", path, r.Method, base))
	}
	return problem(http.StatusNotFound, fmt.Sprintf("there is nothing at %s: see %s/openapi.json", path, base))
}

// tooMany answers a caller who is to come back later.
func tooMany(w http.ResponseWriter, wait time.Duration, detail string) {
	w.Header().Set("Retry-After", retryAfter(wait))
	writeProblem(w, problem(http.StatusTooManyRequests, detail))
}

// retryAfter is a wait in whole seconds, as the header takes it.
func retryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second)))
}

// writeProblem answers with a problem document where huma is not in between.
func writeProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller is gone if this fails
}
