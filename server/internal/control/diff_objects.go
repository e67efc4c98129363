package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// desiredDigest is what the agents of a variant are told to hold; "" before they are told anything.
func (c *comparison) desiredDigest(u reposync.Unit, out *VariantDiff) string {
	digest, others := "", 0
	for _, t := range c.targets {
		switch {
		case !rollout.Attached(t) || t.Variant != u.Variant || t.Desired.Digest == "":
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
func (c *comparison) keptDigest(r fleet.Revision, u reposync.Unit) string {
	of := fleet.Target{Variant: u.Variant}
	if i := slices.IndexFunc(c.targets, func(t fleet.Target) bool { return rollout.Attached(t) && t.Variant == u.Variant }); i >= 0 {
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
func (c *comparison) rendered(ctx context.Context, side diffSide, u reposync.Unit, out *VariantDiff) ([]manifest.Object, error) {
	found, err := c.preview.Render(ctx, c.deployment, u, side.Commit)
	switch {
	case err != nil:
		return nil, err
	case found.Problem != "":
		out.Problem = fmt.Sprintf("%s (commit %.12s) cannot be rendered: %s", side.Name, side.Commit, found.Problem)
		return nil, nil
	}
	if found.Volatile {
		out.Notes = append(out.Notes, "the chart uses time or randomness: some of what differs may do so every time")
	}
	return found.Objects, nil
}
