package reposync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// wakeConcerned wakes the workers that a batch of changes affects. Workers of other replicas wake too, and do
// nothing.
func (s *Manager) wakeConcerned(ctx context.Context, batch []store.Change) error {
	if slices.ContainsFunc(batch, func(c store.Change) bool { return c.Kind == store.ChangeTenant }) {
		if err := s.countTenants(ctx); err != nil {
			return err
		}
	}
	concerned := slices.DeleteFunc(slices.Clone(batch), func(c store.Change) bool {
		switch c.Kind {
		case store.ChangeDeployment, store.ChangeRun, store.ChangeWake, store.ChangeCredential, store.ChangeRepository, store.ChangeAgentConfig:
			return false
		default:
			return true
		}
	})
	if len(concerned) == 0 {
		return nil
	}
	due := wakes{why: map[fleet.RepositoryID]wakeup{}, repos: map[fleet.RepositoryID]fleet.Repository{}, seen: map[string]bool{}}
	err := s.store.View(ctx, func(tx store.Tx) error {
		for _, c := range concerned {
			if err := s.concern(ctx, tx, c, &due); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err // not found: deleted concurrently
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(due.why)) {
		s.wake(due.repos[id], due.why[id])
	}
	return nil
}

// wakes collects the effects of a batch on repositories.
type wakes struct {
	why   map[fleet.RepositoryID]wakeup
	repos map[fleet.RepositoryID]fleet.Repository
	seen  map[string]bool // rows that were already read
}

func (d *wakes) add(repo fleet.Repository, why wakeup) {
	d.repos[repo.ID] = repo
	d.why[repo.ID] = d.why[repo.ID].merge(why)
}

// first reports whether a row was not read before, for this kind of change.
func (d *wakes) first(c store.Change, id string) bool {
	key := string(c.Kind) + " " + id
	was := d.seen[key]
	d.seen[key] = true
	return !was
}

func (s *Manager) concern(ctx context.Context, tx store.Tx, c store.Change, due *wakes) error {
	switch c.Kind {
	case store.ChangeWake:
		repo, err := tx.Repositories().Get(ctx, c.TenantID, fleet.RepositoryID(c.ID))
		if err != nil {
			return err
		}
		if s.has(repo.ID) { // otherwise no deployment uses it
			due.add(repo, wakeupOf(store.Wake{Reason: c.Reason, Ref: c.Ref}, c.At))
		}
		return nil
	case store.ChangeAgentConfig:
		return s.concernConfigs(ctx, tx, c, due)
	case store.ChangeCredential:
		if !due.first(c, c.ID) {
			return nil
		}
		repos, err := tx.Repositories().OfCredential(ctx, c.TenantID, fleet.CredentialID(c.ID))
		for _, repo := range repos {
			if s.has(repo.ID) {
				due.add(repo, wakeup{check: true})
			}
		}
		return err
	case store.ChangeRepository:
		if !due.first(c, c.ID) {
			return nil
		}
		repo, err := tx.Repositories().Get(ctx, c.TenantID, fleet.RepositoryID(c.ID))
		if err != nil {
			return err
		}
		if spec, ok := s.specOf(repo.ID); ok && spec != repo.SpecRevision {
			due.add(repo, wakeup{check: true})
		}
		return nil
	default:
		if !due.first(c, string(c.DeploymentID)) {
			return nil
		}
		return s.concernDeployment(ctx, tx, c, due)
	}
}

// concernDeployment wakes the worker of a deployment that was edited since its last evaluation, or that has a
// run to start.
func (s *Manager) concernDeployment(ctx context.Context, tx store.Tx, c store.Change, due *wakes) error {
	d, err := tx.Deployments().Get(ctx, c.TenantID, c.DeploymentID)
	if err != nil || !d.DeletedAt.IsZero() {
		return err
	}
	if d.PendingSpecRevision != 0 {
		if err := s.concernPending(ctx, tx, c, d, due); err != nil {
			return err
		}
	}
	why := wakeup{}
	if c.Kind == store.ChangeRun {
		open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
		if err != nil || len(open) == 0 || !rollout.NeedsGit(open[0]) {
			return err
		}
		why.runs = map[fleet.DeploymentID]bool{d.ID: true}
	} else {
		if s.knows(d.RepositoryID, d) {
			return nil
		}
		if isNew(d) {
			why.added = map[fleet.DeploymentID]bool{d.ID: true}
		} else {
			why.check = true
		}
	}
	repo, err := tx.Repositories().Get(ctx, c.TenantID, d.RepositoryID)
	if err != nil {
		return err
	}
	due.add(repo, why)
	return nil
}

// isNew reports whether the source of a deployment was never evaluated.
func isNew(d fleet.Deployment) bool {
	return d.Rendered.Commit == "" && d.SourceError == "" && d.PendingSpecRevision == 0 && d.SourceSince.IsZero()
}

func (s *Manager) has(id fleet.RepositoryID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[id] != nil
}

func (s *Manager) specOf(id fleet.RepositoryID) (int64, bool) {
	s.mu.Lock()
	w := s.workers[id]
	s.mu.Unlock()
	if w == nil {
		return 0, false
	}
	return w.spec(), true
}

// knows reports whether the worker of a repository has evaluated the current deployment.
func (s *Manager) knows(id fleet.RepositoryID, d fleet.Deployment) bool {
	s.mu.Lock()
	w := s.workers[id]
	s.mu.Unlock()
	return w != nil && w.knows(d)
}

// wakeup is why a worker is woken. Several merge into one.
type wakeup struct {
	check   bool                        // read the remote and evaluate every deployment
	rewound bool                        // check for targets that are ahead of the server
	pushed  bool                        // refs may have moved: fetch without a check
	refs    map[string]bool             // the refs; "" is any
	at      time.Time                   // of the oldest push
	runs    map[fleet.DeploymentID]bool // deployments that may have a run to start
	allRuns bool                        // check for runs of every deployment
	added   map[fleet.DeploymentID]bool // new deployments
}

// onlyAdded reports whether only new deployments must be evaluated. They cannot lose objects, so no other
// deployment must be evaluated with them.
func (w wakeup) onlyAdded() bool {
	return len(w.added) > 0 && !w.check && !w.rewound && !w.pushed && !w.allRuns && len(w.runs) == 0
}

// wakeupOf returns the wakeup of a wake in the change feed. A push concerns the deployments of its ref. The other reasons
// concern every deployment of the repository, also where the source did not change, since a target may be ahead of the
// server.
func wakeupOf(wake store.Wake, at time.Time) wakeup {
	if wake.Reason == store.WakePush {
		return wakeup{pushed: true, refs: map[string]bool{wake.Ref: true}, at: at}
	}
	return wakeup{check: true, rewound: true}
}

func (w wakeup) merge(o wakeup) wakeup {
	w.check, w.rewound, w.pushed, w.allRuns = w.check || o.check, w.rewound || o.rewound, w.pushed || o.pushed, w.allRuns || o.allRuns
	w.refs, w.runs, w.added = union(w.refs, o.refs), union(w.runs, o.runs), union(w.added, o.added)
	if w.at.IsZero() || (!o.at.IsZero() && o.at.Before(w.at)) {
		w.at = o.at
	}
	return w
}

func union[K comparable](a, b map[K]bool) map[K]bool {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[K]bool{}
	}
	maps.Copy(out, b)
	return out
}

// concerns reports whether a push of these refs may have moved revision.
func (w wakeup) concerns(revision string) bool {
	if !w.pushed {
		return false
	}
	if strings.HasPrefix(revision, "semver:") {
		for ref := range w.refs {
			if ref == "" || strings.HasPrefix(ref, "refs/tags/") { // any tag may be or have been the highest version
				return true
			}
		}
		return false
	}
	return revision == "" || w.refs[""] || w.refs[revision] || w.refs["refs/heads/"+revision] || w.refs["refs/tags/"+revision]
}
