package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// desiredDigest is what the agents of a variant are told to hold; "" before they are told anything.
func (c *comparison) desiredDigest(u unit, out *VariantDiff) string {
	digest, others := "", 0
	for _, t := range c.targets {
		switch {
		case !rollout.Attached(t) || t.Variant != u.variant || t.Desired.Digest == "":
		case digest == "":
			digest = t.Desired.Digest
		case digest != t.Desired.Digest:
			others++
		}
	}
	if others > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%s told to hold something else than the first", areOrIs(others, "cluster")))
	}
	return digest
}

// keptDigest is what the agents of a variant would be told by a rollback to a kept revision; "" when that is nothing.
func (c *comparison) keptDigest(r fleet.Revision, u unit) string {
	of := fleet.Target{Variant: u.variant}
	if i := slices.IndexFunc(c.targets, func(t fleet.Target) bool { return rollout.Attached(t) && t.Variant == u.variant }); i >= 0 {
		of = c.targets[i]
	}
	bundle, _ := rollout.KeptBundle(r, of)
	return bundle.Digest
}

func areOrIs(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return wording.Count(n, noun) + " are"
}

// rendered renders a commit for a variant, unless that would give what was rendered before. Nothing of it
// is kept.
func (c *comparison) rendered(ctx context.Context, side diffSide, u unit, out *VariantDiff) ([]manifest.Object, error) {
	tree, err := c.trees.at(ctx, side.Commit)
	if err != nil {
		return nil, err
	}
	v, err := c.worker.look(ctx, u, tree, c.worker.request(c.deployment, u))
	switch {
	case err != nil:
		return nil, err
	case v.problem != "":
		out.Problem = fmt.Sprintf("%s (commit %.12s) cannot be rendered: %s", side.Name, side.Commit, v.problem)
		return nil, nil
	case v.packed == nil:
		return c.worker.svc.planner.BundleObjects(ctx, c.tenant.ID, v.digest)
	}
	if v.packed.volatile {
		out.Notes = append(out.Notes, "the chart uses time or randomness: some of what differs may do so every time")
	}
	return rollout.Objects(v.packed.digest, v.packed.content)
}
