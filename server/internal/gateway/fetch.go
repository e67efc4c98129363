package gateway

import (
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// FetchBundle sends a bundle of the agent's own tenant, from an offset on.
func (g *Gateway) FetchBundle(req *agentv1.FetchBundleRequest, stream grpc.ServerStreamingServer[agentv1.FetchBundleResponse]) error {
	who := callerOf(stream.Context())
	content, err := g.bundles.get(stream.Context(), who.agent.TenantID, req.GetDigest())
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
