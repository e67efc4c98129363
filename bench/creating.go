package main

import (
	"context"
	"fmt"
)

// benchCreating is B16: create many deployments of one repository with REST.
func benchCreating(ctx context.Context, r *rigging) error {
	sizes := of(r.options, []int{200, 500, 1000}, []int{1000, 3000, 10_000}, []int{1000, 3000, 10_000})
	for _, kind := range r.databases {
		if err := r.creatingRounds(ctx, kind, sizes); err != nil {
			return fmt.Errorf("on %s: %w", kind, err)
		}
	}
	return nil
}

// creatingRounds fills one server. The time of one more must not depend on their number.
func (r *rigging) creatingRounds(ctx context.Context, kind string, sizes []int) error {
	l, err := r.newListing(ctx, "B16", kind)
	if err != nil {
		return err
	}
	defer l.stop()
	each := make([]float64, 0, len(sizes))
	for _, n := range sizes {
		rate, err := l.fill(ctx, r, "B16", n)
		if err != nil {
			return fmt.Errorf("filling up to %d: %w", n, err)
		}
		each = append(each, 1/rate)
	}
	return r.reportValue(fmt.Sprintf("B16.%s.growth_exponent", kind), exponent(sizes, each), "")
}
