package reposync

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// reason identifies the problem of summary, or "".
func (o outcome) reason() fleet.Reason {
	if o.problem != "" {
		return o.problemReason
	}
	for _, p := range o.parts {
		if p.evaluation.problem != "" {
			return p.reason
		}
	}
	return ""
}

// revisionReason identifies why a revision does not resolve to a commit.
func revisionReason(err error) fleet.Reason {
	var signature *gitsource.SignatureError
	if errors.As(err, &signature) {
		return fleet.ReasonSignatureInvalid
	}
	return fleet.ReasonRevisionNotFound
}

// renderReason identifies a user error in a source.
func renderReason(err error) fleet.Reason {
	var mistake *render.Error
	switch {
	case errors.As(err, &mistake):
		return cmp.Or(mistake.Reason, fleet.ReasonRenderFailed)
	case errors.Is(err, fs.ErrNotExist):
		return fleet.ReasonPathNotFound
	}
	return fleet.ReasonRenderFailed
}
