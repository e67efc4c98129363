package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// source returns the source of a target with what only the rendered objects tell: their namespaces, and which of them
// their annotations keep. An agent with Argo CD cannot read the objects.
func (s *session) source(ctx context.Context, t control.AgentTarget) (*fleet.EngineSource, error) {
	out := *t.Source
	content, err := s.gateway.bundles.get(ctx, t.TenantID, t.Desired.Digest)
	if errors.Is(err, store.ErrNotFound) {
		s.log().Error("the bundle of a desired state is missing", obs.KeyTarget, string(t.ID), obs.KeyDigest, t.Desired.Digest)
		return nil, retryable("reading bundle %s: %w", t.Desired.Digest, err)
	}
	if err != nil {
		return nil, retryable("reading bundle %s: %w", t.Desired.Digest, err)
	}
	set, err := manifest.Unpack(t.Desired.Digest, content, wire.MaxBundleContent)
	if err != nil {
		return nil, retryable("unpacking bundle %s: %w", t.Desired.Digest, err)
	}
	if set.Len() > wire.MaxSourceObjects {
		out.Unsupported = append(out.Unsupported, fmt.Sprintf("%d objects, more than %d", set.Len(), wire.MaxSourceObjects))
		return &out, nil
	}
	addObjects(&out, set, t.Desired.Namespace)
	return &out, nil
}

// addObjects adds the objects, their namespaces, and those that their annotations keep. Only the cluster knows whether an unknown
// kind has namespaces, so that such an object has two names.
func addObjects(to *fleet.EngineSource, set *manifest.Set, namespace string) {
	namespaces := map[string]bool{}
	for _, o := range set.Objects() {
		if ref := manifest.Placed(o.Ref, ""); ref.Namespace != "" {
			namespaces[ref.Namespace] = true
		}
		var names []string
		for _, ref := range manifest.Claims(o.Ref, namespace) {
			names = append(names, ref.String())
		}
		to.Objects = append(to.Objects, names...)
		if fleet.KeepsObject(o.Unstructured().GetAnnotations()) {
			to.Kept = append(to.Kept, names...)
		}
	}
	slices.Sort(to.Objects)
	slices.Sort(to.Kept)
	to.Namespaces = slices.Sorted(maps.Keys(namespaces))
}

// sentCredential is what was sent about the credential of a source.
type sentCredential struct {
	credential fleet.GitCredential
	withheld   fleet.CredentialWithheld
}

// credentialOf returns what the agent has to know about the credential of a target; nil if the repository has none and the
// agent never gets any.
func (s *session) credentialOf(t control.AgentTarget) *sentCredential {
	if t.Source == nil || !s.agent.DeliverGitCredentials && t.Source.Withheld == fleet.CredentialNotWithheld {
		return nil
	}
	out := &sentCredential{withheld: t.Source.Withheld}
	if t.Source.Credential != nil {
		out.credential = *t.Source.Credential
	}
	return out
}

// credentialChanged reports whether an agent that has the desired state of a target needs it again, because the credential
// of its source was not sent in this session. It is not part of the desired state, which the hash of the agent is about: it
// may have changed while the agent was away.
func (s *session) credentialChanged(t control.AgentTarget) bool {
	now, sent := s.credentialOf(t), s.held[t.ID].credential
	return sendable(t) && now != nil && (sent == nil || *now != *sent)
}

// otherEngine reports whether the agent runs with another engine than it is enrolled with. It gets no desired states then:
// one engine knows nothing of the objects of the other, and would acknowledge a deletion that it cannot carry out.
func (s *session) otherEngine() bool { return s.conn.EngineNamespace != s.agent.EngineNamespace }

// checkEngine logs and records a warning when server and agent disagree about who applies.
func (s *session) checkEngine(ctx context.Context) {
	if !s.otherEngine() {
		return
	}
	message := fleet.EngineMismatch(s.conn, s.agent)
	s.log().Warn("server and agent disagree about the engine", obs.KeyReason, message)
	_ = s.gateway.intake.events(ctx, s.agent, []control.AgentEvent{{Event: fleet.Event{ // fails only when ctx has ended
		At: time.Now(), Type: fleet.EventWarning, Reason: fleet.ReasonEngineMismatch, Message: message,
	}}})
}
