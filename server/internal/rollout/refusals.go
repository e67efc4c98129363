package rollout

import (
	"context"
	"fmt"
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// grant returns the grant of the targets, or its zero value if none is needed. A deployment has one
// environment, and so one grant.
func (st *Reconciler) grant(ctx context.Context, d fleet.Deployment, targets []fleet.Target) (fleet.Grant, error) {
	for _, t := range targets {
		if t.GrantID == "" || !Attached(t) {
			continue
		}
		grant, err := st.tx.Grants().Get(ctx, d.TenantID, t.GrantID)
		if err != nil {
			return fleet.Grant{}, fmt.Errorf("reading grant %s: %w", t.GrantID, err)
		}
		return grant, nil
	}
	return fleet.Grant{}, nil
}

// Refusal returns which object of a bundle is beyond limits, and why, or "".
func (s *Planner) Refusal(ctx context.Context, tx store.Tx, d fleet.Deployment, digest string, limits fleet.Limits) (string, error) {
	if limits.None() {
		return "", nil
	}
	key := fmt.Sprintf("%q %q %q %q", digest, d.Namespace, limits.Namespaces, limits.Kinds)
	if why, ok := s.refusals.get(key); ok {
		return why, nil
	}
	bundle, err := tx.Bundles().Get(ctx, d.TenantID, digest)
	if err != nil {
		return "", fmt.Errorf("reading bundle %s: %w", digest, err)
	}
	set, err := manifest.Unpack(digest, bundle.Content, wire.MaxBundleContent)
	if err != nil {
		return "", err
	}
	why := BeyondLimits(set, d.Namespace, limits)
	s.refusals.put(key, why)
	return why, nil
}

// BeyondLimits finds the first object that limits do not allow. A kind that only a cluster knows counts as
// namespaced here; the agent refuses it if it is not.
func BeyondLimits(set *manifest.Set, namespace string, limits fleet.Limits) string {
	for _, o := range set.Objects() {
		ref := o.Ref
		scoped, _ := manifest.IsClusterScoped(ref)
		if !scoped && ref.Namespace == "" {
			ref.Namespace = namespace
		}
		if why := limits.Refusal(ref, !scoped); why != "" {
			return fmt.Sprintf("refused by the grant: %s: its %s", ref, why)
		}
	}
	return ""
}

// noteRefusal sets or clears a refusal. It does not change other source errors, which come first.
func (st *Reconciler) noteRefusal(ctx context.Context, d *fleet.Deployment, granted bool, refusal string) error {
	ours := d.SourceReason == fleet.ReasonGrantViolation // it depends on the limits, not on the content of Git
	if d.SourceError == refusal || (d.SourceError != "" && !ours) || (refusal == "" && !granted && d.EnvironmentTenant != d.TenantID) {
		return nil
	}
	reason := fleet.ReasonGrantViolation
	if refusal == "" {
		reason = ""
	}
	if err := st.tx.Deployments().SetSourceError(ctx, d.TenantID, d.ID, reason, refusal, st.planner.cfg.Now()); err != nil {
		return err
	}
	d.SourceReason, d.SourceError = reason, refusal
	if refusal == "" {
		return nil
	}
	return st.planner.tell(ctx, st.tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonGrantViolation, Deployment: d.Name, Message: refusal,
	})
}

// memo caches results about bundles, which never change. It drops everything when it is full.
type memo struct {
	mu    sync.Mutex
	found map[string]string
}

const maxMemo = 4096

func (m *memo) get(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.found[key]
	return value, ok
}

func (m *memo) put(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found == nil || len(m.found) >= maxMemo {
		m.found = map[string]string{}
	}
	m.found[key] = value
}

// SourceError returns the source error of d that is caused by the source.
func SourceError(d fleet.Deployment) string {
	if d.SourceReason == fleet.ReasonGrantViolation {
		return ""
	}
	return d.SourceError
}
