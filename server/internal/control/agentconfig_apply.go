package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// configDoor is the API name in the audit log for changes by a file.
const configComponent = "git"

// applyConfig applies what the file of an agent declares, in one transaction: completely, or not at all, with
// the cause.
func (s *Service) applyConfig(ctx context.Context, look reposync.ConfigFile) (reposync.ConfigResult, error) {
	result, err := s.applyOnce(ctx, look)
	var quota *quota.ExceededError
	var held *ConflictError
	var invalid *fleet.InvalidError
	if !errors.As(err, &quota) && !errors.As(err, &held) && !errors.As(err, &invalid) {
		return result, err
	}
	// Only the failure is written.
	look.State, look.Findings, look.More = fleet.ConfigRefused, []fleet.ConfigFinding{{Message: err.Error()}}, 0
	if result, err = s.applyOnce(ctx, look); result == reposync.ConfigDone {
		result = reposync.ConfigTryAgain
	}
	return result, err
}

func (s *Service) applyOnce(ctx context.Context, look reposync.ConfigFile) (reposync.ConfigResult, error) {
	var result reposync.ConfigResult
	err := s.store.Update(ctx, func(tx store.Tx) error {
		result = reposync.ConfigDone
		now, err := tx.AgentConfigs().Get(ctx, look.Config.TenantID, look.Config.AgentID)
		if errors.Is(err, store.ErrNotFound) {
			return nil // no configuration any more
		}
		if err != nil {
			return err
		}
		if was := look.Config; now.SpecRevision != was.SpecRevision || now.Commit != was.Commit || now.Live != was.Live || now.State != was.State {
			result = reposync.ConfigOvertaken
			return nil
		}
		return s.applyLook(ctx, tx, look)
	})
	return result, err
}

func (s *Service) applyLook(ctx context.Context, tx store.Tx, look reposync.ConfigFile) error {
	t, err := tx.Tenants().Get(ctx, look.Config.TenantID)
	if err != nil {
		return err
	}
	c := look.Config
	changed := false
	if look.State == fleet.ConfigApplied || look.State == fleet.ConfigAbsent {
		want, err := s.wanted(ctx, tx, look)
		if err != nil {
			return err
		}
		look.Refuse(want.findings)
		if len(want.findings) == 0 {
			if changed, err = s.applyDeclared(ctx, tx, t, look, want.deployments); err != nil {
				return err
			}
			c.Live, c.Declares = look.Commit, len(want.deployments)
		}
	} else if look.State == fleet.ConfigInvalid && len(look.File.Deployments) > 0 {
		also, err := s.alsoWrong(ctx, tx, look)
		if err != nil {
			return err
		}
		more := look.More
		look.Refuse(slices.Concat(look.Findings, also))
		look.More += more
	}
	return s.recordLook(ctx, tx, look, c, changed)
}

// applyDeclared applies everything that a file declares, and reports whether anything changed. The kind filter comes first,
// so that new deployments start with it.
func (s *Service) applyDeclared(ctx context.Context, tx store.Tx, t fleet.Tenant, look reposync.ConfigFile, want []wantedDeployment) (bool, error) {
	kinds, err := s.declareKinds(ctx, tx, look)
	if err != nil {
		return false, err
	}
	changed, err := s.reconcileConfig(ctx, tx, t, look, want)
	return kinds || changed, err
}

// recordLook writes the result of reading a file, if anything is new. A new commit counts: a reader of an older
// commit sees that it was overtaken.
func (s *Service) recordLook(ctx context.Context, tx store.Tx, look reposync.ConfigFile, c fleet.AgentConfig, changed bool) error {
	was := look.Config
	c.State, c.File, c.Commit, c.ReadAt = look.State, look.Path, look.Commit, s.cfg.Now()
	c.Errors, c.More, c.Notices = look.Findings, look.More, look.File.Notices
	same := was.State == c.State && was.File == c.File && was.More == c.More && was.Declares == c.Declares &&
		slices.Equal(was.Errors, c.Errors) && slices.Equal(was.Notices, c.Notices)
	if same && !changed && was.Commit == c.Commit {
		return nil
	}
	if err := tx.AgentConfigs().SetRead(ctx, c); err != nil {
		return err
	}
	if same && (!changed || c.State != fleet.ConfigApplied) {
		return nil
	}
	event := fleet.Event{TenantID: c.TenantID, Type: fleet.EventNormal, Reason: c.State.Reason(), Agent: c.AgentName}
	where := fmt.Sprintf("%s at commit %.12s", c.RepoURL, c.Commit)
	switch c.State {
	case fleet.ConfigApplied:
		event.Message = fmt.Sprintf("%s of %s declares %s", c.File, where, wording.Count(c.Declares, "deployment"))
	case fleet.ConfigAbsent:
		event.Message = where + " has no file for this agent: nothing is declared"
	default:
		event.Type = fleet.EventWarning
		event.Message = configWarning(c, "").Message
	}
	return s.tell(ctx, tx, event)
}

// configPrincipal is who makes the changes of a file.
func configPrincipal(look reposync.ConfigFile) auth.Principal {
	return auth.Principal{Name: fmt.Sprintf("the configuration of agent %q at commit %.12s", look.Config.AgentName, look.Commit), Component: configComponent}
}

