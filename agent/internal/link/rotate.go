package link

import (
	"context"
	"errors"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// The rotation of a token, without a restart:
//
//	NewToken ──▶ stored ──▶ TokenStored ──▶ the agent closes the stream and reconnects with the new token
//	               ├─ cannot be stored ──▶ TokenStored with the problem; nothing else changes
//	               └─ another token was stored meanwhile ──▶ the agent closes the stream and reconnects with that one
//
// Both tokens are valid during the rotation, so that the agent is never locked out, even if it or the server is killed:
// before the new token is stored the agent uses the old one, and after that either works. Replicas share the store. They
// must not overwrite a token that another replica has stored, because the server may have revoked their own since.

const (
	// storeTimeout bounds how long storing a token may take.
	storeTimeout = 15 * time.Second
	// closeTimeout bounds how long the server may take to end a stream that the agent has closed.
	closeTimeout = 5 * time.Second
)

// rotation is the result of storing a new token.
type rotation struct {
	wire.TokenStored      // without an operation there is nothing to answer
	reconnect        bool // the stored token differs from the one of the connection
}

// handleNewToken stores a new token in the background: desired states must not wait for it.
func (n *connection) handleNewToken(ctx context.Context, m *agentv1.NewToken) error {
	next, err := wire.ParseNewToken(m)
	if err != nil {
		return err
	}
	if !n.rotating.CompareAndSwap(false, true) {
		n.log.Warn("ignoring a new token while another one is being stored", "operation", string(next.Operation))
		return nil
	}
	n.fetches.all.Go(func() {
		result := rotation{TokenStored: wire.TokenStored{Operation: next.Operation}}
		switch err := n.storeToken(ctx, next.Token); {
		case errors.Is(err, ErrReplaced):
			result = rotation{reconnect: true}
			n.log.Info("the new token is not stored because the stored token has changed, reconnecting with that one", "operation", string(next.Operation), obs.Err(err))
		case err != nil:
			result.Problem = err.Error()
			n.log.Warn("storing the new token failed", "operation", string(next.Operation), obs.Err(err))
		default:
			result.reconnect = next.Token != n.token
			n.log.Info("the new token is stored", "operation", string(next.Operation), "in", n.cfg.Tokens.String())
		}
		n.rotated <- result
		n.wake.Set()
	})
	return nil
}

func (n *connection) storeToken(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return n.cfg.Tokens.Store(ctx, n.storedToken, token)
}

// sendTokenStored answers NewToken, and then closes the stream if the agent has to reconnect with another token. The next
// connection sends again what the server has not confirmed on this one.
func (n *connection) sendTokenStored(result rotation) error {
	n.rotating.Store(false)
	if result.Operation != "" {
		err := n.send("token_stored", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TokenStored{TokenStored: result.Proto()}})
		if err != nil || !result.reconnect {
			return err
		}
	}
	n.closing.Store(true)
	n.timeout.Reset(closeTimeout)
	if err := n.stream.CloseSend(); err != nil {
		return err
	}
	return errClosed
}
