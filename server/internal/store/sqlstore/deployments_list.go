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
	// fewMatches is how many rows are gathered and sorted rather than found in the order of names.
	fewMatches = 2000
	// glance times the size of a page is how many deployments are looked at, in the order of names, before
	// anything is counted; stretch is how many before another way is taken.
	firstScan = 2
	longScan  = 1000
)

// List compares (name, id) as a pair: several deployments may have one name, all but one of them
// on their way out. Without an id to go on from, all of the name After are passed over.
func (s deployments) List(ctx context.Context, tenant fleet.TenantID, f store.DeploymentFilter) ([]fleet.Deployment, error) {
	if f.AfterID == "" && f.After != "" {
		f.AfterID = "~" // sorts behind every id
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
	if f.Health != "" {
		// Whether an agent is connected counts, also that of a tenant which has granted it.
		l.db = s.tx.everywhere().about(Subject(tenant))
	}
	page, err := l.run(ctx)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	out, err := s.list(ctx, db, deploymentColumns+`WHERE d.tenant_id = $1 AND d.id IN (SELECT value FROM json_each($2))`,
		tenant, idList(idsOf(page, func(k *deploymentKey) fleet.DeploymentID { return k.id })))
	// An ORDER BY would make SQLite look for the ids among all deployments in that order.
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

// listing finds one page of the deployments that match, whatever share of all they are: few are
// gathered from an index of what is asked for; many are met soon in the order of names; and where
// many are far from where the page begins, an index that has them in that order is followed.
type listing struct {
	db       bound
	tenant   fleet.TenantID
	after    deploymentKey
	limit    int
	matchers []matcher
}

// matcher is one thing that is asked for.
type matcher struct {
	where   func(a *args) string // of d, a deployment
	sources []source
}

// source is a way to those that match, and maybe some others, past all the rest.
type source struct {
	selects []func(a *args) string // of id, and in an ordered source of name
	exact   bool                   // there are no others
	ordered bool                   // by name and id, from where the page begins
	once    bool                   // no deployment comes twice
	few     int
	size    func(a *args) string // has as many rows as it costs; nil means the selects
}

func (l *listing) run(ctx context.Context) ([]deploymentKey, error) {
	if len(l.matchers) == 1 && len(l.matchers[0].sources) == 1 && l.matchers[0].sources[0].once {
		return l.from(ctx, way{source: l.matchers[0].sources[0]})
	}
	// Where nearly all match, the page is right here: to count every index first costs more than to look.
	page, whole, err := l.scan(ctx, firstScan*l.limit)
	if err != nil || whole {
		return page, err
	}
	few, err := l.smallest(ctx)
	if err != nil {
		return nil, err
	}
	if few != nil {
		few.ordered = few.once // else it is read as a whole, whatever the order
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

// way is a source, and which of the matchers it is of.
type way struct {
	matcher int
	source
}

// smallest returns the source with the least rows, nil when all have many.
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

// sizeOf counts no further than it takes to know that there are more than bound.
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

// gathered reads all of a source, which is small, and looks up one after the other: a join would leave it
// to PostgreSQL to go through all deployments instead.
func (l *listing) gathered(a *args, w way, from string) string {
	return `WITH gathered AS MATERIALIZED (SELECT (SELECT d.name FROM deployments d WHERE d.tenant_id = ` + a.add(l.tenant) + ` AND d.id = f.id
			AND (d.name, d.id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)` + l.otherConditions(a, w) + `) AS name, f.id
		FROM (` + from + `) AS f)
		SELECT DISTINCT name, id FROM gathered WHERE name IS NOT NULL ORDER BY name, id`
}

// followed reads a source in its order, and no more of it than fills the page.
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

// walk looks at deployments in the order of their names, no further than end unless it is zero.
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

// stroll walks past so many deployments; whole says that the page is full, or that there are no more.
func (l *listing) scan(ctx context.Context, far int) (page []deploymentKey, whole bool, err error) {
	end, err := l.endOf(ctx, far)
	if err != nil {
		return nil, false, err
	}
	page, err = l.walk(ctx, end)
	return page, len(page) == l.limit || end == (deploymentKey{}), err
}

// endOf is the key of the last deployment that a stroll looks at, zero when the end of all comes first.
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

// otherConditions are those that what a source has may not meet.
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
