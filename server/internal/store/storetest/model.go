package storetest

import (
	"context"
	"fmt"

	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var (
	syncWords = []fleet.SyncState{fleet.SyncPending, fleet.SyncSyncing, fleet.SyncSynced, fleet.SyncFailed,
		fleet.SyncDeleted, fleet.SyncRewound, fleet.SyncOutOfSync, fleet.SyncDetached}
	// Values that agents report; Kedge sets the others.
	saidSync = []fleet.SyncState{fleet.SyncPending, fleet.SyncSyncing, fleet.SyncSynced, fleet.SyncSynced, fleet.SyncFailed,
		fleet.SyncDeleted, fleet.SyncRewound, fleet.SyncOutOfSync, fleet.SyncDetached}
	saidHealth = []fleet.Health{fleet.HealthCurrent, fleet.HealthInProgress, fleet.HealthFailed,
		fleet.HealthTerminating, fleet.HealthNotFound, fleet.HealthUnknown}
	healthWords = []fleet.Health{fleet.HealthCurrent, fleet.HealthInProgress, fleet.HealthFailed,
		fleet.HealthTerminating, fleet.HealthNotFound, fleet.HealthUnknown, fleet.HealthStale}
)

// model is a small random tenant, with another one that has granted it an environment.
type model struct {
	tenant, owner fleet.TenantID
	name          string
	grant         fleet.Grant
	agents        []fleet.Agent
	presence      map[fleet.AgentID]fleet.Presence
	envs          []fleet.Environment // the last is the owner's
	repos         []fleet.Repository
	deployments   []Listed
}

func newModel(rt *rapid.T) *model {
	m := &model{tenant: fleet.NewTenantID(), owner: fleet.NewTenantID(), presence: map[fleet.AgentID]fleet.Presence{}}
	m.name = string(m.tenant)
	for i := range 4 {
		a := newAgent(m.tenant, fmt.Sprint("agent-", i))
		if i == 3 {
			a.TenantID = m.owner
		}
		m.agents = append(m.agents, a)
		m.presence[a.ID] = rapid.SampledFrom([]fleet.Presence{{}, {LastSeen: at(40)}, {Connected: true, LastSeen: at(40)}}).Draw(rt, "presence")
	}
	for i, tenant := range []fleet.TenantID{m.tenant, m.tenant, m.owner} {
		m.envs = append(m.envs, fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: fmt.Sprint("env-", i), CreatedAt: at(1)})
	}
	m.grant = newGrant(m.envs[2], m.tenant)
	for _, url := range []string{"https://git.example/Apps.git", "https://git.example/web-shop"} {
		m.repos = append(m.repos, fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: m.tenant, URL: url, CreatedAt: at(1)})
	}
	taken := map[string]bool{}
	for range rapid.IntRange(0, 9).Draw(rt, "deployments") {
		m.deployments = append(m.deployments, m.drawDeployment(rt, taken))
	}
	return m
}

var (
	// saidReasons are what agents report in the model, and reasonWords what is asked for.
	saidReasons = []fleet.Reason{"", fleet.ReasonSynced, fleet.ReasonApplying, fleet.ReasonForbidden, fleet.ReasonImagePullBackOff}
	reasonWords = []fleet.Reason{
		fleet.ReasonSynced, fleet.ReasonApplying, fleet.ReasonForbidden, fleet.ReasonImagePullBackOff, fleet.ReasonNotReported, fleet.ReasonObjectsFailed,
		fleet.ReasonDetached, fleet.ReasonLabelMissing, fleet.ReasonNewRevisionWaits, fleet.ReasonAgentDisconnected, fleet.ReasonAgentNeverConnected,
		fleet.ReasonRenderFailed, fleet.ReasonPathNotFound, fleet.ReasonDeleting, fleet.ReasonNoAgents, fleet.ReasonDrifted,
	}
)

var someDigests = []string{"", "sha256:a", "sha256:b"}

