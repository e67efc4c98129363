package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// benchFanOut is B6: one commit to many agents, each with the real link client, applying in memory in separate
// processes.
func benchFanOut(ctx context.Context, r *rigging) error {
	sizes := of(r.options, []int{10, 30, 100}, []int{100, 300, 1000}, []int{100, 1000, 10_000})
	for _, kind := range r.databases {
		var medians []float64
		for i, n := range sizes {
			median, err := r.fanOutRound(ctx, kind, n, i == len(sizes)-1)
			if err != nil {
				return fmt.Errorf("with %d agents on %s: %w", n, kind, err)
			}
			medians = append(medians, median)
		}
		if err := r.reportValue("B6."+kind+".growth_exponent", exponent(sizes, medians), ""); err != nil {
			return err
		}
	}
	return nil
}

func (r *rigging) fanOutRound(ctx context.Context, kind string, n int, largest bool) (float64, error) {
	f, err := r.newFanOut(ctx, kind, n)
	if err != nil {
		return 0, err
	}
	defer f.stop()
	if largest && r.settle > 0 {
		if err := r.reportIdle(ctx, f); err != nil {
			return 0, err
		}
	}
	floor, err := r.fanOutFloor(ctx, f)
	if err != nil {
		return 0, err
	}
	var all, shown samples
	for i := range 5 {
		delivered, visible, err := f.commit(ctx, i)
		if err != nil {
			return 0, err
		}
		all, shown = append(all, delivered), append(shown, visible)
	}
	return ms(all.at(50)), r.reportAll(
		all.percentile(f.label+".delivered", 50, floor),
		shown.percentile(f.label+".status_visible", 50, floor),
	)
}

// fanOut is a server with many simulated agents and one deployment for all of them.
type fanOut struct {
	*pusher
	station *station
	fleet   *simFleet
	label   string
	before  float64 // memory of the server without agents, KiB
}

func (r *rigging) newFanOut(ctx context.Context, kind string, n int) (*fanOut, error) {
	name := fmt.Sprintf("b6-%s-%d", kind, n)
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := r.station(ctx, kind)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	tokens, err := r.enroll(ctx, s, n, nil)
	if err != nil {
		return nil, err
	}
	enrolled := time.Since(started)
	// A new process: the garbage of the enrollment would make agents look cheaper than they are.
	if err := s.Stop(); err != nil {
		return nil, err
	}
	if err := s.restart(ctx); err != nil {
		return nil, err
	}
	f := &fanOut{
		pusher:  &pusher{name: name, apps: 1, repo: repo, git: git, server: s.Server},
		station: s, label: fmt.Sprintf("B6.%s.%d_agents", kind, n),
	}
	if f.before, err = pss(s.PID()); err != nil {
		return nil, err
	}
	started = time.Now()
	if f.fleet, err = r.simulate(ctx, s.agentAddress(), s.CAFile, n, tokens); err != nil {
		return nil, err
	}
	if err := r.reportAll(
		single(f.label+".enrolled", ms(enrolled), "ms"),
		single(f.label+".connected", ms(time.Since(started)), "ms"),
	); err != nil {
		return nil, err
	}
	return f, f.deploy(ctx)
}

// deploy deploys to every agent.
func (f *fanOut) deploy(ctx context.Context) error {
	digest, err := f.change(ctx, 0, "first")
	if err != nil {
		return err
	}
	req := apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: f.git.URL(f.name), Path: "apps/0000"}}
	if err := f.server.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", req, nil); err != nil {
		return err
	}
	if _, err := f.fleet.awaitHolders(ctx, digest, f.fleet.n); err != nil {
		return err
	}
	return f.installHook(ctx)
}

func (f *fanOut) stop() {
	f.fleet.stop()
	_ = f.station.Stop()
}

// commit pushes a change and returns how long it took until every agent had it, and until every target was
// Synced on the server.
func (f *fanOut) commit(ctx context.Context, i int) (delivered, visible time.Duration, err error) {
	digest, err := f.change(ctx, 0, fmt.Sprintf("commit-%d", i))
	if err != nil {
		return 0, 0, err
	}
	accepted := <-f.pushed
	last, err := f.fleet.awaitHolders(ctx, digest, f.fleet.n)
	if err != nil {
		return 0, 0, err
	}
	if err := awaitVisible(ctx, f.server, digest); err != nil {
		return 0, 0, err
	}
	return last.Sub(accepted), time.Since(accepted), nil
}

// fanOutFloor is the minimum cost of a commit to all: a bare git fetch, and one small message over TLS per
// agent.
func (r *rigging) fanOutFloor(ctx context.Context, f *fanOut) (time.Duration, error) {
	fetch, err := r.fetchFloor(ctx, f.git.URL(f.name), f.repo)
	if err != nil {
		return 0, err
	}
	for len(f.pushed) > 0 { // the floor's own pushes
		<-f.pushed
	}
	message, err := messageFloor(ctx)
	if err != nil {
		return 0, err
	}
	return fetch.at(50) + time.Duration(f.fleet.n)*message, nil
}

// awaitVisible polls the server until every listed deployment has the digest, and is Synced and Current.
func awaitVisible(ctx context.Context, s *rig.Server, digests ...string) error {
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	for {
		asked := time.Now()
		var list apiv1.List[apiv1.Deployment]
		if err := s.Call(ctx, http.MethodGet, rig.TenantPath+"/deployments", nil, &list); err != nil {
			return err
		}
		missing := 0
		for i, digest := range digests {
			if d := list.Items[i]; d.Digest != digest || d.Sync != "Synced" || d.Health != "Current" {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		// A response lists every target: polling many all the time would be half of the load.
		if !pause(ctx, max(50*time.Millisecond, time.Since(asked))) {
			return fmt.Errorf("%d of %d deployments are not visible at their newest: %w", missing, len(digests), ctx.Err())
		}
	}
}

// reportIdle reports the memory of the server per idle agent, with TLS. Right after the start most of it is
// garbage of the handshakes, which an idle Go program collects every two minutes.
func (r *rigging) reportIdle(ctx context.Context, f *fanOut) error {
	if !pause(ctx, r.settle) {
		return ctx.Err()
	}
	server, database, err := f.station.memory()
	if err != nil {
		return err
	}
	if database > 0 {
		if err := r.reportValue(f.label+".database_memory", database/1024, "MiB"); err != nil {
			return err
		}
	}
	return r.reportAll(
		single(f.label+".server_memory", server/1024, "MiB"),
		single(f.label+".server_memory_per_agent", (server-f.before)/float64(f.fleet.n), "KiB"),
	)
}
