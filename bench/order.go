package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// benchStuck is B11: a revision whose first wave never becomes ready, and its fix.
func benchStuck(ctx context.Context, r *rigging) error {
	runs := of(r.options, 1, 3, 5)
	y, err := r.yardOf(ctx, "b11", "stuck")
	if err != nil {
		return err
	}
	pods, err := tallyOf(ctx, y.kube, deployments, y.name)
	if err != nil {
		return err
	}
	after, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return err
	}
	var times samples
	for run := range runs {
		bad, good := fmt.Sprintf("bad-%d", run), fmt.Sprintf("good-%d", run)
		pods.want(labelled(bad))
		if _, err := y.commit(ctx, stuckFiles(bad, `nodeSelector: {no: where}`), bad); err != nil {
			return err
		}
		if _, err := pods.await(ctx, 1); err != nil {
			return err
		}
		if !pause(ctx, 5*time.Second) {
			return ctx.Err()
		}
		pods.want(labelled(good))
		begun, err := y.commit(ctx, stuckFiles(good, `nodeSelector: {}`), good)
		if err != nil {
			return err
		}
		done, err := pods.last(ctx, 1)
		if err != nil {
			return err
		}
		times = append(times, done.Sub(begun))
		after.want(data(good)) // and the rest follows when it is ready
		if _, err := after.await(ctx, 1); err != nil {
			return err
		}
	}
	if err := r.reportAll(times.percentile("B11.fix_applied.p50", 50, 0), times.percentile("B11.fix_applied.max", 100, 0)); err != nil {
		return err
	}
	return y.stop()
}

func labelled(version string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["version"] == version }
}

func stuckFiles(version, where string) map[string]string {
	return map[string]string{"stuck/all.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {kedge.dev/wave: "0", version: %[1]s}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      %[2]s
      containers: [{name: web, image: example.com/web}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: after, annotations: {kedge.dev/wave: "1"}}
data: {value: %[1]s}
`, version, where)}
}

// benchChain is B12: ten objects, each of which depends on the one before.
func benchChain(ctx context.Context, r *rigging) error {
	const links = 10
	runs := of(r.options, 1, 5, 5)
	y, err := r.yardOf(ctx, "b12", "chain")
	if err != nil {
		return err
	}
	t, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return err
	}
	floor, err := patchFloor(ctx, y.kube, y.name)
	if err != nil {
		return err
	}
	var times samples
	for run := range runs {
		value := fmt.Sprintf("run-%d", run)
		var text strings.Builder
		for i := range links {
			on := ""
			if i > 0 {
				on = fmt.Sprintf(", annotations: {kedge.dev/depends-on: ConfigMap %s/link-%d}", y.name, i-1)
			}
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: link-%d%s}\ndata: {value: %s}\n", i, on, value)
		}
		t.want(data(value))
		begun, err := y.commit(ctx, map[string]string{"chain/all.yaml": text.String()}, value)
		if err != nil {
			return err
		}
		done, err := t.last(ctx, links)
		if err != nil {
			return err
		}
		times = append(times, done.Sub(begun))
	}
	if err := r.reportAll(times.percentile("B12.chain_of_10.p50", 50, links*floor.at(50)), times.percentile("B12.chain_of_10.max", 100, links*floor.at(50))); err != nil {
		return err
	}
	return y.stop()
}
