package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// fewMatches is the number of rows up to which matches are collected and sorted, and not found in the order
	// of names.
	fewMatches = 2000
	// firstScan times the size of a page is the number of deployments that are scanned, in the order of names,
	// before anything is counted; longScan is the number before another method is used.
	firstScan = 2
	longScan  = 1000
)

// List compares (name, id) as a pair: several deployments may have one name, if all but one are being deleted.
// Without an id, all deployments with the name After are skipped.
func (s deployments) List(ctx context.Context, tenant fleet.TenantID, f store.DeploymentFilter) ([]fleet.Deployment, error) {
	if f.AfterID == "" && f.After != "" {
		f.AfterID = "~" // sorts after every id
	}
	out, err := s.listFiltered(ctx, tenant, f)
	if err != nil {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	return out, nil
}

func (s deployments) listFiltered(ctx context.Context, tenant fleet.TenantID, f store.DeploymentFilter) ([]fleet.Deployment, error) {
	db := s.tx.of(tenant)
	l := listing{db: db, tenant: tenant, after: deploymentKey{f.After, fleet.DeploymentID(f.AfterID)}, limit: limitOf(f.Limit)}
	l.matchers = l.matchersOf(f)
	if len(l.matchers) == 0 {
		return s.list(ctx, db, deploymentColumns+`WHERE d.tenant_id = $1 AND (d.name, d.id) > ($2, $3)
			ORDER BY d.name, d.id LIMIT $4`, tenant, l.after.name, l.after.id, l.limit)
	}
	if f.Health != "" || f.Reason != "" {
		// Whether an agent is connected counts, also that of a tenant which has granted it.
		l.db = s.tx.everywhere().about(Subject(tenant))
	}
	page, err := l.run(ctx)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	out, err := s.list(ctx, db, deploymentColumns+`WHERE d.tenant_id = $1 AND d.id IN (SELECT value FROM json_each($2))`,
		tenant, idList(idsOf(page, func(k *deploymentKey) fleet.DeploymentID { return k.id })))
	// With an ORDER BY, SQLite would search for the ids among all deployments in that order.
	slices.SortFunc(out, func(a, b fleet.Deployment) int {
		return deploymentKey{a.Name, a.ID}.compare(deploymentKey{b.Name, b.ID})
	})
	return out, err
}

type deploymentKey struct {
	name string
	id   fleet.DeploymentID
}

func (k deploymentKey) compare(o deploymentKey) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.id, o.id))
}

// listing finds one page of matching deployments efficiently for any share of matches: few matches are
// collected from an index of the filter; many are found soon in the order of names; and if many are far from
// the start of the page, it follows an index that has them in that order.
type listing struct {
	db       bound
	tenant   fleet.TenantID
	after    deploymentKey
	limit    int
	matchers []matcher
}

// matcher is one condition of a filter.
type matcher struct {
	where   func(a *args) string // of d, a deployment
	sources []source
}

// source is a query that finds the matching deployments, and maybe some others.
type source struct {
	selects []func(a *args) string // of id, and in an ordered source of name
	exact   bool                   // it finds no others
	ordered bool                   // by name and id, from the start of the page
	once    bool                   // it finds no deployment twice
	few     int
	size    func(a *args) string // counts as many rows as it costs; nil means the selects
}

func (l *listing) run(ctx context.Context) ([]deploymentKey, error) {
	if len(l.matchers) == 1 && len(l.matchers[0].sources) == 1 && l.matchers[0].sources[0].once {
		return l.from(ctx, way{source: l.matchers[0].sources[0]})
	}
	// If nearly all match, the page is near: counting every index first costs more than a scan.
	page, whole, err := l.scan(ctx, firstScan*l.limit)
	if err != nil || whole {
		return page, err
	}
	few, err := l.smallest(ctx)
	if err != nil {
		return nil, err
	}
	if few != nil {
		few.ordered = few.once // otherwise it is read completely, in any order
		return l.from(ctx, *few)
	}
	page, whole, err = l.scan(ctx, longScan)
	if err != nil || whole {
		return page, err
	}
	for i, m := range l.matchers {
		for _, s := range m.sources {
			if s.ordered {
				return l.from(ctx, way{i, s})
			}
		}
	}
	return l.walk(ctx, deploymentKey{})
}

// way is a source with the index of its matcher.
type way struct {
	matcher int
	source
}

// smallest returns the source with the fewest rows, or nil if all have many.
func (l *listing) smallest(ctx context.Context) (*way, error) {
	var best *way
	least := 0
	for i, m := range l.matchers {
		for _, s := range m.sources {
			bound := s.few
			if best != nil {
				bound = min(bound, least)
			}
			n, err := l.sizeOf(ctx, s, bound)
			if err != nil {
				return nil, err
			}
			if n <= bound {
				best, least = &way{i, s}, n
			}
		}
	}
	return best, nil
}

