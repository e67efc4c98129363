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

// FetchBundle sends a bundle that a target of the agent names, from an offset on.
func (g *Gateway) FetchBundle(req *agentv1.FetchBundleRequest, stream grpc.ServerStreamingServer[agentv1.FetchBundleResponse]) error {
	who := callerOf(stream.Context())
	if err := g.limiters.of(who.agent.ID).fetch(); err != nil {
		return err
	}
	content, err := g.bundleFor(stream.Context(), who.agent, req.GetDigest())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return status.Errorf(codes.NotFound, "no bundle %q", req.GetDigest())
	case err != nil:
		g.log.Warn("reading a bundle", obs.KeyTenant, who.tenant.Name, obs.KeyAgent, who.agent.Name, obs.KeyDigest, req.GetDigest(), obs.Err(err))
		return status.Error(codes.Unavailable, "the bundle cannot be read now")
	}
	total := int64(len(content))
	if req.GetOffset() < 0 || req.GetOffset() > total {
		return status.Errorf(codes.OutOfRange, "offset %d is not within the %d bytes of the bundle", req.GetOffset(), total)
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

// bundleFor reads a bundle for an agent that has a target which names it: a digest is no permission.
func (g *Gateway) bundleFor(ctx context.Context, agent fleet.Agent, digest string) ([]byte, error) {
	owner, ok := g.referred(agent.ID, digest)
	if !ok {
		release, err := g.load(ctx)
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

// referred finds the owner of a bundle among what the sessions of an agent were told to fetch, which is
// what agents fetch. Only the newest of each target counts, so that is bounded.
func (g *Gateway) referred(agent fleet.AgentID, digest string) (fleet.TenantID, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.sessions[agent] {
		if owner, ok := s.reference(digest); ok {
			return owner, true
		}
	}
	return "", false
}

// reference is a bundle that the agent was told to fetch.
type reference struct {
	digest string
	owner  fleet.TenantID
}

// refer remembers what an agent was told to fetch for a target, or with "" that it has nothing to fetch.
func (s *session) refer(target fleet.TargetID, ref reference) {
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

func (s *session) reference(digest string) (fleet.TenantID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.references {
		if ref.digest == digest {
			return ref.owner, true
		}
	}
	return "", false
}
