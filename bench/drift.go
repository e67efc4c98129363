package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// benchDrift is B4: objects are edited and deleted manually, one at a time and many together, and one of them
// repeatedly.
func benchDrift(ctx context.Context, r *rigging) error {
	n := of(r.options, 50, 500, 1000)
	y, err := r.yardOf(ctx, "b4", "bulk")
	if err != nil {
		return err
	}
	t, err := tallyOf(ctx, y.kube, configMaps, y.name)
	if err != nil {
		return err
	}
	t.want(data("first"))
	if _, err := y.commit(ctx, bulkFiles(n, same("first")), "all"); err != nil {
		return err
	}
	if _, err := t.await(ctx, n); err != nil {
		return err
	}
	if !pause(ctx, 3*time.Second) {
		return ctx.Err()
	}
	floor, err := patchFloor(ctx, y.kube, y.name)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *tally, int, time.Duration) error{y.driftOne, y.driftMany, y.driftAgain} {
		if err := step(ctx, t, n, floor.at(50)); err != nil {
			return err
		}
	}
	return y.stop()
}

func bulkName(i int) string { return fmt.Sprintf("bulk-%05d", i) }

// spoil edits or deletes one object like a user.
func (y *yard) spoil(ctx context.Context, i int, remove bool) error {
	client := y.kube.Resource(configMaps).Namespace(y.name)
	if remove {
		return client.Delete(ctx, bulkName(i), metav1.DeleteOptions{})
	}
	_, err := client.Patch(ctx, bulkName(i), types.MergePatchType, []byte(`{"data":{"value":"spoilt"}}`), metav1.PatchOptions{FieldManager: "hand"})
	return err
}

// heal spoils one object and returns the time until it is corrected, with n objects.
func (y *yard) heal(ctx context.Context, t *tally, n, i int, remove bool) (time.Duration, error) {
	begun := time.Now()
	if err := y.spoil(ctx, i, remove); err != nil {
		return 0, err
	}
	at, err := t.healed(ctx, bulkName(i), begun)
	if err != nil {
		return 0, err
	}
	// Wait until nothing else is running before the next one.
	if _, err := t.await(ctx, n); err != nil {
		return 0, err
	}
	return at.Sub(begun), nil
}

// driftOne spoils objects one after another, each another one.
func (y *yard) driftOne(ctx context.Context, t *tally, n int, floor time.Duration) error {
	for _, how := range []struct {
		name   string
		remove bool
	}{{"edit", false}, {"delete", true}} {
		var times samples
		for _, i := range rand.Perm(n)[:min(n, 50)] {
			took, err := y.heal(ctx, t, n, i, how.remove)
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		if err := y.r.reportAll(times.percentile("B4."+how.name+".p50", 50, floor), times.percentile("B4."+how.name+".p99", 99, floor)); err != nil {
			return err
		}
	}
	return nil
}

// driftMany spoils all objects together.
func (y *yard) driftMany(ctx context.Context, t *tally, n int, _ time.Duration) error {
	begun := map[string]time.Time{}
	for _, i := range rand.Perm(n) {
		begun[bulkName(i)] = time.Now()
		if err := y.spoil(ctx, i, i%2 == 0); err != nil {
			return err
		}
	}
	last := time.Now()
	var times samples
	for len(times) < n {
		fit, err := t.await(ctx, n)
		if err != nil {
			return err
		}
		times = times[:0]
		for name, at := range fit {
			if at.After(begun[name]) {
				times = append(times, at.Sub(begun[name]))
			}
		}
		if len(times) < n {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.wake:
			}
		}
	}
	label := fmt.Sprintf("B4.%d_at_once", n)
	return y.r.reportAll(times.percentile(label+".p50", 50, 0), times.percentile(label+".p99", 99, 0), single(label+".all", ms(time.Since(last)), "ms"))
}

// driftAgain edits one object twenty times, as fast as others are corrected. The reaction is limited, the
// object is corrected in the end, and the others are corrected as usual.
func (y *yard) driftAgain(ctx context.Context, t *tally, n int, floor time.Duration) error {
	const times = 20
	mark, err := y.r.auditMark()
	if err != nil {
		return err
	}
	var others samples
	var last time.Time
	for k := range times {
		last = time.Now()
		if err := y.spoil(ctx, 0, false); err != nil {
			return err
		}
		took, err := y.heal(ctx, t, 0, 1+k, false)
		if err != nil {
			return err
		}
		others = append(others, took)
	}
	fit, err := t.healed(ctx, bulkName(0), last)
	if err != nil {
		return err
	}
	if !pause(ctx, 2*time.Second) { // the audit log is written in the background
		return ctx.Err()
	}
	asked, err := y.r.asked(mark, y.name)
	if err != nil {
		return err
	}
	label := fmt.Sprintf("B4.same_object_%d_times", times)
	return y.r.reportAll(single(label+".healed", ms(fit.Sub(last)), "ms"), single(label+".writes", float64(asked.writes-times), ""),
		others.percentile(label+".others.p50", 50, floor), others.percentile(label+".others.p99", 99, floor))
}
