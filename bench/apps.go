package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/manifest"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// benchApps is B2: many apps of four objects, installed by one commit, then upgraded by one.
func benchApps(ctx context.Context, r *rigging) error {
	return r.grow(ctx, "B2.install", of(r.options, []int{10}, []int{100}, []int{100, 500, 1000}), r.apps)
}

// appText returns the manifests of one app: a Deployment of one pod with its dependencies.
func appText(app int, image string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: app-%04[1]d}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app-%04[1]d}
data: {color: blue}
---
apiVersion: v1
kind: Service
metadata: {name: app-%04[1]d}
spec: {selector: {app: app-%04[1]d}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app-%04[1]d}
spec:
  replicas: 1
  selector: {matchLabels: {app: app-%04[1]d}}
  template:
    metadata: {labels: {app: app-%04[1]d}}
    spec:
      serviceAccountName: app-%04[1]d
      containers: [{name: web, image: %[2]q}]
`, app, image)
}

func appFiles(n int, image string) map[string]string {
	files := map[string]string{}
	for app := range n {
		files[fmt.Sprintf("apps/%04d/app.yaml", app)] = appText(app, image)
	}
	return files
}

// readyWith matches Deployments whose newest pods, of that image, are ready.
func readyWith(image string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if len(containers) == 0 || containers[0].(map[string]any)["image"] != image {
			return false
		}
		number := func(path ...string) int64 {
			n, _, _ := unstructured.NestedInt64(o.Object, path...)
			return n
		}
		return number("status", "observedGeneration") == o.GetGeneration() && number("status", "updatedReplicas") == 1 &&
			number("status", "availableReplicas") == 1 && number("status", "replicas") == 1
	}
}

func (r *rigging) apps(ctx context.Context, n int) (install float64, err error) {
	label := fmt.Sprintf("B2.%d_apps", n)
	kube, err := r.kube(ctx)
	if err != nil {
		return 0, err
	}
	floor, err := appsFloor(ctx, kube, fmt.Sprintf("b2-%d-floor", n), n)
	if err != nil {
		return 0, err
	}
	y, err := r.yard(ctx, fmt.Sprintf("b2-%d", n))
	if err != nil {
		return 0, err
	}
	for app := range n {
		if err := y.deploy(ctx, fmt.Sprintf("app-%04d", app), fmt.Sprintf("apps/%04d", app)); err != nil {
			return 0, err
		}
	}
	if err := y.installHook(ctx); err != nil {
		return 0, err
	}
	t, err := tallyOf(ctx, kube, deployments, y.name)
	if err != nil {
		return 0, err
	}
	before, err := y.costs()
	if err != nil {
		return 0, err
	}
	var took [2]time.Duration
	for i, image := range []string{"example.com/web:1", "example.com/web:2"} {
		t.want(readyWith(image))
		begun, err := y.commit(ctx, appFiles(n, image), image)
		if err != nil {
			return 0, err
		}
		done, err := t.last(ctx, n)
		if err != nil {
			return 0, err
		}
		took[i] = done.Sub(begun)
	}
	after, err := y.costs()
	if err != nil {
		return 0, err
	}
	seconds := func(name string, d, floor time.Duration) result {
		return result{Name: name, Value: d.Seconds(), Unit: "s", Runs: 1, Min: d.Seconds(), Max: d.Seconds(), Floor: floor.Seconds()}
	}
	if err := r.reportAll(
		seconds(label+".install", took[0], floor[0]), seconds(label+".upgrade", took[1], floor[1]),
		single(label+".cpu_seconds_per_100", (after.cpu-before.cpu)*100/float64(n)/2, "s"), single(label+".memory", after.memory, "MiB"), single(label+".agent_memory", after.agent, "MiB"),
	); err != nil {
		return 0, err
	}
	if err := y.stop(); err != nil {
		return 0, err
	}
	return took[0].Seconds(), clearApps(ctx, kube, y.name)
}

// appsFloor is how long the raw PATCHes of the same objects take until all are ready, four at a time.
func appsFloor(ctx context.Context, kube dynamic.Interface, namespace string, n int) (took [2]time.Duration, err error) {
	if err := makeNamespace(ctx, kube, namespace); err != nil {
		return took, err
	}
	t, err := tallyOf(ctx, kube, deployments, namespace)
	if err != nil {
		return took, err
	}
	for i, image := range []string{"example.com/web:1", "example.com/web:2"} {
		t.want(readyWith(image))
		begun := time.Now()
		var g errgroup.Group
		for w := range 4 {
			g.Go(func() error {
				for app := w; app < n; app += 4 {
					if err := applyRaw(ctx, kube, namespace, appText(app, image), i > 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return took, err
		}
		done, err := t.last(ctx, n)
		if err != nil {
			return took, err
		}
		took[i] = done.Sub(begun)
	}
	return took, clearApps(ctx, kube, namespace)
}

// resources of the objects of an app.
var resources = map[string]schema.GroupVersionResource{
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"}, "ConfigMap": configMaps,
	"Service": {Version: "v1", Resource: "services"}, "Deployment": deployments,
}

// applyRaw sends the objects of a text unchanged; an upgrade sends only the changed one.
func applyRaw(ctx context.Context, kube dynamic.Interface, namespace, text string, upgrade bool) error {
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		return err
	}
	for _, o := range objects {
		if upgrade && o.Ref.Kind != "Deployment" {
			continue
		}
		u := o.Unstructured()
		_, err := kube.Resource(resources[o.Ref.Kind]).Namespace(namespace).Apply(ctx, o.Ref.Name, u, metav1.ApplyOptions{FieldManager: "floor"})
		if err != nil {
			return err
		}
	}
	return nil
}

// clearApps removes objects that would cost the control plane something.
func clearApps(ctx context.Context, kube dynamic.Interface, namespace string) error {
	t, err := tallyOf(ctx, kube, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace)
	if err != nil {
		return err
	}
	err = kube.Resource(deployments).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return t.empty(ctx)
}
