package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) describeDeployment(ctx context.Context, c *client.Client, d apiv1.Deployment, w *describer) error {
	w.field(0, "Name", d.Name)
	w.field(0, "Tenant", c.Tenant())
	w.labels("Labels", d.Labels)
	w.field(0, "Created", output.Timestamp(d.CreatedAt))
	if !d.DeletedAt.IsZero() {
		w.field(0, "Deleting since", output.Timestamp(d.DeletedAt))
	}
	w.section("Source")
	w.field(1, "Repository", d.Source.RepoURL)
	w.field(1, "Path", pathText(d.Source))
	w.field(1, "Revision", revisionText(d.Source))
	w.optional(1, "Kind", kindText(d))
	w.section("Destination")
	w.field(1, "Environment", d.Environment)
	w.field(1, "Namespace", d.Namespace)
	w.field(0, "Policy", policyText(d.Policy))
	if by := d.DeclaredBy; by != nil {
		w.field(0, "Declared by", by.File+" of "+by.RepoURL)
	}
	if by := d.ManagedBy; by != nil {
		w.field(0, "Managed by", by.String())
	}
	w.field(0, "Commit", d.Commit)
	if d.RunningCommit != d.Commit {
		w.field(0, "Running commit", deploymentCommit(d))
	}
	w.field(0, "Ready targets", readyText(d))
	w.optional(0, "Held", d.Held.Text())
	if p := d.Pending; p != nil {
		w.field(0, "Spec in force", inForceText(p.InForce))
	}
	a.conditions(w, d.Conditions)
	a.describeTargets(d, w)
	return a.describeEvents(ctx, c, w, url.Values{"deployment": {d.Name}})
}

// conditions prints the conditions of a resource as kubectl describe does.
func (a *app) conditions(w *describer, conditions []apiv1.Condition) {
	rows := make([][]string, len(conditions))
	for i, c := range conditions {
		rows[i] = []string{c.Type, c.Status, c.Reason, output.Age(c.LastTransitionTime, a.Now()), orDash(sentence(c.Message))}
	}
	w.table("Conditions", []string{"Type", "Status", "Reason", "Age", "Message"}, rows)
}

func (a *app) describeTargets(d apiv1.Deployment, w *describer) {
	var targets, objects [][]string
	for _, t := range d.Targets {
		targets = append(targets, []string{
			t.Agent, targetSync(t), targetHealth(t, a.Now()), shortCommit(t.Commit), fmt.Sprintf("%d/%d", t.ObservedGeneration, t.Generation),
			output.Age(t.AsOf, a.Now()), orDash(t.Reason), orDash(sentence(t.Message)),
		})
		for _, o := range t.Objects {
			row := objectRow(t, o)
			row[len(row)-1] = orDash(row[len(row)-1])
			objects = append(objects, row)
		}
	}
	w.table("Targets", []string{"Agent", "Sync", "Health", "Commit", "Generation", "Reported", "Reason", "Message"}, targets)
	if len(objects) > 0 {
		w.table("Objects", []string{"Agent", "Object", "Sync", "Health", "Reason", "Message"}, objects)
	}
}

