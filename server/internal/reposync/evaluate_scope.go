package reposync

import (
	"slices"

	"github.com/kedge-dev/kedge/server/internal/rollout"
)

// addWanted records what a deployment wants from the commit on.
func addWanted(c *rollout.CommitScope, o outcome) error {
	if o.pending.promotable() && !o.pending.refused {
		o = o.pending.outcome
	}
	for _, p := range o.parts {
		if p.packed == nil || p.evaluation.problem != "" {
			continue
		}
		if err := c.Add(o.deployment, p.Variant, p.packed.digest, p.packed.content); err != nil {
			return err
		}
	}
	return nil
}

// noteEvaluated records a completely evaluated deployment.
func noteEvaluated(c *rollout.CommitScope, o outcome) {
	broken := slices.ContainsFunc(o.parts, func(p part) bool { return p.evaluation.problem != "" })
	if o.skipped || o.problem != "" || broken || o.pending != nil {
		return
	}
	c.MarkEvaluated(o.deployment.ID)
}

// noteNewest records the newest bundles before outcomes are written.
func noteNewest(c *rollout.CommitScope, outcomes []outcome) {
	for _, o := range outcomes {
		if rollout.SourceError(o.deployment) != "" || o.deployment.PendingSpecRevision != 0 {
			continue
		}
		digests := map[string]string{}
		for _, p := range o.parts {
			digests[p.Variant] = p.Was.Digest
		}
		c.SetNewest(o.deployment.ID, digests)
	}
}
