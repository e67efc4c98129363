package restapi

import (
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// InTenant is the input of requests in a tenant. It and the other parts of inputs are exported because huma
// ignores unexported embedded structs.
type InTenant struct {
	Tenant string `path:"tenant" maxLength:"253"`
}

func (in *InTenant) at() (string, string) { return in.Tenant, "" }

// Named is the input of requests about one named resource.
type Named struct {
	Tenant string `path:"tenant" maxLength:"253"`
	Name   string `path:"name" maxLength:"253"`
}

func (in *Named) at() (string, string) { return in.Tenant, in.Name }

// Paging is the input of listings.
type Paging struct {
	After string `query:"after" maxLength:"600" doc:"'next' of the previous page."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Maximum number of items."`
}

// listInput is the input of listings of a tenant.
type listInput struct {
	InTenant
	Paging
}

// namedListInput is the input of listings below a named resource.
type namedListInput struct {
	Named
	Paging
}

type listOutput[T any] struct{ Body apiv1.List[T] }

// page requests one more item than the caller wants: it tells whether there is a next page.
func (in *Paging) page() store.Page {
	name, id, _ := strings.Cut(in.After, "/")
	return store.Page{After: name, AfterID: id, Limit: in.Limit + 1}
}

// numbered is page for a listing whose key is, or starts with, a number.
func (in *Paging) numbered() (store.Page, error) {
	page := in.page()
	if n, err := strconv.ParseInt(page.After, 10, 64); page.After != "" && (err != nil || n <= 0) {
		return store.Page{}, notACursor()
	}
	return page, nil
}

func notACursor() error { return fleet.Invalid("after", "must be 'next' of the previous page") }

// paged converts one page. views has the items that page requested.
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
	// maxLabelFilters is the maximum number of labels of a resource.
	maxLabelFilters = 64
	// maxLabelFilter is the maximum length of a label: prefix, name, and value.
	maxLabelFilter = 253 + 1 + 63 + 1 + 63
)

// labelled parses repeated label=KEY=VALUE filters.
func labelled(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	if len(given) > maxLabelFilters {
		return nil, fleet.Invalid("label", "there are %d label filters; at most %d are allowed", len(given), maxLabelFilters)
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
			return nil, fleet.Invalid("label", "no resource has two values of the label %q", key)
		}
		labels[key] = value
	}
	return labels, nil
}
