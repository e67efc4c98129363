package cli_test

import (
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func agents() []apiv1.Agent {
	return []apiv1.Agent{
		{
			Name: "lost", Scope: "cluster", KindFilter: &apiv1.KindFilter{Include: []string{"ConfigMap", "Service"}, Exclude: []string{"*"}}, CreatedAt: born.Add(-76 * time.Hour), Labels: map[string]string{"region": "eu", "tier": "prod"}, Targets: 1, LastSeenAt: born, Connections: []apiv1.Connection{
				{Replica: "pod-x", Version: "v8", KubeVersion: "v1.36.3", ClusterUID: "0123456789", LastSeenAt: born},
			},
		},
		{Name: "new", Scope: "cluster", CreatedAt: now},
		{
			Name: "prod", Scope: "namespaced", CreatedAt: born, Namespaces: []string{"dude", "team-a"}, Connected: true, LastSeenAt: now, Targets: 2,
			Warnings: []apiv1.Cause{{Reason: "VersionSkew", Message: "replica pod-b runs version v8, the server runs v9"}},
			Connections: []apiv1.Connection{
				{Replica: "pod-a", Version: "v9", KubeVersion: "v1.36.3", ConnectedAt: born, LastSeenAt: now, Connected: true},
				{Replica: "pod-b", Version: "v8", KubeVersion: "v1.36.3", ConnectedAt: born, LastSeenAt: now, Connected: true},
			},
		},
	}
}

func target(agent, sync, health string) apiv1.Target {
	return apiv1.Target{
		ID: "tgt-" + agent, Agent: agent, Sync: sync, Health: health, Reason: reasonOf(sync), Conditions: conditions(sync, health),
		AsOf: born, Generation: 4, ObservedGeneration: 4, Commit: "c0ffee0123456789",
	}
}

func reasonOf(sync string) string { return string(fleet.SyncState(sync).DefaultReason()) }

func conditions(sync, health string) []apiv1.Condition {
	status := map[bool]string{true: "True", false: "False"}
	return []apiv1.Condition{
		{Type: "Synced", Status: status[sync == "Synced"], Reason: reasonOf(sync), LastTransitionTime: born, ObservedGeneration: 4},
		{Type: "Healthy", Status: status[health == "Current"], Reason: "Available", LastTransitionTime: born, ObservedGeneration: 4},
	}
}

func deployment(name, sync, health string, targets ...apiv1.Target) apiv1.Deployment {
	counts := apiv1.TargetCounts{Targets: len(targets), Sync: map[string]int{}, Health: map[string]int{}}
	for _, t := range targets {
		counts.Sync[t.Sync]++
		counts.Health[t.Health]++
		if t.Sync == "Synced" && t.Health == "Current" {
			counts.Ready++
		}
		if !t.DetachedAt.IsZero() {
			counts.Detached++
		}
		for _, o := range t.Objects {
			if o.Sync == "Held" {
				counts.HeldPrunes++
			}
		}
		if !t.StaleSince.IsZero() {
			counts.Stale, counts.StaleSince = counts.Stale+1, t.StaleSince
		}
	}
	return apiv1.Deployment{
		ID: "dep-" + name, Name: name, Source: apiv1.Source{RepoURL: "https://git.example.com/" + name, Path: "deploy"},
		Environment: "default", Namespace: name, Policy: apiv1.Policy{Prune: true}, Commit: "c0ffee0123456789", RunningCommit: "c0ffee0123456789", CreatedAt: born,
		Sync: sync, Health: health, Reason: reasonOf(sync), Conditions: conditions(sync, health), Counts: counts, Targets: targets,
	}
}

func staleTarget() apiv1.Target {
	t := target("lost", "Synced", "Stale")
	t.StaleSince = born.Add(5 * time.Minute)
	t.Objects = []apiv1.Object{{Kind: "ConfigMap", Namespace: "web", Name: "a", Sync: "Synced", Health: "InProgress"}}
	return t
}

func deployments() []apiv1.Deployment {
	bad := target("prod", "Failed", "InProgress")
	bad.Message = "1 of 2 objects failed"
	bad.Objects = []apiv1.Object{
		{Group: "apps", Kind: "Deployment", Namespace: "dude", Name: "nginx", Sync: "Synced", Health: "Current"},
		{Group: "apps", Kind: "Deployment", Namespace: "naww", Name: "nginx", Sync: "Failed", Health: "NotFound",
			Message: `deployments.apps "nginx" is forbidden: cannot create resource "deployments" in the namespace "naww"`},
	}
	bad.Objects = append(bad.Objects, apiv1.Object{Kind: "ConfigMap", Namespace: "dude", Name: "old", Sync: "Held", Health: "Current", Message: "12 of 20 objects would be deleted"})
	failing := deployment("failing", "Failed", "InProgress", bad)
	failing.Message = "prod: 1 of 2 objects failed"
	broken := deployment("broken", "Synced", "Current", target("prod", "Synced", "Current"))
	broken.SourceError, broken.Message = "deploy/a.yaml: line 3 is not YAML", "deploy/a.yaml: line 3 is not YAML"
	broken.Policy = apiv1.Policy{
		Prune: true, Force: true, Drift: "report", Ignore: []string{"*:/spec/replicas"}, ServiceAccount: "web/deployer", Propagation: "Background",
		ReadyTimeout: "5m", PruneLimit: apiv1.PruneLimit{Objects: 3, Percent: 7},
	}
	broken.Source.Detected, broken.Volatile = "helm", true
	waiting := target("prod", "Pending", "Unknown")
	waiting.Generation, waiting.ObservedGeneration, waiting.Commit = 0, 0, ""
	unreadable := deployment("unreadable", "Failed", "Unknown", waiting)
	unreadable.Commit, unreadable.RunningCommit, unreadable.Message = "", "", "repository https://git.example.com/unreadable: authentication failed"
	away := deployment("away", "Synced", "Stale", target("prod", "Synced", "Current"), staleTarget())
	away.Source.Helm = &apiv1.Helm{ReleaseName: "r", ValuesFiles: []string{"a.yaml"}, Values: map[string]any{"a": map[string]any{"b": "1", "c": 2}}}
	return []apiv1.Deployment{
		deployment("web", "Synced", "Current", target("prod", "Synced", "Current")),
		failing, broken, unreadable,
		away,
		nowhere(),
		edited(),
	}
}

// edited has a spec that waits for its source.
func edited() apiv1.Deployment {
	d := deployment("edited", "Failed", "Current", target("prod", "Synced", "Current"))
	d.Pending = &apiv1.PendingSpec{
		SpecRevision: 7, Reason: "SourceUnreadable", Message: "spec revision 7 waits for its source: connection refused", By: "anna",
		InForce: apiv1.Spec{Source: d.Source, Environment: "default", Namespace: "web", Policy: apiv1.Policy{Prune: true, Drift: "correct", Propagation: "Background"}},
	}
	d.SpecRevision, d.Source.Path, d.Policy.Drift = 7, "other", "report"
	d.Message = d.Pending.Message + " (commit c0ffee continues to run)"
	return d
}

func nowhere() apiv1.Deployment {
	d := deployment("nowhere", "Pending", "Unknown")
	d.Policy.PruneLimit, d.RunningCommit = apiv1.PruneLimit{Objects: 3, Percent: 7}, ""
	return d
}

func diagnosis() apiv1.Diagnosis {
	return apiv1.Diagnosis{Agents: 3, Repositories: 3, Deployments: 6, Findings: []apiv1.Finding{
		{Part: "fleet", Severity: "notice", Reason: "FleetFrozen", Message: "the whole fleet is suspended by ann since 2026-11-15T12:00:00Z: the freeze of december: nothing new is sent", Next: "kedge fleet unfreeze, as a fleet admin"},
		{Part: "agents", Severity: "problem", Reason: "AgentNeverConnected", Subject: "new", Message: "never connected", Next: "kubectl -n kedge-agent-new logs deployment/kedge-agent, in its cluster"},
		{Part: "agents", Severity: "problem", Reason: "ConfigInvalid", Subject: "prod", Message: "its configuration is wrong", Next: "kedge agent config get prod lists every error; fix the file and push"},
		{Part: "environments", Severity: "problem", Reason: "EndpointUnauthorized", Subject: "customer", Message: "is not ready (EndpointUnauthorized): 401", Next: "Replace the token or the client certificate in the kubeconfig."},
		{Part: "deployments", Severity: "problem", Reason: "PruneHeld", Subject: "web", Message: "12 objects left its source\nand are kept", Next: "kedge deploy prunes web"},
	}}
}
