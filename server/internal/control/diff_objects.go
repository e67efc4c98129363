package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
)

// desiredDigest returns the desired digest of the agents of a variant, or "".
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
		out.Notes = append(out.Notes, fmt.Sprintf("other clusters, %d of them, have another desired state than the first", others))
	}
	return digest
}

// keptDigest returns the digest that the agents of a variant would get by a rollback to a kept revision, or "".
func (c *comparison) keptDigest(r fleet.Revision, u reposync.Unit) string {
	of := fleet.Target{Variant: u.Variant}
	if i := slices.IndexFunc(c.targets, func(t fleet.Target) bool { return rollout.Attached(t) && t.Variant == u.Variant }); i >= 0 {
		of = c.targets[i]
	}
	bundle, _ := rollout.KeptBundle(r, of)
	return bundle.Digest
}

// rendered renders a commit for a variant, unless the result is already known. The result is not stored.
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
		out.Notes = append(out.Notes, "the chart uses time or randomness: some differences may appear in every render")
	}
	return found.Objects, nil
}
