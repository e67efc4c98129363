package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

const (
	listSlots = 20  // environments, with an agent each
	listPaths = 100 // folders in the repository
	listTeams = 10  // values of a label
	listSick  = 20  // one target of this many has failed
)

// listing is a server with very many deployments of one target each.
type listing struct {
	kind    string
	station *station
	fleet   *simFleet
	url     string // of the repository
	n       int
}

func appName(i int) string  { return fmt.Sprintf("app-%06d", i) }
func slotName(i int) string { return fmt.Sprintf("slot-%02d", i) }
func listPath(i int) string { return fmt.Sprintf("apps/%04d", i) }

func (r *rigging) newListing(ctx context.Context, name, kind string) (*listing, error) {
	name = strings.ToLower(name) + "-" + kind
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	p, files := &pusher{name: name}, map[string]string{}
	for path := range listPaths {
		p.files(path, "only", files)
	}
	if _, err := repo.CommitAndPush(ctx, files, "all apps"); err != nil {
		return nil, err
	}
	s, err := r.station(ctx, kind)
	if err != nil {
		return nil, err
	}
	tokens, err := r.enroll(ctx, s, listSlots, nil)
	if err != nil {
		return nil, err
	}
	for slot := range listSlots {
		env := apiv1.CreateEnvironment{Name: slotName(slot), Agents: []string{agentName(slot)}}
		if err := s.Call(ctx, http.MethodPost, rig.TenantPath+"/environments", env, nil); err != nil {
			return nil, err
		}
	}
	if err := s.addRepository(ctx, git.URL(name)); err != nil {
		return nil, err
	}
	l := &listing{kind: kind, station: s, url: git.URL(name)}
	l.fleet, err = r.simulate(ctx, s.agentAddress(), s.CAFile, listSlots, tokens, "--quiet", fmt.Sprintf("--sick=%d", listSick))
	return l, err
}

func (l *listing) stop() {
	l.fleet.stop()
	_ = l.station.Stop()
}

// fill creates deployments until there are n and every target has reported. Its results are named after name,
// such as B9; it returns the number of created deployments per second.
func (l *listing) fill(ctx context.Context, r *rigging, name string, n int) (rate float64, err error) {
	started, before := time.Now(), l.n
	err = l.station.each(ctx, n-before, func(ctx context.Context, c *rig.Server, i int) error {
		i += before
		return c.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", apiv1.CreateDeployment{
			Name: appName(i), Environment: slotName(i % listSlots), Labels: map[string]string{"team": fmt.Sprintf("team-%d", i%listTeams)},
			Source: apiv1.Source{RepoURL: l.url, Path: listPath(i % listPaths)},
		}, nil)
	})
	if err != nil {
		return 0, err
	}
	l.n = n
	rate = float64(n-before) / time.Since(started).Seconds()
	if err := l.awaitReported(ctx); err != nil {
		return 0, err
	}
	label := fmt.Sprintf("%s.%s.%d", name, l.kind, n)
	return rate, r.reportAll(
		single(label+".created", rate, "1/s"),
		single(label+".all_synced", ms(time.Since(started)), "ms"),
	)
}

// awaitReported waits until every target has reported.
func (l *listing) awaitReported(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 6*fleetPatience)
	defer cancel()
	for _, state := range []string{"Pending", "Syncing"} {
		for {
			var page apiv1.List[apiv1.Deployment]
			path := rig.TenantPath + "/deployments?limit=1&sync=" + state
			if err := l.station.Call(ctx, http.MethodGet, path, nil, &page); err != nil {
				return err
			}
			if len(page.Items) == 0 {
				break
			}
			if !pause(ctx, time.Second) {
				return fmt.Errorf("%s is still %s", page.Items[0].Name, state)
			}
		}
	}
	return nil
}