func (a *app) describeAgent(ctx context.Context, c *client.Client, v apiv1.Agent, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "Tenant", c.Tenant())
	w.labels("Labels", v.Labels)
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "Scope", v.Scope)
	w.optional(0, "Namespaces", strings.Join(v.Namespaces, ","))
	w.optional(0, "Argo CD namespace", v.EngineNamespace)
	if v.DeliverGitCredentials {
		w.field(0, "Git credentials", "delivered to Argo CD")
	}
	if v.EngineInstance {
		state := "serves push environments"
		if v.Draining {
			state = "drained: its push environments move to other engine instances"
		}
		w.field(0, "Engine instance", state)
	}
	if v.Tunnel {
		w.field(0, "Tunnel", "open for callers with an access rule")
	}
	if f := v.KindFilter; f != nil {
		w.optional(0, "Included kinds", strings.Join(f.Include, ","))
		w.optional(0, "Excluded kinds", strings.Join(f.Exclude, ","))
	}
	if v.KindFilterFromConfig {
		w.field(0, "Kind filter", "declared in the configuration file of the agent")
	}
	w.field(0, "Targets", strconv.Itoa(v.Targets))
	a.conditions(w, v.Conditions)
	var replicas [][]string
	for _, r := range v.Connections {
		replicas = append(replicas, []string{
			r.Replica, connectionState(r, v.Connected, a.Now()), orDash(r.Role), orDash(r.Version), orDash(r.KubeVersion), orDash(r.ClusterUID), orDash(r.RemoteAddr),
		})
	}
	w.table("Replicas", []string{"Name", "State", "Role", "Version", "Kubernetes", "Cluster", "Address"}, replicas)
	var warnings [][]string
	for _, c := range v.Warnings {
		warnings = append(warnings, []string{c.Reason, sentence(c.Message)})
	}
	if len(warnings) > 0 {
		w.table("Warnings", []string{"Reason", "Message"}, warnings)
	}
	return a.describeEvents(ctx, c, w, url.Values{"agent": {v.Name}})
}

func (a *app) describeEnvironment(ctx context.Context, c *client.Client, v apiv1.Environment, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "Tenant", c.Tenant())
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "State", suspended(v.Suspension, "Active", a.Now()))
	if v.Push != nil {
		w.field(0, "API server", v.Push.APIURL)
		w.optional(0, "Namespaces", strings.Join(v.Push.Namespaces, ", "))
		w.field(0, "Engine instance", orDash(v.Push.EngineInstance))
		a.conditions(w, []apiv1.Condition{v.Push.Ready})
	} else {
		w.field(0, "Agents by name", strings.Join(v.Agents, ", "))
		w.labels("Agents by label", v.MatchLabels)
		w.field(0, "Selected agents", strings.Join(v.Selected, ", "))
	}
	found, err := client.List[apiv1.Deployment](ctx, c, c.In("deployments"), url.Values{"environment": {v.Name}, "limit": {"500"}}, 0)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, d := range found {
		if d.Environment == v.Name {
			rows = append(rows, []string{d.Name, deploymentSync(d), deploymentHealth(d, a.Now()), readyText(d)})
		}
	}
	w.table("Deployments", []string{"Name", "Sync", "Health", "Ready"}, rows)
	return nil
}

func (a *app) describeRepository(_ context.Context, c *client.Client, v apiv1.Repository, w *describer) error {
	w.field(0, "URL", v.URL)
	w.field(0, "ID", v.ID)
	w.field(0, "Tenant", c.Tenant())
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "Credential", v.Credential)
	w.field(0, "Submodules", strconv.FormatBool(v.Submodules))
	w.field(0, "Signatures required", strconv.FormatBool(v.Signers != ""))
	w.field(0, "Deployments", strconv.Itoa(v.Deployments))
	w.field(0, "Webhook", v.WebhookURL)
	a.conditions(w, v.Conditions)
	return nil
}

func (a *app) describeCredential(_ context.Context, c *client.Client, v apiv1.Credential, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "Tenant", c.Tenant())
	w.field(0, "Kind", v.Kind)
	w.field(0, "Username", v.Username)
	w.field(0, "Known hosts", count(len(strings.FieldsFunc(v.KnownHosts, func(r rune) bool { return r == '\n' })), "line"))
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "Changed", output.Timestamp(v.UpdatedAt))
	return nil
}

func (a *app) describeTenant(_ context.Context, _ *client.Client, v apiv1.Tenant, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "ID", v.ID)
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "State", suspended(v.Suspension, "Active", a.Now()))
	w.field(0, "Quota", quotaText(v.Quota))
	return nil
}

func (a *app) describeOperation(_ context.Context, _ *client.Client, v apiv1.Operation, w *describer) error {
	w.field(0, "ID", v.ID)
	w.field(0, "Action", v.Action)
	w.field(0, "Resource", v.Kind+"/"+v.Name)
	w.field(0, "State", v.State)
	w.field(0, "By", v.By)
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "Message", sentence(v.Message))
	return nil
}
