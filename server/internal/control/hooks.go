package control

import (
	"context"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Webhook returns the webhook settings for the Git host of a repository. They are never part of a listing: with
// them, anyone can make the server read the repository.
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

// maxRef limits the length of a ref of a push.
const maxRef = 255

// Push records that refs of a repository may have moved; none, or "" among them, means any. The caller has
// checked the signature. It goes through the store, so that it reaches the replica that leads the repository,
// and in one record, so that the replica wakes once.
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
			if err := tx.Changes().WakeRepository(ctx, repo.TenantID, repo.ID, store.Wake{Reason: store.WakePush, Ref: ref}); err != nil {
				return err
			}
		}
		return nil
	})
}
