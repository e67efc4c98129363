package reposync

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// wasConfigured reports whether a configuration is in force.
func wasConfigured(c fleet.AgentConfig) bool { return c.Live != "" }

// looksForConfigs reports whether the files of agents must be read.
func (t work) looksForConfigs() bool {
	return len(t.configs) > 0 && (t.due.check || t.due.concerns(""))
}

// configure reads the files of all agents whose configuration is in the repository. An invalid one does not
// affect the others. applied means that the deployments of the repository may have changed.
func (w *worker) configure(ctx context.Context, todo work, refs map[string]gitsource.Ref) (applied bool, err error) {
	ref, ok := refs[""]
	if !ok || !todo.looksForConfigs() {
		return false, nil
	}
	projects := map[string]string{}
	err = w.svc.store.View(ctx, func(tx store.Tx) error {
		list, err := tx.GitLabProjects().List(ctx, w.tenant, store.Whole())
		for _, p := range list {
			projects[p.Project] = p.URL
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if w.configured == nil {
		w.configured = map[fleet.AgentID]string{}
	}
	known := knownProjects{projects, sha256.Sum256(fmt.Append(nil, projects))}
	trees := newTreeCache(w.svc.git, todo.access)
	var failed error
	for _, c := range todo.configs {
		done, err := w.configureOne(ctx, c, ref, trees, known)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("configuration of agent %q: %w", c.AgentName, err))
		}
		applied = applied || done
	}
	return applied, failed
}

// afterConfigure reads the deployments again after files of agents were applied: declared deployments belong to
// the same commit, and are evaluated together with the others.
func (w *worker) afterConfigure(ctx context.Context, todo *work, refs map[string]gitsource.Ref) error {
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		if todo.deployments, err = tx.Deployments().BriefsOfRepository(ctx, w.tenant, w.id); err != nil {
			return err
		}
		todo.pending, err = tx.PendingSpecs().OfRepository(ctx, w.tenant, w.id)
		return err
	})
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(todo.revisions(), func(revision string) bool { _, known := refs[revision]; return known })
	if len(missing) == 0 {
		return nil
	}
	more, err := w.resolve(ctx, *todo, missing)
	if err != nil {
		return err
	}
	maps.Copy(refs, more)
	return nil
}

// knownProjects are the GitLab projects for one pass. There may be very many, so only their hash is remembered
// for each agent.
type knownProjects struct {
	urls map[string]string
	sum  [sha256.Size]byte
}

// configureOne reads and applies the file of one agent, unless that was done before.
func (w *worker) configureOne(ctx context.Context, c fleet.AgentConfig, ref gitsource.Ref, trees *treeCache, projects knownProjects) (applied bool, err error) {
	look := ConfigFile{Config: c, Commit: ref.Commit, Projects: projects.urls}
	if ref.Err != nil {
		look.State, look.Findings = fleet.ConfigRefused, []fleet.ConfigFinding{{Message: ref.Err.Error()}}
		_, err := w.svc.control.ApplyConfig(ctx, look)
		return false, err
	}
	tree, err := trees.at(ctx, ref.Commit)
	if err != nil {
		return false, err
	}
	found, err := findConfig(ctx, tree, c.AgentName)
	if err != nil {
		return false, err
	}
	key := fmt.Sprintf("%d %s %x", c.SpecRevision, found.id, projects.sum)
	// One that was set again has to be applied again, though the file is the same; and so has one that was refused
	// for what is not in it, or for another one that was there in between.
	if w.configured[c.AgentID] == key && c.State != fleet.ConfigPending && c.State != fleet.ConfigRefused {
		return false, nil
	}
	if err := look.read(ctx, tree, found); err != nil {
		return false, err
	}
	done, err := w.svc.control.ApplyConfig(ctx, look)
	switch {
	case err != nil:
		return false, err
	case done == ConfigOvertaken:
		w.wake(wakeup{check: true})
	case done == ConfigDone:
		w.configured[c.AgentID] = key
		w.log.Info("the configuration of an agent was read", obs.KeyAgent, c.AgentName, obs.KeyCommit, ref.Commit)
	}
	return done == ConfigDone, nil
}

// ConfigFile is the configuration of one agent at one commit.
type ConfigFile struct {
	Config   fleet.AgentConfig // from the previous read
	Commit   string
	Projects map[string]string // GitLab projects to URLs

	State    fleet.ConfigState // the state before it is applied
	Path     string            // "" if there is no file
	File     agentconfig.File
	Findings []fleet.ConfigFinding // why it cannot be used
	More     int
}

// ReadConfig reads the file of an agent in the tree of a commit. An error is internal; user errors are
// findings.
func ReadConfig(ctx context.Context, tree filetree.Tree, c fleet.AgentConfig, commit string) (ConfigFile, error) {
	look := ConfigFile{Config: c, Commit: commit}
	found, err := findConfig(ctx, tree, c.AgentName)
	if err != nil {
		return look, err
	}
	return look, look.read(ctx, tree, found)
}

// foundConfig is the file of an agent in a tree.
type foundConfig struct {
	id      string // equal ids mean equal content
	entry   filetree.Entry
	path    string // "" when there is none
	gitLab  bool
	problem *fleet.ConfigFinding // it must not be read
}

