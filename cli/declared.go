package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
)

// declaredKind is a kind of resource that apply, export and edit read and write as files.
type declaredKind struct {
	kind     string   // as in files, such as Deployment
	words    []string // on the command line
	labelled bool     // metadata may have labels
	global   bool     // belongs to no tenant
	// list returns what export writes.
	list func(ctx context.Context, c *client.Client) ([]current, error)
	// read returns a resource, nil when there is none of that name.
	read func(ctx context.Context, c *client.Client, name string) (*current, error)
	// parse checks the spec of a document and fills in defaults.
	parse func(doc resourcefile.Document) (any, error)
	// check reports why a resource that does not exist cannot be created; may be nil.
	check  func(m resourcefile.Metadata, spec any) error
	create func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error
	// update changes a resource that still has the ETag of now and returns the new ETag.
	update func(ctx context.Context, c *client.Client, now current, m resourcefile.Metadata, spec any) (string, error)
}

// current is a resource as the server has it.
type current struct {
	metadata resourcefile.Metadata
	spec     any    // in the form that parse returns
	path     string // where it is updated
	tag      string // its ETag; may be empty
	// managed says which file in Git declares it, so that only that file changes it; empty for all others.
	managed string
}

// document is a resource as a file.
func (k declaredKind) document(now current) (resourcefile.Document, error) {
	return resourcefile.New(k.kind, now.metadata, now.spec)
}

// same reports whether a resource is as a file declares it.
func (k declaredKind) same(now current, m resourcefile.Metadata, spec any) bool {
	if k.labelled && labelText(now.metadata.Labels) != labelText(m.Labels) {
		return false
	}
	have, errHave := json.Marshal(now.spec)
	want, errWant := json.Marshal(spec)
	return errHave == nil && errWant == nil && string(have) == string(want)
}

// declaredKinds are all kinds, in the order in which apply creates them: each comes after those that it refers to.
func (a *app) declaredKinds() []declaredKind {
	return []declaredKind{
		tenantKind(), credentialKind(a), repositoryKind(), agentKind(), environmentKind(), grantKind(), accessRuleKind(), memberKind(), gitLabProjectKind(), deploymentKind(),
	}
}

// kindNamed finds a kind by its name in a file.
func kindNamed(kinds []declaredKind, name string) (declaredKind, int, error) {
	i := slices.IndexFunc(kinds, func(k declaredKind) bool { return k.kind == name })
	if i >= 0 {
		return kinds[i], i, nil
	}
	var known []string
	for _, k := range kinds {
		known = append(known, k.kind)
	}
	return declaredKind{}, 0, fmt.Errorf("kind %q is not one of %s", name, strings.Join(known, ", "))
}

// parseSpec is parse for kinds whose spec needs no defaults.
func parseSpec[S any](fill func(*S) error) func(resourcefile.Document) (any, error) {
	return func(doc resourcefile.Document) (any, error) {
		spec, err := resourcefile.Spec[S](doc)
		if err != nil {
			return nil, err
		}
		if err := fill(&spec); err != nil {
			return nil, fmt.Errorf("%s: %w", doc.Source, err)
		}
		return spec, nil
	}
}

func asIs[S any](*S) error { return nil }

// readOne reads a resource of a path; nil when there is none.
func readOne[T any](ctx context.Context, c *client.Client, path string, as func(T) current) (*current, error) {
	item, tag, err := client.GetTagged[T](ctx, c, path)
	if client.Status(err) == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := as(item)
	out.path, out.tag = path, tag
	return &out, nil
}

// listAll reads a listing as resources.
func listAll[T any](ctx context.Context, c *client.Client, path string, as func(T) current, keep func(T) bool) ([]current, error) {
	items, err := client.List[T](ctx, c, path, client.Everything(), 0)
	if err != nil {
		return nil, err
	}
	out := []current{}
	for _, item := range items {
		if keep(item) {
			out = append(out, as(item))
		}
	}
	return out, nil
}

func every[T any](T) bool { return true }

// patch updates a resource that has an ETag.
func patch(ctx context.Context, c *client.Client, now current, body any) (string, error) {
	return client.DoMatching(ctx, c, http.MethodPatch, now.path, body, now.tag)
}
