package listen_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/server/internal/listen"
)

// A program may be stopped right after it started, before it serves.
func TestStopBeforeServing(t *testing.T) {
	t.Parallel()
	for range 50 {
		s, err := listen.New(listen.Config{Address: "127.0.0.1:0", DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, listen.Agents{Connect: grpc.NewServer()}, http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