// findConfig searches for the file of an agent: in Kedge's format, otherwise in GitLab's.
func findConfig(ctx context.Context, tree filetree.Tree, agent string) (foundConfig, error) {
	places := []string{agentconfig.KedgePath(agent), agentconfig.GitLabPath(agent), agentconfig.MistakenGitLabPath(agent)}
	entries := make([]filetree.Entry, len(places))
	var there []string
	out := foundConfig{}
	for i, place := range places {
		entry, other, err := lookUp(ctx, tree, place)
		if err != nil {
			return foundConfig{}, err
		}
		out.id += fmt.Sprintf("%d:%s:%s ", entry.Mode, entry.ID, other)
		entries[i] = entry
		if entry.Name != "" {
			there = append(there, place)
		} else if other != "" && i < 2 {
			out.refuse("%s is not read: rename it to %s", path.Join(path.Dir(place), other), path.Base(place))
		}
	}
	kedge, gitLab, mistaken := entries[0].Name != "", entries[1].Name != "", entries[2].Name != ""
	switch {
	case kedge && gitLab:
		out.refuse("there are two files, %s and %s: keep one", places[0], places[1])
	case kedge:
		out.path, out.entry = places[0], entries[0]
	case gitLab:
		out.path, out.entry, out.gitLab = places[1], entries[1], true
	case mistaken:
		out.refuse("%s is not a path that GitLab's agents read: the folder is .gitlab/agents, so move it to %s", there[0], places[1])
	}
	if out.path != "" {
		out.problem = nil // other files are not meant
		if out.entry.Mode != filetree.File {
			out.refuse("%s is not a regular file", out.path)
		}
	}
	return out, nil
}

func (f *foundConfig) refuse(format string, args ...any) {
	f.problem = &fleet.ConfigFinding{Message: fmt.Sprintf(format, args...)}
}

// lookUp finds the entry of a file; other is a file that was probably meant.
func lookUp(ctx context.Context, tree filetree.Tree, place string) (entry filetree.Entry, other string, err error) {
	entries, err := tree.List(ctx, path.Dir(place))
	if errors.Is(err, fs.ErrNotExist) {
		return filetree.Entry{}, "", nil
	}
	if err != nil {
		return filetree.Entry{}, "", err
	}
	name := path.Base(place)
	if i := slices.IndexFunc(entries, func(e filetree.Entry) bool { return e.Name == name }); i >= 0 {
		return entries[i], "", nil
	}
	if i := slices.IndexFunc(entries, func(e filetree.Entry) bool { return strings.EqualFold(e.Name, "config.yml") }); i >= 0 {
		other = entries[i].Name
	}
	return filetree.Entry{}, other, nil
}

// read reads the file. An error is internal; user errors are findings.
func (l *ConfigFile) read(ctx context.Context, tree filetree.Tree, found foundConfig) error {
	l.Path = found.path
	switch {
	case found.problem != nil:
		l.State, l.Findings = fleet.ConfigInvalid, []fleet.ConfigFinding{*found.problem}
		return nil
	case found.path == "":
		l.State = fleet.ConfigAbsent
		return nil
	}
	data, err := tree.Read(ctx, found.entry, agentconfig.MaxSize)
	if errors.Is(err, filetree.ErrTooBig) {
		l.State = fleet.ConfigInvalid
		l.Findings = []fleet.ConfigFinding{{Message: fmt.Sprintf("the file has more than %d bytes", agentconfig.MaxSize)}}
		return nil
	}
	if err != nil {
		return err
	}
	parse := agentconfig.ParseKedge
	if found.gitLab {
		parse = agentconfig.ParseGitLab
	}
	l.File, err = parse(data)
	l.refused(err)
	return nil
}

// refused extracts user errors from an error; nil if there are none.
func (l *ConfigFile) refused(err error) {
	l.State = fleet.ConfigApplied
	var wrong *agentconfig.Error
	if errors.As(err, &wrong) {
		l.State, l.Findings, l.More = fleet.ConfigInvalid, wrong.Findings, wrong.More
	}
}

// concernConfigs wakes the workers of repositories whose configurations were set, or whose meaning may have
// changed.
func (s *Manager) concernConfigs(ctx context.Context, tx store.Tx, c store.Change, due *wakes) error {
	if !due.first(c, c.ID) {
		return nil
	}
	var configs []fleet.AgentConfig
	var err error
	if c.AgentID == "" {
		configs, err = tx.AgentConfigs().All(ctx, c.TenantID)
	} else {
		configs, err = tx.AgentConfigs().OfAgents(ctx, c.TenantID, []fleet.AgentID{c.AgentID})
	}
	if err != nil {
		return err
	}
	for _, config := range configs {
		repo, err := tx.Repositories().Get(ctx, c.TenantID, config.RepositoryID)
		if err != nil {
			return err
		}
		due.add(repo, wakeup{check: true})
	}
	return nil
}

// ConfigResult is the result of applying a file.
type ConfigResult int

// The results of applying the file of an agent.
const (
	ConfigDone      ConfigResult = iota // it is live, or recorded as invalid
	ConfigTryAgain                      // something other than the file prevents it
	ConfigOvertaken                     // the configuration was changed concurrently
)

// Refuse adds errors that depend on other data of the tenant.
func (l *ConfigFile) Refuse(findings []fleet.ConfigFinding) {
	if len(findings) == 0 {
		return
	}
	l.refused(agentconfig.Refuse(findings))
}
