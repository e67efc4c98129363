package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// getter lists, prints and watches one resource.
type getter[T any] struct {
	app *app
	res resource[T]
	outputFlags
	watch, allTenants bool
	seen              map[string]string // what was printed of each item, while watching
	widths            []int             // of the columns so far, so that later rows line up with them
}

// entry is an item and, in a listing of all tenants, its tenant.
type entry[T any] struct {
	tenant string
	item   T
}

// MarshalJSON implements json.Marshaler: the item, with its tenant as another field.
func (e entry[T]) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(e.item)
	if err != nil || e.tenant == "" {
		return text, err
	}
	tenant, err := json.Marshal(e.tenant)
	if err != nil {
		return nil, fmt.Errorf("encoding a tenant: %w", err)
	}
	return bytes.Join([][]byte{[]byte(`{"tenant":`), tenant, []byte(`,`), text[1:]}, nil), nil
}

func (g *getter[T]) run(ctx context.Context, args []string) error {
	if err := g.parse(); err != nil {
		return err
	}
	if g.allTenants && len(args) > 0 {
		return &exitError{exitUsage, "a resource cannot be read by its name in all tenants", "leave the names out, or name the tenant with --tenant"}
	}
	c, err := g.app.connect()
	if err != nil {
		return err
	}
	clients, err := g.clients(ctx, c)
	if err != nil {
		return err
	}
	for i := range args {
		args[i] = g.res.bare(args[i])
	}
	if g.watch {
		return g.follow(ctx, clients, args)
	}
	entries, err := g.read(ctx, clients, args)
	if len(args) == 1 && err == nil && !g.IsTable() && !g.IsName() {
		return g.Encode(g.app.Out, entries[0])
	}
	if len(entries) > 0 || err == nil {
		if err := g.print(entries); err != nil {
			return err
		}
	}
	return err
}

// clients are one per tenant to list.
func (g *getter[T]) clients(ctx context.Context, c *client.Client) ([]*client.Client, error) {
	if !g.allTenants {
		return []*client.Client{c}, nil
	}
	tenants, err := tenantResource().list(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []*client.Client
	for _, t := range tenants {
		out = append(out, c.WithTenant(t.Name))
	}
	return out, nil
}

// read returns what it finds, also when some of the names are wrong.
func (g *getter[T]) read(ctx context.Context, clients []*client.Client, args []string) ([]entry[T], error) {
	out := []entry[T]{}
	var failures errorList
	for _, c := range clients {
		tenant := ""
		if g.allTenants {
			tenant = c.Tenant()
		}
		if len(args) == 0 {
			items, err := g.res.list(ctx, c)
			if err != nil {
				return nil, err
			}
			for _, item := range items {
				out = append(out, entry[T]{tenant, item})
			}
		}
		for _, name := range args {
			item, err := g.res.get(ctx, c, name)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			out = append(out, entry[T]{tenant, item})
		}
	}
	return out, failures.orNil()
}

func (g *getter[T]) print(entries []entry[T]) error {
	switch {
	case g.IsName():
		for _, e := range entries {
			fmt.Fprintln(g.app.Out, g.res.qualified(e.item))
		}
		return nil
	case g.IsTable():
		if len(entries) == 0 {
			fmt.Fprintf(g.app.Err, "No %s found.\n", g.res.use)
			return nil
		}
		return g.writeTable(entries, g.noHeaders, g.app.Now())
	default:
		return g.Encode(g.app.Out, apiv1.List[entry[T]]{Items: entries})
	}
}

func (g *getter[T]) writeTable(entries []entry[T], noHeaders bool, now time.Time) error {
	t := g.app.table(g.outputFlags, g.res.header)
	t.NoHeaders, t.Least = noHeaders, g.widths
	if g.allTenants {
		t.Header = append([]string{"TENANT"}, t.Header...)
	}
	var warnings []string
	for _, e := range entries {
		for _, row := range g.res.rows(e.item, now) {
			if g.allTenants {
				row = append([]string{e.tenant}, row...)
			}
			t.Rows = append(t.Rows, row)
		}
		if g.res.warnings != nil {
			warnings = append(warnings, g.res.warnings(e.item)...)
		}
	}
	g.widths = t.Widths()
	if err := t.Write(g.app.Out); err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(g.app.Err, "Warning:", w)
	}
	return nil
}

// follow prints everything once and then each item that has changed.
func (g *getter[T]) follow(ctx context.Context, clients []*client.Client, args []string) error {
	start := g.app.Now() // ages alone are no change
	relevant := func(change apiv1.Change) bool { return slices.Contains(g.res.changes, change.Kind) }
	return g.app.follow(ctx, clients, relevant, func(ctx context.Context) (step, error) {
		entries, err := g.read(ctx, clients, args)
		if err != nil {
			return step{}, err
		}
		return step{}, g.printChanged(entries, start)
	})
}

func (g *getter[T]) printChanged(entries []entry[T], start time.Time) error {
	first := g.seen == nil
	before := g.seen
	g.seen = map[string]string{}
	var changed []entry[T]
	for _, e := range entries {
		key, text := g.res.key(e.item), fmt.Sprint(g.res.rows(e.item, start))
		if g.allTenants {
			key = e.tenant + "/" + key
		}
		if g.seen[key] = text; before[key] != text {
			changed = append(changed, e)
		}
		delete(before, key)
	}
	if err := g.printEach(changed, first); err != nil {
		return err
	}
	if !g.IsTable() || g.res.bounded {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		fmt.Fprintf(g.app.Out, "%s   Deleted\n", key)
	}
	return nil
}

func (g *getter[T]) printEach(entries []entry[T], first bool) error {
	switch {
	case g.IsTable():
		return g.writeTable(entries, g.noHeaders || !first, g.app.Now())
	case g.IsName():
		return g.print(entries)
	}
	for _, e := range entries {
		if g.IsYAML() {
			fmt.Fprintln(g.app.Out, "---")
		}
		if err := g.Encode(g.app.Out, e); err != nil {
			return err
		}
	}
	return nil
}
