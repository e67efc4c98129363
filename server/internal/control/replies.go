package control

import (
	"cmp"
	"context"

	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ClaimReply reserves an idempotency key for a request of p. If p has used the key before, it returns the
// stored reply and false.
func (s *Service) ClaimReply(ctx context.Context, p auth.Principal, r store.Reply) (store.Reply, bool, error) {
	r.Scope, r.At = replyScope(p), s.cfg.Now()
	var kept store.Reply
	var fresh bool
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		kept, fresh, err = tx.Replies().Claim(ctx, r)
		return err
	})
	return kept, fresh, err
}

// CompleteReply stores the response to the request that claimed the key.
func (s *Service) CompleteReply(ctx context.Context, p auth.Principal, r store.Reply) error {
	r.Scope, r.At = replyScope(p), s.cfg.Now()
	return s.store.Update(ctx, func(tx store.Tx) error { return tx.Replies().Complete(ctx, r) })
}

// ReleaseReply releases a claim of p whose request has changed nothing.
func (s *Service) ReleaseReply(ctx context.Context, p auth.Principal, key string) error {
	return s.store.Update(ctx, func(tx store.Tx) error { return tx.Replies().Release(ctx, replyScope(p), key) })
}

// replyScope separates the keys of callers: names are not unique, tokens are.
func replyScope(p auth.Principal) string { return cmp.Or(string(p.TokenID), "name:"+p.Name) }
