package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// addCredentials adds the credentials of private repositories to the sources for an agent with Argo CD, or why the agent
// does not get them. A credential is sent only if the agent has DeliverGitCredentials, and never to an agent of another
// tenant: its administrators could read it in their cluster.
func (s *Service) addCredentials(ctx context.Context, tx store.Tx, agent fleet.Agent, targets []rollout.AgentTarget) error {
	type repository struct {
		tenant fleet.TenantID
		url    string
	}
	type access struct {
		credential *fleet.GitCredential
		withheld   fleet.CredentialWithheld
	}
	known := map[repository]access{}
	for i := range targets {
		t := &targets[i]
		if t.Source == nil {
			continue
		}
		key := repository{t.TenantID, t.Source.RepoURL}
		a, ok := known[key]
		if !ok {
			var err error
			if a.credential, a.withheld, err = s.engineCredential(ctx, tx, agent, key.tenant, key.url); err != nil {
				return err
			}
			known[key] = a
		}
		t.Source.Credential, t.Source.Withheld = a.credential, a.withheld
	}
	return nil
}

// engineCredential returns the credential of a repository for an agent, or why the agent does not get it.
func (s *Service) engineCredential(ctx context.Context, tx store.Tx, agent fleet.Agent, tenant fleet.TenantID, url string) (*fleet.GitCredential, fleet.CredentialWithheld, error) {
	repo, err := tx.Repositories().ByURL(ctx, tenant, url)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && repo.CredentialID == "":
		return nil, fleet.CredentialNotWithheld, nil
	case err != nil:
		return nil, "", err
	case tenant != agent.TenantID:
		return nil, fleet.CredentialOfOtherTenant, nil
	case !agent.DeliverGitCredentials:
		return nil, fleet.CredentialNotEnabled, nil
	}
	c, err := tx.Credentials().Get(ctx, tenant, repo.CredentialID)
	if err != nil {
		return nil, "", fmt.Errorf("reading the credential of a repository: %w", err)
	}
	if c.Kind != fleet.CredentialHTTPS && c.Kind != fleet.CredentialSSH {
		return nil, fleet.CredentialNotWithheld, nil // not one of a repository
	}
	secret, err := s.opened(c)
	if err != nil {
		return nil, "", fmt.Errorf("credential %q: %w", c.Name, err)
	}
	return &fleet.GitCredential{Kind: c.Kind, Username: c.Username, Secret: fleet.NewSecretText(secret.Reveal())}, "", nil
}
