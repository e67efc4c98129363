package link_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// The delays of a throttled agent grow. Each is at least half of a window that doubles.
//
// covers: C12 (the agent's side)
func TestThrottledAgentWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
	g.end = func(f *agentv1.ConnectRequest) error {
		if f.GetHello() != nil {
			return status.Error(codes.ResourceExhausted, "too many connects")
		}
		return nil
	}
	start(t, address, "token", nil)
	ctx := testContext(t)
	g.attempt(ctx, t, "token")
	for i, least := range []time.Duration{2 * time.Second, 4 * time.Second} {
		refused := time.Now()
		g.attempt(ctx, t, "token")
		if pause := time.Since(refused); pause < least-100*time.Millisecond || pause > 2*least+time.Second {
			t.Errorf("after refusal %d the agent reconnected after %v, want between %v and %v", i+1, pause, least, 2*least)
		}
	}
}
