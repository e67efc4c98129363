package argocd

import (
	"context"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// cache holds the Applications and AppProjects of the agent, as the watches report them, and wakes targets. A watch that
// breaks starts again with a list; until the list is complete, the old content stays.
type cache struct {
	engine *Engine

	mu           sync.Mutex
	applications map[string]*application
	takenOver    map[fleet.TargetID]string // names of Applications that were created for an earlier target
	projects     map[string]*unstructured.Unstructured
	synced       [2]bool // a list of Applications, and of AppProjects, was complete
	failure      error   // of the last list or watch; nil when both work
}

func newCache(e *Engine) *cache {
	return &cache{engine: e, applications: map[string]*application{}, takenOver: map[fleet.TargetID]string{}, projects: map[string]*unstructured.Unstructured{}}
}

// start watches until ctx ends.
func (c *cache) start(ctx context.Context, work *sync.WaitGroup) {
	for kind, client := range []dynamic.ResourceInterface{c.engine.applications, c.engine.projects} {
		work.Go(func() {
			c.engine.follow(ctx, func(ctx context.Context) error { return c.listAndWatch(ctx, kind, client) }, c.watchEnded)
		})
	}
}

// absent reports whether an error means that the cluster has no Argo CD, or not for this agent.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err)
}

func (c *cache) watchEnded(err error) {
	if err != nil {
		c.engine.log.Warn("watching Argo CD failed", obs.Err(err))
	}
	c.mu.Lock()
	c.failure = err
	c.mu.Unlock()
	c.engine.wakeAll()
}

// listAndWatch returns nil when a watch ended in order.
func (c *cache) listAndWatch(ctx context.Context, kind int, client dynamic.ResourceInterface) error {
	selector := c.engine.selector()
	listCtx, cancel := context.WithTimeout(ctx, c.engine.timing.request)
	defer cancel()
	list, err := client.List(listCtx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	c.replace(kind, list.Items)
	return watchFrom(ctx, client, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.GetResourceVersion()}, func(obj *unstructured.Unstructured, deleted bool) {
		c.set(kind, obj, deleted)
	})
}

func (c *cache) replace(kind int, items []unstructured.Unstructured) {
	c.mu.Lock()
	if kind == 0 {
		clear(c.applications)
		clear(c.takenOver)
	} else {
		clear(c.projects)
	}
	for i := range items {
		c.putLocked(kind, &items[i])
	}
	complete := c.synced[0] && c.synced[1]
	c.synced[kind], c.failure = true, nil
	complete = !complete && c.synced[0] && c.synced[1]
	c.mu.Unlock()
	if complete { // a crash may have left Secrets that nothing uses
		c.engine.unused.Set()
	}
	c.engine.wakeAll()
}

func (c *cache) putLocked(kind int, obj *unstructured.Unstructured) {
	if kind == 0 {
		c.applications[obj.GetName()] = parse(obj)
		if id := obj.GetAnnotations()[annotationTakenBy]; id != "" {
			c.takenOver[fleet.TargetID(id)] = obj.GetName()
		}
	} else {
		c.projects[obj.GetName()] = obj
	}
}

func (c *cache) set(kind int, obj *unstructured.Unstructured, deleted bool) {
	c.mu.Lock()
	switch {
	case !deleted:
		c.putLocked(kind, obj)
	case kind == 0:
		delete(c.applications, obj.GetName())
	default:
		delete(c.projects, obj.GetName())
	}
	c.mu.Unlock()
	if kind == 0 {
		c.engine.wakeTarget(fleet.TargetID(obj.GetLabels()[labelTarget]), obj.GetName())
	} else {
		c.engine.wakeAll()
	}
}

// stored records the result of a write, so that the next step does not wait for the watch, unless the watch has reported
// a newer object meanwhile.
func (c *cache) stored(kind int, obj *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known *unstructured.Unstructured
	if kind == 0 {
		if a := c.applications[obj.GetName()]; a != nil {
			known = a.raw
		}
	} else {
		known = c.projects[obj.GetName()]
	}
	if known == nil || known.GetUID() != obj.GetUID() || revision(known) <= revision(obj) {
		c.putLocked(kind, obj)
	}
}

// removed records the deletion of an Application.
func (c *cache) removed(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.applications, name)
}

// removedProject records the deletion of a project.
func (c *cache) removedProject(project *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if live := c.projects[project.GetName()]; live != nil && live.GetUID() == project.GetUID() {
		delete(c.projects, project.GetName())
	}
}

// projectsExcept returns the projects of the agent with other names.
func (c *cache) projectsExcept(names map[string]bool) (out []*unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, project := range c.projects {
		if !names[name] {
			out = append(out, project)
		}
	}
	return out
}

func revision(obj *unstructured.Unstructured) uint64 {
	n, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// application returns an Application of the agent. ready is false before the first list is complete: then nothing is
// known.
func (c *cache) application(name string) (a *application, ready bool, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applications[name], c.synced[0] && c.synced[1], c.failure
}

// ofTarget returns the Application of a target, and is otherwise like application.
func (c *cache) ofTarget(id fleet.TargetID) (a *application, ready bool, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready, failure = c.synced[0] && c.synced[1], c.failure
	if a = c.applications[applicationName(id)]; a != nil && (a.annotation(annotationTakenBy) == "" || a.annotation(annotationTakenBy) == string(id)) {
		return a, ready, failure
	}
	if a = c.applications[c.takenOver[id]]; a != nil && a.annotation(annotationTakenBy) != string(id) {
		a = nil // a later target has it
	}
	return a, ready, failure
}

func (c *cache) project(name string) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.projects[name]
}

// inProject returns the Applications of the agent in a project.
func (c *cache) inProject(name string) (out []*application) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.applications {
		if project, _, _ := unstructured.NestedString(a.spec, "project"); project == name {
			out = append(out, a)
		}
	}
	return out
}

// others returns the Applications of the agent except one.
func (c *cache) others(than *application) (out []*application) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, a := range c.applications {
		if name != than.raw.GetName() {
			out = append(out, a)
		}
	}
	return out
}

// keys returns the keys of the Secrets that the Applications of the agent use.
func (c *cache) keys(of func(*application) secretKey) map[secretKey]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[secretKey]bool{}
	for _, a := range c.applications {
		out[of(a)] = true
	}
	return out
}

func (e *Engine) wakeAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signalAllLocked()
}

// wakeTarget wakes the target of an Application, and targets that wait for others. Somebody may have changed the label of
// the Application, so its name counts too.
func (e *Engine) wakeTarget(id fleet.TargetID, application string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if t.id == id || applicationName(t.id) == application || t.waitsForOthers.Load() {
			t.wake.Set()
		}
	}
}
