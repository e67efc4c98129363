package link

import (
	"context"
	"errors"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// How a token is rotated without a restart:
//
//	NewToken ──▶ kept where it lives ──▶ TokenStored ──▶ the stream ends ──▶ a new one, with the new token
//	                   ├─ cannot be kept ──▶ TokenStored with the problem; nothing else changes
//	                   └─ another one was kept meanwhile ──▶ the stream ends ──▶ a new one, with that
//
// Both tokens are valid meanwhile, so that no moment of it can lock the agent out, whoever is killed:
// before the new one is kept the old one is used, and after that either. Replicas that share the place must
// not overwrite what another one has kept: it may be the one that counts, and this one be revoked.

const (
	// storeTimeout bounds how long keeping a token may take.
	storeTimeout = 15 * time.Second
	// partingTimeout bounds how long a server may take to end a stream that the agent has left.
	partingTimeout = 5 * time.Second
)

// rotation is how keeping a new token went.
type rotation struct {
	wire.TokenStored      // without an operation there is nothing to answer
	leave            bool // another token than that of the connection is kept now
}

// takeToken keeps a new token, beside the reader: desired state must not wait for it.
func (n *connection) takeToken(ctx context.Context, m *agentv1.NewToken) error {
	next, err := wire.ParseNewToken(m)
	if err != nil {
		return err
	}
	if !n.rotating.CompareAndSwap(false, true) {
		n.log.Warn("ignoring a new token while another one is being kept", "operation", string(next.Operation))
		return nil
	}
	n.fetched.all.Go(func() {
		answer := rotation{TokenStored: wire.TokenStored{Operation: next.Operation}}
		switch err := n.keep(ctx, next.Token); {
		case errors.Is(err, ErrReplaced):
			answer = rotation{leave: true}
			n.log.Info("a new token is not kept, coming back with what is", "operation", string(next.Operation), obs.Err(err))
		case err != nil:
			answer.Problem = err.Error()
			n.log.Warn("a new token cannot be kept", "operation", string(next.Operation), obs.Err(err))
		default:
			answer.leave = next.Token != n.token
			n.log.Info("a new token is kept", "operation", string(next.Operation), "in", n.cfg.Tokens.String())
		}
		n.stored <- answer
		wait.Signal(n.wake)
	})
	return nil
}

func (n *connection) keep(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return n.cfg.Tokens.Store(ctx, n.kept, token)
}

// sendStored answers NewToken, and then leaves the stream if there is another token to come back
// with. What was not confirmed on this one is sent again on the next.
func (n *connection) sendStored(answer rotation) error {
	n.rotating.Store(false)
	if answer.Operation != "" {
		err := n.send("token_stored", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TokenStored{TokenStored: answer.Proto()}})
		if err != nil || !answer.leave {
			return err
		}
	}
	n.leaving.Store(true)
	n.late.Reset(partingTimeout)
	if err := n.stream.CloseSend(); err != nil {
		return err
	}
	return errLeft
}
