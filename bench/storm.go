package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// writtenTotal counts the written statuses: of several waiting ones of one target, only the newest is written.
const writtenTotal = "kedge_gateway_report_batch_size_sum"

// warmUp is how much of a storm is not counted: every first status is a whole one.
const warmUp = 2 * time.Second

// stormSize is one storm. Without a pace, agents send as fast as their streams allow; a pace shows the
// staleness at the promised rate.
type stormSize struct {
	name            string
	agents, targets int // targets per agent
	pace            float64
}

// benchStorm is B8: agents that report far more than agents do.
func benchStorm(ctx context.Context, r *rigging) error {
	many := of(r.options, 10, 100, 100)
	for _, kind := range r.databases {
		for _, size := range []stormSize{
			{name: "1_agents.paced", agents: 1, targets: 100, pace: 1000},
			{name: "1_agents.flood", agents: 1, targets: 100},
			{name: fmt.Sprintf("%d_agents.paced", many), agents: many, targets: 20, pace: 200},
			{name: fmt.Sprintf("%d_agents.flood", many), agents: many, targets: 20},
		} {
			if err := r.stormRound(ctx, kind, size); err != nil {
				return fmt.Errorf("%s on %s: %w", size.name, kind, err)
			}
		}
	}
	return nil
}

// stormRound lets one storm blow.
func (r *rigging) stormRound(ctx context.Context, kind string, size stormSize) error {
	s, tokens, err := r.stormStation(ctx, kind, size)
	if err != nil {
		return err
	}
	defer func() { _ = s.Stop() }()
	probe := rig.TenantPath + "/deployments/app-0000/targets/" + agentName(0)
	read, err := readFloor(ctx, s, probe)
	if err != nil {
		return err
	}
	storm, err := r.startStorm(ctx, s, tokens[0], size)
	if err != nil {
		return err
	}
	defer func() { _ = storm.process.Stop() }()
	if err := storm.awaitReady(ctx); err != nil {
		return err
	}
	pause(ctx, warmUp)
	from := time.Now()
	before, err := gatewayCounter(ctx, s, writtenTotal)
	if err != nil {
		return err
	}
	seen, to, err := storm.watch(ctx, s, probe, of(r.options, 3*time.Second, 8*time.Second, 20*time.Second))
	if err != nil {
		return err
	}
	after, err := gatewayCounter(ctx, s, writtenTotal)
	if err != nil {
		return err
	}
	written := (after - before) / time.Since(from).Seconds()
	stale := storm.staleness(seen, from, to)
	if len(stale) == 0 {
		return errors.New("the probed target did not get a new status")
	}
	label := "B8." + kind + "." + size.name
	return r.reportAll(
		single(label+".accepted", storm.acceptedSince(from), "1/s"),
		single(label+".written", written, "1/s"),
		stale.percentile(label+".staleness.p50", 50, read),
		stale.percentile(label+".staleness.p99", 99, read),
	)
}

// stormStation is a server with agents that have not connected, and deployments for all of them.
func (r *rigging) stormStation(ctx context.Context, kind string, size stormSize) (*station, []string, error) {
	name := "b8-" + kind + "-" + size.name
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := r.station(ctx, kind)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := r.enroll(ctx, s, size.agents, nil)
	if err != nil {
		return nil, nil, err
	}
	p, files := &pusher{name: name}, map[string]string{}
	for app := range size.targets {
		p.files(app, "only", files)
	}
	if _, err := repo.CommitAndPush(ctx, files, "all apps"); err != nil {
		return nil, nil, err
	}
	if err := s.addRepository(ctx, git.URL(name)); err != nil {
		return nil, nil, err
	}
	return s, tokens, s.each(ctx, size.targets, func(ctx context.Context, c *rig.Server, i int) error {
		return c.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments?check=false", apiv1.CreateDeployment{
			Name: fmt.Sprintf("app-%04d", i), Source: apiv1.Source{RepoURL: git.URL(name), Path: fmt.Sprintf("apps/%04d", i)},
		}, nil)
	})
}

// readFloor is the time of reading one target on an idle server.
func readFloor(ctx context.Context, s *station, path string) (time.Duration, error) {
	var all samples
	for i := range floorRuns {
		started := time.Now()
		if err := s.caller(i).Call(ctx, http.MethodGet, path, nil, nil); err != nil {
			return 0, err
		}
		all = append(all, time.Since(started))
	}
	return all.at(50), nil
}

// stormProcess is the storm program with its output. It is safe for concurrent use.
type stormProcess struct {
	process *rig.Process
	ready   chan struct{}

	mu     sync.Mutex
	probes []time.Time // when the statuses of the probed target were made
	stored []storedLine
}

type storedLine struct {
	n  int64
	at time.Time
}

func (r *rigging) startStorm(ctx context.Context, s *station, tokens string, size stormSize) (*stormProcess, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), r.program("storm"), "--server-address", strings.TrimPrefix(s.URL, "https://"),
		"--ca-cert-file", s.CAFile, "--token-dir", tokens,
		"--targets", strconv.Itoa(size.targets), "--pace", fmt.Sprint(size.pace))
	out, in := io.Pipe()
	cmd.Stdout = in
	p := &stormProcess{ready: make(chan struct{})}
	var err error
	if p.process, err = rig.Start("storm", cmd, os.Stderr); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, p.process.Stop)
	go p.read(out)
	return p, nil
}

func (p *stormProcess) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		nanos, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			continue
		}
		at := time.Unix(0, nanos)
		p.mu.Lock()
		switch fields[0] {
		case "ready":
			close(p.ready)
		case "probe":
			p.probes = append(p.probes, at)
		case "stored":
			n, _ := strconv.ParseInt(fields[1], 10, 64) // storm wrote it
			p.stored = append(p.stored, storedLine{n: n, at: at})
		}
		p.mu.Unlock()
	}
}

func (p *stormProcess) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.process.Done():
		return p.process.Ended()
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(fleetPatience):
		return errors.New("the agents of the storm never had their targets")
	}
}
