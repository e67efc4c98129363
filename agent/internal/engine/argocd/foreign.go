package argocd

import (
	"context"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// foreign lists the Applications that the agent does not manage. It only reads them, and keeps only what it lists.
type foreign struct {
	engine  *Engine
	changed wait.Signal

	mu           sync.Mutex
	complete     bool // the first list is complete
	applications map[string]fleet.ForeignApplication
}

func newForeign(e *Engine) *foreign {
	return &foreign{engine: e, changed: wait.NewSignal(), applications: map[string]fleet.ForeignApplication{}}
}

func (f *foreign) follow(ctx context.Context) {
	f.engine.follow(ctx, f.listAndWatch, func(err error) {
		if err != nil && !absent(err) {
			f.engine.log.Warn("listing the Applications of others failed", obs.Err(err))
		}
	})
}

// listAndWatch returns nil when a watch ended in order.
func (f *foreign) listAndWatch(ctx context.Context) error {
	options := metav1.ListOptions{LabelSelector: labelAgent + "!=" + string(f.engine.config().agent), Limit: 100}
	found := map[string]fleet.ForeignApplication{}
	for { // a page at a time, because an Application can be large
		page, err := f.engine.applications.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			found[page.Items[i].GetName()] = describe(&page.Items[i])
		}
		options.ResourceVersion = page.GetResourceVersion()
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
		options.ResourceVersion = ""
	}
	f.mu.Lock()
	f.applications, f.complete = found, true
	f.mu.Unlock()
	f.changed.Set()
	return watchFrom(ctx, f.engine.applications, options, f.set)
}

func (f *foreign) set(obj *unstructured.Unstructured, deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := describe(obj)
	was, known := f.applications[now.Name]
	switch {
	case deleted:
		delete(f.applications, now.Name)
	case known && was == now:
		return
	default:
		f.applications[now.Name] = now
	}
	f.changed.Set()
}

// report passes the newest list on after a change. A list that changes all the time is passed on from time to time, less
// often the longer it is.
func (f *foreign) report(ctx context.Context) {
	var last fleet.ForeignApplications
	for first := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		if now, ok := f.list(); ok && (first || !reflect.DeepEqual(now, last)) {
			f.engine.foreign(now)
			last, first = now, false
		}
		wait.For(ctx, f.engine.timing.retryFirst+time.Duration(len(last.Items))*10*time.Millisecond)
	}
}

func (f *foreign) list() (out fleet.ForeignApplications, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Total = len(f.applications)
	names := slices.Sorted(maps.Keys(f.applications))
	for _, name := range names[:min(len(names), fleet.MaxForeignApplications)] {
		out.Items = append(out.Items, f.applications[name])
	}
	return out, f.complete
}

// describe returns what is listed of an Application.
func describe(obj *unstructured.Unstructured) fleet.ForeignApplication {
	var spec struct {
		Project     string              `json:"project"`
		Source      applicationSource   `json:"source"`
		Sources     []applicationSource `json:"sources"`
		Destination struct {
			Server    string `json:"server"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
	}
	decode(obj.Object["spec"], &spec)
	var now status
	decode(obj.Object["status"], &now)
	source := spec.Source
	if source.RepoURL == "" && len(spec.Sources) > 0 {
		source = spec.Sources[0]
	}
	out := fleet.ForeignApplication{
		Name: obj.GetName(), Project: spec.Project, RepoURL: withoutUser(source.RepoURL), Path: source.Path, Revision: source.TargetRevision,
		Cluster: spec.Destination.Name, Namespace: spec.Destination.Namespace, Sync: now.Sync.Status, Health: now.Health.Status,
	}
	if out.Path == "" {
		out.Path = source.Chart
	}
	if out.Cluster == "" {
		out.Cluster = spec.Destination.Server
	}
	return out
}

type applicationSource struct {
	RepoURL        string `json:"repoURL"`
	Path           string `json:"path"`
	Chart          string `json:"chart"`
	TargetRevision string `json:"targetRevision"`
}

// withoutUser removes a user name and password from a URL. A text that is not a URL, for example git@host:path, has none.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	u.User = nil
	return u.String()
}
