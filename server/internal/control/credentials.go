package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Sealer encrypts secrets with keys of the server. A secret is bound to about: it can only be decrypted with
// the same text.
type Sealer interface {
	// KeyID returns the key that encrypts; older keys still decrypt.
	KeyID() string
	Seal(secret seal.Secret, about string) (fleet.Sealed, error)
	Open(s fleet.Sealed, about string) (seal.Secret, error)
}

const (
	maxSecret     = 64 << 10
	maxUsername   = 255
	maxKnownHosts = 64 << 10
)

// aboutCredential binds a secret to its row: it cannot be decrypted as that of another tenant or credential.
func aboutCredential(c fleet.Credential) string { return string(c.TenantID) + "/" + string(c.ID) }

// Credentials lists the credentials of a tenant, without their secrets.
func (s *Service) Credentials(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Credential, error) {
	var out []fleet.Credential
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Credentials().List(ctx, t.ID, page)
		return err
	})
	for i := range out {
		out[i].Sealed = fleet.Sealed{}
	}
	return out, err
}

// Credential returns one credential by name, without its secret.
func (s *Service) Credential(ctx context.Context, p auth.Principal, tenant, name string) (fleet.Credential, error) {
	var out fleet.Credential
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if out, err = credentialByName(ctx, tx, t.ID, name); err != nil {
			return err
		}
		out.Sealed = fleet.Sealed{}
		return nil
	})
	return out, err
}

// credentialByName finds a credential of repositories. That of a push environment is part of the environment.
func credentialByName(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name string) (fleet.Credential, error) {
	c, err := tx.Credentials().ByName(ctx, tenant, name)
	if err == nil && c.Kind == fleet.CredentialKubernetes {
		err = store.ErrNotFound
	}
	if err != nil {
		return fleet.Credential{}, fmt.Errorf("credential %q: %w", name, err)
	}
	return c, nil
}

// CreateCredential stores a secret for reading repositories. It is never returned.
func (s *Service) CreateCredential(ctx context.Context, p auth.Principal, tenant string, req CreateCredential) (fleet.Credential, error) {
	c := fleet.Credential{
		ID: fleet.NewCredentialID(), Name: req.Name, Kind: req.Kind, Username: req.Username, KnownHosts: req.KnownHosts,
		SpecRevision: 1, CreatedAt: s.cfg.Now(), UpdatedAt: s.cfg.Now(),
	}
	if err := fleet.CheckName("name", c.Name); err != nil {
		return fleet.Credential{}, err
	}
	if err := checkCredential(c); err != nil {
		return fleet.Credential{}, err
	}
	if err := checkSecret(c.Kind, req.Secret); err != nil {
		return fleet.Credential{}, err
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		c.TenantID = t.ID
		if c.Sealed, err = s.sealed(c, req.Secret); err != nil {
			return err
		}
		if err := tx.Credentials().Create(ctx, c); err != nil {
			return fmt.Errorf("credential %q: %w", c.Name, err)
		}
		if err := own(ctx, tx, p, credentialResource(c)); err != nil {
			return err
		}
		return s.auditCredential(ctx, tx, p, c, "credential.create", "kind "+string(c.Kind))
	})
	c.Sealed = fleet.Sealed{}
	return c, err
}

// UpdateCredential changes a credential. Repositories that use it are read again immediately. The same input
// twice changes nothing.
func (s *Service) UpdateCredential(ctx context.Context, p auth.Principal, tenant, name string, req UpdateCredential, match Match) (fleet.Credential, error) {
	var c fleet.Credential
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if c, err = credentialByName(ctx, tx, t.ID, name); err != nil {
			return err
		}
		if err := match.check(string(c.ID), c.SpecRevision); err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, credentialResource(c), "changed"); err != nil {
			return err
		}
		if err := observeNewer(ctx, tx, p, credentialResource(c)); err != nil {
			return err
		}
		changed, err := s.applyCredential(&c, req)
		if err != nil || changed == "" {
			return err
		}
		c.UpdatedAt = s.cfg.Now()
		if err := tx.Credentials().Update(ctx, c); err != nil {
			return err
		}
		if c, err = tx.Credentials().Get(ctx, t.ID, c.ID); err != nil {
			return err
		}
		return s.auditCredential(ctx, tx, p, c, "credential.update", changed+" changed")
	})
	c.Sealed = fleet.Sealed{}
	return c, err
}

// applyCredential applies a request to c, and returns the changes, or "".
func (s *Service) applyCredential(c *fleet.Credential, req UpdateCredential) (string, error) {
	var changed []string
	if req.Username != nil && *req.Username != c.Username {
		c.Username = *req.Username
		changed = append(changed, "user name")
	}
	if req.KnownHosts != nil && *req.KnownHosts != c.KnownHosts {
		c.KnownHosts = *req.KnownHosts
		changed = append(changed, "known hosts")
	}
	if err := checkCredential(*c); err != nil {
		return "", err
	}
	if req.Secret == nil {
		return strings.Join(changed, ", "), nil
	}
	if err := checkSecret(c.Kind, *req.Secret); err != nil {
		return "", err
	}
	// A secret that cannot be decrypted any more is always replaced.
	if old, err := s.opened(*c); err == nil && old.Reveal() == *req.Secret {
		return strings.Join(changed, ", "), nil
	}
	var err error
	if c.Sealed, err = s.sealed(*c, *req.Secret); err != nil {
		return "", err
	}
	return strings.Join(append(changed, "secret"), ", "), nil
}

// DeleteCredential removes a credential that no repository uses.
func (s *Service) DeleteCredential(ctx context.Context, p auth.Principal, tenant, name string, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		c, err := credentialByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		if err := match.check(string(c.ID), c.SpecRevision); err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, credentialResource(c)); err != nil {
			return err
		}
		if err := tx.Credentials().Delete(ctx, t.ID, c.ID); errors.Is(err, store.ErrExists) {
			return fleet.Conflict("repositories use credential %q: change them first", name)
		} else if err != nil {
			return err
		}
		return s.auditCredential(ctx, tx, p, c, "credential.delete", "")
	})
}

func (s *Service) auditCredential(ctx context.Context, tx store.Tx, p auth.Principal, c fleet.Credential, action, detail string) error {
	return s.audit(ctx, tx, p, fleet.AuditEvent{
		TenantID: c.TenantID, Action: action, Kind: "credential", Name: c.Name, ID: string(c.ID), Detail: detail,
	})
}

func (s *Service) sealed(c fleet.Credential, secret string) (fleet.Sealed, error) {
	if s.cfg.Sealer == nil {
		return fleet.Sealed{}, fleet.Conflict("the server has no key to encrypt secrets: start it with a key file")
	}
	return s.cfg.Sealer.Seal(seal.NewSecret(secret), aboutCredential(c))
}

func (s *Service) opened(c fleet.Credential) (seal.Secret, error) {
	if s.cfg.Sealer == nil {
		return seal.Secret{}, errors.New("the server has no key to decrypt secrets: start it with its key file")
	}
	return s.cfg.Sealer.Open(c.Sealed, aboutCredential(c))
}
