package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/deploy/crds"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

var (
	gitOpsDeployments   = schema.GroupVersionResource{Group: "gitops.kedge.dev", Version: "v1alpha1", Resource: "gitopsdeployments"}
	managedEnvironments = schema.GroupVersionResource{Group: "gitops.kedge.dev", Version: "v1alpha1", Resource: "managedenvironments"}
)

// benchResources is B17: custom resources beside the same by REST, on one server and one cluster.
func benchResources(ctx context.Context, r *rigging) error {
	b, err := r.newResourceBench(ctx)
	if err != nil {
		return err
	}
	if err := b.edits(ctx, of(r.options, 5, 30, 100)); err != nil {
		return fmt.Errorf("edits: %w", err)
	}
	if err := b.many(ctx, of(r.options, 20, 300, 1000)); err != nil {
		return fmt.Errorf("many: %w", err)
	}
	return b.idle(ctx, of(r.options, 10*time.Second, time.Minute, 10*time.Minute))
}

// resourceBench is a server that serves custom resources, with one agent.
type resourceBench struct {
	*rigging
	kube   dynamic.Interface
	git    *gitserver.Server
	repo   *gitserver.Repo
	server *rig.Server
	apps   *configMapWatcher
}

// b17 is the namespace of the resources, and so the tenant; the objects go to b17Apps.
const (
	b17     = "b17"
	b17Apps = "b17-apps"
)

func (r *rigging) newResourceBench(ctx context.Context) (*resourceBench, error) {
	kube, err := r.kube(ctx)
	if err != nil {
		return nil, err
	}
	definitions, err := crds.Manifest()
	if err != nil {
		return nil, err
	}
	c := rig.Cluster{Kubectl: filepath.Join(r.kubeBin, "kubectl"), Kubeconfig: r.cluster.Kubeconfig()}
	if _, err := c.Run(ctx, definitions, "apply", "--server-side", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := c.Run(ctx, "", "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return nil, err
	}
	b := &resourceBench{rigging: r, kube: kube}
	if b.git, b.repo, err = r.repository(ctx, b17); err != nil {
		return nil, err
	}
	if b.server, err = r.server(ctx, "--git-poll-interval=10m", "--kubeconfig="+r.cluster.Kubeconfig()); err != nil {
		return nil, err
	}
	if b.apps, err = watchConfigMaps(ctx, kube, b17Apps); err != nil {
		return nil, err
	}
	return b, b.enroll(ctx, c)
}

// enroll creates the tenant by its first resource, and enrolls the agent that this resource selects.
func (b *resourceBench) enroll(ctx context.Context, c rig.Cluster) error {
	if _, err := c.Run(ctx, "", "create", "namespace", b17); err != nil {
		return err
	}
	env := resourceObject("ManagedEnvironment", "all", map[string]any{"agents": map[string]any{"matchLabels": map[string]any{"bench": b17}}})
	if _, err := b.kube.Resource(managedEnvironments).Namespace(b17).Create(ctx, env, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.Run(ctx, "", "-n", b17, "wait", "--for=condition=Ready", "managedenvironment/all", "--timeout=60s"); err != nil {
		return err
	}
	var e apiv1.Enrollment
	req := apiv1.EnrollAgent{Name: b17, Labels: map[string]string{"bench": b17}}
	if err := b.server.Call(ctx, http.MethodPost, "/tenants/"+b17+"/agents", req, &e); err != nil {
		return err
	}
	if _, err := c.Run(ctx, e.Manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := b.runAgent(ctx, c, b17)
	return err
}

func resourceObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gitops.kedge.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": b17}, "spec": spec,
	}}
}

func (b *resourceBench) application(name, path string) *unstructured.Unstructured {
	return resourceObject("GitOpsDeployment", name, map[string]any{
		"source":      map[string]any{"repoURL": b.git.URL(b17), "path": path},
		"destination": map[string]any{"environment": "all", "namespace": b17Apps},
	})
}

