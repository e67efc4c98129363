package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kedge-dev/kedge/internal/rig"
)

// benchListing is B9: list, filter and search many deployments by REST.
func benchListing(ctx context.Context, r *rigging) error {
	sizes := of(r.options, []int{200, 500, 1000}, []int{1000, 3000, 6000}, []int{1000, 6000, 50_000})
	for _, kind := range r.databases {
		if err := r.listingRounds(ctx, kind, sizes); err != nil {
			return fmt.Errorf("on %s: %w", kind, err)
		}
	}
	return nil
}

// listingRounds fills one server and measures at every size.
func (r *rigging) listingRounds(ctx context.Context, kind string, sizes []int) error {
	l, err := r.newListing(ctx, "B9", kind)
	if err != nil {
		return err
	}
	defer l.stop()
	measured := map[string][]point{}
	for _, n := range sizes {
		if _, err := l.fill(ctx, r, "B9", n); err != nil {
			return fmt.Errorf("filling up to %d: %w", n, err)
		}
		if err := l.measure(ctx, r, measured); err != nil {
			return fmt.Errorf("with %d deployments: %w", n, err)
		}
	}
	for _, q := range l.queries() {
		from, to, ok := alike(measured[q.name])
		if !ok {
			continue
		}
		growth := exponent([]int{from.n, to.n}, []float64{from.median, to.median})
		if err := r.reportValue(fmt.Sprintf("B9.%s.%s.growth_exponent", kind, q.name), growth, ""); err != nil {
			return err
		}
	}
	return nil
}

// point is the time of a page at a number of deployments.
type point struct {
	n      int
	median float64
	bytes  int64
}

// alike returns the smallest and the largest number whose pages have about the same size: a page that is not
// full takes less time.
func alike(all []point) (from, to point, ok bool) {
	to = all[len(all)-1]
	for _, p := range all {
		if p.n < to.n && 10*p.bytes >= 9*to.bytes && 9*p.bytes <= 10*to.bytes {
			return p, to, true
		}
	}
	return point{}, to, false
}

// query is one way to list.
type query struct {
	name   string
	values url.Values
	found  expectation
}

// expectation tells whether there are matches.
type expectation int

const (
	something expectation = iota
	nothing
	perhaps
)

// queries are the filters, with later pages if there are enough matches: the data is known, and so are the
// matches.
func (l *listing) queries() []query {
	deep := appName(l.n * 4 / 5)
	with := func(text string) url.Values {
		v, _ := url.ParseQuery(text) // written below
		return v
	}
	path := listPath(listPaths - 10)
	// What the deployments of one slot have in common: see fill.
	six := "environment=" + slotName(3) + "&agent=" + agentName(3) + "&sync=Synced&health=Current&label=team%3Dteam-3"
	return []query{
		{name: "plain", values: with("")},
		{name: "plain_deep", values: with("after=" + deep)},
		{name: "q_name", values: with("q=" + appName(l.n/2))},
		{name: "q_path", values: with("q=" + path)},
		{name: "q_path_deep", values: with("q=" + path + "&after=" + deep)},
		{name: "q_none", values: with("q=nobody-has-this"), found: nothing},
		{name: "environment", values: with("environment=" + slotName(3))},
		{name: "environment_deep", values: with("environment=" + slotName(3) + "&after=" + deep)},
		{name: "agent", values: with("agent=" + agentName(3))},
		{name: "sync_synced", values: with("sync=Synced")},
		{name: "sync_failed", values: with("sync=Failed")},
		{name: "sync_none", values: with("sync=OutOfSync"), found: nothing},
		{name: "health_failed", values: with("health=Failed")},
		{name: "health_current_deep", values: with("health=Current&after=" + deep)},
		{name: "label", values: with("label=team%3Dteam-3")},
		{name: "label_deep", values: with("label=team%3Dteam-3&after=" + deep)},
		{name: "label_and_sync", values: with("label=team%3Dteam-3&sync=Failed"), found: perhaps},
		{name: "repository", values: with("repository=" + url.QueryEscape(l.url))},
		{name: "repository_deep", values: with("repository=" + url.QueryEscape(l.url) + "&after=" + deep)},
		{name: "health_stale", values: with("health=Stale"), found: nothing},
		{name: "six_at_once", values: with(six + "&q=app")},
		{name: "six_at_once_deep", values: with(six + "&q=app&after=" + deep)},
		{name: "six_at_once_none", values: with(six + "&q=nobody-has-this"), found: nothing},
	}
}

// measure runs every query many times, one after another.
func (l *listing) measure(ctx context.Context, r *rigging, measured map[string][]point) error {
	runs := of(r.options, 20, 100, 200)
	floor, _, err := l.ask(ctx, "/livez", runs)
	if err != nil {
		return err
	}
	for _, q := range l.queries() {
		q.values.Set("limit", "100")
		took, size, err := l.ask(ctx, "/api/v1"+rig.TenantPath+"/deployments?"+q.values.Encode(), runs)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		if empty := size < emptyPage; q.found != perhaps && empty != (q.found == nothing) {
			return fmt.Errorf("%s: a page of %d bytes, which does not match the expectation", q.name, size)
		}
		if size > largestPage {
			return fmt.Errorf("%s: a page of %d bytes, which is more than %d", q.name, size, largestPage)
		}
		label := fmt.Sprintf("B9.%s.%d.%s", l.kind, l.n, q.name)
		if err := r.reportAll(
			took.percentile(label+".p50", 50, floor.at(50)), took.percentile(label+".p99", 99, floor.at(50)),
			single(label+".bytes", float64(size), "B"),
		); err != nil {
			return err
		}
		measured[q.name] = append(measured[q.name], point{n: l.n, median: ms(took.at(50)), bytes: size})
	}
	return nil
}

const (
	// emptyPage is more than a page without anything on it has.
	emptyPage = 200
	// largestPage is the maximum size of a page of a hundred.
	largestPage = 100_000
)

// ask reads a page many times, and returns the times and its size.
func (l *listing) ask(ctx context.Context, path string, runs int) (took samples, size int64, err error) {
	for i := range runs + 1 {
		var each time.Duration
		err := patiently(ctx, func() (err error) {
			each, size, err = readPage(ctx, l.station.caller(i), path)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if i > 0 { // the first one warms the connection
			took = append(took, each)
		}
	}
	return took, size, nil
}

// readPage reads a page raw, neither decompressed nor parsed.
func readPage(ctx context.Context, s *rig.Server, path string) (took time.Duration, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Accept-Encoding", "identity")
	started := time.Now()
	res, err := s.HTTP.Do(req)
	if err != nil {
		return 0, 0, err
	}
	size, err = io.Copy(io.Discard, res.Body)
	took = time.Since(started)
	if res.StatusCode != http.StatusOK {
		err = &rig.StatusError{Code: res.StatusCode, Request: http.MethodGet + " " + path}
	}
	return took, size, errors.Join(err, res.Body.Close())
}
