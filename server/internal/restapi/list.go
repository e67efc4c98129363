package restapi

import (
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// InTenant is what every request about something in a tenant takes. It and the other parts of inputs
// are exported because huma reads nothing that is embedded and is not.
type InTenant struct {
	Tenant string `path:"tenant" maxLength:"253"`
}

func (in *InTenant) at() (string, string) { return in.Tenant, "" }

// Named is what every request about one named thing takes.
type Named struct {
	Tenant string `path:"tenant" maxLength:"253"`
	Name   string `path:"name" maxLength:"253"`
}

func (in *Named) at() (string, string) { return in.Tenant, in.Name }

// Paging is what every listing takes.
type Paging struct {
	After string `query:"after" maxLength:"600" doc:"Read on after this: 'next' of the page before."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many items."`
}

// listInput is what every listing of a tenant takes.
type listInput struct {
	InTenant
	Paging
}

// namedListInput is what every listing of something below a named thing takes.
type namedListInput struct {
	Named
	Paging
}

type listOutput[T any] struct{ Body apiv1.List[T] }

// page asks for one more than the caller wants: whether it comes says whether there is a next page.
func (in *Paging) page() store.Page {
	name, id, _ := strings.Cut(in.After, "/")
	return store.Page{After: name, AfterID: id, Limit: in.Limit + 1}
}

// numbered is page for a listing whose key is, or begins with, a number.
func (in *Paging) numbered() (store.Page, error) {
	page := in.page()
	if n, err := strconv.ParseInt(page.After, 10, 64); page.After != "" && (err != nil || n <= 0) {
		return store.Page{}, notACursor()
	}
	return page, nil
}

func notACursor() error { return fleet.Invalid("after", "must be 'next' of the page before") }

// paged converts one page. views holds what page asked for.
func paged[V, T any](views []V, limit int, convert func(V) T, key func(V) string) *listOutput[T] {
	out := &listOutput[T]{}
	out.Body.Items = make([]T, 0, min(len(views), limit))
	if len(views) > limit {
		views = views[:limit]
		out.Body.Next = key(views[limit-1])
	}
	for _, v := range views {
		out.Body.Items = append(out.Body.Items, convert(v))
	}
	return out
}

const (
	// maxLabelFilters is as many labels as anything can have.
	maxLabelFilters = 64
	// maxLabelFilter is the length of the longest label there is: prefix, name and value.
	maxLabelFilter = 253 + 1 + 63 + 1 + 63
)

// labelled reads repeated label=KEY=VALUE filters.
func labelled(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	if len(given) > maxLabelFilters {
		return nil, fleet.Invalid("label", "%d label filters were given; at most %d are allowed", len(given), maxLabelFilters)
	}
	labels := make(map[string]string, len(given))
	for _, text := range given {
		if len(text) > maxLabelFilter {
			return nil, fleet.Invalid("label", "a label filter has %d characters; no label is longer than %d", len(text), maxLabelFilter)
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fleet.Invalid("label", "%q must be KEY=VALUE", text)
		}
		if other, twice := labels[key]; twice && other != value {
			return nil, fleet.Invalid("label", "nothing has the label %q with two values", key)
		}
		labels[key] = value
	}
	return labels, nil
}
