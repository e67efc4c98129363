package control

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/quota"
)

// bound is one limit of a quota.
type bound struct {
	what  quota.Kind
	limit int
}

func bounds(q fleet.Quota) []bound {
	return []bound{
		{quota.Agents, q.Agents},
		{quota.Environments, q.Environments},
		{quota.Repositories, q.Repositories},
		{quota.Deployments, q.Deployments},
		{quota.Targets, q.Targets},
		{quota.Tokens, q.Tokens},
	}
}

func checkQuota(q fleet.Quota) error {
	for _, bound := range bounds(q) {
		if bound.limit < 0 {
			return fleet.Invalid("quota."+string(bound.what), "%d is not valid: use a positive number, or 0 for no limit", bound.limit)
		}
	}
	return nil
}