func (m *model) drawDeployment(rt *rapid.T, taken map[string]bool) Listed {
	word := rapid.SampledFrom([]string{"web", "shop", "a", "api", "x-1"})
	env := rapid.SampledFrom(m.envs).Draw(rt, "environment")
	repo := rapid.SampledFrom(m.repos).Draw(rt, "repository")
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: m.tenant, Name: word.Draw(rt, "name") + "-" + word.Draw(rt, "name"),
		EnvironmentTenant: env.TenantID, EnvironmentID: env.ID, RepositoryID: repo.ID, CreatedAt: at(1), Labels: map[string]string{},
		Source:      fleet.Source{RepoURL: repo.URL, Path: rapid.SampledFrom([]string{".", "deploy/Web_shop", "apps/100%", "ünder/shop"}).Draw(rt, "path")},
		Rendered:    fleet.Rendered{Commit: rapid.SampledFrom([]string{"", "c0ffee", "beef"}).Draw(rt, "commit"), Digest: rapid.SampledFrom(someDigests).Draw(rt, "rendered")},
		SourceError: rapid.SampledFrom([]string{"", "", "Bad YAML in web"}).Draw(rt, "error"),
	}
	if d.SourceError != "" {
		d.SourceReason = rapid.SampledFrom([]fleet.Reason{fleet.ReasonRenderFailed, fleet.ReasonPathNotFound}).Draw(rt, "source reason")
	}
	for _, key := range []string{"tier", "team"} {
		if value := rapid.SampledFrom([]string{"none", "", "web"}).Draw(rt, key); value != "none" {
			d.Labels[key] = value
		}
	}
	if taken[d.Name] {
		d.DeletedAt = at(2)
	}
	taken[d.Name] = true
	l := Listed{Deployment: d, Variants: map[string]string{"v": rapid.SampledFrom(someDigests).Draw(rt, "variant")}}
	for _, a := range m.agents {
		if rapid.Bool().Draw(rt, "target") {
			l.Targets = append(l.Targets, m.drawTarget(rt, d, a))
		}
	}
	return l
}

func (m *model) drawTarget(rt *rapid.T, d fleet.Deployment, a fleet.Agent) fleet.Target {
	version := func() fleet.Version {
		return fleet.Version{Epoch: rapid.Int64Range(1, 2).Draw(rt, "epoch"), Generation: rapid.Int64Range(1, 2).Draw(rt, "generation")}
	}
	x := fleet.Target{
		ID: fleet.NewTargetID(), TenantID: m.tenant, DeploymentID: d.ID, AgentTenant: a.TenantID, AgentID: a.ID, AgentName: a.Name,
		Variant: rapid.SampledFrom([]string{"", "", "v", "v", fleet.NoVariant}).Draw(rt, "variant of target"),
		Desired: fleet.Desired{
			Version: version(), Digest: rapid.SampledFrom(someDigests).Draw(rt, "desired"),
			Tombstone: rapid.IntRange(0, 5).Draw(rt, "tombstone") == 0, Detached: rapid.IntRange(0, 5).Draw(rt, "detached") == 0,
		},
	}
	if x.Variant == fleet.NoVariant {
		x.VariantError = "agent has no label"
	}
	if rapid.IntRange(0, 5).Draw(rt, "refused kind") == 0 {
		x.KindError = "Secret shop/b is refused"
	}
	if a.TenantID != m.tenant {
		x.GrantID = m.grant.ID
	}
	if rapid.IntRange(0, 5).Draw(rt, "left") == 0 {
		x.DetachedAt = at(3)
	}
	if rapid.IntRange(0, 3).Draw(rt, "reported") > 0 {
		x.Observed = fleet.Observed{
			Version: version(), Sync: rapid.SampledFrom(saidSync).Draw(rt, "sync"),
			Health: rapid.SampledFrom(saidHealth).Draw(rt, "health"), Reason: rapid.SampledFrom(saidReasons).Draw(rt, "reason"), AsOf: at(4),
		}
	}
	return x
}

