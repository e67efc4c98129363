package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// removeSample gives a cluster that stays back what it had: the deployment is deleted as a user
// deletes one, and then its namespace, which Kedge keeps and the demo has made.
func (d *demo) removeSample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.say.step("removing the sample application from the cluster", func() error {
		err := d.deleteDeployment(ctx)
		_, gone := d.clusters[0].Run(ctx, "", "delete", "namespace", namespace, "--ignore-not-found")
		return errors.Join(err, gone)
	})
}

func (d *demo) deleteDeployment(ctx context.Context) error {
	if err := d.restart(ctx); err != nil {
		return err
	}
	if err := client.Do(ctx, d.client, http.MethodDelete, d.client.In("deployments", deployment), nil); err != nil {
		return err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := client.List[apiv1.Deployment](ctx, d.client, d.client.In("deployments"), client.Everything(), 0)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(left, func(v apiv1.Deployment) bool { return v.Name == deployment }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the objects of the sample application to go: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// uninstall returns when nothing is left, so that the next demo finds the cluster as this one did.
func (d *demo) uninstall(ctx context.Context, c namedCluster) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.Uninstall(ctx, c.name)
	_, gone := c.Run(ctx, "", "delete", "namespace", agentNamespace, "--ignore-not-found")
	return errors.Join(err, gone)
}

// restart starts the server where its agents look for it, unless it runs.
func (d *demo) restart(ctx context.Context) error {
	select {
	case <-d.server.Done():
	default:
		return nil
	}
	address, err := url.Parse(d.server.URL)
	if err != nil {
		return err
	}
	cfg := d.serverConfig
	cfg.Listen = address.Host
	again, err := rig.StartServer(ctx, cfg)
	if err != nil {
		return err
	}
	d.server = again
	return nil
}
