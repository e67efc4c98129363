package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// awaitHealthy follows the deployment until it is Synced and Current in every cluster, and tells what
// changes on the way.
func (d *demo) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	told := ""
	look := func() (done bool, err error) {
		v, err := d.client.Deployment(ctx, deployment)
		if err != nil {
			return false, err
		}
		if now := progress(v); now != told {
			told = now
			d.say.line("  %s", now)
		}
		return healthy(v, len(d.clusters)), nil
	}
	if done, err := look(); done || err != nil {
		return err
	}
	done := errors.New("done")
	err := d.client.Follow(ctx, func(client.Notice) error {
		ok, err := look()
		if ok {
			return done
		}
		return err
	})
	switch {
	case errors.Is(err, done):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("not Synced and Current after %v: %s", patience, told)
	}
	return err
}

func healthy(v apiv1.Deployment, n int) bool {
	return v.Sync == "Synced" && v.Health == "Current" && v.Counts.Targets == n && v.Counts.Ready == n
}

// progress is one line on where a deployment is.
func progress(v apiv1.Deployment) string {
	if v.Commit == "" {
		return fmt.Sprintf("%s: reading the source %s", v.Name, v.Message)
	}
	parts := []string{fmt.Sprintf("%s at %.12s:", v.Name, v.Commit)}
	for _, t := range v.Targets {
		parts = append(parts, fmt.Sprintf("%s %s/%s %s", t.Agent, t.Sync, t.Health, t.Message))
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}

// check does the three things that a person is told to try, by the very lines that are printed, and
// looks at the clusters themselves.
func (d *demo) check(ctx context.Context) error {
	if err := d.say.step("checking the objects through each cluster's API", func() error { return d.checkObjects(ctx) }); err != nil {
		return err
	}
	everywhere := []func(context.Context) error{d.checkPush, d.checkHeal, d.checkOffline}
	for i, t := range d.tries() {
		err := d.say.step(t.title, func() error {
			if err := t.run(ctx); err != nil {
				return err
			}
			return everywhere[i](ctx)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
	}
	d.say.line("all is as it should be")
	return nil
}

func (d *demo) checkObjects(ctx context.Context) error {
	for _, c := range d.clusters {
		out, err := c.Run(ctx, "", "-n", namespace, "get", "deployment/web", "service/web", "configmap/page", "-o", "name")
		if err != nil {
			return err
		}
		if got := len(strings.Fields(out)); got != 3 {
			return fmt.Errorf("%s holds %d of 3 objects", c.name, got)
		}
	}
	return nil
}

// checkPush looks at every cluster; a person was shown the first.
func (d *demo) checkPush(ctx context.Context) error {
	if err := d.everywhere(ctx, "Good morning", "get", "configmap", "page", "-o", "jsonpath={.data}"); err != nil {
		return err
	}
	return d.awaitHealthy(ctx)
}

func (d *demo) checkHeal(ctx context.Context) error {
	for _, c := range d.clusters {
		if _, err := c.Run(ctx, "", "-n", namespace, "patch", "deployment", "web", "--type=merge", "-p", `{"spec":{"replicas":5}}`); err != nil {
			return err
		}
	}
	return d.everywhere(ctx, "2", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
}

func (d *demo) checkOffline(ctx context.Context) error {
	select {
	case <-d.server.Done():
	case <-time.After(patience):
		return errors.New("kedge-server did not stop")
	}
	for _, c := range d.clusters {
		if _, err := c.Run(ctx, "", "-n", namespace, "delete", "service", "web"); err != nil {
			return err
		}
	}
	return d.everywhere(ctx, "service/web", "get", "service", "web", "--ignore-not-found", "-o", "name")
}

// everywhere waits until what kubectl prints contains a text, in every cluster.
func (d *demo) everywhere(ctx context.Context, text string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, c := range d.clusters {
		for {
			out, err := c.Run(ctx, "", append([]string{"-n", namespace}, args...)...)
			if err == nil && strings.Contains(out, text) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: kubectl %s never shows %q: %w", c.name, strings.Join(args, " "), text, errors.Join(ctx.Err(), err))
			case <-tick.C:
			}
		}
	}
	return nil
}
