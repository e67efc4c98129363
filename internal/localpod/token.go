package localpod

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tokenLifetime is the requested lifetime. renewInterval is short enough for a failed renewal.
const (
	tokenLifetime = time.Hour
	renewInterval = 20 * time.Minute
)

func (p *Pod) kubeconfig() string { return filepath.Join(p.cfg.Dir, "kubeconfig") }

// writeKubeconfig writes a kubeconfig whose only credential is the ServiceAccount's token. The token is in a separate file,
// as in a pod.
func (p *Pod) writeKubeconfig(ctx context.Context) error {
	raw, err := p.kubectl(ctx, "config", "view", "--minify", "--flatten", "-o", "json")
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("decoding the kubeconfig: %w", err)
	}
	p.token = filepath.Join(p.cfg.Dir, "serviceaccount-token")
	config["users"] = []any{map[string]any{"name": "agent", "user": map[string]any{"tokenFile": p.token}}}
	contexts, _ := config["contexts"].([]any)
	if len(contexts) != 1 {
		return fmt.Errorf("the kubeconfig has %d current contexts, not one", len(contexts))
	}
	context, _ := contexts[0].(map[string]any)["context"].(map[string]any)
	if context == nil {
		return fmt.Errorf("the kubeconfig has no usable context")
	}
	context["user"] = "agent"
	out, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	if err := os.WriteFile(p.kubeconfig(), out, 0o600); err != nil {
		return err
	}
	return p.renew(ctx)
}

func (p *Pod) renew(ctx context.Context) error {
	raw, err := p.kubectl(ctx, "create", "token", p.name, "--duration", tokenLifetime.String())
	if err != nil {
		return err
	}
	// Renamed, so that a reader never reads an incomplete token.
	next := p.token + ".next"
	if err := os.WriteFile(next, []byte(strings.TrimSpace(string(raw))), 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.token)
}

// KeepToken renews the ServiceAccount's token until ctx ends, as a kubelet does.
func (p *Pod) KeepToken(ctx context.Context) error {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.renew(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("renewing the token of ServiceAccount %s/%s: %w", p.cfg.Namespace, p.name, err)
			}
		}
	}
}
