package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// subject is the subject of a request, for messages.
type subject struct {
	kind   string // "agent"
	name   string // "" for a listing
	tenant string // "" for what belongs to none
	list   string // path of the listing of such resources
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

// mapError converts an error to a problem document: what happened, to which object, and the remedy. It is the
// only place that does. Internal errors are only logged.
func mapError(ctx context.Context, err error, about subject) *problemDocument {
	info := infoFrom(ctx)
	info.err = err
	var invalid *fleet.InvalidError // one of them at least
	var conflict *control.ConflictError
	var owner *control.OwnerError
	var quota *control.QuotaError
	var throttled *throttledError
	var role *auth.RoleError
	var access *control.AccessError
	switch {
	case errors.As(err, &invalid):
		return info.invalid(fleet.Problems(err))
	case errors.As(err, &owner):
		return problem(http.StatusConflict, owner.Message+"; nothing was changed").because(owner.Reason)
	case errors.As(err, &conflict):
		return problem(http.StatusConflict, conflict.Reason+"; nothing was changed").because(fleet.ReasonConflict)
	case errors.As(err, &quota):
		return problem(http.StatusForbidden, quota.Error()+"; nothing was changed").because(fleet.ReasonQuotaExceeded)
	case errors.As(err, &throttled):
		return problem(http.StatusTooManyRequests, throttled.detail)
	case errors.Is(err, control.ErrStale):
		return problem(http.StatusPreconditionFailed, fmt.Sprintf(
			"%s changed since you read it, and nothing was done: read it again, check your change, and repeat it with the new ETag", about)).because(fleet.ReasonResourceChanged)
	case errors.Is(err, store.ErrNotFound):
		return about.problem(http.StatusNotFound, fleet.ReasonResourceNotFound, "was not found", "check "+about.check())
	case errors.Is(err, store.ErrExists):
		return about.problem(http.StatusConflict, fleet.ReasonAlreadyExists, "already exists", about.instead()+"; nothing was changed")
	case errors.Is(err, auth.ErrUnauthenticated):
		return problem(http.StatusUnauthorized, auth.ErrUnauthenticated.Error()+`: send the header "Authorization: Bearer TOKEN" with a valid token`)
	case errors.As(err, &access):
		return problem(http.StatusForbidden, access.Message).because(access.Reason)
	case errors.As(err, &role):
		return problem(http.StatusForbidden, fmt.Sprintf("this %s; %s %s: ask an administrator for the role; nothing was changed", role, info.caller(), has(role))).because(fleet.ReasonRoleRequired)
	case errors.Is(err, auth.ErrForbidden):
		return problem(http.StatusForbidden, fmt.Sprintf("%s may not do this to %s: ask an administrator for the role", info.caller(), about)).because(fleet.ReasonRoleRequired)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "the request was canceled before the response: try again")
	default:
		return problem(http.StatusInternalServerError, fmt.Sprintf(
			"internal error; the log of the server has the cause under request id %s", info.id))
	}
}

// has returns the role of a caller, for the message about a missing role.
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

// invalid lists every invalid field.
func (i *requestInfo) invalid(all []*fleet.InvalidError) *problemDocument {
	p := problem(http.StatusUnprocessableEntity, "").because(fleet.ReasonRequestInvalid)
	for _, e := range all {
		p.Detail += e.Error() + "; "
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: i.location(e.Field), Message: e.Problem})
	}
	p.Detail += "nothing was changed"
	return p
}

// location returns the position of a field in the request.
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

// check returns what to check if a resource is not found.
func (s subject) check() string {
	if s.name == "" {
		return "its name"
	}
	if s.tenant == "" {
		return "its name; GET " + s.list + " lists all"
	}
	return "the name and the tenant; GET " + s.list + " lists all"
}

// instead returns the remedy for a name that is in use.
func (s subject) instead() string {
	if s.name == "" || s.list == "" || strings.Contains(s.name, "/") || strings.HasSuffix(s.list, "/tokens") { // tokens are addressed by id
		return "GET " + s.list + " lists all; use another name, or delete that one first"
	}
	there := s.list + "/" + s.name
	return fmt.Sprintf("GET %s shows it; use another name, or DELETE %s first", there, there)
}

// problemDocument is an error of RFC 9457 with the members of Kedge.
type problemDocument struct {
	huma.ErrorModel
	apiv1.ProblemMembers
}

func problem(status int, detail string) *problemDocument {
	return &problemDocument{ErrorModel: huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}}
}

// because sets the reason.
func (p *problemDocument) because(reason fleet.Reason) *problemDocument {
	p.Reason = string(reason)
	return p
}

// problem returns a problem with the resource of a request. The message has no remedy: programs that do not show requests
// of this API to their users show the message.
func (s subject) problem(status int, reason fleet.Reason, what, remedy string) *problemDocument {
	message := s.String() + " " + what
	p := problem(status, message+": "+remedy).because(reason)
	p.Message = message
	if s.name != "" { // otherwise the tenant was not found
		p.List = s.list
	}
	return p
}

// describeMembers adds the members of Kedge to the schema of errors, which huma defines.
func describeMembers(spec *huma.OpenAPI) {
	schemas := spec.Components.Schemas
	schemas.Schema(reflect.TypeFor[huma.ErrorModel](), true, "ErrorModel")
	members := huma.SchemaFromType(schemas, reflect.TypeFor[apiv1.ProblemMembers]())
	maps.Copy(schemas.Map()["ErrorModel"].Properties, members.Properties)
}

func noRoute(r *http.Request, status int) *problemDocument {
	path := redacted(r.URL.Path)
	if status == http.StatusMethodNotAllowed {
		return problem(status, fmt.Sprintf("%s does not support %s: see %s/openapi.json", path, r.Method, base))
	}
	return problem(http.StatusNotFound, fmt.Sprintf("there is nothing at %s: see %s/openapi.json", path, base))
}

// tooMany responds to a throttled caller.
func tooMany(w http.ResponseWriter, wait time.Duration, detail string) {
	w.Header().Set("Retry-After", retryAfter(wait))
	writeProblem(w, problem(http.StatusTooManyRequests, detail))
}

// retryAfter returns a wait in whole seconds, for the header.
func retryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second)))
}

// writeProblem responds with a problem document outside of huma.
func writeProblem(w http.ResponseWriter, p *problemDocument) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller is gone if this fails
}
