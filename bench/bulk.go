package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// benchBulk is B3: one deployment of many ConfigMaps.
func benchBulk(ctx context.Context, r *rigging) error {
	return r.grow(ctx, "B3.first", of(r.options, []int{100}, []int{1000}, []int{1000, 5000, 10000}), r.bulk)
}

// bulkFiles are n ConfigMaps with a value each, many to a file, as people have them.
func bulkFiles(n int, value func(i int) string) map[string]string {
	files := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("bulk/part-%03d.yaml", i/100)
		files[name] += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bulk-%05d\ndata:\n  value: %q\n", i, value(i))
	}
	return files
}

func same(value string) func(int) string { return func(int) string { return value } }

func (r *rigging) bulk(ctx context.Context, n int) (first float64, err error) {
	label := fmt.Sprintf("B3.%d", n)
	y, err := r.yardOf(ctx, fmt.Sprintf("b3-%d", n), "bulk")
	if err != nil {
		return 0, err
	}
	floor, err := applyFloor(ctx, y.kube, y.name+"-floor", n)
	if err != nil {
		return 0, err
	}
	t, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return 0, err
	}
	t.want(data("first"))
	begun, err := y.commit(ctx, bulkFiles(n, same("first")), "all")
	if err != nil {
		return 0, err
	}
	done, err := t.last(ctx, n)
	if err != nil {
		return 0, err
	}
	took := done.Sub(begun)
	if err := r.report(result{Name: label + ".first", Value: took.Seconds(), Unit: "s", Runs: 1, Min: took.Seconds(), Max: took.Seconds(), Floor: floor.Seconds()}); err != nil {
		return 0, err
	}
	if err := y.afterFirst(ctx, label, n, t); err != nil {
		return 0, err
	}
	return took.Seconds(), y.stop()
}

// afterFirst measures a sync that changes nothing, and one that changes one object.
func (y *yard) afterFirst(ctx context.Context, label string, n int, t *tally) error {
	if !pause(ctx, 3*time.Second) { // let the effects of the first sync settle
		return ctx.Err()
	}
	mark, err := y.r.auditMark()
	if err != nil {
		return err
	}
	if _, err := y.commit(ctx, map[string]string{"bulk/NOTES.txt": "nothing that is deployed"}, "beside"); err != nil {
		return err
	}
	if !pause(ctx, 3*time.Second) {
		return ctx.Err()
	}
	idle, err := y.r.asked(mark, y.name)
	if err != nil {
		return err
	}
	if mark, err = y.r.auditMark(); err != nil {
		return err
	}
	t.want(data("second"))
	begun, err := y.commit(ctx, bulkFiles(n, func(i int) string {
		if i == n/2 {
			return "second"
		}
		return "first"
	}), "one")
	if err != nil {
		return err
	}
	done, err := t.last(ctx, 1)
	if err != nil {
		return err
	}
	if !pause(ctx, 3*time.Second) {
		return ctx.Err()
	}
	one, err := y.r.asked(mark, y.name)
	if err != nil {
		return err
	}
	c, err := y.costs()
	if err != nil {
		return err
	}
	return y.r.reportAll(
		single(label+".noop.requests", float64(idle.writes+idle.reads+idle.inventory), ""),
		single(label+".one_change", ms(done.Sub(begun)), "ms"),
		single(label+".one_change.writes", float64(one.writes), ""),
		single(label+".one_change.other_requests", float64(one.reads+one.inventory), ""),
		single(label+".memory", c.memory, "MiB"), single(label+".agent_memory", c.agent, "MiB"),
	)
}

// applyFloor is how long the raw PATCHes of n ConfigMaps take, four at a time on warm connections. They are
// deleted afterwards.
func applyFloor(ctx context.Context, kube dynamic.Interface, namespace string, n int) (time.Duration, error) {
	if err := makeNamespace(ctx, kube, namespace); err != nil {
		return 0, err
	}
	apply := func(i int) error {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprintf("bulk-%05d", i), "namespace": namespace},
			"data":     map[string]any{"value": "first"},
		}}
		_, err := kube.Resource(configMaps).Namespace(namespace).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "floor"})
		return err
	}
	if err := apply(0); err != nil { // warms the connections
		return 0, err
	}
	begun := time.Now()
	var g errgroup.Group
	for w := range 4 {
		g.Go(func() error {
			for i := w; i < n; i += 4 {
				if err := apply(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, kube.Resource(configMaps).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}
