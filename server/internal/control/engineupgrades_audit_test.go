package control_test

import (
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// upgradeWrites are the use-cases of upgrades of Argo CD.
func upgradeWrites(t *testing.T) map[string]write {
	t.Helper()
	deploy := func(s *scene, name, agent string, manual bool) error {
		_, first := s.CreateEnvironment(s.ctx, root, "acme", control.CreateEnvironment{Name: name, Agents: []string{agent}})
		_, second := s.CreateDeployment(s.ctx, root, "acme", control.CreateDeployment{
			Name: name, Environment: name, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: name}, Policy: &fleet.Policy{Manual: manual},
		})
		return errors.Join(first, second)
	}
	prepare := func(s *scene) error {
		_, first := s.EnrollAgent(s.ctx, root, "acme", control.EnrollAgent{Name: "engine", EngineNamespace: "argocd"})
		err := errors.Join(first, deploy(s, "argocd", s.agent.Name, true), deploy(s, "canary", "engine", false))
		if err != nil {
			return err
		}
		s.render(t, "acme", "argocd", "1")
		return result(s.Rollback(s.ctx, root, "acme", "argocd", control.Rollback{Revision: 1}))
	}
	create := func(s *scene) error {
		return result(s.CreateEngineUpgrade(s.ctx, root, "acme", control.CreateEngineUpgrade{
			Name: "u", Revision: "v2", Instances: []control.EngineUpgradeInstance{{Agent: "engine", Deployment: "argocd", Canary: "canary"}},
		}))
	}
	return map[string]write{
		"CreateEngineUpgrade": {prepare, create},
		"HaltEngineUpgrade": {
			func(s *scene) error { return errors.Join(prepare(s), create(s)) },
			func(s *scene) error {
				return result(s.HaltEngineUpgrade(s.ctx, root, "acme", "u", fleet.HaltAfterInstance))
			},
		},
	}
}
