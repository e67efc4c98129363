package gateway

import (
	"context"
	"reflect"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// sendEnvironments sends the push environments that an engine instance serves, if they differ from what was sent. Only this
// agent gets their credentials, and only while it serves them.
func (s *session) sendEnvironments(ctx context.Context) error {
	if !s.agent.Instance {
		return nil
	}
	release, err := s.gateway.acquireControl(ctx)
	if err != nil {
		return err
	}
	list, err := s.gateway.control.PushEnvironments(ctx, s.agent)
	release()
	if err != nil {
		return retryable("reading the push environments of an agent: %w", err)
	}
	if s.environments != nil && reflect.DeepEqual(list, s.environments) {
		return nil
	}
	for _, m := range wire.PushEnvironmentsProto(list) {
		if err := s.send("push_environments", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_PushEnvironments{PushEnvironments: m}}); err != nil {
			return err
		}
	}
	s.environments = list
	return nil
}

// handleEndpointChecks records what an engine instance found at the API servers of its push environments.
func (s *session) handleEndpointChecks(ctx context.Context, m *agentv1.EndpointChecks) error {
	parsed, err := wire.ParseEndpointChecks(m)
	if err != nil {
		return err
	}
	if err := s.gateway.control.EndpointsChecked(ctx, s.agent, parsed); err != nil && ctx.Err() == nil {
		s.log().Warn("recording the checks of push environments failed", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot record the checks of push environments now")
	}
	return nil
}
