package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// sight is an observation of a reader: its time, and the time of the observed status.
type sight struct{ at, made time.Time }

// lateSight bounds how long the newest status of a watch is waited for.
const lateSight = 30 * time.Second

// watch reads one target repeatedly, like a dashboard, during the storm: for that long, and until the statuses
// up to then are visible.
func (p *stormProcess) watch(ctx context.Context, s *station, path string, long time.Duration) (seen []sight, end time.Time, err error) {
	end = time.Now().Add(long)
	for i := 0; ctx.Err() == nil; i++ {
		var t apiv1.Target
		if err := s.caller(i).Call(ctx, http.MethodGet, path, nil, &t); err != nil {
			return nil, end, err
		}
		now := time.Now()
		nanos, err := strconv.ParseInt(t.Message, 10, 64)
		if err == nil {
			seen = append(seen, sight{at: now, made: time.Unix(0, nanos)})
		}
		if now.After(end.Add(lateSight)) || now.After(end) && err == nil && !seen[len(seen)-1].made.Before(end) {
			break
		}
		select {
		case <-p.process.Done():
			return nil, end, p.process.Ended()
		default:
		}
		pause(ctx, 10*time.Millisecond)
	}
	return seen, end, ctx.Err()
}

// staleness returns, for every status in a time range, how long it took until it, or a newer one of the same
// target, was visible. One that never was counts with the waiting time.
func (p *stormProcess) staleness(seen []sight, from, to time.Time) samples {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out samples
	next := 0
	for _, made := range p.probes {
		if made.Before(from) || made.After(to) {
			continue
		}
		for next < len(seen) && seen[next].made.Before(made) {
			next++
		}
		if next == len(seen) {
			out = append(out, to.Add(lateSight).Sub(made))
			continue
		}
		out = append(out, seen[next].at.Sub(made))
	}
	return out
}

// acceptedSince returns how many statuses per second the server has confirmed since.
func (p *stormProcess) acceptedSince(since time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, first := range p.stored {
		last := p.stored[len(p.stored)-1]
		if first.at.After(since) && last.at.After(first.at) {
			return float64(last.n-first.n) / last.at.Sub(first.at).Seconds()
		}
	}
	return 0
}

// gatewayCounter reads a counter without labels of a server.
func gatewayCounter(ctx context.Context, s *station, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Health+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := s.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("the server has no metric %s", name)
}
