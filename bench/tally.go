package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// tally counts, from outside, how many objects of a namespace have the expected state.
type tally struct {
	mu      sync.Mutex
	good    func(*unstructured.Unstructured) bool
	objects map[string]*unstructured.Unstructured
	fit     map[string]time.Time // since when
	wake    chan struct{}
}

func tallyOf(ctx context.Context, kube dynamic.Interface, resource schema.GroupVersionResource, namespace string) (*tally, error) {
	events, err := kube.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	t := &tally{
		good: func(*unstructured.Unstructured) bool { return true }, objects: map[string]*unstructured.Unstructured{},
		fit: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
	go func() {
		for e := range events.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				t.see(e.Type, o)
			}
		}
	}()
	return t, nil
}

func (t *tally) see(kind watch.EventType, o *unstructured.Unstructured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := o.GetName()
	if kind == watch.Deleted {
		delete(t.objects, name)
		delete(t.fit, name)
	} else {
		t.objects[name] = o
		t.checkLocked(name, o)
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tally) checkLocked(name string, o *unstructured.Unstructured) {
	if !t.good(o) {
		delete(t.fit, name)
	} else if _, already := t.fit[name]; !already {
		t.fit[name] = time.Now()
	}
}

// want sets the expected state.
func (t *tally) want(good func(*unstructured.Unstructured) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good = good
	clear(t.fit)
	for name, o := range t.objects {
		t.checkLocked(name, o)
	}
}

// await waits until n objects have the expected state, and returns since when.
func (t *tally) await(ctx context.Context, n int) (map[string]time.Time, error) {
	const limit = 15 * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("fewer than %d objects are as wanted after %v", n, limit))
	defer cancel()
	for {
		t.mu.Lock()
		var fit map[string]time.Time
		if len(t.fit) >= n { // not before: the observer must not slow down what it measures
			fit = maps.Clone(t.fit)
		}
		t.mu.Unlock()
		if fit != nil {
			return fit, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.wake:
		}
	}
}

// healed waits until an object has the expected state since it was spoilt: the watch may be late. It returns
// since when.
func (t *tally) healed(ctx context.Context, name string, spoilt time.Time) (time.Time, error) {
	for {
		fit, err := t.await(ctx, 0)
		if err != nil {
			return time.Time{}, err
		}
		if at, ok := fit[name]; ok && at.After(spoilt) {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-t.wake:
		}
	}
}

// last waits like await and returns the time at which that became true.
func (t *tally) last(ctx context.Context, n int) (at time.Time, err error) {
	fit, err := t.await(ctx, n)
	for _, since := range fit {
		if since.After(at) {
			at = since
		}
	}
	return at, err
}

// data matches ConfigMaps whose data.value is value.
func data(value string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		got, _, _ := unstructured.NestedString(o.Object, "data", "value")
		return got == value
	}
}

// empty waits until no object is left.
func (t *tally) empty(ctx context.Context) error {
	for {
		t.mu.Lock()
		left := len(t.objects)
		t.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.wake:
		}
	}
}

// grow measures a time at each size, and how it grows with them.
func (r *rigging) grow(ctx context.Context, name string, sizes []int, measure func(ctx context.Context, n int) (seconds float64, err error)) error {
	var seconds []float64
	for _, n := range sizes {
		took, err := measure(ctx, n)
		if err != nil {
			return fmt.Errorf("with %d: %w", n, err)
		}
		seconds = append(seconds, took)
	}
	if len(sizes) == 1 {
		return nil
	}
	return r.reportValue(name+".growth_exponent", exponent(sizes, seconds), "")
}