// b17Files puts the objects of one app into a folder.
func b17Files(folder string, app int, value string, into map[string]string) {
	for i := range objectsPerApp {
		into[fmt.Sprintf("%s/cm-%d.yaml", folder, i)] = fmt.Sprintf(
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-%04d-%d\ndata:\n  value: %q\n", app, i, value)
	}
}

// edits changes the path of two deployments back and forth, one by its resource and one by REST, until the objects are
// visible. The first also gives the time from the status at the server to the status of the resource.
func (b *resourceBench) edits(ctx context.Context, n int) error {
	files := map[string]string{}
	for _, side := range []string{"a", "b"} {
		b17Files("edit/cr-"+side, 0, side, files)
		b17Files("edit/rest-"+side, 1, side, files)
	}
	if _, err := b.repo.CommitAndPush(ctx, files, "edits"); err != nil {
		return err
	}
	if _, err := b.kube.Resource(gitOpsDeployments).Namespace(b17).Create(ctx, b.application("edit-cr", "edit/cr-b"), metav1.CreateOptions{}); err != nil {
		return err
	}
	create := apiv1.CreateDeployment{Name: "edit-rest", Namespace: b17Apps, Environment: "all", Source: apiv1.Source{RepoURL: b.git.URL(b17), Path: "edit/rest-b"}}
	if err := b.server.Call(ctx, http.MethodPost, "/tenants/"+b17+"/deployments", create, nil); err != nil {
		return err
	}
	if err := errors.Join(b.apps.await(ctx, 0, "b"), b.apps.await(ctx, 1, "b")); err != nil {
		return err
	}
	var byResource, byREST, lag samples
	for i := range 2 * n {
		side := []string{"a", "b"}[i%2]
		took, late, err := b.editResource(ctx, side)
		if err != nil {
			return err
		}
		byResource, lag = append(byResource, took), append(lag, late)
		if took, err = b.editREST(ctx, side); err != nil {
			return err
		}
		byREST = append(byREST, took)
	}
	floor := byREST.percentile("B17.edit.rest.p50", 50, 0)
	return b.reportAll(floor, byResource.percentile("B17.edit.resource.p50", 50, time.Duration(floor.Value*float64(time.Millisecond))),
		byResource.percentile("B17.edit.resource.p99", 99, 0), lag.percentile("B17.status_to_resource.p50", 50, 0), lag.percentile("B17.status_to_resource.p99", 99, 0))
}

func (b *resourceBench) editREST(ctx context.Context, side string) (time.Duration, error) {
	path := "edit/rest-" + side
	begun := time.Now()
	if err := b.server.Call(ctx, http.MethodPatch, "/tenants/"+b17+"/deployments/edit-rest", apiv1.UpdateDeployment{Source: apiv1.UpdateSource{Path: &path}}, nil); err != nil {
		return 0, err
	}
	if err := b.apps.await(ctx, 1, side); err != nil {
		return 0, err
	}
	return b.apps.lastChange().Sub(begun), nil
}

// editResource returns the time until the objects are visible, and the time from the Synced status at the server to the
// Synced status of the resource.
func (b *resourceBench) editResource(ctx context.Context, side string) (took, late time.Duration, err error) {
	path := "edit/cr-" + side
	watched, err := b.watchSynced(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"source":{"path":%q}}}`, path)
	if _, err := b.kube.Resource(gitOpsDeployments).Namespace(b17).Patch(ctx, "edit-cr", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return 0, 0, err
	}
	if err := b.apps.await(ctx, 0, side); err != nil {
		return 0, 0, err
	}
	took = b.apps.lastChange().Sub(begun)
	atServer, err := b.awaitSyncedAtServer(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	select {
	case at := <-watched:
		return took, max(0, at.Sub(atServer)), nil
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// awaitSyncedAtServer polls the server until a path is Synced. The response may be a few milliseconds late.
func (b *resourceBench) awaitSyncedAtServer(ctx context.Context, path string) (time.Time, error) {
	for {
		var d apiv1.Deployment
		if err := b.server.Call(ctx, http.MethodGet, "/tenants/"+b17+"/deployments/edit-cr", nil, &d); err != nil {
			return time.Time{}, err
		}
		if d.Sync == "Synced" && d.Pending == nil && d.Source.Path == path {
			return time.Now(), nil
		}
		if !pause(ctx, 2*time.Millisecond) {
			return time.Time{}, ctx.Err()
		}
	}
}

// watchSynced returns a channel that gets the time when the resource is Synced with a path.
func (b *resourceBench) watchSynced(ctx context.Context, path string) (<-chan time.Time, error) {
	w, err := b.kube.Resource(gitOpsDeployments).Namespace(b17).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=edit-cr"})
	if err != nil {
		return nil, err
	}
	out := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			sync, _, _ := unstructured.NestedString(o.Object, "status", "sync", "status")
			source, _, _ := unstructured.NestedString(o.Object, "status", "reconciledState", "source", "path")
			if sync == "Synced" && source == path {
				out <- time.Now()
				return
			}
		}
	}()
	return out, nil
}

// many creates n deployments at once, first by REST and then by resources, until all objects are visible.
func (b *resourceBench) many(ctx context.Context, n int) error {
	files := map[string]string{}
	for app := range n {
		b17Files(fmt.Sprintf("many/rest-%04d", app), 1000+app, "x", files)
		b17Files(fmt.Sprintf("many/cr-%04d", app), 1000+n+app, "x", files)
	}
	if _, err := b.repo.CommitAndPush(ctx, files, "many"); err != nil {
		return err
	}
	before, err := pss(b.server.PID())
	if err != nil {
		return err
	}
	byREST, err := b.createAll(ctx, n, 1000, func(ctx context.Context, app int) error {
		req := apiv1.CreateDeployment{Name: fmt.Sprintf("rest-%04d", app), Namespace: b17Apps, Environment: "all",
			Source: apiv1.Source{RepoURL: b.git.URL(b17), Path: fmt.Sprintf("many/rest-%04d", app)}}
		return patiently(ctx, func() error {
			return b.server.Call(ctx, http.MethodPost, "/tenants/"+b17+"/deployments", req, nil)
		})
	})
	if err != nil {
		return err
	}
	between, err := pss(b.server.PID())
	if err != nil {
		return err
	}
	byResource, err := b.createAll(ctx, n, 1000+n, func(ctx context.Context, app int) error {
		name := fmt.Sprintf("cr-%04d", app)
		_, err := b.kube.Resource(gitOpsDeployments).Namespace(b17).Create(ctx, b.application(name, "many/"+name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	after, err := pss(b.server.PID())
	if err != nil {
		return err
	}
	label := fmt.Sprintf("B17.%d_at_once", n)
	res := single(label+".resources", byResource.Seconds(), "s")
	res.Floor = byREST.Seconds()
	return b.reportAll(single(label+".rest", byREST.Seconds(), "s"), res,
		single(label+".memory_per_deployment", (between-before)/float64(n), "KiB"), single(label+".memory_per_resource", (after-between)/float64(n), "KiB"))
}

// createAll calls create for n apps, eight at a time, and waits until all their objects are visible.
func (b *resourceBench) createAll(ctx context.Context, n, first int, create func(ctx context.Context, app int) error) (time.Duration, error) {
	begun := time.Now()
	g, creating := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for app := range n {
		g.Go(func() error { return create(creating, app) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for app := range n {
		if err := b.apps.await(ctx, first+app, "x"); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// idle counts the writes to custom resources while nothing changes.
func (b *resourceBench) idle(ctx context.Context, d time.Duration) error {
	if !pause(ctx, max(b.settle, 5*time.Second)) { // the last statuses are still written
		return ctx.Err()
	}
	mark, err := b.auditMark()
	if err != nil {
		return err
	}
	if !pause(ctx, d) {
		return ctx.Err()
	}
	writes, err := b.resourceWrites(mark)
	if err != nil {
		return err
	}
	return b.reportValue(fmt.Sprintf("B17.idle_writes_in_%s", d), float64(writes), "")
}

// resourceWrites counts the writes of custom resources in the audit log since mark.
func (b *resourceBench) resourceWrites(mark int64) (int, error) {
	f, err := os.Open(b.cluster.AuditLog())
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return 0, err
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range bytes.Lines(raw) {
		var e struct {
			Verb      string
			ObjectRef struct{ APIGroup string }
		}
		if json.Unmarshal(line, &e) != nil || e.ObjectRef.APIGroup != gitOpsDeployments.Group {
			continue
		}
		switch e.Verb {
		case "create", "update", "patch", "delete":
			n++
		}
	}
	return n, nil
}
