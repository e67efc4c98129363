package restapi

import (
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// listInput is what every paged listing takes.
type listInput struct {
	Tenant string `path:"tenant"`
	After  string `query:"after" maxLength:"253" doc:"Read on after this: 'next' of the page before, or a name."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many items."`
}

// namedInput is what every request about one named thing takes.
type namedInput struct {
	Tenant string `path:"tenant"`
	Name   string `path:"name" maxLength:"253"`
}

type listOutput[T any] struct{ Body apiv1.List[T] }

// page asks for one more than the caller wants: whether it comes says whether there is a next page.
func (in *listInput) page() store.Page {
	name, id, _ := strings.Cut(in.After, "/")
	return store.Page{After: name, AfterID: id, Limit: in.Limit + 1}
}

// paged converts one page. views holds what page asked for.
func paged[V, T any](views []V, limit int, convert func(V) T, name func(V) string) *listOutput[T] {
	out := &listOutput[T]{}
	out.Body.Items = make([]T, 0, min(len(views), limit))
	if len(views) > limit {
		views = views[:limit]
		out.Body.Next = name(views[limit-1])
	}
	for _, v := range views {
		out.Body.Items = append(out.Body.Items, convert(v))
	}
	return out
}

// about names what requests to one collection are for.
func about(kind, path, tenantName, name string) subject {
	return subject{kind: kind, name: name, tenant: tenantName, list: strings.ReplaceAll(path, "{tenant}", tenantName)}
}
