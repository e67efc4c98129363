package kubeapi

import (
	"bytes"
	"context"
	"errors"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// storeAgent creates the agent, or changes it to what the resource says.
func (k *environmentKind) storeAgent(ctx context.Context, tenant fleet.Tenant, p auth.Principal, name string, c *v1alpha1.DisconnectedCluster, token string) error {
	labels, namespaces, kinds := fleet.CloneLabels(c.Labels), c.Namespaces, kindFilter(c.KindFilter)
	_, err := k.control.UpdateAgent(ctx, p, tenant.Name, name, control.UpdateAgent{
		Labels: &labels, Namespaces: &namespaces, Kinds: &kinds, EngineNamespace: &c.GitOpsEngineNamespace, DeliverGitCredentials: &c.DeliverGitCredentials,
		Instance: &c.EngineInstance, Tunnel: &c.Tunnel,
	}, control.Match{})
	if errors.Is(err, store.ErrNotFound) {
		_, err = k.control.EnrollAgent(ctx, p, tenant.Name, control.EnrollAgent{
			Name: name, Labels: labels, Namespaces: namespaces, Kinds: kinds, EngineNamespace: c.GitOpsEngineNamespace,
			DeliverGitCredentials: c.DeliverGitCredentials, Instance: c.EngineInstance, Tunnel: c.Tunnel, Token: token,
		})
		return tokenRefused(err)
	}
	if err != nil {
		return err
	}
	return k.storeToken(ctx, tenant, p, name, token)
}

// kindFilter returns the kind filter of a resource. A resource without one has the default, also if somebody set another one.
func kindFilter(f *v1alpha1.KindFilter) fleet.KindFilter {
	if f == nil {
		return fleet.KindFilter{}
	}
	texts := func(rules []v1alpha1.KindRule) (out []string) {
		for _, rule := range rules {
			out = append(out, string(rule))
		}
		return out
	}
	return fleet.NewKindFilter(texts(f.Include), texts(f.Exclude))
}

// storeToken makes the token of the Secret valid if it is new. Older tokens are revoked when the agent has used it: until
// then the agent may still have one of them.
func (k *environmentKind) storeToken(ctx context.Context, tenant fleet.Tenant, p auth.Principal, agent, token string) error {
	tokens, err := k.control.AgentTokens(ctx, p, tenant.Name, agent, store.Whole())
	if err != nil {
		return err
	}
	hash := auth.Hash(token)
	var older []fleet.AgentToken // valid ones other than the token of the Secret
	current, used := false, false
	for _, t := range tokens {
		if !bytes.Equal(t.Hash, hash) {
			if t.Valid() {
				older = append(older, t)
			}
			continue
		}
		if !t.Valid() {
			return refuse(fleet.ReasonTokenRefused, registrationToken+": this token was revoked: use another one")
		}
		current = true
		used = !t.LastUsed.IsZero()
	}
	switch {
	case used:
		return k.revoke(ctx, tenant, p, agent, older)
	case current:
		return nil
	}
	if len(older) >= fleet.MaxAgentTokens {
		if err := k.revoke(ctx, tenant, p, agent, unused(older)); err != nil {
			return err
		}
	}
	_, _, err = k.control.CreateAgentToken(ctx, p, tenant.Name, agent, token)
	return tokenRefused(err)
}

// unused returns a token that was never used, or else the oldest.
func unused(tokens []fleet.AgentToken) []fleet.AgentToken {
	for _, t := range tokens {
		if t.LastUsed.IsZero() {
			return []fleet.AgentToken{t}
		}
	}
	return tokens[:1]
}

func (k *environmentKind) revoke(ctx context.Context, tenant fleet.Tenant, p auth.Principal, agent string, tokens []fleet.AgentToken) error {
	for _, t := range tokens {
		if err := k.control.RevokeAgentToken(ctx, p, tenant.Name, agent, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// tokenRefused gives a refused token its own reason.
func tokenRefused(err error) error {
	for _, problem := range fleet.Problems(err) {
		if problem.Field == "token" {
			return refuse(fleet.ReasonTokenRefused, registrationToken+": "+problem.Problem)
		}
	}
	return err
}
