package restapi

import (
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// Matching is the input of requests that change or delete a resource with an ETag.
type Matching struct {
	IfMatch string `header:"If-Match" doc:"The ETag that you read. If the resource changed since then, nothing is done, and the response is 412. '*', or no header, matches any state."`
}

// match returns the state of If-Match; zero for any state.
func (in *Matching) match() (control.Match, error) {
	text := strings.TrimSpace(in.IfMatch)
	if text == "" || text == "*" {
		return control.Match{}, nil
	}
	inner, quoted := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	id, number, separated := strings.Cut(inner, ".")
	spec, err := strconv.ParseInt(number, 10, 64)
	if !quoted || !closed || !separated || id == "" || err != nil || spec <= 0 {
		return control.Match{}, fleet.Invalid("header.If-Match", `must be one ETag from the server, with its quotes, or *`)
	}
	return control.Match{ID: id, SpecRevision: spec}, nil
}

// etag identifies a state of the spec, not of the status, which changes all the time. It contains the id,
// because a deleted name can be used again, with numbers from the start.
func etag[ID ~string](id ID, spec int64) string {
	if spec == 0 {
		return ""
	}
	return `"` + string(id) + "." + strconv.FormatInt(spec, 10) + `"`
}

// stateTag returns the ETag of a numbered state.
func stateTag(m control.Match) string { return etag(m.ID, m.SpecRevision) }

// The types of responses.
type (
	// plain is a response without conditions.
	plain[T any] struct{ Body T }
	// tagged is a response with an ETag.
	tagged[T any] struct {
		ETag string `header:"ETag" doc:"Identifies this state of the spec; for If-Match."`
		Body T
	}
	// created is a response with a new resource and its location.
	created[T any] struct {
		Location string `header:"Location" doc:"URL of the new resource."`
		ETag     string `header:"ETag" doc:"Identifies this state of the spec; for If-Match."`
		Body     T
	}
	// accepted is a response with running work and the location of its operation.
	accepted[T any] struct {
		Location string `header:"Location" doc:"URL of the operation that tracks it."`
		Body     T
	}
)

// The types of requests.
type (
	createInput[B any] struct {
		InTenant
		Body B
	}
	editInput[B any] struct {
		Named
		Matching
		Body B
	}
	deleteInput struct {
		Named
		Matching
	}
	// deleteDeploymentInput is deleteInput with the option to keep the objects.
	deleteDeploymentInput struct {
		Named
		Matching
		KeepObjects bool `query:"keepObjects" doc:"Delete no object: agents stop managing them, and they stay in their clusters."`
	}
	// actInput is for actions with an optional body.
	actInput[B any] struct {
		Named
		Body *B
	}
)