// sizeOf counts only until it is known that there are more than bound.
func (l *listing) sizeOf(ctx context.Context, s source, bound int) (int, error) {
	selects := s.selects
	if s.size != nil {
		selects = []func(*args) string{s.size}
	}
	total := 0
	for _, sel := range selects {
		var a args
		var n int
		query := `SELECT COUNT(*) FROM (` + sel(&a) + ` LIMIT ` + a.add(bound-total+1) + `) AS counted`
		if err := l.db.get(ctx, []any{&n}, query, a...); err != nil {
			return 0, err
		}
		if total += n; total > bound {
			break
		}
	}
	return total, nil
}

// from reads the page from a source.
func (l *listing) from(ctx context.Context, w way) ([]deploymentKey, error) {
	var out []deploymentKey
	for _, sel := range w.selects {
		var a args
		read := l.gathered
		if w.ordered {
			read = l.followed
		}
		query := read(&a, w, sel(&a)) + ` LIMIT ` + a.add(l.limit)
		page, err := l.keys(ctx, query, a)
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
	}
	slices.SortFunc(out, deploymentKey.compare)
	out = slices.Compact(out)
	return out[:min(len(out), l.limit)], nil
}

// gathered reads all of a small source and looks up each row: with a join, PostgreSQL might scan all
// deployments instead.
func (l *listing) gathered(a *args, w way, from string) string {
	return `WITH gathered AS MATERIALIZED (SELECT (SELECT d.name FROM deployments d WHERE d.tenant_id = ` + a.add(l.tenant) + ` AND d.id = f.id
			AND (d.name, d.id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)` + l.otherConditions(a, w) + `) AS name, f.id
		FROM (` + from + `) AS f)
		SELECT DISTINCT name, id FROM gathered WHERE name IS NOT NULL ORDER BY name, id`
}

// followed reads a source in its order, only until the page is full.
func (l *listing) followed(a *args, w way, from string) string {
	query := `SELECT DISTINCT s.name, s.id FROM (` + from + `) AS s`
	if w.once {
		query = `SELECT s.name, s.id FROM (` + from + `) AS s`
	}
	if others := l.otherConditions(a, w); others != `` {
		query += ` WHERE EXISTS (SELECT 1 FROM deployments d WHERE d.tenant_id = ` + a.add(l.tenant) + ` AND d.id = s.id` + others + perRow + `)`
	}
	return query + ` ORDER BY s.name, s.id`
}

// walk scans deployments in the order of their names, up to end unless it is zero.
func (l *listing) walk(ctx context.Context, end deploymentKey) ([]deploymentKey, error) {
	var a args
	query := `SELECT d.name, d.id FROM deployments d WHERE d.tenant_id = ` + a.add(l.tenant) +
		` AND (d.name, d.id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	if end != (deploymentKey{}) {
		query += ` AND (d.name, d.id) <= (` + a.add(end.name) + `, ` + a.add(end.id) + `)`
	}
	query += l.conditions(&a) + ` ORDER BY d.name, d.id LIMIT ` + a.add(l.limit)
	return l.keys(ctx, query, a)
}

// scan reads that many deployments; whole means that the page is full, or that there are no more.
func (l *listing) scan(ctx context.Context, far int) (page []deploymentKey, whole bool, err error) {
	end, err := l.endOf(ctx, far)
	if err != nil {
		return nil, false, err
	}
	page, err = l.walk(ctx, end)
	return page, len(page) == l.limit || end == (deploymentKey{}), err
}

// endOf returns the key of the last deployment that a scan reads, zero if the list ends before.
func (l *listing) endOf(ctx context.Context, far int) (deploymentKey, error) {
	var end deploymentKey
	err := l.db.get(ctx, []any{&end.name, &end.id}, `SELECT name, id FROM deployments
		WHERE tenant_id = $1 AND (name, id) > ($2, $3) ORDER BY name, id LIMIT 1 OFFSET $4`,
		l.tenant, l.after.name, l.after.id, far)
	if errors.Is(err, store.ErrNotFound) {
		return deploymentKey{}, nil
	}
	return end, err
}

func (l *listing) conditions(a *args) string {
	return l.otherConditions(a, way{matcher: -1})
}

// otherConditions returns the conditions that the source does not guarantee.
func (l *listing) otherConditions(a *args, w way) string {
	var out strings.Builder
	for i, m := range l.matchers {
		if i != w.matcher || !w.exact {
			out.WriteString(` AND ` + m.where(a))
		}
	}
	return out.String()
}

func (l *listing) keys(ctx context.Context, query string, a args) ([]deploymentKey, error) {
	var out []deploymentKey
	err := l.db.each(ctx, func(row Row) error {
		var k deploymentKey
		err := row.Scan(&k.name, &k.id)
		out = append(out, k)
		return err
	}, query, a...)
	return out, err
}