// reconcileConfig applies the difference between the declared and the existing deployments. Unchanged ones are
// not written.
func (s *Service) reconcileConfig(ctx context.Context, tx store.Tx, t fleet.Tenant, look reposync.ConfigFile, want []wantedDeployment) (bool, error) {
	c := look.Config
	p := configPrincipal(look)
	declared, err := tx.Declarations().OfAgent(ctx, t.ID, c.AgentName)
	if err != nil {
		return false, err
	}
	if len(want) > 0 {
		if err := s.ensureAgentEnvironment(ctx, tx, t.ID, environmentOfAgent(c.AgentName), c.AgentName); err != nil {
			return false, err
		}
	}
	changed := false
	listed := map[fleet.DeploymentID]bool{}
	// Objects that leave the file may move to deployments of the same commit, or change in the same repository.
	scope := rollout.CommitScope{Pending: c.RepositoryID}
	for _, w := range want {
		d, differs, err := s.declare(ctx, tx, p, t, look, w)
		if err != nil {
			return false, err
		}
		if differs {
			scope.Unevaluated = append(scope.Unevaluated, d)
		}
		listed[d.ID], changed = true, changed || differs
	}
	for _, d := range declared {
		if listed[d.DeploymentID] || !d.ReleasedAt.IsZero() {
			continue
		}
		changed = true
		if err := s.undeclare(ctx, tx, p, t, look, d); err != nil {
			return false, err
		}
		if err := rollout.NewHandOvers(s.planner, tx, &scope).KeepAll(ctx, t.ID, d.DeploymentID); err != nil {
			return false, err
		}
	}
	if !changed {
		return false, nil
	}
	return true, dropAgentEnvironments(ctx, tx, t.ID, c.AgentName)
}

// declare creates or updates one deployment from the file.
func (s *Service) declare(
	ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, look reposync.ConfigFile, w wantedDeployment,
) (fleet.Deployment, bool, error) {
	d, err := tx.Deployments().ByName(ctx, t.ID, w.deployment.Name)
	found := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fleet.Deployment{}, false, err
	}
	differs := true
	if found {
		e := edit{inForce: d}
		if e.newest, err = newestSpec(ctx, tx, d); err != nil {
			return fleet.Deployment{}, false, err
		}
		d = e.newest
		d.Labels, d.Source, d.Namespace, d.Policy, d.Environment = w.deployment.Labels, w.deployment.Source, w.deployment.Namespace, w.deployment.Policy, w.deployment.Environment
		e.wanted = d
		fields := changes(e.newest, d)
		if differs = len(fields) > 0; differs {
			if err := s.borrowCredential(ctx, tx, t, look.Config, w); err != nil {
				return fleet.Deployment{}, false, err
			}
			if err := s.update(ctx, tx, p, t, e, fields); err != nil {
				return fleet.Deployment{}, false, err
			}
		}
	} else if d, err = s.createDeclared(ctx, tx, p, t, look.Config, w); err != nil {
		return fleet.Deployment{}, false, err
	}
	by := fleet.Declaration{
		TenantID: t.ID, DeploymentID: d.ID, AgentName: look.Config.AgentName, Name: w.name, RepoURL: look.Config.RepoURL, File: look.Path, Prune: w.prune,
	}
	old, err := tx.Declarations().Of(ctx, t.ID, []fleet.DeploymentID{d.ID})
	if err != nil || len(old) == 1 && old[0] == by {
		return d, differs, err
	}
	return d, true, tx.Declarations().Put(ctx, by)
}

func (s *Service) createDeclared(
	ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, c fleet.AgentConfig, w wantedDeployment,
) (fleet.Deployment, error) {
	d := w.deployment
	d.ID, d.TenantID, d.SpecRevision, d.CreatedAt = fleet.NewDeploymentID(), t.ID, 1, s.cfg.Now()
	if err := s.borrowCredential(ctx, tx, t, c, w); err != nil {
		return d, err
	}
	return d, s.create(ctx, tx, p, t, d)
}

// borrowCredential gives a new GitLab project the credential of the repository of the file. Both are on one
// host, so the secret is sent to no new host.
func (s *Service) borrowCredential(ctx context.Context, tx store.Tx, t fleet.Tenant, c fleet.AgentConfig, w wantedDeployment) error {
	if !w.beside {
		return nil
	}
	_, err := tx.Repositories().ByURL(ctx, t.ID, w.deployment.Source.RepoURL)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	config, err := tx.Repositories().Get(ctx, t.ID, c.RepositoryID)
	if err != nil {
		return err
	}
	id, err := s.ensureRepository(ctx, tx, t, w.deployment.Source.RepoURL)
	if err != nil {
		return err
	}
	repo, err := tx.Repositories().Get(ctx, t.ID, id)
	if err != nil {
		return err
	}
	known, err := spellings(ctx, tx, repo)
	if err != nil {
		return err
	}
	if len(known) == 0 { // otherwise it has its own policy already, which applies to every spelling
		// The signers of the file must also sign the repositories that it names.
		if err := tx.Repositories().SetPolicy(ctx, t.ID, id, config.Submodules, config.Signers); err != nil {
			return err
		}
	}
	if config.CredentialID == "" {
		return nil
	}
	return tx.Repositories().SetCredential(ctx, t.ID, id, config.CredentialID)
}
