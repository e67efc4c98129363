package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/rig"
)

// Notify sends a signed webhook for a ref: what a Git host does after a push. The repository of the
// demo calls it from its hook.
func Notify(ctx context.Context, url, secretFile, ref string) error {
	secret, err := os.ReadFile(secretFile)
	if err != nil {
		return fmt.Errorf("reading the webhook's secret: %w", err)
	}
	client := &http.Client{Timeout: 10 * time.Second}
	code, err := rig.SendHook(ctx, client, url, strings.TrimSpace(string(secret)), ref)
	if err != nil {
		return err
	}
	if code != http.StatusAccepted {
		return fmt.Errorf("sending the webhook: the server answered %d", code)
	}
	return nil
}
