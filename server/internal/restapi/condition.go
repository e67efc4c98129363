package restapi

import (
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// Matching is taken by every request that changes or deletes what has an ETag.
type Matching struct {
	IfMatch string `header:"If-Match" doc:"The ETag that the caller saw: when it was changed since, nothing is done and the answer is 412. '*', or nothing, means whatever it is now."`
}

// match is what the caller saw; zero when anything will do.
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
		return control.Match{}, fleet.Invalid("header.If-Match", `must be one ETag as the server gave it, with its quotes, or *`)
	}
	return control.Match{ID: id, Spec: spec}, nil
}

// etag names a state of the specification, not of the status: that changes all the time. It has the id,
// because a name can be given to something else later, whose numbers begin anew.
func etag[ID ~string](id ID, spec int64) string {
	if spec == 0 {
		return ""
	}
	return `"` + string(id) + "." + strconv.FormatInt(spec, 10) + `"`
}

// stateTag is etag of a state that control has numbered.
func stateTag(m control.Match) string { return etag(m.ID, m.Spec) }

// The shapes of answers.
type (
	// plain answers without conditions.
	plain[T any] struct{ Body T }
	// tagged answers with what has an ETag.
	tagged[T any] struct {
		ETag string `header:"ETag" doc:"Names this state of the specification; for If-Match."`
		Body T
	}
	// created answers with what was made and where it is.
	created[T any] struct {
		Location string `header:"Location" doc:"Where it is."`
		ETag     string `header:"ETag" doc:"Names this state of the specification; for If-Match."`
		Body     T
	}
	// accepted answers with what goes on, and where its operation is.
	accepted[T any] struct {
		Location string `header:"Location" doc:"Where the operation is that tracks it."`
		Body     T
	}
)

// The shapes of requests.
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
	// deleteDeploymentInput is deleteInput with what becomes of the objects.
	deleteDeploymentInput struct {
		Named
		Matching
		KeepObjects bool `query:"keepObjects" doc:"Delete no object: agents let go of them, and they stay in their clusters."`
	}
	// actInput is for actions whose body may be left out.
	actInput[B any] struct {
		Named
		Body *B
	}
)
