package control

import (
	"context"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Webhook tells what the Git host of a repository has to be told. It is asked for by name and never
// part of a listing: who knows it can make the server look at the repository.
func (s *Service) Webhook(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (Webhook, error) {
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		_, err = tx.Repositories().Get(ctx, t.ID, id)
		return err
	})
	if err != nil {
		return Webhook{}, err
	}
	return Webhook{Repository: id, Secret: s.webhookSecret(id)}, nil
}

// WebhookSecret returns the secret that signs the webhooks of a repository.
func (s *Service) WebhookSecret(ctx context.Context, id fleet.RepositoryID) (string, error) {
	err := s.store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Repositories().GetAllTenants(ctx, id)
		return err
	})
	if err != nil {
		return "", err
	}
	return s.webhookSecret(id), nil
}

// maxRef bounds what is recorded of a push.
const maxRef = 255

// Push says that refs of a repository may have moved; none, or "" among them, means any. The caller has
// checked the signature. It goes through the store, so that it reaches the replica that reads the
// repository, and in one piece, so that this is woken once.
func (s *Service) Push(ctx context.Context, id fleet.RepositoryID, refs ...string) error {
	odd := func(ref string) bool { return ref == "" || len(ref) > maxRef || strings.ContainsRune(ref, 0) }
	if len(refs) == 0 || slices.ContainsFunc(refs, odd) {
		refs = []string{""}
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		repo, err := tx.Repositories().GetAllTenants(ctx, id)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if err := tx.Changes().RecordPush(ctx, repo.TenantID, repo.ID, ref); err != nil {
				return err
			}
		}
		return nil
	})
}
