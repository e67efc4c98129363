package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// minPartition is longer than the connection timeouts of both ends.
const minPartition = 45 * time.Second

// badLine is the line of the agent after the partition.
var badLine = line{rtt: 300 * time.Millisecond, loss: 0.01, rate: 256_000.0 / 8}

// benchPartition is B10: an agent is disconnected while many commits are made, and reconnects over a bad line.
func benchPartition(ctx context.Context, r *rigging) error {
	commits, runs := of(r.options, 10, 500, 500), of(r.options, 1, 1, 5)
	for _, kind := range r.databases {
		p, err := r.newPartition(ctx, kind)
		if err == nil {
			err = p.measure(ctx, r, runs, commits)
			p.fleet.stop()
			err = errors.Join(err, p.line.close(), p.station.Stop())
		}
		if err != nil {
			return fmt.Errorf("on %s: %w", kind, err)
		}
	}
	return nil
}

// partition is a server with one agent, which it reaches over a line.
type partition struct {
	*pusher
	station *station
	fleet   *simFleet
	line    *shaper
	kind    string
	files   map[string]string
	count   int
}

func (r *rigging) newPartition(ctx context.Context, kind string) (*partition, error) {
	name := "b10-" + kind
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := r.station(ctx, kind)
	if err != nil {
		return nil, err
	}
	tokens, err := r.enroll(ctx, s, 1, nil)
	if err != nil {
		return nil, err
	}
	p := &partition{
		pusher:  &pusher{name: name, apps: 1, repo: repo, git: git, server: s.Server},
		station: s, kind: kind, files: manyFiles(),
	}
	if p.line, err = newShaper(strings.TrimPrefix(s.URL, "https://"), line{}); err != nil {
		return nil, err
	}
	if p.fleet, err = r.simulate(ctx, "grpcs://"+p.line.address(), s.CAFile, 1, tokens); err != nil {
		return nil, err
	}
	digest, err := p.commit(ctx)
	if err != nil {
		return nil, err
	}
	req := apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: git.URL(name)}}
	if err := s.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", req, nil); err != nil {
		return nil, err
	}
	if _, err := p.fleet.awaitHolders(ctx, digest, 1); err != nil {
		return nil, err
	}
	return p, p.installHook(ctx)
}

// manyFiles are objects that do not compress: the line must carry their full size, which does not fit into the
// message that announces them.
func manyFiles() map[string]string {
	files := map[string]string{}
	for i := range 100 {
		noise := make([]byte, 600)
		for b := range noise {
			noise[b] = byte(rand.Uint32())
		}
		files[fmt.Sprintf("cm-%03d.yaml", i)] = fmt.Sprintf(
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm-%03d\ndata:\n  value: %q\n", i, base64.StdEncoding.EncodeToString(noise))
	}
	return files
}

// commit changes one of the objects and returns the digest of all.
func (p *partition) commit(ctx context.Context) (string, error) {
	p.count++
	p.files["count.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: count\ndata:\n  value: \"%d\"\n", p.count)
	changed := p.files
	if p.count > 1 {
		changed = map[string]string{"count.yaml": p.files["count.yaml"]}
	}
	if _, err := p.repo.CommitAndPush(ctx, changed, "change"); err != nil {
		return "", err
	}
	return digestOf(p.files)
}

// heal is the result of one partition.
type heal struct {
	reconnected, current, beyond time.Duration // since the heal, since the heal, and beyond what the line needs since the first byte
	bytes                        int64         // to the agent
	transfers                    int           // bundles that the agent received
}

func (p *partition) measure(ctx context.Context, r *rigging, runs, commits int) error {
	var reconnected, current, beyond samples
	var bytes, transfers float64
	for range runs {
		h, err := p.cutAndHeal(ctx, r.partition, commits)
		if err != nil {
			return err
		}
		reconnected, current, beyond = append(reconnected, h.reconnected), append(current, h.current), append(beyond, h.beyond)
		bytes, transfers = max(bytes, float64(h.bytes)), max(transfers, float64(h.transfers))
	}
	set, err := setOf(p.files)
	if err != nil {
		return err
	}
	_, packed, _ := set.Pack()
	floor := time.Duration(float64(len(packed)) / badLine.rate * float64(time.Second))
	label := fmt.Sprintf("B10.%s.%d_commits", p.kind, commits)
	return r.reportAll(
		reconnected.percentile(label+".reconnected", 50, 0),
		current.percentile(label+".current", 50, floor),
		beyond.percentile(label+".beyond_bandwidth", 50, 0),
		result{Name: label + ".transfers", Value: transfers, Runs: runs, Min: transfers, Max: transfers},
		result{Name: label + ".bytes", Value: bytes, Unit: "B", Runs: runs, Min: bytes, Max: bytes, Floor: float64(len(packed))},
	)
}

// cutAndHeal cuts the line while commits are made, and restores it with bad quality.
func (p *partition) cutAndHeal(ctx context.Context, atLeast time.Duration, commits int) (heal, error) {
	p.line.cut()
	began, connects := time.Now(), p.fleet.connects()
	var digest string
	for range commits {
		var err error
		if digest, err = p.commit(ctx); err != nil {
			return heal{}, err
		}
	}
	if !pause(ctx, time.Until(began.Add(atLeast))) {
		return heal{}, ctx.Err()
	}
	if err := p.awaitRendered(ctx, digest); err != nil {
		return heal{}, err
	}
	before := p.taken()
	healed := time.Now()
	p.line.mend(badLine)
	current, err := p.fleet.awaitHolders(ctx, digest, 1)
	if err != nil {
		return heal{}, err
	}
	bytes, first := p.line.since()
	linked, err := p.fleet.awaitLinks(ctx, connects+1)
	if err != nil {
		return heal{}, err
	}
	needs := time.Duration(float64(bytes) / badLine.rate * float64(time.Second))
	p.line.mend(line{})
	return heal{
		reconnected: linked.Sub(healed), current: current.Sub(healed), beyond: current.Sub(first) - needs,
		bytes: bytes, transfers: p.taken() - before,
	}, awaitVisible(ctx, p.station.Server, digest)
}

// awaitRendered waits until the server desires the digest.
func (p *partition) awaitRendered(ctx context.Context, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	for {
		var d apiv1.Deployment
		if err := p.station.Call(ctx, http.MethodGet, rig.TenantPath+"/deployments/app", nil, &d); err != nil {
			return err
		}
		if d.Digest == digest {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return errors.New("the server did not get the newest commit")
		}
	}
}

// taken returns the number of bundles that the agent has received.
func (p *partition) taken() (n int) {
	p.fleet.mu.Lock()
	defer p.fleet.mu.Unlock()
	for _, past := range p.fleet.history {
		n += len(past)
	}
	return n
}