func (m *model) drawFilter(rt *rapid.T) store.DeploymentFilter {
	var f store.DeploymentFilter
	chosen := func(what string) bool { return rapid.IntRange(0, 3).Draw(rt, "ask for "+what) == 0 }
	if chosen("environment") {
		f.Environment = rapid.SampledFrom(m.envs).Draw(rt, "environment").ID
	}
	if chosen("repository") {
		f.Repository = rapid.SampledFrom(m.repos).Draw(rt, "repository").ID
	}
	if chosen("agent") {
		f.Agent = rapid.SampledFrom(m.agents).Draw(rt, "agent").ID
	}
	if chosen("sync") {
		f.Sync = rapid.SampledFrom(syncWords).Draw(rt, "sync")
	}
	if chosen("health") {
		f.Health = rapid.SampledFrom(healthWords).Draw(rt, "health")
	}
	if chosen("reason") {
		f.Reason = rapid.SampledFrom(reasonWords).Draw(rt, "reason")
	}
	if chosen("labels") {
		f.Labels = rapid.SampledFrom([]map[string]string{{"tier": ""}, {"tier": "web"}, {"tier": "web", "team": "web"}, {"none": ""}}).Draw(rt, "labels")
	}
	if chosen("selector") {
		f.Selector = rapid.SampledFrom([]fleet.LabelSelector{
			{{Key: "tier", Operator: fleet.LabelIn, Values: []string{"", "db"}}},
			{{Key: "tier", Operator: fleet.LabelNotIn, Values: []string{"web"}}},
			{{Key: "tier", Operator: fleet.LabelExists}, {Key: "team", Operator: fleet.LabelDoesNotExist}},
			{{Key: "tier", Operator: fleet.LabelExists}, {Key: "team", Operator: fleet.LabelIn, Values: []string{"web"}}},
		}).Draw(rt, "selector")
	}
	if chosen("text") {
		f.Text = rapid.SampledFrom([]string{"web", "WEB-S", "b_s", "0%", "hop", "p", "-", "x-1", "c0f", "EEF", "bad y", "git.example", "apps", "ünd", "nowhere"}).Draw(rt, "text")
	}
	return f
}

func (m *model) fill(ctx context.Context, tx store.Tx) error {
	steps := []func() error{
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: m.tenant, Name: m.name, CreatedAt: at(0)})
		},
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: m.owner, Name: m.name + "-owner", CreatedAt: at(0)})
		},
	}
	for _, e := range m.envs {
		steps = append(steps, func() error { return tx.Environments().Create(ctx, e) })
	}
	steps = append(steps, func() error { return tx.Grants().Create(ctx, m.grant) })
	for _, r := range m.repos {
		steps = append(steps, func() error { return tx.Repositories().Create(ctx, r) })
	}
	for _, digest := range someDigests[1:] {
		steps = append(steps, func() error {
			return tx.Bundles().Put(ctx, fleet.Bundle{TenantID: m.tenant, Digest: digest, CreatedAt: at(1)})
		})
	}
	for _, a := range m.agents {
		steps = append(steps, func() error { return tx.Agents().Create(ctx, a) })
		if p := m.presence[a.ID]; p != (fleet.Presence{}) {
			c := newConnection(a, "0")
			if c.LastSeenAt = p.LastSeen; !p.Connected {
				c.DisconnectedAt = at(41)
			}
			steps = append(steps, func() error { return tx.Connections().Put(ctx, c) })
		}
	}
	for _, l := range m.deployments {
		steps = append(steps, func() error { return m.fillDeployment(ctx, tx, l) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fillDeployment stores the variant before some of the targets and after others.
func (m *model) fillDeployment(ctx context.Context, tx store.Tx, l Listed) error {
	if err := tx.Deployments().Create(ctx, l.Deployment); err != nil {
		return err
	}
	for i, x := range l.Targets {
		if i == 1 || len(l.Targets) == 1 {
			v := fleet.Variant{Name: "v", Rendered: fleet.Rendered{Digest: l.Variants["v"]}}
			if err := tx.Deployments().PutVariant(ctx, m.tenant, l.ID, v); err != nil {
				return err
			}
		}
		if err := tx.Targets().Create(ctx, x); err != nil {
			return err
		}
	}
	return nil
}
