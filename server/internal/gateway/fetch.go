package gateway

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// FetchBundle sends a bundle that a target of the agent refers to, starting at an offset.
func (g *Gateway) FetchBundle(req *agentv1.FetchBundleRequest, stream grpc.ServerStreamingServer[agentv1.FetchBundleResponse]) error {
	c := callerOf(stream.Context())
	if err := g.limiters.get(c.agent.ID).fetch(); err != nil {
		return err
	}
	content, err := g.bundleFor(stream.Context(), c.agent, req.GetDigest())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return status.Errorf(codes.NotFound, "bundle %q not found", req.GetDigest())
	case err != nil:
		g.log.Warn("reading a bundle failed", obs.KeyTenant, c.tenant.Name, obs.KeyAgent, c.agent.Name, obs.KeyDigest, req.GetDigest(), obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot read the bundle now")
	}
	total := int64(len(content))
	if req.GetOffset() < 0 || req.GetOffset() > total {
		return status.Errorf(codes.OutOfRange, "offset %d is outside of the %d bytes of the bundle", req.GetOffset(), total)
	}
	resp := &agentv1.FetchBundleResponse{Total: total}
	for rest := content[req.GetOffset():]; ; {
		n := min(len(rest), wire.BundleChunk)
		resp.Chunk = rest[:n]
		if err := stream.Send(resp); err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		resp = &agentv1.FetchBundleResponse{}
	}
}

// bundleFor reads a bundle for an agent that has a target which refers to it. The knowledge of a digest gives no
// access.
func (g *Gateway) bundleFor(ctx context.Context, agent fleet.Agent, digest string) ([]byte, error) {
	owner, ok := g.referencedOwner(agent.ID, digest)
	if !ok {
		release, err := g.acquireControl(ctx)
		if err != nil {
			return nil, err
		}
		owner, err = g.control.BundleOwner(ctx, agent, digest)
		release()
		if err != nil {
			return nil, err
		}
	}
	return g.bundles.get(ctx, owner, digest)
}

// referencedOwner finds the owner of a bundle among those that the gateway sent to the sessions of an agent as a
// reference. It saves a query for nearly every fetch. Sessions remember only the newest reference of each target.
func (g *Gateway) referencedOwner(agent fleet.AgentID, digest string) (owner fleet.TenantID, found bool) {
	g.sessions.forEachOf(agent, func(s *session) {
		if !found {
			owner, found = s.referenceOwner(digest)
		}
	})
	return owner, found
}

// reference is a bundle that the agent has to fetch.
type reference struct {
	digest string
	owner  fleet.TenantID
}

// setReference remembers the bundle that an agent has to fetch for a target. An empty digest removes it.
func (s *session) setReference(target fleet.TargetID, ref reference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref.digest == "" {
		delete(s.references, target)
		return
	}
	if s.references == nil {
		s.references = map[fleet.TargetID]reference{}
	}
	s.references[target] = ref
}

func (s *session) referenceOwner(digest string) (fleet.TenantID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.references {
		if ref.digest == digest {
			return ref.owner, true
		}
	}
	return "", false
}
