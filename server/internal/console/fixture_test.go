package console

import (
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

const (
	webCommit = "4f2a91c07be35d18aa60c7e2f9d4b1835c6e0a77"
	oldCommit = "9b0c3d55e1f84a2c7d6e5f4a3b2c1d0e9f8a7b6c"
)

// smallFleet has one of everything that a page shows differently.
func smallFleet() *standIn {
	s := newStandIn()
	now := time.Now().UTC().Truncate(time.Second)
	s.agents = fleetAgents(now)
	s.deployments = fleetDeployments(now)
	s.events = fleetEvents(now)
	return s
}

func fleetAgents(now time.Time) []apiv1.Agent {
	up := func(replica, version string, age time.Duration) apiv1.Connection {
		return apiv1.Connection{Replica: replica, Version: version, KubeVersion: "v1.36.3", ClusterUID: "0c7f2d", RemoteAddr: "10.1.2.3:41822", ConnectedAt: now.Add(-age), LastSeenAt: now, Connected: true}
	}
	gone := up("kedge-agent-7f9c-xk2lp", "v0.1.0", 26*time.Hour)
	gone.Connected, gone.LastSeenAt, gone.KubeVersion = false, now.Add(-95*time.Minute), "v1.35.8"
	return []apiv1.Agent{
		{ID: "agt-1", Name: "berlin-1", Scope: "cluster", Labels: map[string]string{"region": "eu", "tier": "prod"}, Connected: true, LastSeenAt: now, CreatedAt: now.Add(-240 * time.Hour), Targets: 6, Connections: []apiv1.Connection{up("kedge-agent-5d8b-q7r4t", "v0.1.0", 52*time.Hour), up("kedge-agent-5d8b-zz91m", "v0.1.0", 3*time.Hour)}},
		{ID: "agt-2", Name: "edge-lyon", Scope: "namespaced", Namespaces: []string{"shop", "till"}, CreatedAt: now.Add(-48 * time.Hour), LastSeenAt: gone.LastSeenAt, Targets: 2, Connections: []apiv1.Connection{gone}},
		{ID: "agt-3", Name: "ohio-1", Scope: "cluster", Labels: map[string]string{"region": "us"}, Connected: true, LastSeenAt: now, CreatedAt: now.Add(-200 * time.Hour), Targets: 4, Warnings: []apiv1.Cause{{Reason: "VersionSkew", Message: "replica kedge-agent-66c9-b2 runs v0.0.9, the server v0.1.0"}}, Connections: []apiv1.Connection{up("kedge-agent-66c9-b2", "v0.0.9", 7*time.Minute)}},
		{ID: "agt-4", Name: "tokyo-lab", Scope: "cluster", CreatedAt: now.Add(-4 * time.Minute)},
	}
}

func fleetDeployments(now time.Time) []apiv1.Deployment {
	web := deployment(now, "web", "prod", "Synced", "Current", "")
	web.Source.Revision = "main"
	web.Targets = []apiv1.Target{
		target(now, "berlin-1", "Synced", "Current", ""),
		target(now, "ohio-1", "Synced", "Current", ""),
		stale(target(now, "edge-lyon", "Synced", "Stale", ""), now.Add(-95*time.Minute)),
	}
	web.Health, web.Message = "Stale", "edge-lyon has not been connected for 95 minutes"
	billing := deployment(now, "billing", "prod", "Failed", "Failed", "Deployment.apps billing/api: forbidden: no Role allows kedge to patch deployments in billing")
	billing.Targets[0].Objects = append(billing.Targets[0].Objects,
		apiv1.Object{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "billing", Name: "api", Sync: "Failed", Health: "NotFound", Message: "deployments.apps \"api\" is forbidden: User \"system:serviceaccount:kedge-agent:kedge-agent\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"billing\""})
	broken := deployment(now, "checkout", "prod", "Synced", "Current", "")
	broken.SourceError = "rendering \"checkout/deploy.yaml\": line 14: did not find expected key <b>here</b>"
	rollout := deployment(now, "search", "prod", "Synced", "InProgress", "Deployment.apps search/indexer: 1 of 3 replicas are ready")
	return []apiv1.Deployment{
		billing, deployment(now, "cert-manager", "default", "Synced", "Current", ""), broken,
		pending(now), rollout, web,
	}
}

func pending(now time.Time) apiv1.Deployment {
	d := deployment(now, "reports", "lab", "Pending", "Unknown", "")
	d.Commit, d.Targets = "", nil
	return d
}

func deployment(now time.Time, name, environment, sync, health, message string) apiv1.Deployment {
	return apiv1.Deployment{
		ID: "dep-" + name, Name: name, Environment: environment, Namespace: name,
		Source: apiv1.Source{RepoURL: "https://git.example.com/team/" + name + ".git", Path: "deploy"},
		Policy: apiv1.Policy{Prune: true}, Commit: webCommit, Digest: "sha256:77", RenderedAt: now.Add(-3 * time.Minute),
		CreatedAt: now.Add(-100 * time.Hour), Sync: sync, Health: health, Message: message,
		Targets: []apiv1.Target{target(now, "berlin-1", sync, health, message)},
	}
}

func target(now time.Time, agent, sync, health, message string) apiv1.Target {
	object := func(group, kind, name string) apiv1.Object {
		return apiv1.Object{Group: group, Version: "v1", Kind: kind, Namespace: "web", Name: name, Sync: "Synced", Health: "Current"}
	}
	return apiv1.Target{
		ID: "tgt-" + agent, Agent: agent, Sync: sync, Health: health, Message: message, AsOf: now.Add(-20 * time.Second),
		Generation: 12, ObservedGeneration: 12, Commit: webCommit,
		Objects: []apiv1.Object{object("apps", "Deployment", "frontend"), object("", "Service", "frontend"), object("", "ConfigMap", "settings")},
	}
}

func stale(t apiv1.Target, since time.Time) apiv1.Target {
	t.StaleSince, t.AsOf, t.Commit, t.ObservedGeneration = since, since, oldCommit, 11
	return t
}

func fleetEvents(now time.Time) []apiv1.Event {
	events := []apiv1.Event{
		{Type: "Normal", Reason: "AgentConnected", Agent: "berlin-1", Message: "replica kedge-agent-5d8b-zz91m connected"},
		{Type: "Warning", Reason: "AgentLost", Agent: "edge-lyon", Message: "the lease of its last replica expired"},
		{Type: "Normal", Reason: "Synced", Agent: "ohio-1", Deployment: "web", Message: "commit 4f2a91c0 is applied"},
		{Type: "Normal", Reason: "DriftHealed", Agent: "ohio-1", Deployment: "web", Object: "Deployment.apps web/frontend", Message: "spec.replicas was changed by kubectl-scale and set back"},
		{Type: "Warning", Reason: "ApplyFailed", Agent: "berlin-1", Deployment: "billing", Object: "Deployment.apps billing/api", Message: "forbidden: no Role allows kedge to patch deployments in billing"},
		{Type: "Warning", Reason: "RenderFailed", Deployment: "checkout", Message: "line 14: did not find expected key"},
	}
	for i := range events {
		events[i].Seq, events[i].At = int64(i+1), now.Add(time.Duration(i-len(events))*17*time.Minute)
	}
	return events
}

// largeFleet has n deployments that are all well.
func largeFleet(n int) *standIn {
	s := smallFleet()
	s.deployments = nil
	for i := range n {
		s.deployments = append(s.deployments, deployment(time.Now(), fmt.Sprintf("app-%05d", i), "prod", "Synced", "Current", ""))
	}
	return s
}
