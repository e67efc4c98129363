package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// benchFootprint is B5: the cost of an agent with a small deployment in clusters with many other objects.
func benchFootprint(ctx context.Context, r *rigging) error {
	foreign := of(r.options, []int{0, 1000}, []int{0, 10_000}, []int{0, 10_000, 50_000})
	definitions := of(r.options, 10, 250, 250)
	rest := of(r.options, 5*time.Second, time.Minute, 10*time.Minute)
	kube, err := r.kube(ctx)
	if err != nil {
		return err
	}
	if err := makeNamespace(ctx, kube, "b5-foreign"); err != nil {
		return err
	}
	made := 0
	for _, n := range foreign {
		if err := fill(ctx, kube, "b5-foreign", made, n); err != nil {
			return err
		}
		made = n
		if err := r.footprint(ctx, fmt.Sprintf("b5-%d", n), fmt.Sprintf("B5.%d_foreign", n), rest); err != nil {
			return err
		}
	}
	for i := range definitions {
		if err := define(ctx, kube, i); err != nil {
			return err
		}
	}
	return r.footprint(ctx, "b5-crds", fmt.Sprintf("B5.%d_foreign_%d_crds", made, definitions), rest)
}

// footprint restarts an agent and measures it when it is idle.
func (r *rigging) footprint(ctx context.Context, name, label string, rest time.Duration) error {
	y, err := r.yardOf(ctx, name, "bulk")
	if err != nil {
		return err
	}
	t, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return err
	}
	t.want(data("first"))
	if _, err := y.commit(ctx, bulkFiles(10, same("first")), "all"); err != nil {
		return err
	}
	if _, err := t.await(ctx, 10); err != nil {
		return err
	}
	if err := y.idle(ctx, label, rest); err != nil {
		return err
	}
	return y.stop()
}

// idle measures the agent while nothing happens.
func (y *yard) idle(ctx context.Context, label string, rest time.Duration) error {
	if !pause(ctx, 5*time.Second) {
		return ctx.Err()
	}
	mark, err := y.r.auditMark()
	if err != nil {
		return err
	}
	before, err := cpuSeconds(y.agent.PID())
	if err != nil {
		return err
	}
	begun, said := time.Now(), y.said()
	if !pause(ctx, rest) {
		return ctx.Err()
	}
	said, minutes := y.said()-said, time.Since(begun).Minutes()
	after, err := cpuSeconds(y.agent.PID())
	if err != nil {
		return err
	}
	asked, err := y.r.asked(mark, y.name)
	if err != nil {
		return err
	}
	kib, err := pss(y.agent.PID())
	if err != nil {
		return err
	}
	if y.meter != nil {
		if y.said() == 0 {
			return errors.New("the agent does not reach its server through the meter")
		}
		if err := y.r.reportValue(label+".idle.wire", float64(said)/minutes, "B/min"); err != nil {
			return err
		}
	}
	return y.r.reportAll(
		single(label+".agent_memory", kib/1024, "MiB"),
		single(label+".agent_cpu", (after-before)/time.Since(begun).Seconds()*100, "%"),
		single(label+".idle.writes", float64(asked.writes+asked.inventory), ""),
		single(label+".idle.reads", float64(asked.reads), ""),
		single(label+".idle.watch_renewals", float64(asked.watches), ""),
		single(label+".idle.lease_requests", float64(asked.lease), ""),
	)
}

// said returns the number of bytes between agent and server so far, if counted.
func (y *yard) said() int64 {
	if y.meter == nil {
		return 0
	}
	return y.meter.bytes.Load()
}

// fill creates unmanaged ConfigMaps until there are n.
func fill(ctx context.Context, kube dynamic.Interface, namespace string, made, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := made; i < n; i++ {
		g.Go(func() error {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("foreign-%05d", i)},
				"data": map[string]any{"text": "data of another application"},
			}}
			_, err := kube.Resource(configMaps).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// define creates a kind.
func define(ctx context.Context, kube dynamic.Interface, i int) error {
	group, plural := fmt.Sprintf("g%03d.example.com", i), "things"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": "thing", "kind": "Thing"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	kind := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err := kube.Resource(kind).Create(ctx, crd, metav1.CreateOptions{})
	return err
}

// benchIdle is B13: many apps, and nothing changes.
func benchIdle(ctx context.Context, r *rigging) error {
	n := of(r.options, 20, 200, 1000)
	rest := of(r.options, time.Minute, 2*time.Minute, 30*time.Minute) // heartbeats are half a minute apart
	y, err := r.newYard(ctx, "b13", true)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for app := range n {
		y.files(app, "first", files)
		if err := y.deploy(ctx, fmt.Sprintf("app-%04d", app), fmt.Sprintf("apps/%04d", app)); err != nil {
			return err
		}
	}
	if err := y.installHook(ctx); err != nil {
		return err
	}
	t, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return err
	}
	t.want(data("first"))
	if _, err := y.commit(ctx, files, "all"); err != nil {
		return err
	}
	if _, err := t.await(ctx, n*objectsPerApp); err != nil {
		return err
	}
	if err := y.idle(ctx, fmt.Sprintf("B13.%d_apps", n), rest); err != nil {
		return err
	}
	return y.stop()
}
